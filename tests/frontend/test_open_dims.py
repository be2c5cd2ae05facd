"""Dynamic dimensions of a model: set by batch and by name, everything else refused with a sentence."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
import tvm
from default_build import run
from tvm import relax

from tvm_tiling.errors import ModelFormatError
from tvm_tiling.frontend import load_model


def relax_module() -> tvm.IRModule:
    """x (batch, seq, 3) + y (batch, 1, 3)."""
    batch, seq = tvm.tirx.Var("batch", "int64"), tvm.tirx.Var("seq", "int64")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((batch, seq, 3), "float32"))
    y = relax.Var("y", relax.TensorType((batch, 1, 3), "float32"))
    with builder.function("main", [x, y]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.add(x, y))
        builder.emit_func_output(result)
    return builder.get()


def onnx_model():
    """The same."""
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "y"], ["z"])],
        "sum",
        [
            helper.make_tensor_value_info("x", kind, ["batch", "seq", 3]),
            helper.make_tensor_value_info("y", kind, ["batch", 1, 3]),
        ],
        [helper.make_tensor_value_info("z", kind, ["batch", "seq", 3])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def torch_program():
    """The same, for a batch of at most 8."""
    torch = pytest.importorskip("torch")

    class Sum(torch.nn.Module):
        def forward(self, x, y):
            return x + y

    batch, seq = torch.export.Dim("batch", min=1, max=8), torch.export.Dim("seq", min=1, max=64)
    examples = (torch.randn(2, 5, 3), torch.randn(2, 1, 3))
    return torch.export.export(Sum(), examples, dynamic_shapes={"x": {0: batch, 1: seq}, "y": {0: batch}})


SOURCES = {"relax": relax_module, "onnx": onnx_model, "torch": torch_program}
INSTALLED = [name for name in SOURCES if name == "relax" or find_spec(name) is not None]


@pytest.fixture(scope="module", params=INSTALLED)
def model(request):
    return SOURCES[request.param]()


def test_batch_and_names_settle_what_is_open(model):
    loaded = load_model(model, batch=4, dims={"seq": 7})
    assert loaded.input_shapes == ((4, 7, 3), (4, 1, 3))
    x, y = (np.random.default_rng(0).normal(size=shape).astype("float32") for shape in loaded.input_shapes)
    np.testing.assert_allclose(run(loaded, [x, y])[0], x + y, rtol=1e-6)


def test_the_batch_has_a_name_too(model):
    assert load_model(model, dims={"batch": 3, "seq": 2}).input_shapes == ((3, 2, 3), (3, 1, 3))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, r"'x' \(batch, seq, 3\).*is dynamic; expected batch=.*dims=\{'batch': \.\.\.\}"),
        ({"batch": 4}, r"'x' \(.*seq, 3\).*is dynamic; expected batch="),
        ({"batch": 4, "dims": {"sequence": 7}}, "dims names 'sequence'; .* 'batch', 'seq'"),
        ({"batch": 4, "dims": {"batch": 5, "seq": 7}}, "batch"),
        ({"batch": 0, "dims": {"seq": 7}}, "batch = 0; expected a number from 1"),
        ({"batch": 4, "dims": {"seq": True}}, r"dims\['seq'\] = True; expected a number from 1"),
    ],
)
def test_the_rest_is_refused_by_name(model, options, words):
    with pytest.raises(ModelFormatError, match=words) as refused:
        load_model(model, **options)
    assert "\n" not in str(refused.value)


def test_a_batch_for_a_model_that_leaves_none_open_is_refused(model):
    if isinstance(model, tvm.IRModule):
        fixed = load_model(model, batch=4, dims={"seq": 7}).module
        with pytest.raises(ModelFormatError, match=r"no input has a dynamic first dimension"):
            load_model(fixed, batch=4)


def test_a_size_that_a_program_excludes_is_refused():
    program = torch_program()
    with pytest.raises(ModelFormatError, match=r"it does not accept 'x' \(9, 2, 3\)"):
        load_model(program, batch=9, dims={"seq": 2})


def test_fixed_shapes_take_no_batch():
    onnx = pytest.importorskip("onnx")
    model = onnx_model()
    for value in (*model.graph.input, *model.graph.output):
        for dim, size in zip(value.type.tensor_type.shape.dim, (2, 1, 3), strict=True):
            dim.dim_value = size
    with pytest.raises(ModelFormatError, match="batch is given, but no input has a dynamic first dimension"):
        load_model(model, batch=2)
    assert isinstance(model, onnx.ModelProto)
