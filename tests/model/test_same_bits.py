"""deterministic=True: equal bits for every batch, fixed or dynamic, and every number of cores."""

from __future__ import annotations

import numpy as np
import pytest
from same_bits import Layer, N, attention, conv, dense, differing, on_cores, one, product, random, recurrent

import tvm_tiling as tt
from tvm_tiling.errors import WorkloadError

RNG = np.random.default_rng(3)
# Their results differ without the option.
LAYERS = {
    "dense": dense(1000, 10, RNG),
    "one column": dense(300, 1, RNG),
    "norm of all": one("ReduceL2", 30, 200, axes=[1, 2]),
    "winograd": conv(128, 128, 3, 14, RNG),
}
SLOW = {
    "lstm": recurrent("LSTM", 200, RNG),
    "softmax": one("Softmax", 12, 37, axis=-1),
    "layer norm": one("LayerNormalization", 50, weights={"g": random(RNG, 50), "c": random(RNG, 50)}),
    "split": dense(4096, 1000, RNG),
    "long": dense(9001, 30, RNG),
    "rgb": conv(3, 64, 7, 56, RNG, strides=[2, 2]),
    "few channels": conv(16, 8, 3, 40, RNG),
    "pointwise": conv(512, 24, 1, 14, RNG),
    "late": conv(512, 512, 3, 7, RNG),
    "depthwise": conv(96, 96, 3, 28, RNG, group=96),
    "groups": conv(64, 64, 3, 28, RNG, group=4),
    "gru": recurrent("GRU", 96, RNG),
    "rnn": recurrent("RNN", 96, RNG),
    "heads": attention(12, 64, 64, 64),
    "one row": attention(8, 1, 77, 64),
    "many rows": attention(4, 197, 197, 64),
    "product": product(33, 65, 49),
    "rows by a matrix": product(1, 300, 64),
    "rows by a column": product(70, 300, 1),
    "mean of images": one("GlobalAveragePool", 33, 14, 14),
    "windows": one("AveragePool", 32, 28, 28, kernel_shape=[3, 3], pads=[1] * 4),
    "norm": one("ReduceL2", 30, 200, axes=[1]),
    "mean of all": one("ReduceMean", 30, 200, axes=[1, 2], keepdims=0),
    "channels": one("Softmax", 21, 30, 30, axis=1),
    **{name: one(name, *size) for name in ("Exp", "Tanh", "Sigmoid", "Erf", "Softplus") for size in [(50001,)]},
}


@pytest.mark.parametrize("name", LAYERS)
def test_bits_are_the_same_for_every_batch_and_number_of_cores(name):
    assert not differing(LAYERS[name], (1, 3), (1, 4), deterministic=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", {**LAYERS, **SLOW})
def test_bits_are_the_same_for_more_batches(name):
    assert not differing({**LAYERS, **SLOW}[name], (1, 3, 8), (1, 2, 4), deterministic=True)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["dense", "one column", "winograd", "pointwise", "depthwise", "lstm"])
def test_bits_are_the_same_with_operands_of_16_bits(name, precision):
    layer = {**LAYERS, **SLOW}[name]
    assert not differing(layer, (1, 8), (1, 4), deterministic=True, precision=precision)


@pytest.mark.slow
def test_bits_are_the_same_with_weights_in_blocks():
    assert not differing(
        dense(1024, 64, RNG), (1, 40), (1, 4), deterministic=True, weights="int4", activations="float32"
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_bits_of_random_layers(seed):
    rng = np.random.default_rng(seed)
    size, ci, co, k = (int(rng.integers(low, high)) for low, high in ((3, 40), (1, 200), (1, 200), (1, 8)))
    made = conv(ci, co, k | 1, max(size, k), rng, strides=[int(rng.integers(1, 3))] * 2)
    for layer in (
        made,
        dense(ci * co % 7000 + 1, size * k, rng),
        recurrent("GRU", ci, rng),
        attention(k, size, co, ci),
    ):
        assert not differing(layer, (1, 5), (1, 3), deterministic=True)


def test_elements_of_a_vector_and_behind_the_last_whole_one_have_the_same_bits():
    """The same numbers at each place of vectors, and in the rest that does not fill one."""
    values = np.linspace(-9, 9, 37, dtype="float32")
    for name in ("Exp", "Tanh", "Erf"):
        executable = tt.compile(one(name, 37).model(1), cache=False, deterministic=True)
        for shift in (1, 20, 36):
            np.testing.assert_array_equal(
                executable.run(np.roll(values, shift)[None]), np.roll(executable.run(values[None]), shift, 1)
            )


def test_the_option_is_part_of_decisions_reports_files_and_cache_keys(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    content = dense(20000, 30, RNG).model(1).SerializeToString()
    plain = tt.compile(content, target=on_cores(2))
    kept = tt.compile(content, target=on_cores(2), deterministic=True)
    assert not kept.from_cache and tt.compile(content, target=on_cores(2), deterministic=True).from_cache
    assert kept.deterministic and not plain.deterministic and "deterministic" in repr(kept)
    assert kept.report().to_dict()["deterministic"] and "deterministic" not in plain.report().to_dict()
    assert "deterministic: equal results" in str(kept.report())
    kept.save(tmp_path / "kept.tar")
    plain.save(tmp_path / "plain.tar")
    assert tt.load(tmp_path / "kept.tar").deterministic and not tt.load(tmp_path / "plain.tar").deterministic
    assert kept.operators[0].decision["threads_k"] == 1 < plain.operators[0].decision["threads_k"]


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"precision": "auto", "calibration": [np.zeros((1, 10), "float32")]}, "precision = 'auto', which measures"),
        ({"database": "shapes.db"}, "with a database, whose configurations differ"),
        ({"target": "vta"}, "not supported on vta; expected a CPU"),
    ],
)
def test_what_cannot_be_kept_is_refused(options, part):
    with pytest.raises(WorkloadError, match=part):
        tt.compile(dense(10, 10, RNG).model(1), deterministic=True, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "encoder"])
def test_bits_of_networks(name):
    layer = _residual() if name == "resnet18" else _encoder()
    assert not differing(layer, (1, 3), (1, 2, 4), deterministic=True)


def _residual() -> Layer:
    """Stages of residual blocks of convolutions, as in ResNet-18, of a few channels less."""
    rng, nodes, weights, last, channels = np.random.default_rng(5), [], {}, "x", 3
    helper = pytest.importorskip("onnx").helper

    def add(operator: str, inputs: list[str], **attributes: object) -> str:
        nodes.append(helper.make_node(operator, inputs, [f"t{len(nodes)}"], **attributes))
        return f"t{len(nodes) - 1}"

    def layer(x: str, ci: int, co: int, k: int, stride: int = 1) -> str:
        weights[f"w{len(nodes)}"] = random(rng, co, ci, k, k, scale=(2 / (ci * k * k)) ** 0.5)
        return add("Conv", [x, f"w{len(nodes)}"], kernel_shape=[k, k], pads=[k // 2] * 4, strides=[stride] * 2)

    for stage, width in enumerate((64, 128, 256)):
        stride = 1 if stage == 0 else 2
        begun = add("Relu", [layer(last, channels, width, 3, stride)])
        inner = layer(begun, width, width, 3)
        shortcut = layer(last, channels, width, 1, stride)
        last, channels = add("Relu", [add("Add", [inner, shortcut])]), width
    flat = add("Flatten", [add("GlobalAveragePool", [last])])
    weights["classes"] = random(rng, channels, 100)
    nodes.append(helper.make_node("MatMul", [flat, "classes"], ["y"]))
    return Layer((N, 3, 28, 28), nodes, weights)


def _encoder() -> Layer:
    """A layer of a transformer: attention of 4 heads over 20 tokens, residuals, layer norms and a feed-forward part."""
    rng, helper = np.random.default_rng(6), pytest.importorskip("onnx").helper
    width, heads, tokens = 128, 4, 20
    weights = {name: random(rng, width, width) for name in ("wq", "wk", "wv", "wo")}
    weights |= {"up": random(rng, width, 4 * width), "down": random(rng, 4 * width, width)}
    weights |= {"g": np.ones(width, "float32"), "c": np.zeros(width, "float32"), "f": np.float32(32**-0.5)[None]}
    weights |= {"cut": np.array([0, tokens, heads, -1]), "whole": np.array([0, tokens, width])}
    node, nodes = helper.make_node, []
    for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [node("MatMul", ["x", f"w{name}"], [f"{name}1"]), node("Reshape", [f"{name}1", "cut"], [f"{name}2"])]
        nodes.append(node("Transpose", [f"{name}2"], [name], perm=order))
    nodes += [
        node("MatMul", ["q", "k"], ["s1"]),
        node("Mul", ["s1", "f"], ["s2"]),
        node("Softmax", ["s2"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["a1"]),
        node("Transpose", ["a1"], ["a2"], perm=[0, 2, 1, 3]),
        node("Reshape", ["a2", "whole"], ["a3"]),
        node("MatMul", ["a3", "wo"], ["a4"]),
        node("Add", ["x", "a4"], ["r1"]),
        node("LayerNormalization", ["r1", "g", "c"], ["n1"]),
        node("MatMul", ["n1", "up"], ["u1"]),
        node("Relu", ["u1"], ["u2"]),
        node("MatMul", ["u2", "down"], ["d"]),
        node("Add", ["n1", "d"], ["r2"]),
        node("LayerNormalization", ["r2", "g", "c"], ["y"]),
    ]
    return Layer((N, tokens, width), nodes, weights)
