"""Matrix multiplications with dynamic columns or reduction axis, as of two activations, compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from tvm_tiling.schedule import Options, hardware_of, llvm_target, schedule_operator

B, M, N, K = (tirx.Var(name, "int64") for name in "bmnk")
# Of b, m, n and k: around vectors, groups and tiles, and 0.
SIZES = [
    *((1, 1, 1, 1), (2, 7, 5, 3), (3, 8, 16, 4), (1, 9, 33, 66), (2, 64, 31, 17), (1, 17, 100, 257), (2, 3, 63, 64)),
    *((0, 3, 4, 5), (2, 0, 4, 5), (2, 3, 0, 5), (2, 3, 4, 0)),
]
TYPES = {
    "floats": ("float32", "float32", "float32"),
    "halves": ("float16", "float16", "float32"),
    "bfloat16": ("bfloat16", "bfloat16", "float32"),
    "signed": ("int8", "int8", "int32"),
    "unsigned": ("uint8", "int8", "int32"),
    "unsigned by unsigned": ("uint8", "uint8", "int32"),
}


def extent(size):
    return tirx.const(size, "int64") if isinstance(size, int) else size


def product(types, turned, sizes):
    """max(2 a b + r, -7) of matrices, b column by column if it is transposed."""
    batch, m, n, k = map(extent, sizes)
    left, right, out = types
    a, r = te.placeholder((batch, m, k), left), te.placeholder((batch, m, n), out)
    b = te.placeholder((batch, n, k) if turned else (batch, k, n), right)
    x = te.reduce_axis((0, k))
    total = te.compute(
        (batch, m, n),
        lambda p, i, j: te.sum(a[p, i, x].astype(out) * (b[p, j, x] if turned else b[p, x, j]).astype(out), axis=x),
    )
    two, least = tirx.const(2, out), tirx.const(-7, out)
    result = te.compute((batch, m, n), lambda p, i, j: te.max(total[p, i, j] * two + r[p, i, j], least))
    return te.create_prim_func([a, b, r, result])


def drawn(rng, shape, dtype):
    if "int" in dtype:
        info = np.iinfo(dtype)
        return rng.integers(max(info.min, -200), min(info.max, 255) + 1, shape).astype(dtype)
    return rng.uniform(-1, 1, shape).astype(dtype)


def check(types, turned, opened=(B, M, N, K), at=SIZES):
    func = product(types, turned, opened)
    scheduled = schedule_operator(func, "main", hardware_of("llvm"), Options())
    assert scheduled.tiling.form == "open" and scheduled.tiling.pack_b == "pack"
    library = tvm.compile(tvm.IRModule({"main": scheduled.main}), target=llvm_target(hardware_of("llvm")))
    rng = np.random.default_rng(0)
    for sizes in at:
        pairs = zip(opened, sizes, strict=True)
        batch, m, n, k = (given if isinstance(given, int) else size for given, size in pairs)
        a, b = drawn(rng, (batch, m, k), types[0]), drawn(rng, (batch, n, k) if turned else (batch, k, n), types[1])
        r = drawn(rng, (batch, m, n), types[2])
        out = tvm.runtime.tensor(np.full((batch, m, n), 99, types[2]))
        library["main"](*map(tvm.runtime.tensor, (a, b, r)), out)
        right = (b.swapaxes(1, 2) if turned else b).astype(types[2])
        wanted = np.maximum(2 * (a.astype(types[2]) @ right) + r, -7)
        np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-4, atol=1e-3, err_msg=str(sizes))


@pytest.mark.values
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", TYPES)
def test_every_size(name, turned):
    check(TYPES[name], turned)


SLOW = [pytest.param(opened, marks=pytest.mark.slow) for opened in ((B, M, 20, K), (1, M, N, 7))]


@pytest.mark.parametrize("opened", [(B, M, N, 20), (12, M, M, 64), (12, 5, 70, K), *SLOW])
def test_some_sizes_are_fixed(opened):
    check(TYPES["unsigned"], True, opened, [s if opened[2] is not M else (s[0], s[1], s[1], s[3]) for s in SIZES])


def test_sizes_of_32_bits():
    narrow = tuple(tirx.Var(name, "int32") for name in "mnk")
    m, n, k = narrow
    a, b, x = te.placeholder((m, k)), te.placeholder((k, n)), te.reduce_axis((0, k))
    func = te.create_prim_func([a, b, te.compute((m, n), lambda i, j: te.sum(a[i, x] * b[x, j], axis=x))])
    scheduled = schedule_operator(func, "main", hardware_of("llvm"), Options())
    library = tvm.compile(tvm.IRModule({"main": scheduled.main}), target=llvm_target(hardware_of("llvm")))
    for _, m, n, k in SIZES:
        left, right = (
            drawn(np.random.default_rng(0), (m, k), "float32"),
            drawn(np.random.default_rng(1), (k, n), "float32"),
        )
        out = tvm.runtime.tensor(np.full((m, n), np.nan, "float32"))
        library["main"](tvm.runtime.tensor(left), tvm.runtime.tensor(right), out)
        np.testing.assert_allclose(out.numpy(), left @ right, rtol=1e-4, atol=1e-4)
