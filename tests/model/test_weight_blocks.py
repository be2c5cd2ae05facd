"""Block-quantised weights of float32 models: errors, kernels, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import tvm_tiling as tt
from tvm_tiling.decide.gemm.blocked import BlockedProduct
from tvm_tiling.model.precision.blocks import quantised
from tvm_tiling.operand_types import Encoding

onnx = pytest.importorskip("onnx")


@pytest.fixture(scope="module")
def model():
    """An embedding, a matrix multiplication with a bias and one by transposed weights."""
    rng = np.random.default_rng(0)
    sizes = {"table": (90, 64), "w": (64, 96), "bias": (96,), "v": (70, 96)}
    constants = {name: rng.standard_normal(size, np.float32) for name, size in sizes.items()}
    helper = onnx.helper
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["x"], name="embedding"),
        helper.make_node("MatMul", ["x", "w"], ["y"], name="first"),
        helper.make_node("Add", ["y", "bias"], ["z"]),
        helper.make_node("Gemm", ["z", "v"], ["out"], transB=1, name="second"),
    ]
    graph = helper.make_graph(
        nodes,
        "words",
        [helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["length"])],
        [helper.make_tensor_value_info("out", onnx.TensorProto.FLOAT, ["length", 70])],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), constants


def rounded(weights, bits, block):
    """Return weights [n, k] quantised in blocks and dequantised."""
    n, k = weights.shape
    product = BlockedProduct(rows=1, n=n, k=k, encoding=Encoding(format=f"int{bits}", block=block))
    padded = np.zeros((n, product.blocks * block), np.float32)
    padded[:, :k] = weights
    values, scales, _ = quantised(padded.reshape(n, product.blocks, block), product)
    real = (values.astype(np.float32) - product.centre) * scales[..., None]
    return real.reshape(n, -1)[:, :k]


@pytest.mark.parametrize(("weights", "block"), [("int8", 32), ("int4", 16), ("int4", 64)])
def test_a_model_computes_with_the_weights_that_it_says(model, weights, block):
    proto, constants = model
    executable = tt.compile(proto, weights=weights, block=block, cache=False)
    ids = np.array([3, 89, 0, 3, 41])
    bits = int(weights[3:])
    table, w, v = (rounded(value, bits, block) for value in (constants["table"], constants["w"].T, constants["v"]))
    wanted = (table[ids] @ w.T + constants["bias"]) @ v.T
    np.testing.assert_allclose(executable.run(ids), wanted, atol=1e-4 * np.abs(wanted).max())
    layers = {layer.node: layer.error for layer in executable.precision.layers}
    assert set(layers) == {"embedding", "first", "second"}
    own = np.linalg.norm(w - constants["w"].T) / np.linalg.norm(constants["w"])
    assert layers["first"] == pytest.approx(own, rel=1e-3)
    assert f"weights: {weights} in blocks of {block}" in str(executable.report())


def test_the_record_is_kept_in_files_and_in_the_cache(model, tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_TILING_CACHE", str(tmp_path / "cache"))
    first = tt.compile(model[0], weights="int8")
    again = tt.compile(model[0], weights="int8")
    assert again.from_cache
    assert not tt.compile(model[0], weights="int4").from_cache
    again.save(tmp_path / "words.tar")
    assert tt.load(tmp_path / "words.tar").precision == first.precision


def test_a_searched_scale_is_no_worse_than_the_largest_weights():
    rng = np.random.default_rng(1)
    product = BlockedProduct(rows=1, n=50, k=64, encoding=Encoding(format="int4", block=32))
    rows = rng.standard_t(3, (50, 2, 32)).astype(np.float32)
    _, _, searched = quantised(rows, product)
    largest = np.take_along_axis(rows, np.abs(rows).argmax(-1)[..., None], -1)
    steps = np.clip(np.rint(rows / (largest / -8)), -8, 7) * (largest / -8)
    plain = float(np.square(rows - steps).sum())
    assert searched < 0.98 * plain


def test_blocks_of_zeros_stay_zeros():
    product = BlockedProduct(rows=1, n=1, k=32, encoding=Encoding(format="int4", block=32))
    values, scales, error = quantised(np.zeros((1, 1, 32), np.float32), product)
    assert error == 0
    assert not scales.any()
    assert (values == 8).all()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"weights": "int3"}, "weights = 'int3'; did you mean 'int8'"),
        ({"weights": "int4", "block": 24}, "block = 24; expected 16, 32, 64, 128 or 256"),
        (
            {"weights": "int4", "precision": "bfloat16"},
            "weights = 'int4' is not supported on .* with precision = 'bfloat16'; expected",
        ),
        ({"weights": "int4", "target": "vsim/vta"}, "weights = 'int4' is not supported on vta"),
    ],
)
def test_what_does_not_go_together_is_refused(model, given, said):
    with pytest.raises(tt.WorkloadError, match=said):
        tt.compile(model[0], cache=False, **given)


def test_a_model_without_such_weights_is_refused():
    helper = onnx.helper
    ends = [helper.make_tensor_value_info(name, 1, [4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "none", ends[:1], ends[1:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(
        tt.WorkloadError, match="the model has no matrix multiplications by float32 weights of 4096 elements or more"
    ):
        tt.compile(proto, weights="int4", cache=False)
