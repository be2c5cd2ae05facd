"""Small models that request gigabytes or hours are refused within 2 s and 500 MB; limits can be raised.

Measured is one call of tt.compile in a process that has imported everything it needs: see bombs.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnx")

import bombs
import numpy as np
from tvm import relax

import tvm_tiling as tt
from tvm_tiling.cli import main
from tvm_tiling.errors import LimitError, ModelFormatError, WorkloadError
from tvm_tiling.frontend import load_model
from tvm_tiling.limits import VARIABLE, usual

SECONDS, GROWN = 2.0, 500 << 20
NAMES = list(bombs.bombs())
OTHERS = {  # refused for another reason than a limit
    "batch_number": "batch = 1000000000000000000000000000000; expected a whole number from 1 to",
    "dims_number": "dims['width'] = 1000000000000000000000000000000; expected a whole number from 1 to",
    "shapes_number": "expected sizes from 0 to",
    "functions_deep": "function calls are nested more than 100 deep",
    "functions_recursive": "a function calls itself",
    "relay_deep_tuples": "tuples are nested more than 100 deep",
    "relay_types": "a type has more than 100000 elements",
}


@pytest.fixture(scope="module")
def results():
    """The outcome of every case, by name."""
    program = Path(bombs.__file__)
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return {found["name"]: found for found in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("name", NAMES)
def test_it_is_refused_at_once(name, results):
    found = results[name]
    said = found["said"]
    assert said.count("\n") == 0 and len(said) < 600, said
    if name in OTHERS:
        assert OTHERS[name] in said
    else:
        assert said.startswith("LimitError: ") and "; expected up to " in said and "or more with limits=Limits(" in said
        assert "--model-limit " in said and f"{VARIABLE}=" in said
    assert found["seconds"] < SECONDS and found["grown"] < GROWN, found


def test_the_bombs_are_small():
    sizes = [len(model) for model, _ in (make() for make in bombs.bombs().values()) if isinstance(model, bytes)]
    assert len(sizes) > 40 and sum(size < 200 for size in sizes) > 25


def test_the_sentence_names_the_node_and_what_to_raise():
    model, _ = bombs.bombs()["matmul_k"]()
    with pytest.raises(LimitError, match=r"input 'x' is a tensor of 8 GiB; expected up to 4 GiB, .*tensor_bytes=8G"):
        load_model(model)
    loaded = load_model(model, limits=tt.Limits(tensor_bytes=8 << 30))
    assert loaded.input_shapes == ((1, bombs.MAX_EXTENT), (bombs.MAX_EXTENT, 1))


def test_every_limit_can_be_raised_and_lowered():
    functions, tuples = bombs.nested_functions(6), bombs.relax_tuples(6)
    constant = bombs.graph(
        [bombs.node("ConstantOfShape", "s", out="c"), bombs.node("Add", "x", "c")],
        [("x", [4])],
        [("s", bombs.int64(1000, 4))],
    )
    product = bombs.relax_chain(8, 16, body=lambda x: relax.op.matmul(x, relax.const(np.ones((16, 4), "float32"))))
    for model, low, needed in (
        (functions, {"nodes": 63}, {"nodes": 64}),
        (tuples, {"nodes": 63}, {"nodes": 64}),
        (constant, {"constant_bytes": 15_999}, {"constant_bytes": 16_000}),
        (constant, {"tensor_bytes": 15_999}, {"tensor_bytes": 16_000}),
        (product, {"operations": 511}, {"operations": 512}),
        (product, {"tensor_bytes": 511}, {"tensor_bytes": 512}),
    ):
        with pytest.raises(LimitError, match=next(iter(low))):
            load_model(model, limits=tt.Limits(**low))
        load_model(model, limits=tt.Limits(**needed))


def test_weights_in_the_file_have_no_limit():
    """Constants of a model may have any size, and results computed from them eight times that."""
    weights = np.ones((64, 64), "float32")
    module = bombs.relax_chain(1, 64, body=lambda x: relax.op.matmul(x, relax.op.permute_dims(relax.const(weights))))
    small = tt.Limits(tensor_bytes=1024, constant_bytes=1024)
    load_model(module, limits=small)
    nodes = [bombs.node("Transpose", "w", out="t"), bombs.node("MatMul", "x", "t")]
    load_model(bombs.graph(nodes, [("x", [1, 64])], [("w", weights)]), limits=small)
    wide = [bombs.node("Concat", *["w"] * 9, out="t", axis=1), bombs.node("MatMul", "x", "t")]
    with pytest.raises(LimitError, match="8 times the weights"):
        load_model(bombs.graph(wide, [("x", [1, 64])], [("w", weights)]), limits=tt.Limits(constant_bytes=1024))


def test_attention_of_a_large_model_is_within_the_defaults():
    """A layer with 7 billion parameters over 4,096 tokens in float32, with weights given at run time."""

    def body(x):
        heads = relax.op.permute_dims(relax.op.reshape(x, (1, 4096, 32, 128)), (0, 2, 1, 3))
        scores = relax.op.nn.softmax(relax.op.matmul(heads, relax.op.permute_dims(heads, (0, 1, 3, 2))))
        mixed = relax.op.reshape(relax.op.permute_dims(relax.op.matmul(scores, heads), (0, 2, 1, 3)), (1, 4096, 4096))
        return relax.op.matmul(mixed, relax.op.zeros((4096, 128_256), "float32"))

    assert load_model(bombs.relax_chain(1, 4096, 4096, body=body)).input_shapes == ((1, 4096, 4096),)


# ---- how limits are given ------------------------------------------------------------------------------------------


def test_limits_are_read_from_the_environment(monkeypatch):
    model, _ = bombs.bombs()["matmul_k"]()
    monkeypatch.setenv(VARIABLE, "tensor_bytes=8G, nodes=3")
    assert usual() == tt.Limits(tensor_bytes=8 << 30, nodes=3)
    load_model(model)
    monkeypatch.setenv(VARIABLE, "tensors=8G")
    with pytest.raises(WorkloadError, match="'tensors' is not a limit; did you mean 'tensor_bytes'"):
        load_model(model)


@pytest.mark.parametrize(
    "text", ["nodes", "nodes=", "nodes=-1", "nodes=1e9", "nodes=5X", "nodes=" + "9" * 40, "=5", "nodes=²"]
)
def test_what_is_not_a_limit_is_quoted(text):
    with pytest.raises(WorkloadError) as refused:
        tt.Limits().with_text(text)
    assert "expected " in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "4G", None])
def test_limits_are_whole_numbers(value):
    with pytest.raises(WorkloadError, match=r"limit nodes = .*expected a whole number of at least 1"):
        tt.Limits(nodes=value)


def test_the_command_line_raises_limits_for_one_call(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    path = tmp_path / "model.onnx"
    path.write_bytes(bombs.graph([bombs.node("Relu", "x")], [("x", [2, 300])]))
    for words, code in (
        (("explain", str(path), "--model-limit", "tensor_bytes=1K"), 1),
        (("--model-limit=tensor_bytes=1K", "explain", str(path)), 1),
        (("explain", str(path), "--model-limit", "tensor_bytes=1K", "--model-limit", "tensor_bytes=4K"), 0),
        (("explain", str(path)), 0),
        (("explain", str(path), "--model-limit", "what=4K"), 1),
    ):
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        said = capsys.readouterr().err
        assert (ended.value.code or 0) == code, (words, said)
        assert code == 0 or (said.startswith("error: ") and said.count("\n") == 1)


def test_a_limit_error_is_a_model_format_error():
    assert issubclass(LimitError, ModelFormatError) and tt.LimitError is LimitError


def test_shapes_are_followed_beside_vectors_that_are_long():
    """A computation that inference skips because of its length hides neither types nor other shapes."""
    nodes = [
        bombs.node("NonZero", "x", out="places"),
        bombs.node("Shape", "places", out="s"),
        bombs.node("Gather", "s", "first", out="one"),  # the length of s is known, one of its elements is, too
        bombs.node("Concat", "one", "two", out="shape", axis=0),
        bombs.node("Add", "v", "v", out="vv"),
        bombs.node("Cast", "vv", out="wide", to=bombs.FLOAT),
        bombs.node("Reshape", "wide", "shape", out="r"),
        bombs.node("Add", "r", "v", out="y"),
    ]
    model = bombs.graph(nodes, [("x", [4]), ("v", [5000])], [("first", bombs.int64(0)), ("two", bombs.int64(5000))])
    loaded = load_model(model)
    assert [int(extent) for extent in loaded.module["main"].ret_ty.shape] == [1, 5000]
