"""Matrix multiplications with dynamic rows or batch, and convolutions of a dynamic number of images, compared with
NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tvm
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import te, tirx, topi

import tvm_tiling as tt
from tvm_tiling.decide.configs.open_configs import OpenSpace
from tvm_tiling.decide.configs.rule import changed
from tvm_tiling.decide.surroundings import Surroundings
from tvm_tiling.lowering.leading_axis import leading_axis
from tvm_tiling.lowering.samples import ranged, sampled, samples
from tvm_tiling.schedule import Options, hardware_of, llvm_target, schedule_for_weights, schedule_operator
from tvm_tiling.sizes import Range

ROWS = (0, 1, 2, 3, 5, 6, 7, 8, 9, 13, 17, 31, 64, 100, 257)


def product(n: int, k: int, dtype: str = "float32", batch: int | None = None):
    """relu(a b + bias) of m rows, as a function of a, b, bias and the result."""
    m = te.var("m", "int64")
    lead = () if batch is None else (batch,)
    a = te.placeholder((*lead, m, k), dtype, name="a")
    b, bias = te.placeholder((k, n), dtype, name="b"), te.placeholder((n,), dtype, name="bias")
    r = te.reduce_axis((0, k))
    total = te.compute((*lead, m, n), lambda *at: te.sum(a[(*at[:-1], r)] * b[r, at[-1]], axis=r))
    out = te.compute((*lead, m, n), lambda *at: te.max(total[at] + bias[at[-1]], tirx.const(0, dtype)))
    return te.create_prim_func([a, b, bias, out])


def compiled(scheduled):
    functions = {"main": scheduled.main}
    if scheduled.pack is not None:
        functions["pack"] = scheduled.pack.with_attr("global_symbol", "pack")
    return tvm.compile(tvm.IRModule(functions), target=llvm_target(hardware_of("llvm")))


def packed(scheduled, library, weights):
    found = tvm.runtime.tensor(np.zeros(scheduled.packed_shape, scheduled.packed_dtype))
    library["pack"](tvm.runtime.tensor(weights), found)
    return found


def check(n, k, rows, *, prepacked=True, dtype="float32", config=None):
    rng = np.random.default_rng(n * k)
    options = Options(prepacked=prepacked, config=config)
    scheduled = schedule_operator(product(n, k, dtype), "main", hardware_of("llvm"), options)
    library = compiled(scheduled)
    b, bias = (rng.uniform(-1, 1, shape).astype(dtype) for shape in ((k, n), (n,)))
    weights = packed(scheduled, library, b) if prepacked else tvm.runtime.tensor(b)
    for m in rows:
        a = rng.uniform(-1, 1, (m, k)).astype(dtype)
        out = tvm.runtime.tensor(np.full((m, n), np.nan, dtype))
        library["main"](tvm.runtime.tensor(a), weights, tvm.runtime.tensor(bias), out)
        np.testing.assert_allclose(out.numpy(), np.maximum(a @ b + bias, 0), rtol=1e-4, atol=1e-4 * k**0.5)
    return scheduled


@pytest.mark.parametrize(("n", "k"), [(96, 70), (77, 257), (10, 64), (1, 33), (130, 2500), (5, 1)])
def test_every_number_of_rows(n, k):
    assert check(n, k, ROWS).tiling.form == "open"


@pytest.mark.parametrize(("n", "k"), [(96, 70), (33, 1100)])
def test_weights_that_the_run_packs(n, k):
    check(n, k, ROWS, prepacked=False)


@pytest.mark.values
@pytest.mark.parametrize("first", [0, 4])
@pytest.mark.parametrize("prepacked", [True, False])
def test_configurations_of_every_tile(prepacked, first):
    """Blocks that do not divide K and the columns, and ranges of rows with different divisions among cores."""
    n, k, cores = 77, 257, hardware_of("llvm").cpu.cores
    shares = (1, 1, cores, 1, cores, 1, 1, 1, 1)
    around, sizes = Surroundings(prepacked=prepacked), (1, 300)
    space = OpenSpace(tt.GemmWorkload(m=128, n=n, k=k), hardware_of("llvm"), around, sizes)
    tiles = {config.choice("microkernel"): config for config in space.configs() if config != space.start}
    for config in list(tiles.values())[first::8]:
        for depth, columns in ((100, 16), (k, n)):
            settled = space.settled(changed(config, depth=depth, columns=columns, rows=(6, 40), shares=shares))
            tiling = check(n, k, (0, 1, 5, 6, 7, 41, 100), prepacked=prepacked, config=settled).tiling
            assert (tiling.mr, tiling.nr // tiling.lanes) == settled.choice("microkernel")


def test_doubles():
    check(50, 300, ROWS, dtype="float64")


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(1, 200), st.integers(1, 1500), st.lists(st.integers(0, 300), min_size=3, max_size=6))
def test_any_columns_summed_elements_and_rows(n, k, rows):
    check(n, k, rows)


def with_types(n: int, k: int, types: tuple[str, str, str], computed: bool = False):
    """a b of m rows; with a zero point subtracted from a's elements."""
    m, r = te.var("m", "int64"), te.reduce_axis((0, k))
    a, b = te.placeholder((m, k), types[0], name="a"), te.placeholder((k, n), types[1], name="b")
    left = te.compute((m, k), lambda i, j: a[i, j] * tirx.const(2, types[0])) if computed else a
    total = te.compute(
        (m, n), lambda i, j: te.sum(left[i, r].astype(types[2]) * b[r, j].astype(types[2]), axis=r), name="total"
    )
    out = te.compute((m, n), lambda i, j: te.max(total[i, j], tirx.const(-7, types[2])))
    return te.create_prim_func([a, b, out])


@pytest.mark.values
@pytest.mark.parametrize("left", ["int8", "uint8"])
@pytest.mark.parametrize(("n", "k"), [(70, 96), (33, 131)])
def test_integers_in_groups(left, n, k):
    """Rows are copied in groups, the last one padded; sums are exact."""
    func = with_types(n, k, (left, "int8", "int32"))
    scheduled = schedule_operator(func, "main", hardware_of("llvm"), Options(prepacked=True))
    library = compiled(scheduled)
    rng = np.random.default_rng(k)
    b = rng.integers(-128, 128, (k, n)).astype("int8")
    weights = packed(scheduled, library, b)
    for m in ROWS:
        a = rng.integers(*((0, 256) if left == "uint8" else (-128, 128)), (m, k)).astype(left)
        out = tvm.runtime.tensor(np.zeros((m, n), "int32"))
        library["main"](tvm.runtime.tensor(a), weights, out)
        np.testing.assert_array_equal(out.numpy(), np.maximum(a.astype("int32") @ b.astype("int32"), -7))


@pytest.mark.parametrize(("dtype", "computed"), [("float32", False), ("float32", True), ("float16", False)])
def test_rows_that_are_converted_or_computed_are_copied_once_for_a_tile(dtype, computed):
    func = with_types(40, 65, (dtype, dtype, "float32"), computed)
    scheduled = schedule_operator(func, "main", hardware_of("llvm"), Options(prepacked=True))
    assert scheduled.tiling.pack_a == ("pack" if computed or dtype == "float16" else "none")
    library = compiled(scheduled)
    rng = np.random.default_rng(0)
    b = rng.uniform(-1, 1, (65, 40)).astype(dtype)
    weights = packed(scheduled, library, b)
    for m in (1, 2, 7, 20):
        a = rng.uniform(-1, 1, (m, 65)).astype(dtype)
        out = tvm.runtime.tensor(np.zeros((m, 40), "float32"))
        library["main"](tvm.runtime.tensor(a), weights, out)
        left = a * np.dtype(dtype).type(2) if computed else a
        wanted = np.maximum(left.astype("float32") @ b.astype("float32"), -7)
        np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-4, atol=1e-3)


def test_a_batch_of_fixed_size_over_open_rows():
    scheduled = schedule_operator(product(40, 24, batch=3), "main", hardware_of("llvm"), Options(prepacked=True))
    library = compiled(scheduled)
    rng = np.random.default_rng(0)
    b, bias = rng.uniform(-1, 1, (24, 40)).astype("float32"), np.zeros(40, "float32")
    weights = packed(scheduled, library, b)
    for m in (1, 4, 19):
        a = rng.uniform(-1, 1, (3, m, 24)).astype("float32")
        out = tvm.runtime.tensor(np.zeros((3, m, 40), "float32"))
        library["main"](tvm.runtime.tensor(a), weights, tvm.runtime.tensor(bias), out)
        np.testing.assert_allclose(out.numpy(), np.maximum(a @ b, 0), rtol=1e-4, atol=1e-4)


def test_sampled_extents():
    s, b = tirx.Var("s", "int64"), tirx.Var("b", "int64")
    assert sampled(7) == 7 and sampled(s * b) == 128 * 128
    with samples({s: 5, "b": 3}):
        assert sampled(s * b + 1) == 16
        assert sampled(s - 9) == 1  # a size for which a decision can be made


def test_ranges_of_extents():
    s, b = tirx.Var("s", "int64"), tirx.Var("b", "int64")
    assert ranged(7) == Range(7, 7) and ranged(s) == Range(1) and ranged(s * b) == Range(1)
    with samples({}, {"s": (0, 512), "b": (2, 4)}):
        assert ranged(s * b) == Range(1, 2048) and ranged(s - b) == Range(1, 510)
    assert ranged(s) == Range(1)


# ---- a place after the other -----------------------------------------------------------------------------------------


def images(stride: int = 1, residual: bool = True):
    """relu(conv(x, w) [+ r]) on a dynamic number of images."""
    n = te.var("n", "int64")
    x, w = te.placeholder((n, 11, 9, 12), name="x"), te.placeholder((3, 3, 12, 20), name="w")
    made = topi.nn.conv2d_nhwc(x, w, stride, 1, 1)
    r = te.placeholder(made.shape, name="r")
    out = topi.nn.relu(topi.add(made, r) if residual else made)
    return te.create_prim_func([x, w, r, out] if residual else [x, w, out])


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("residual", [True, False])
def test_convolutions_of_an_open_number_of_images(stride, residual):
    torch = pytest.importorskip("torch")
    func = images(stride, residual)
    scheduled, _ = schedule_for_weights(
        func, "main", hardware_of("llvm"), Options(), lambda buffer: buffer.same_as(func.params[1])
    )
    library = compiled(scheduled)
    rng = np.random.default_rng(stride)
    w = rng.uniform(-1, 1, (3, 3, 12, 20)).astype("float32")
    weights = packed(scheduled, library, w)
    for count in (0, 1, 2, 5):
        x = rng.uniform(-1, 1, (count, 11, 9, 12)).astype("float32")
        shape = (count, *(-(-size // stride) for size in (11, 9)), 20)
        r = rng.uniform(-1, 1, shape).astype("float32")
        out = tvm.runtime.tensor(np.full(shape, np.nan, "float32"))
        given_ = [x, r] if residual else [x]
        library["main"](tvm.runtime.tensor(x), weights, *map(tvm.runtime.tensor, given_[1:]), out)
        if count:
            found = torch.nn.functional.conv2d(
                torch.tensor(x).permute(0, 3, 1, 2), torch.tensor(w).permute(3, 2, 0, 1), stride=stride, padding=1
            ).permute(0, 2, 3, 1)
            wanted = (found + torch.tensor(r) if residual else found).relu().numpy()
            np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-3, atol=1e-3)


def rows(compute, *more):
    m = te.var("m", "int64")
    a = te.placeholder((m, 8), name="a")
    return te.create_prim_func([a, *more, te.compute((m, 8), lambda i, j: compute(a, m, i, j))])


def test_what_does_the_same_for_each_place_is_told_from_what_does_not():
    assert leading_axis(rows(lambda a, m, i, j: a[i, 7 - j] * 2.0)) is not None
    others = {
        "the size in a value": lambda a, m, i, j: a[i, j] * m.astype("float32"),
        "another place": lambda a, m, i, j: a[m - 1 - i, j],
        "the place in a value": lambda a, m, i, j: a[i, j] + i.astype("float32"),
        "one place for all": lambda a, m, i, j: a[0, j],
        "the place as another index": lambda a, m, i, j: a[i, tirx.floormod(i, 8)],
        "a choice by the place": lambda a, m, i, j: tirx.Select(i > 3, a[i, j], tirx.const(0.0, "float32")),
    }
    for why, compute in others.items():
        assert leading_axis(rows(compute)) is None, why
    m = te.var("m", "int64")
    a, r = te.placeholder((m, 8)), te.reduce_axis((0, m))
    assert leading_axis(te.create_prim_func([a, te.compute((8,), lambda j: te.sum(a[r, j], axis=r))])) is None
    b, s = te.placeholder((m, m)), te.var("s", "int64")
    assert leading_axis(te.create_prim_func([b, te.compute((m, m), lambda i, j: b[i, j])])) is None
    c = te.placeholder((m, s))
    assert leading_axis(te.create_prim_func([c, te.compute((m, s), lambda i, j: c[i, j])])) is None


def product_of_halves(n: int, k: int, dtype: str):
    """a b of m rows, accumulated in float32, as a function of a, b and the result."""
    m, r = te.var("m", "int64"), te.reduce_axis((0, k))
    a, b = te.placeholder((m, k), dtype, name="a"), te.placeholder((k, n), dtype, name="b")
    total = te.compute((m, n), lambda i, j: te.sum(a[i, r].astype("float32") * b[r, j].astype("float32"), axis=r))
    return te.create_prim_func([a, b, total])


def test_weights_of_bfloat16_stay_in_two_bytes():
    """Few rows are memory-bound; in panels for multiply-adds they took four times as long."""
    n, k = 640, 1024
    options = Options(prepacked=True)
    scheduled = schedule_operator(
        product_of_halves(n, k, "bfloat16"), "main", tt.Hardware.load("zen4-server-8c"), options
    )
    size = np.prod(scheduled.packed_shape) * np.dtype(scheduled.packed_dtype).itemsize
    assert size == 2 * n * k


@pytest.mark.parametrize(("n", "k"), [(96, 70), (77, 257), (1, 33), (130, 1500), (5, 1)])
def test_every_number_of_rows_in_bfloat16(n, k):
    rng = np.random.default_rng(n)
    scheduled = schedule_operator(
        product_of_halves(n, k, "bfloat16"), "main", hardware_of("llvm"), Options(prepacked=True)
    )
    library = compiled(scheduled)
    b = rng.uniform(-1, 1, (k, n)).astype(ml_dtypes.bfloat16)
    weights = packed(scheduled, library, b)
    for m in (0, 1, 2, 3, 6, 7, 13, 16, 100):
        a = rng.uniform(-1, 1, (m, k)).astype(ml_dtypes.bfloat16)
        out = tvm.runtime.tensor(np.full((m, n), np.nan, "float32"))
        library["main"](tvm.runtime.tensor(a), weights, out)
        right = a.astype("float64") @ b.astype("float64")
        np.testing.assert_allclose(out.numpy(), right, rtol=1e-4, atol=1e-5 * k**0.5)
