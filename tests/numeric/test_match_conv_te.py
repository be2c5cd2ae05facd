"""Convolutions written by hand in many ways, and refusals with their messages."""

from __future__ import annotations

import numpy as np
import pytest
from convs import naive, run
from products import DTYPES
from tvm import te, tirx, topi

import tvm_tiling as tt
from tvm_tiling.match import ConvProgram, GemmProgram, match, match_conv, prim_func_of

X, W = (te.placeholder(shape, name=name) for shape, name in (((2, 7, 8, 4), "X"), ((3, 3, 4, 6), "W")))


def same(op: te.Tensor, **fields: object) -> ConvProgram:
    """The program of `op`, whose workload has these fields, gives the results of TVM's default."""
    func = prim_func_of(op)
    program = match_conv(func)
    found = program.workload.to_dict()
    assert {name: found[name] for name in fields} == fields
    rng = np.random.default_rng(11)
    *inputs, out = func.params
    arrays = [
        rng.integers(0 if "uint" in str(p.dtype) else -4, 5, [int(s) for s in p.shape]).astype(DTYPES[str(p.dtype)])
        for p in inputs
    ]
    shape = tuple(int(s) for s in out.shape)
    want = run(func, arrays, shape, str(out.dtype))
    assert want.any()
    np.testing.assert_allclose(run(naive(program), arrays, shape, str(out.dtype)), want, rtol=1e-5, atol=1e-5)
    return program


def axes(*extents: int) -> list[tirx.IterVar]:
    return [te.reduce_axis((0, extent), f"r{n}") for n, extent in enumerate(extents)]


def conv(x: te.Tensor, w: te.Tensor = W, stride: int = 1) -> te.Tensor:
    """NHWC with HWIO kernels and no padding of its own."""
    return topi.nn.conv2d_nhwc(x, w, stride, 0, 1)


def zeros_around(x: te.Tensor, value: float = 0.0) -> te.Tensor:
    return topi.nn.pad(x, (0, 1, 1, 0), (0, 1, 1, 0), value)


PADDED = {"n": 2, "h": 7, "w": 8, "ci": 4, "co": 6, "kh": 3, "kw": 3, "padding": (1, 1, 1, 1), "groups": 1}


def test_factors_and_parameters_in_any_order():
    kh, kw, c = axes(3, 3, 4)
    op = te.compute(
        (2, 5, 6, 6), lambda n, y, x, co: te.sum(W[kh, kw, c, co] * X[n, y + kh, x + kw, c], [c, kw, kh]), "conv"
    )
    program = same(op, **{**PADDED, "padding": (0, 0, 0, 0)})
    assert program.x is not None and (program.x.name, program.w.name) == ("X", "W")


def test_taps_missing_along_one_axis():
    w = te.placeholder((3, 4, 6), name="W")
    k, c = axes(3, 4)
    op = te.compute((2, 7, 6, 6), lambda n, y, x, co: te.sum(X[n, y, x + k, c] * w[k, c, co], [k, c]), "conv")
    same(op, n=2, h=7, w=8, kh=1, kw=3, ci=4, co=6)


def test_no_batch():
    x = te.placeholder((4, 9, 8), name="X")
    kh, kw, c = axes(3, 3, 4)
    op = te.compute(
        (6, 4, 6), lambda co, y, z: te.sum(x[c, y * 2 + kh, z + kw] * W[kh, kw, c, co], [c, kh, kw]), "conv"
    )
    same(op, n=1, h=9, w=8, stride=(2, 1), layout="NCHW")


def test_more_axes_than_three_count_images():
    x, w = te.placeholder((2, 3, 7, 4), name="X"), te.placeholder((3, 4, 5), name="W")
    k, c = axes(3, 4)
    op = te.compute((2, 3, 5, 5), lambda a, b, y, co: te.sum(x[a, b, y + k, c] * w[k, c, co], [k, c]), "conv")
    same(op, n=2, h=3, w=7, kw=3)
    x = te.placeholder((2, 3, 2, 2, 7, 4), name="X")
    op = te.compute(
        (2, 3, 2, 2, 5, 5), lambda a, b, e, f, y, co: te.sum(x[a, b, e, f, y + k, c] * w[k, c, co], [k, c]), "conv"
    )
    same(op, n=6, d=2, h=2, w=7, kw=3)


def test_taps_that_run_backwards():
    kh, kw, c = axes(3, 3, 4)
    op = te.compute(
        (2, 5, 6, 6), lambda n, y, x, co: te.sum(X[n, y - kh + 2, x + kw, c] * W[kh, kw, c, co], [kh, kw, c]), "conv"
    )
    assert str(same(op, kh=3, h=7).weight_at(1, 0, 0, 0, 2)) == "W[2, 0, 2, 1]"


def test_rows_that_are_not_read():
    kh, kw, c = axes(3, 3, 4)
    op = te.compute(
        (2, 2, 3, 6),
        lambda n, y, x, co: te.sum(X[n, y + kh + 1, x + kw + 2, c] * W[kh, kw, c, co], [kh, kw, c]),
        "conv",
    )
    program = same(op, h=4, w=5, padding=(0, 0, 0, 0))
    assert str(program.input_at(0, 0, 0, 0, 3)) == "X[0, 1, 2, 3]"


def test_padding_in_two_steps():
    same(conv(topi.nn.pad(topi.nn.pad(X, (0, 1, 0, 0), (0, 1, 0, 0)), (0, 0, 1, 0), (0, 0, 1, 0))), **PADDED)


def test_padding_written_as_what_is_outside():
    padded = te.compute(
        (2, 9, 10, 4),
        lambda n, y, x, c: tirx.if_then_else(
            tirx.any(y < 1, y >= 8, x < 1, x > 8), tirx.const(0, "float32"), X[n, y - 1, x - 1, c]
        ),
        "padded",
    )
    same(conv(padded), **PADDED)


def test_padding_by_select():
    padded = te.compute(
        (2, 9, 10, 4),
        lambda n, y, x, c: tirx.Select(
            tirx.all(y >= 1, y < 8, x >= 1, x < 9),
            X[n, tirx.max(0, tirx.min(y - 1, 6)), tirx.max(0, tirx.min(x - 1, 7)), c],
            tirx.const(0, "float32"),
        ),
        "padded",
    )
    same(conv(padded), **PADDED)


@pytest.mark.parametrize(
    "computed",
    [
        lambda: topi.nn.relu(zeros_around(X)),
        lambda: zeros_around(topi.nn.relu(X)),
        lambda: topi.multiply(zeros_around(X), topi.sigmoid(zeros_around(X))),
        lambda: topi.nn.leaky_relu(zeros_around(X), 0.1),
        lambda: zeros_around(
            topi.add(topi.multiply(X, te.placeholder((4,), name="S")), te.placeholder((4,), name="T"))
        ),
        lambda: zeros_around(topi.add(X, te.placeholder((2, 7, 8, 4), name="R"))),
        lambda: topi.cast(zeros_around(te.placeholder((2, 7, 8, 4), "int8", "Q")), "float32"),
    ],
    ids=["relu", "relu first", "silu", "leaky", "batch norm", "residual", "converted"],
)
def test_inputs_that_are_computed(computed):
    same(conv(computed()), **PADDED)


def test_padding_with_the_zero_point():
    """Quantised values padded with their zero point."""
    q = te.placeholder((2, 7, 8, 4), "uint8", "Q")
    padded = topi.nn.pad(q, (0, 1, 1, 0), (0, 1, 1, 0), tirx.const(3, "uint8"))
    shifted = te.compute(padded.shape, lambda *at: (padded(*at).astype("float32") - 3.0) * 0.5, "shifted")
    program = same(conv(shifted), **PADDED)
    assert program.x is None and program.x_strides is None and program.channel_run == 1


def test_kernels_that_are_computed():
    q, scale = te.placeholder((3, 3, 4, 6), "int8", "Q"), te.placeholder((6,), name="S")
    w = te.compute(q.shape, lambda kh, kw, c, co: q[kh, kw, c, co].astype("float32") * scale[co], "W")
    program = same(conv(zeros_around(X), w), **PADDED)
    assert program.w is None and program.x is not None


def test_a_conversion_that_loses_values_stays():
    program = same(conv(topi.cast(topi.cast(X, "int8"), "float32")), dtype="float32")
    assert program.x is None


def test_kernels_spread_by_zeros():
    same(conv(X, topi.nn.dilate(W, (2, 3, 1, 1))), kh=3, kw=3, dilation=(2, 3))


def test_kernels_of_each_image():
    """Every image has its own kernels: one group each."""
    w = te.placeholder((2, 3, 3, 4, 6), name="W")
    kh, kw, c = axes(3, 3, 4)
    op = te.compute(
        (2, 5, 6, 6), lambda n, y, x, co: te.sum(X[n, y + kh, x + kw, c] * w[n, kh, kw, c, co], [kh, kw, c]), "conv"
    )
    same(op, n=1, ci=8, co=12, groups=2)


def test_output_channels_that_read_in_turn():
    """Each output channel starts at another input channel: as many groups as output channels."""
    kh, kw, c = axes(3, 3, 4)
    op = te.compute(
        (2, 5, 6, 6),
        lambda n, y, x, co: te.sum(X[n, y + kh, x + kw, (c + co) % 4] * W[kh, kw, c, co], [kh, kw, c]),
        "conv",
    )
    assert same(op, ci=24, co=6, groups=6).x_strides is None


def test_types_that_differ_are_converted():
    x, w = te.placeholder((2, 7, 8, 4), "float16", "X"), te.placeholder((3, 3, 4, 6), "int8", "W")
    kh, kw, c = axes(3, 3, 4)

    def element(n, y, x_, co):
        return te.sum(x[n, y + kh, x_ + kw, c].astype("float32") * w[kh, kw, c, co].astype("float32"), [kh, kw, c])

    program = same(te.compute((2, 5, 6, 6), element, "conv"), dtype="float32")
    assert program.x is None and program.w is None


def test_layouts_that_differ_in_and_out():
    kh, kw, c = axes(3, 3, 4)
    op = te.compute(
        (2, 6, 5, 6), lambda n, co, y, x: te.sum(X[n, y + kh, x + kw, c] * W[kh, kw, c, co], [kh, kw, c]), "conv"
    )
    program = same(op, layout="NHWC")
    assert (program.channel_run, program.out_run) == (4, 1)
    assert program.out_strides == (6 * 5 * 6, 0, 6, 1, 5 * 6)


def test_transposed_by_its_definition():
    """Written from the output: the input row is (y + 1 - k) / 2 where that is whole."""
    kh, kw, c = axes(3, 3, 4)

    def element(n, y, x, co):
        rows, columns = y + 1 - kh, x + 1 - kw
        inside = tirx.all(rows >= 0, rows < 14, rows % 2 == 0, columns >= 0, columns < 16, columns % 2 == 0)
        value = tirx.if_then_else(inside, X[n, rows // 2, columns // 2, c], tirx.const(0, "float32"))
        return te.sum(value * W[kh, kw, c, co], [kh, kw, c])

    program = same(te.compute((2, 13, 15, 6), element, "conv"), transposed=True, stride=(2, 2), padding=(1, 1, 1, 1))
    assert str(program.weight_at(5, 0, 1, 2, 3)) == "W[1, 2, 3, 5]"


def test_products_stay_products():
    a, b = te.placeholder((9, 12), name="A"), te.placeholder((12, 7), name="B")
    flat = te.placeholder((9 * 12,), name="F")
    (k,) = axes(12)
    in_rows = te.compute((9, 7), lambda i, j: te.sum(flat[i * 12 + k] * b[k, j], k), "C")
    many = te.placeholder((3, 9, 12), name="M"), te.placeholder((3, 12, 7), name="N")
    for op in (
        topi.matmul(a, b),
        in_rows,
        topi.nn.batch_matmul(*many, transpose_b=False),
        topi.matmul(topi.nn.relu(a), b),
    ):
        assert isinstance(match(prim_func_of(op)), GemmProgram)
    assert isinstance(match(prim_func_of(conv(X))), ConvProgram)


# ---- Refusals ---------------------------------------------------------------------------------------------------


def refusal(op: te.Tensor | tirx.PrimFunc) -> str:
    with pytest.raises(tt.UnsupportedOperator) as caught:
        match(prim_func_of(op))
    text = str(caught.value)
    assert text.startswith("main: not a matrix multiplication or convolution that can be scheduled: ")
    assert "\n" not in text and len(text) < 250
    return text


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: conv(conv(X), te.placeholder((3, 3, 6, 6), name="V")), "it has 2 reductions; expected one"),
        (
            lambda: topi.nn.pool2d(X, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max", layout="NHWC"),
            "not a sum of products",
        ),
        (
            lambda: topi.nn.pool2d(X, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "avg", layout="NHWC"),
            "not a sum of products",
        ),
        (lambda: conv(zeros_around(X, 1.0)), "an operand is padded with 1; only zeros are supported"),
        (lambda: conv(zeros_around(X, float("-inf"))), "an operand is padded with -inf; only zeros are supported"),
        (lambda: conv(topi.sigmoid(zeros_around(X))), "is padded with elements; only zeros are supported"),
        (
            lambda: conv(topi.nn.reflect_pad(X, (0, 1, 1, 0), (0, 1, 1, 0))),
            "along X's axis 1 the rows read are not stride * (output row) + dilation * tap - padding",
        ),
        (
            lambda: conv(topi.nn.replicate_pad(X, (0, 1, 1, 0), (0, 1, 1, 0))),
            "along X's axis 1 the rows read are not stride * (output row) + dilation * tap - padding",
        ),
        (
            lambda: conv(topi.nn.mirror_pad(X, (0, 1, 1, 0), (0, 1, 1, 0))),
            "along X's axis 1 the rows read are not stride",
        ),
        (
            lambda: conv(topi.nn.pad(te.placeholder((2, 7, 8, 3), name="Y"), (0, 0, 0, 0), (0, 0, 0, 1))),
            "Y is padded along axes that are not image axes",
        ),
        (lambda: conv(topi.nn.upsampling(X, 2, 2, "NHWC")), "along X's axis 1 the rows read are not"),
        (
            lambda: conv(topi.reshape(te.placeholder((2, 56, 4), name="Y"), X.shape)),
            "Y's axis 0 is not indexed by one output axis and one tap",
        ),
    ],
    ids=range(12),
)
def test_refused(make, part):
    assert part in refusal(make())


def by_hand(element, shape=(2, 5, 6, 6), taps=(3, 3, 4)) -> te.Tensor:
    summed = axes(*taps)
    return te.compute(shape, lambda *at: te.sum(element(*at, *summed), summed), "conv")


@pytest.mark.parametrize(
    ("element", "part"),
    [
        (
            lambda n, y, x, o, i, j, c: X[n, y * 3 + i, x + j, c] * W[i, j, c, o],
            "along X's axis 1 row 7 is read, but there are 7",
        ),
        (lambda n, y, x, o, i, j, c: X[n, y + i - 1, x + j, c] * W[i, j, c, o], "along X's axis 1 row -1 is read"),
        (
            lambda n, y, x, o, i, j, c: X[n, y + i, x + j, c] * W[i, j, c + 1, o],
            "W's axis 2 is read up to 5, but has 4 elements",
        ),
        (
            lambda n, y, x, o, i, j, c: X[n, y + i, x + j, c + 1] * W[i, j, c, o],
            "X's axis 3 is read up to 5, but has 4 elements",
        ),
        (
            lambda n, y, x, o, i, j, c: X[n, y + i, y + j, c] * W[i, j, c, o],
            "X's axis 2 is not indexed by one output axis",
        ),
        (lambda n, y, x, o, i, j, c: X[n, y * y + i, x + j, c] * W[i, j, c, o], "rows read are not stride"),
        (lambda n, y, x, o, i, j, c: X[n, 4 - y + i, x + j, c] * W[i, j, c, o], "rows read are not stride"),
        (
            lambda n, y, x, o, i, j, c: X[n, y + i, x + j, c] * W[i, 0, c, o],
            "a reduction axis is missing from one operand",
        ),
        (
            lambda n, y, x, o, i, j, c: X[n, y + i, x + j, c] * W[i, j, 0, o],
            "a reduction axis is missing from one operand",
        ),
        (
            lambda n, y, x, o, i, j, c: X[n, y + i, x + j, c] * W[i, j, c, 0],
            "an axis of the result is in neither operand",
        ),
        (
            lambda n, y, x, o, i, j, c: X[n, y + i, x + j, c] * (y + i).astype("float32") * W[i, j, c, o],
            "elements of the input depend on their position",
        ),
        (
            lambda n, y, x, o, i, j, c: (X[n, y + i, x + j, c] + X[n, y, x + j, c]) * W[i, j, c, o],
            "X, fused before the input, is not read at the rows of the input",
        ),
        (
            lambda n, y, x, o, i, j, c: (
                tirx.if_then_else(y + i > 1, X[n, y + i, x + j, c], tirx.const(0, "float32")) * W[i, j, c, o]
            ),
            "along X's axis 1 row 0 of 7 is treated as padding",
        ),
        (
            lambda n, y, x, o, i, j, c: (
                X[n, y + i, x + j, c] * tirx.if_then_else(c < 2, W[i, j, c, o], tirx.const(0, "float32"))
            ),
            "the kernels are zero under a condition that does not depend on a single tap",
        ),
    ],
    ids=range(14),
)
def test_refused_by_hand(element, part):
    assert part in refusal(by_hand(element))


def test_a_stride_that_is_not_fixed():
    stride = tirx.Var("s", "int32")
    x = te.placeholder((2, stride * 4 + 3, 8, 4), name="X")
    op = by_hand(lambda n, y, z, o, i, j, c: x[n, y * stride + i, z + j, c] * W[i, j, c, o])
    assert "the index of X's axis 1 is not integer arithmetic" in refusal(op)


def test_a_size_that_is_not_fixed():
    x = te.placeholder((2, tirx.Var("h", "int32"), 8, 4), name="X")
    assert "has a dynamic extent" in refusal(conv(x))


@pytest.mark.parametrize(
    ("dtype", "type_w", "part"), [("int32", "int32", "int32 are not supported; expected"), ("int8", "int16", "int32")]
)
def test_types_that_are_not_supported(dtype, type_w, part):
    x, w = te.placeholder((2, 7, 8, 4), dtype, "X"), te.placeholder((3, 3, 4, 6), type_w, "W")
    op = by_hand(lambda n, y, z, o, i, j, c: x[n, y + i, z + j, c].astype("int32") * w[i, j, c, o].astype("int32"))
    assert f"operands of type {part}" in refusal(op)


def test_four_dimensions():
    x, w = te.placeholder((5, 5, 5, 5, 2), name="X"), te.placeholder((2, 2, 2, 2, 2, 3), name="W")
    a, b, c, d, k = axes(2, 2, 2, 2, 2)
    op = te.compute(
        (4, 4, 4, 4, 3),
        lambda p, q, r, s, o: te.sum(x[p + a, q + b, r + c, s + d, k] * w[a, b, c, d, k, o], [a, b, c, d, k]),
        "conv",
    )
    assert "its kernels have 4 dimensions; at most three are supported" in refusal(op)
