"""Convolutions as frontends emit them: the workload found, and every element, by a scalar loop nest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tvm
from convs import (
    Conv,
    Source,
    arrays,
    blocked,
    kernels_as,
    naive,
    placeholders,
    run,
    topi_conv,
    topi_depthwise,
    topi_transposed,
)
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tvm import sym, tirx, topi

from tvm_tiling.match import ConvProgram, match_conv, prim_func_of
from tvm_tiling.match.access import address


def check(
    conv: Conv, source: Source, layout: str | None = None, *, reference: bool = True, random: bool = False
) -> ConvProgram:
    """The program of `source` is `conv`; it gives NumPy's results and, as `reference`, TVM's default's."""
    func = prim_func_of(source.out)
    program = match_conv(func)
    known = "NHWC" if source.layout[-1] == "C" else source.layout if source.layout[-1] == "c" else "NCHW"
    # A single row, output row or kernel position does not show stride or dilation, nor may two if windows extend beyond
    # the image; the found workload then computes the same.
    if min(*conv.space, *conv.kernel, *conv.points) > (2 if conv.transposed else 1) or not random:
        assert program.workload == conv.workload(layout or known)
    check_places(program)
    inputs, result = arrays(conv, source)
    dtype = str(source.out.dtype)
    computed = run(naive(program), inputs, result.shape, dtype)
    np.testing.assert_array_equal(computed.astype(result.dtype), result)
    if reference:
        np.testing.assert_array_equal(run(func, inputs, result.shape, dtype), computed)
    return program


def place(load: tirx.Expr) -> int:
    return int(sym.Analyzer().simplify(address(load)))


def check_places(program: ConvProgram) -> None:
    """Strides and contiguous runs are those of the elements' addresses in memory."""
    size = program.workload
    extents_in, extents_out = (size.n, size.d, size.h, size.w, size.ci), (size.n, size.do, size.ho, size.wo, size.co)

    def stored(*at: int) -> int:
        return place(tirx.BufferLoad(program.out, program.out_at(*at)))

    def read(*at: int) -> int:
        return place(program.input_at(*at))

    for where, extents, strides, run_length in (
        (read if program.x is not None else None, extents_in, program.x_strides, program.channel_run),
        (stored, extents_out, program.out_strides, program.out_run),
    ):
        if where is None:
            assert strides is None and run_length == 1
            continue
        last = [e - 1 for e in extents]
        origin = where(0, 0, 0, 0, 0)
        if strides is not None:
            assert where(*last) - origin == sum(s * e for s, e in zip(strides, last, strict=True))
        places = [where(0, 0, 0, 0, c) for c in range(extents[4])]
        runs = [r for r in range(1, extents[4] + 1) if extents[4] % r == 0]
        adjacent = [r for r in runs if all(p - places[c - c % r] == c % r for c, p in enumerate(places))]
        assert run_length == max(adjacent)


PLAIN = Conv(space=(7, 8), kernel=(3, 3))
PADDED = replace(PLAIN, before=(1, 1), behind=(1, 1))
SHAPES = [
    PLAIN,
    PADDED,
    replace(PLAIN, kernel=(1, 1)),
    replace(PLAIN, kernel=(1, 1), stride=(2, 2)),
    replace(PLAIN, kernel=(1, 1), before=(1, 0), behind=(0, 2)),
    replace(PADDED, stride=(2, 2)),
    replace(PLAIN, space=(8, 8), stride=(2, 2), behind=(1, 1)),
    replace(PLAIN, kernel=(5, 2), stride=(1, 3), before=(3, 0), behind=(1, 2)),
    replace(PLAIN, dilation=(2, 3), before=(2, 1), behind=(0, 4)),
    replace(PLAIN, space=(9, 9), stride=(3, 2), dilation=(2, 1), before=(2, 2), behind=(2, 2)),
    replace(PLAIN, kernel=(7, 8)),
    replace(PLAIN, space=(8, 8), stride=(7, 7)),
    replace(PLAIN, space=(3, 3), kernel=(7, 7), before=(3, 3), behind=(3, 3)),
    replace(PLAIN, space=(1, 9), kernel=(1, 3), before=(0, 1), behind=(0, 1)),
    replace(PADDED, n=1, ci=1, co=1),
    replace(PLAIN, n=1, ci=3, co=1),
    replace(PADDED, groups=2),
    replace(PLAIN, ci=6, co=9, groups=3, stride=(2, 1)),
    replace(PADDED, ci=4, co=4, groups=4),
    replace(PLAIN, ci=4, co=8, groups=4),
    replace(PLAIN, kernel=(1, 1), ci=4, co=4, groups=2),
    Conv(space=(13,), kernel=(3,), stride=(2,), before=(1,), behind=(2,)),
    Conv(space=(13,), kernel=(4,), dilation=(3,), groups=2),
    Conv(space=(4, 5, 6), kernel=(3, 2, 3), stride=(2, 1, 2), before=(1, 0, 1), behind=(0, 1, 1)),
    Conv(space=(4, 5, 6), kernel=(1, 3, 3), dilation=(1, 2, 1)),
    Conv(space=(4, 5, 6), kernel=(2, 2, 2), ci=4, co=4, groups=4, dilation=(2, 1, 1)),
]


def name(conv: Conv) -> str:
    """Return the fields that differ from their defaults, for pytest."""
    usual = Conv(space=conv.space, kernel=conv.kernel)
    fields = {k: v for k, v in vars(conv).items() if v != getattr(usual, k)}
    return f"{conv.space}-{conv.kernel}-{fields}".replace(" ", "")


@pytest.mark.values
@pytest.mark.parametrize("order", ["first", "last"])
@pytest.mark.parametrize("conv", SHAPES, ids=name)
def test_topi(conv, order):
    space = conv.axes
    check(conv, topi_conv(conv, *((f"NC{space}", f"OI{space}") if order == "first" else (f"N{space}C", f"{space}IO"))))


@pytest.mark.values
@pytest.mark.parametrize(
    ("layout", "layout_w"), [("NHWC", "OHWI"), ("NHWC", "OIHW"), ("NCHW", "HWIO"), ("HWCN", "HWIO")]
)
@pytest.mark.parametrize("conv", [PADDED, SHAPES[7], SHAPES[2], SHAPES[17]], ids=name)
def test_layouts_of_kernels(conv, layout, layout_w):
    check(conv, topi_conv(conv, layout, layout_w))


@pytest.mark.values
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    "conv",
    [
        replace(PADDED, ci=4, co=4, groups=4, stride=(2, 2)),
        replace(PLAIN, ci=4, co=8, groups=4, dilation=(2, 1)),
        replace(PLAIN, ci=3, co=6, groups=3, kernel=(1, 1)),
        replace(PADDED, ci=1, co=3),
    ],
    ids=name,
)
def test_depthwise_of_topi(conv, layout):
    check(conv, topi_depthwise(conv, layout))


@pytest.mark.values
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize(
    ("block", "block_out", "conv"),
    [
        (4, 4, replace(PADDED, ci=8, co=12)),
        (8, 4, replace(PLAIN, ci=16, co=8, stride=(2, 1))),
        (16, 16, replace(PADDED, ci=32, co=16, n=1)),
        (32, 8, replace(PLAIN, ci=32, co=8, kernel=(1, 1))),
        (4, 4, replace(PADDED, ci=16, co=8, groups=2)),
        (8, 8, replace(PADDED, ci=16, co=16, groups=16)),
    ],
    ids=str,
)
def test_blocked_channels(block, block_out, conv, split):
    program = check(conv, blocked(conv, block, block_out, split=split))
    assert program.channel_run == block and program.out_run == block_out


def test_blocked_channels_of_topi():
    conv = replace(PADDED, ci=32, co=16)
    stored = kernels_as(conv, "OIHW16i16o")
    x, w = placeholders(conv, "NCHW16c", stored)
    with tvm.target.Target("llvm"):
        out = topi.nn.conv2d_NCHWc(x, w, conv.stride, conv.padding, conv.dilation, "NCHW16c", "NCHW16c")
    check(conv, Source(x, w, out, "NCHW16c", "NCHW16c", stored))


TRANSPOSED = Conv(space=(4, 5), kernel=(3, 3), stride=(2, 2), transposed=True)


@pytest.mark.parametrize(
    "conv",
    [
        TRANSPOSED,
        replace(TRANSPOSED, before=(1, 1), behind=(1, 1)),
        replace(TRANSPOSED, before=(1, 1), behind=(1, 1), more=(1, 1)),
        replace(TRANSPOSED, more=(1, 0)),
        replace(TRANSPOSED, before=(2, 0), behind=(0, 1)),
        replace(TRANSPOSED, stride=(3, 1), before=(0, 1), behind=(1, 2)),
        replace(TRANSPOSED, kernel=(2, 2)),
        replace(TRANSPOSED, kernel=(1, 4), stride=(3, 2)),
        replace(TRANSPOSED, dilation=(2, 1), before=(1, 0)),
        replace(TRANSPOSED, dilation=(2, 3), groups=2, more=(0, 1)),
        replace(TRANSPOSED, stride=(1, 1), before=(1, 1), behind=(1, 1)),
        replace(TRANSPOSED, stride=(1, 1), dilation=(2, 1)),
        replace(TRANSPOSED, space=(1, 1), kernel=(4, 4)),
        replace(TRANSPOSED, space=(2, 1), kernel=(1, 1), stride=(3, 2), more=(0, 1)),
        replace(TRANSPOSED, ci=4, co=4, groups=4, before=(1, 1), behind=(1, 1)),
        Conv(space=(6,), kernel=(4,), stride=(2,), before=(1,), behind=(1,), transposed=True),
        Conv(space=(3, 4, 3), kernel=(2, 3, 3), stride=(2, 2, 1), before=(1, 1, 0), behind=(0, 1, 0), transposed=True),
        Conv(space=(3, 4, 3), kernel=(2, 2, 3), stride=(3, 2, 1), more=(2, 1, 0), transposed=True),
    ],
    ids=name,
)
def test_transposed(conv):
    check(conv, topi_transposed(conv))


@pytest.mark.values
@pytest.mark.parametrize(
    ("dtype", "type_w"),
    [
        ("float64", None),
        ("float16", None),
        ("bfloat16", None),
        ("int8", None),
        ("uint8", None),
        ("uint8", "int8"),
        ("int8", "uint8"),
    ],
)
@pytest.mark.parametrize("layout", [("NHWC", "HWIO"), ("NCHW", "OIHW")])
def test_types(dtype, type_w, layout):
    # TVM's default cannot compile every mix of types.
    conv = replace(PADDED, dtype=dtype, type_w=type_w, stride=(2, 1))
    check(conv, topi_conv(conv, *layout), reference=dtype in ("float64", "int8", "uint8"))


# Each of the two results is one input times one kernel element, with strides of 1 or of 2.
TOLD_IN_TWO_WAYS = Conv(
    space=(2,), kernel=(3,), stride=(2,), before=(2,), behind=(5,), dilation=(3,), more=(0,), transposed=True
)


@st.composite
def random_convs(draw) -> Conv:
    rank = draw(st.integers(1, 3))

    def each(low, high):
        return tuple(draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank)))

    groups, transposed = draw(st.integers(1, 3)), draw(st.booleans())
    stride, kernel = each(1, 3), each(1, 4 if rank < 3 else 2)
    conv = Conv(
        space=each(1, 6),
        kernel=kernel,
        stride=stride,
        dilation=each(1, 3),
        n=draw(st.integers(1, 2)),
        ci=groups * draw(st.integers(1, 3)),
        co=groups * draw(st.integers(1, 3)),
        groups=groups,
        transposed=transposed,
    )
    # Frontends support no padding of transposed convolutions beyond the kernel's own extent.
    reach = [s - 1 if transposed else 4 for s in conv.span]
    before, behind = (tuple(draw(st.integers(0, r)) for r in reach) for _ in range(2))
    more = tuple(draw(st.integers(0, s - 1)) for s in stride) if transposed else ()
    conv = replace(conv, before=before, behind=behind, more=more)
    # If no output point reaches the image there is nothing to find.
    assume(conv.possible and conv.result(np.ones(conv.shape_x), np.ones(conv.shape_w)).any())
    return conv


@given(conv=random_convs(), first=st.booleans())
@example(conv=TOLD_IN_TWO_WAYS, first=False)
@settings(max_examples=12, deadline=None)
def test_random(conv, first):
    layouts = (f"NC{conv.axes}", f"OI{conv.axes}") if first else (f"N{conv.axes}C", f"{conv.axes}IO")
    check(conv, topi_transposed(conv) if conv.transposed else topi_conv(conv, *layouts), reference=False, random=True)
