"""Parameters that the compiler numbered p0, p1 and so on: matched with the original model."""

from __future__ import annotations

import json

import numpy as np
import pytest
from relay_cases import outputs
from relay_files import DENSE, B, W, dense_result, params_bytes, tar_bytes

from tvm_tiling.errors import ModelFormatError
from tvm_tiling.frontend import load_model
from tvm_tiling.frontend.relay.import_relay import read_relay

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3)).astype("float32")


def real(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype("float32")


def graph_of(names: list[str]) -> bytes:
    """Return the graph of a compiled model, of which only inputs and parameters are read."""
    nodes = [{"op": "null", "name": name, "inputs": []} for name in names]
    return json.dumps({"nodes": [*nodes, {"op": "tvm_op", "name": "fused", "inputs": []}]}).encode()


def library(text: str, arrays: list[np.ndarray], names: list[str] | None) -> bytes:
    """Return a model in Model Library Format with numbered parameters; `names`: those in its graph, None without a
    graph."""
    files = {"src/default.relay": text.encode()}
    files["parameters/default.params"] = params_bytes({f"p{number}": array for number, array in enumerate(arrays)})
    if names is not None:
        files["executor-config/graph/default.graph"] = graph_of(names)
    return tar_bytes(files)


@pytest.mark.parametrize("names", [["x", "p0", "p1"], None], ids=["with graph", "without"])
def test_numbers_are_given_in_the_order_of_use(names):
    found = read_relay(library(DENSE, [W, B], names), shapes={}, batch=None, params=None, where="library")
    assert found.imported.input_names == ("x",)
    assert found.numbered == (("p0", "%w"), ("p1", "%b"))
    np.testing.assert_allclose(outputs(found.imported.module, [X])[0], dense_result(X), rtol=1e-5, atol=1e-6)


def test_parameters_of_a_library_beside_the_text():
    model = load_model(DENSE.encode(), params=params_bytes({"p0": W, "p1": B}))
    np.testing.assert_allclose(outputs(model.module, [X])[0], dense_result(X), rtol=1e-5, atol=1e-6)


def test_the_graph_tells_inputs_from_parameters_of_one_shape():
    """Operands of a matrix multiplication with equal shapes: without the graph either could be the parameter."""
    text = "def @main(%a: Tensor[(3, 3), float32], %b: Tensor[(3, 3), float32]) { subtract(%a, %b) }"
    a, b = real(3, 3), real(3, 3)
    with pytest.raises(ModelFormatError, match=r"p0 to p0 are those of the compiled model and cannot be matched"):
        load_model(library(text, [a], None))
    for name, sign in (("a", 1), ("b", -1)):
        model = load_model(library(text, [a if name == "b" else b], [name, "p0"]))
        assert model.input_names == (name,)
        given = b if name == "b" else a
        wanted = a - given if sign < 0 else given - b
        np.testing.assert_allclose(outputs(model.module, [given])[0], wanted, rtol=1e-6)


def test_what_the_compiler_computed_beforehand_is_taken_as_it_is():
    """A transposed weight, a bias with dimensions of size 1, a constant of the metadata that the text lacks; a number
    in the text is part of a kernel and is not numbered."""
    text = """def @main(%x: Tensor[(1, 4, 5, 5), float32], %w: Tensor[(4, 6), float32], %b: Tensor[(6), float32]) {
  %0 = transpose(%w, axes=[1, 0]) /* ty=Tensor[(6, 4), float32] */;
  %1 = reshape(%0, newshape=[6, 4, 1, 1]) /* ty=Tensor[(6, 4, 1, 1), float32] */;
  %2 = nn.conv2d(%x, %1, channels=6, kernel_size=[1, 1]) /* ty=Tensor[(1, 6, 5, 5), float32] */;
  %3 = nn.bias_add(%2, %b) /* ty=Tensor[(1, 6, 5, 5), float32] */;
  %4 = multiply(%3, 2f) /* ty=Tensor[(1, 6, 5, 5), float32] */;
  add(%4, meta[relay.Constant][0] /* ty=Tensor[(5), float32] */) /* ty=Tensor[(1, 6, 5, 5), float32] */
}"""
    w, b, last, x = real(4, 6), real(6), real(5), real(1, 4, 5, 5)
    held = [w.T.reshape(6, 4, 1, 1).copy(), b.reshape(6, 1, 1), last]
    found = read_relay(library(text, held, ["x", "p0", "p1", "p2"]), shapes={}, batch=None, params=None, where="m")
    assert found.imported.input_names == ("x",)
    assert found.numbered == (("p0", "the result of line 3"), ("p1", "%b"), ("p2", "the result of line 7"))
    wanted = 2 * (np.einsum("nchw,co->nohw", x, w) + b[:, None, None]) + last
    np.testing.assert_allclose(outputs(found.imported.module, [x])[0], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "arrays",
    [[W, B, B], [W], [W.T.copy(), B], [W.astype("float64"), B], [W.reshape(2, 2, 3), B]],
    ids=["one more", "one less", "transposed", "of another type", "in blocks"],
)
def test_what_does_not_fit_is_refused_and_names_help(arrays):
    archive = library(DENSE, arrays, ["x", *(f"p{number}" for number in range(len(arrays)))])
    with pytest.raises(ModelFormatError, match=r"cannot be matched to .* expected params with the names"):
        load_model(archive)
    assert load_model(archive, params={"w": W, "b": B}).input_names == ("x",)


def test_a_model_may_itself_have_such_names():
    text = DENSE.replace("%w", "%p0").replace("%b", "%p1")
    model = load_model(text.encode(), params=params_bytes({"p0": W, "p1": B}))
    np.testing.assert_allclose(outputs(model.module, [X])[0], dense_result(X), rtol=1e-5, atol=1e-6)


def test_a_graph_that_is_corrupted_is_refused():
    for graph in (b"", b"{}", b'{"nodes": 3}', b'{"nodes": [{}]}', b"[" * 100_000):
        files = {"src/relay.txt": DENSE.encode(), "parameters/default.params": params_bytes({"p0": W, "p1": B})}
        with pytest.raises(
            ModelFormatError, match=r"executor-config/graph/graph.json: not the graph of a compiled model"
        ):
            load_model(tar_bytes({**files, "executor-config/graph/graph.json": graph}))
