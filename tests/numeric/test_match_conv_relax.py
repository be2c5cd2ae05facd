"""Convolutions as Relax legalises and fuses them, against TVM's default of the same functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from convs import Conv, kernels_as, naive, run, to_layout
from products import DTYPES
from tvm import relax, tirx

from tvm_tiling.match import ConvProgram, GemmProgram, match

op = relax.op
Step = Callable[[relax.Expr, list[relax.Var]], relax.Expr]


def fused(shapes: list[tuple[int, ...]], dtype: str, *steps: Step) -> dict[str, tirx.PrimFunc]:
    """Return the functions to which a chain of Relax operators is legalised and fused, each step reading the previous
    one."""
    builder = relax.BlockBuilder()
    inputs = [relax.Var(f"p{n}", relax.TensorType(shape, dtype)) for n, shape in enumerate(shapes)]
    with builder.function("main", inputs):
        with builder.dataflow():
            value = inputs[0]
            for step in steps:
                value = builder.emit(step(value, inputs))
            out = builder.emit_output(value)
        builder.emit_func_output(out)
    mod = builder.get()
    for each in ("LegalizeOps", "AnnotateTIROpPattern", "FuseOps", "FuseTIR"):
        mod = getattr(relax.transform, each)()(mod)
    return {g.name_hint: f for g, f in mod.functions.items() if isinstance(f, tirx.PrimFunc)}


def only(functions: dict[str, tirx.PrimFunc]) -> tirx.PrimFunc:
    (func,) = functions.values()
    return func


def check(func: tirx.PrimFunc, conv: Conv, layout: str) -> ConvProgram:
    """`func` is matched as `conv`, and the program gives the results of TVM's default."""
    program = match(func)
    assert isinstance(program, ConvProgram)
    assert program.workload == conv.workload(layout)
    rng = np.random.default_rng(7)
    shapes = [(tuple(int(s) for s in p.shape), str(p.dtype)) for p in func.params]
    *inputs, (shape, dtype) = shapes
    arrays = [rng.integers(-4, 5, s).astype(DTYPES[d]) for s, d in inputs]
    want = run(func, arrays, shape, dtype)
    assert want.any()
    np.testing.assert_allclose(run(naive(program), arrays, shape, dtype), want, rtol=1e-5, atol=1e-5)
    return program


def shapes_of(conv: Conv, layout: str, layout_w: str) -> list[tuple[int, ...]]:
    x = to_layout(np.empty(conv.shape_x, np.int8), f"N{conv.axes}C", layout)
    return [x.shape, kernels_as(conv, layout_w)(np.empty(conv.shape_w, np.int8)).shape]


def convolution(conv: Conv, layout: str, layout_w: str) -> Step:
    function = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}[len(conv.space)]
    options = dict(strides=conv.stride, padding=conv.padding, dilation=conv.dilation, groups=conv.groups)
    options |= dict(data_layout=layout, kernel_layout=layout_w, out_dtype=conv.out_dtype)
    return lambda x, inputs: function(x, inputs[1], **options)


PADDED = Conv(space=(7, 8), kernel=(3, 3), before=(1, 1), behind=(1, 1))
CONVS = [
    PADDED,
    replace(PADDED, stride=(2, 1), dilation=(1, 2), behind=(0, 2)),
    replace(PADDED, groups=2),
    replace(PADDED, ci=6, co=6, groups=6),
    replace(PADDED, dtype="int8"),
    Conv(space=(9,), kernel=(3,), stride=(2,), before=(1,), behind=(1,)),
    Conv(space=(3, 4, 5), kernel=(2, 3, 1), before=(1, 1, 0), behind=(0, 1, 0), groups=2),
]


@pytest.mark.values
@pytest.mark.parametrize("conv", CONVS, ids=str)
@pytest.mark.parametrize("order", ["NC, OI", "NC, IO", "N.C, OI", "N.C, IO"])
def test_convolutions(conv, order):
    layout = f"N{conv.axes}C" if "." in order else f"NC{conv.axes}"
    layout_w = f"{conv.axes}IO" if "IO" in order else f"OI{conv.axes}"
    step = convolution(conv, layout, layout_w)
    check(only(fused(shapes_of(conv, layout, layout_w), conv.dtype, step)), conv, "NHWC" if "." in order else "NCHW")


@pytest.mark.parametrize(
    "conv",
    [
        Conv(space=(4, 5), kernel=(3, 3), stride=(2, 2), before=(1, 1), behind=(1, 1), more=(1, 0), transposed=True),
        Conv(space=(4, 5), kernel=(3, 2), stride=(2, 3), dilation=(1, 2), groups=2, transposed=True),
        Conv(space=(4, 5), kernel=(3, 2), before=(1, 0), behind=(0, 1), transposed=True),
    ],
    ids=str,
)
def test_transposed(conv):
    shapes = [(conv.n, conv.ci, *conv.space), (conv.ci, conv.co // conv.groups, *conv.kernel)]
    options = dict(strides=conv.stride, padding=conv.padding, output_padding=conv.more, dilation=conv.dilation)
    step = lambda x, inputs: op.nn.conv2d_transpose(x, inputs[1], groups=conv.groups, **options)  # noqa: E731
    check(only(fused(shapes, "float32", step)), conv, "NCHW")


def _scaled(x: relax.Expr, inputs: list[relax.Var]) -> relax.Expr:
    return op.multiply(x, inputs[2])


def _shifted(x: relax.Expr, inputs: list[relax.Var]) -> relax.Expr:
    return op.add(x, inputs[3])


def _residual(x: relax.Expr, inputs: list[relax.Var]) -> relax.Expr:
    return op.add(x, inputs[4])


ACTIVATIONS = {
    "none": lambda x, _: op.negative(x),
    "relu": lambda x, _: op.nn.relu(x),
    "relu6": lambda x, _: op.clip(x, 0, 6),
    "leaky": lambda x, _: op.nn.leakyrelu(x),
    "silu": lambda x, _: op.nn.silu(x),
    "gelu": lambda x, _: op.nn.gelu(x),
}


@pytest.mark.values
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_what_is_fused_behind(layout, activation):
    conv = replace(PADDED, stride=(2, 2))
    layout_w = "HWIO" if layout == "NHWC" else "OIHW"
    channel = (conv.co,) if layout == "NHWC" else (1, conv.co, 1, 1)
    whole = to_layout(np.empty((conv.n, *conv.points, conv.co), np.int8), "NHWC", layout).shape
    steps = (convolution(conv, layout, layout_w), _scaled, _shifted, ACTIVATIONS[activation], _residual)
    shapes = [*shapes_of(conv, layout, layout_w), channel, channel, whole]
    program = check(only(fused(shapes, "float32", *steps)), conv, layout)
    assert program.has_epilogue and program.x is not None and program.w is not None


def test_operators_that_are_gemms():
    """1x1 and non-overlapping windows are computed in place; other windows and groups are not."""
    pointwise = replace(PADDED, kernel=(1, 1), before=(0, 0), behind=(0, 0), n=1)
    whole = replace(pointwise, space=(3, 3), kernel=(3, 3))
    patches = Conv(space=(12,), kernel=(3,), stride=(3,))
    for conv, product in (
        (pointwise, True),
        (whole, True),
        (patches, True),
        (replace(patches, stride=(2,)), False),
        (replace(pointwise, stride=(2, 2)), False),
        (replace(pointwise, groups=2), False),
        (replace(whole, before=(1, 1)), False),
        (replace(patches, groups=2), False),
    ):
        layouts = (f"N{conv.axes}C", f"{conv.axes}IO")
        program = match(only(fused(shapes_of(conv, *layouts), "float32", convolution(conv, *layouts))))
        assert isinstance(program, GemmProgram if product else ConvProgram), conv
        if isinstance(program, GemmProgram):
            assert program.a.buffer is not None and program.b.buffer is not None
            assert program.workload.macs == conv.workload("NHWC").macs


def test_the_first_of_two_layers_is_no_obstacle():
    conv = replace(PADDED, co=4)
    layer = convolution(conv, "NHWC", "HWIO")
    functions = fused(
        shapes_of(conv, "NHWC", "HWIO"), "float32", ACTIVATIONS["relu"], layer, ACTIVATIONS["relu6"], layer
    )
    matched = [match(f) for name, f in functions.items() if "conv2d" in name]
    assert [type(m) for m in matched] == [ConvProgram, ConvProgram]
    assert {m.has_epilogue for m in matched} == {True, False}


def test_the_function_is_named():
    with pytest.raises(Exception, match=r"^layer: not a matrix multiplication or convolution"):
        match(only(fused([(2, 4)], "float32", ACTIVATIONS["relu"])), "layer")
