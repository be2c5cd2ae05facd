"""Every kernel variant, type and layout of a matrix multiplication, at awkward sizes, against NumPy; and memory
accesses."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from products import (
    EPSILON,
    ON_X86,
    Product,
    avx2,
    check,
    check_tile,
    expected,
    inputs_of,
    legal_tiles,
    machine_for,
    native,
)
from random_products import random_case

SIZES = (1, 2, 7, 15, 16, 17, 31, 33, 64, 127, 128, 131, 251)
FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int8", "uint8")
LAYOUTS = list(itertools.product((False, True), repeat=2))
EPILOGUES = {
    "bias per column": ("bias_n",),
    "bias per row": ("bias_m",),
    "relu": ("relu",),
    "residual": ("residual",),
    "gelu": ("gelu",),
    "tanh": ("tanh",),
    "scale": ("scale",),
    "square": ("square",),
    "cast": ("cast:float16",),
    "dense": ("bias_n", "relu"),
    "block": ("scale", "bias_n", "gelu", "residual"),
    "all": ("bias_m", "bias_n", "tanh", "residual", "relu", "scale", "cast:bfloat16"),
}


def sizes_for(form: str | None, number: int) -> dict[str, int]:
    """Sizes that vary from case to case; enough rows for an inline copy, few enough to be streamed."""
    rows = {"stream": (1, 2, 3, 4), "inline": (17, 31, 33)}.get(form or "", (2, 7, 15, 17, 33))
    columns, depths = (15, 16, 17, 31, 33, 47, 65), (1, 2, 31, 64, 127, 251)
    return {"m": rows[number % len(rows)], "n": columns[number % len(columns)], "k": depths[number % len(depths)]}


def layout_cases():
    forms = {dtype: (None, "normal", "nocopy", "inline", "pack", "stream") for dtype in FLOATS}
    forms |= {dtype: (None, "pack") for dtype in INTEGERS}
    plain = [(d, f, a, b, "plain") for d in forms for f in forms[d] for a, b in LAYOUTS]
    packed = [(d, f, a, b, "packed") for d in forms for f in forms[d] for a, b in LAYOUTS if f != "stream"]
    return plain + packed[::3]


@pytest.mark.pairs
@pytest.mark.parametrize(("dtype", "form", "trans_a", "trans_b", "weights"), layout_cases())
def test_every_algorithm_type_and_layout(dtype, form, trans_a, trans_b, weights):
    number = layout_cases().index((dtype, form, trans_a, trans_b, weights))
    p = Product(dtype=dtype, trans_a=trans_a, trans_b=trans_b, **sizes_for(form, number))
    taken = check(p, machine_for(form), form=form, weights=weights, seed=number)
    if form is not None:
        assert taken["form"] == form
    if weights == "packed":
        assert taken["pack_b"] == "ahead"


@pytest.mark.parametrize("i", range(len(SIZES)))
def test_sizes_of_each_axis(i):
    """A fifth of a Latin square; tests/slow has all of it."""
    for j in range(i % 5, len(SIZES), 5):
        p = Product(m=SIZES[i], n=SIZES[j], k=SIZES[(i + j) % len(SIZES)], trans_b=(i + j) % 2 == 1)
        check(p, seed=j)


@pytest.mark.values
@pytest.mark.parametrize("dtype", ["int8", "uint8", "bfloat16"])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (1, 17, 33), (17, 1, 33), (17, 33, 1), (1, 1, 251), (251, 1, 1)])
def test_sizes_of_one(dtype, m, n, k):
    for weights in ("plain", "packed"):
        check(Product(m=m, n=n, k=k, dtype=dtype), weights=weights)


@pytest.mark.values
@pytest.mark.parametrize(("left", "right"), [("int8", "uint8"), ("uint8", "int8")])
@pytest.mark.parametrize(
    ("m", "n", "weights"), [(17, 33, "plain"), (17, 33, "packed"), (17, 1, "plain"), (1, 17, "plain")]
)
def test_signed_with_unsigned_bytes(left, right, m, n, weights):
    check(Product(m=m, n=n, k=31, dtype=left, dtype_b=right, out="int32"), weights=weights)


@pytest.mark.values
@pytest.mark.parametrize(
    ("dtype", "out"),
    [
        ("float16", "float16"),
        ("bfloat16", "bfloat16"),
        ("float16", "float64"),
        ("float32", "float64"),
        ("float32", "float16"),
        ("int8", "int8"),
        ("uint8", "uint8"),
    ],
)
@pytest.mark.parametrize("k", [31, 3001])
def test_sums_of_another_type(dtype, out, k):
    check(Product(m=17, n=33, k=k, dtype=dtype, out=out))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_holds_no_partial_sums(dtype):
    """Results are rounded once, not after every block of K."""
    taken = check(Product(m=42, n=1024, k=1024, dtype=dtype, out=dtype))
    assert taken["partition_k"] == 1024


# ---- batches -----------------------------------------------------------------------------------------------------


BATCHES = [((1,), None), ((5,), None), ((5,), (1,)), ((5,), ()), ((2, 3), None), ((2, 3), (1, 3)), ((2, 3), (2, 1))]


@pytest.mark.parametrize(
    ("batch", "batch_b", "dtype"),
    [
        pytest.param(*batches, dtype, marks=() if number % 3 == other else pytest.mark.slow)
        for number, batches in enumerate(BATCHES)
        for other, dtype in enumerate(("float32", "int8", "bfloat16"))
    ],
)
def test_batches(batch, batch_b, dtype):
    for trans_b, cores in ((False, 1), (True, 4)):
        p = Product(m=7, n=17, k=33, dtype=dtype, batch=batch, batch_b=batch_b, trans_b=trans_b, epilogue=("bias_n",))
        check(p, native(cores=cores))


# ---- strides -----------------------------------------------------------------------------------------------------


@pytest.mark.values
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize(("trans_a", "trans_b"), LAYOUTS)
@pytest.mark.parametrize("pads", [(7, 0, 0), (0, 16, 3), (1, 5, 31)])
def test_strided_buffers(dtype, trans_a, trans_b, pads):
    pad_a, pad_b, pad_c = pads
    p = Product(m=19, n=35, k=33, dtype=dtype, trans_a=trans_a, trans_b=trans_b, pad_a=pad_a, pad_b=pad_b, pad_c=pad_c)
    check(p, seed=pad_c)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 33, 17), (33, 1, 17), (33, 17, 1), (1, 1, 1), (40, 17, 4001)])
def test_strided_buffers_of_odd_sizes(m, n, k):
    check(Product(m=m, n=n, k=k, pad_a=3, pad_b=5, pad_c=7))
    check(Product(m=m, n=n, k=k, pad_a=3, pad_b=5, pad_c=7, trans_a=True, trans_b=True))


# ---- epilogues ---------------------------------------------------------------------------------------------------


SIZES_OF_FORMS = {None: (17, 33, 31), "stream": (3, 45, 40), "pack": (33, 17, 3001)}


@pytest.mark.parametrize(
    ("steps", "form"),
    [
        pytest.param(steps, form, id=f"{name}-{form}", marks=() if usual else pytest.mark.slow)
        for name, steps in EPILOGUES.items()
        for form in SIZES_OF_FORMS
        for usual in (form is None or name in ("bias per column", "bias per row", "cast", "block", "all"),)
    ],
)
def test_epilogues(steps, form):
    sizes = dict(zip("mnk", SIZES_OF_FORMS[form], strict=True))
    check(Product(**sizes, epilogue=steps), form=form)


@pytest.mark.values
@pytest.mark.parametrize("dtype", ["int8", "uint8", "bfloat16", "float16", "float64"])
@pytest.mark.parametrize(
    "steps", [("bias_n", "relu"), ("bias_m", "cast:float32", "scale", "residual"), ("relu", "scale")]
)
def test_epilogues_of_types(dtype, steps):
    if dtype in INTEGERS:
        steps = tuple(step for step in steps if step != "scale" or "cast:float32" in steps)
    check(Product(m=18, n=49, k=65, dtype=dtype, epilogue=steps))
    if dtype in ("bfloat16", "float16"):
        check(Product(m=18, n=49, k=65, dtype=dtype, out=dtype, epilogue=steps))


# ---- long k, many cores ------------------------------------------------------------------------------------------


@pytest.mark.values
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8"])
@pytest.mark.parametrize("form", [None, "pack"])
@pytest.mark.parametrize("weights", ["plain", "packed"])
def test_several_blocks_of_k(dtype, form, weights):
    taken = check(Product(m=18, n=20, k=8000, dtype=dtype), form=form, weights=weights)
    assert taken["split_k"] and taken["partition_k"] < 8000


@pytest.mark.values
@pytest.mark.parametrize("form", ["normal", "nocopy", "inline"])
@pytest.mark.parametrize("trans_a", [False, True])
def test_several_blocks_of_k_in_place(form, trans_a):
    taken = check(
        Product(m=18, n=20, k=5000, trans_a=trans_a, epilogue=("bias_n", "relu")), machine_for(form), form=form
    )
    assert taken["split_k"]


@pytest.mark.values
@pytest.mark.parametrize("cores", [4, 16])
@pytest.mark.parametrize(
    ("dtype", "steps"),
    [
        ("float32", ()),
        ("float32", ("bias_n", "relu")),
        ("float16", ("cast:float16",)),
        ("int8", ("bias_n", "cast:float32")),
    ],
)
def test_sums_shared_by_cores(cores, dtype, steps):
    for trans_b in (False, True):
        p = Product(m=17, n=20, k=40001, dtype=dtype, trans_b=trans_b, epilogue=steps)
        taken = check(p, native(cores=cores))
        assert taken["threads_k"] > 1 and taken["need_acc_buffer"]


@pytest.mark.values
@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("weights", ["plain", "packed"])
@pytest.mark.parametrize(("m", "n", "k"), [(251, 127, 131), (1000, 17, 33), (17, 1000, 33), (251, 251, 600)])
def test_shares_of_rows_and_columns(dtype, weights, m, n, k):
    for cores in (4, 16):
        check(Product(m=m, n=n, k=k, dtype=dtype), native(cores=cores), weights=weights)


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("cores", [4, 6])
def test_panels_of_b_that_cores_pack_for_each_other(batch, cores):
    """Neither the cores nor the lanes divide the panels, the last of which is narrower."""
    tile = (9, 3) if native().cpu.vector_registers == 32 else (4, 3)
    check(Product(m=251, n=251, k=600, dtype="int8", batch=batch), native(cores=cores), microkernel=tile)


def test_streams_shared_by_cores():
    for m, trans_b in itertools.product((1, 4), (False, True)):
        p = Product(m=m, n=1000, k=257, trans_b=trans_b, epilogue=("bias_n",))
        assert check(p, native(cores=4), form="stream")["form"] == "stream"


# ---- other descriptions, forced register tiles -------------------------------------------------------------------


@pytest.mark.values
@ON_X86
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("weights", ["plain", "packed"])
def test_without_avx512(dtype, weights):
    p = Product(m=33, n=31, k=65, dtype=dtype, trans_b=True, epilogue=("bias_n",))
    assert check(p, avx2(), weights=weights)["lanes"] == (4 if dtype == "float64" else 8)


@ON_X86
@pytest.mark.parametrize("dtype", ["float32", *INTEGERS])
def test_vectors_of_128_bits(dtype):
    taken = check(Product(m=17, n=21, k=31, dtype=dtype), avx2(vector_bits=128))
    assert taken["lanes"] == 4


@ON_X86
@pytest.mark.parametrize(
    "tile",
    [pytest.param(tile, marks=pytest.mark.slow if i % 3 else ()) for i, tile in enumerate(legal_tiles(16))],
)
def test_every_register_tile_of_16_registers(tile):
    """A third of them by default."""
    check_tile(avx2(), tile)


@pytest.mark.values
@pytest.mark.parametrize("tile", [(30, 1), (14, 2), (9, 3), (6, 4), (5, 5), (4, 6), (3, 7), (2, 8), (1, 15), (1, 1)])
@pytest.mark.parametrize("weights", ["plain", "packed"])
def test_register_tiles_of_all_registers(tile, weights):
    if (tile[0] + 1) * tile[1] + 1 > native().cpu.vector_registers:
        pytest.skip("this CPU has fewer registers")
    check_tile(native(), tile, weights=weights)


# ---- values that are not finite ----------------------------------------------------------------------------------


@pytest.mark.pairs
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize(
    ("form", "weights", "m", "n", "k"),
    [
        (None, "plain", 17, 33, 31),
        (None, "packed", 17, 33, 31),
        ("pack", "plain", 17, 33, 31),
        ("inline", "plain", 33, 17, 31),
        ("stream", "plain", 4, 33, 31),
        (None, "plain", 18, 20, 5000),
    ],
)
@pytest.mark.parametrize("trans_b", [False, True])
def test_nan_and_infinity_spread_as_in_numpy(dtype, form, weights, m, n, k, trans_b):
    p = Product(m=m, n=n, k=k, dtype=dtype, trans_b=trans_b)
    inputs = inputs_of(p)
    a, b = (x.array.copy() for x in inputs)
    a[0, 0], a[m - 1, k - 1], a[1, 0] = np.nan, np.inf, -np.inf
    last = b.T if trans_b else b
    last[k - 1, n - 1], last[0, n // 2], last[k // 2, 0] = np.inf, np.nan, 0
    for guarded, values in zip(inputs, (a, b), strict=True):
        guarded.fill(values)
    with np.errstate(invalid="ignore"):
        value, _, _ = expected(p, [a, b])
        finite = np.isfinite(value)
        assert finite.any() and np.isnan(value).any() and np.isinf(value).any()
        check(p, machine_for(form), inputs=inputs, form=form, weights=weights)


# ---- anything ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
def test_random_gemms(seed):
    """Six of the 2,000 cases in tests/slow."""
    rng = random.Random(seed)
    for number in range(6):
        p, hardware, options = random_case(rng, most=100)
        check(p, hardware, seed=number, **options)


# ---- the comparison itself ---------------------------------------------------------------------------------------


def test_the_tolerance_notices_one_missing_term():
    for dtype, k in itertools.product(("float32", "float64"), (1, 31, 5000)):
        p = Product(m=7, n=7, k=k, dtype=dtype)
        inputs = [x.array.copy() for x in inputs_of(p)]
        value, allowed, _ = expected(p, inputs)
        inputs[0][:, k // 2] = 0
        without, _, _ = expected(p, inputs)
        assert (np.abs(value - without) > allowed).mean() > 0.9
    assert set(EPSILON) == set(FLOATS)
