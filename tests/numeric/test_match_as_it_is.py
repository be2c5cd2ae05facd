"""Expressions that resemble a sum of products but differ: computed like TVM's default build, or refused."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from products import DTYPES
from tvm import te, tirx
from tvm.script import tirx as T  # noqa: N812

import tvm_tiling as tt
from tvm_tiling.errors import UnsupportedOperator
from tvm_tiling.schedule import this_cpu
from tvm_tiling.schedules.fallback import schedule_fallback

M, N, K = 9, 17, 11


def numbers(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if "int" not in dtype:
        return (rng.standard_normal(shape) * 300).astype(DTYPES[dtype])
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, endpoint=True, dtype=dtype)


def built(func: tirx.PrimFunc, arrays: list[np.ndarray], target: object) -> np.ndarray:
    """Return the content of the last parameter after a run with `arrays` in all parameters."""
    tensors = [tvm.runtime.tensor(a) for a in arrays]
    tvm.compile(tvm.IRModule({"main": func.with_attr("global_symbol", "main")}), target=target)["main"](*tensors)
    return tensors[-1].numpy()


def check(func: tirx.PrimFunc, arrays: list[np.ndarray], said: str) -> None:
    """Not a matrix multiplication for the pattern matcher, which gives the reason; other rules compute it."""
    with pytest.raises(UnsupportedOperator, match=said):
        tt.tiling_schedule(func)
    want = built(func, arrays, "llvm")
    got = built(schedule_fallback(func, "main", this_cpu()), arrays, tt.llvm_target())
    largest = 0 if "int" in str(want.dtype) else np.abs(want[np.isfinite(want)]).max()  # products of float16 overflow
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6 * largest)


def product(left: str, right: str, term) -> tirx.PrimFunc:
    a, b = te.placeholder((M, K), left, "A"), te.placeholder((K, N), right, "B")
    k = te.reduce_axis((0, K), "k")
    return te.create_prim_func([a, b, te.compute((M, N), lambda i, j: te.sum(term(a[i, k], b[k, j]), k), "C")])


@pytest.mark.values
@pytest.mark.parametrize("total", ["int32", "int64", "float32", "float64", "uint32", "int16"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_products_that_wrap_before_they_are_summed(dtype, total):
    func = product(dtype, dtype, lambda a, b: (a * b).astype(total))
    arrays = [numbers(dtype, (M, K), 1), numbers(dtype, (K, N), 2), np.zeros((M, N), total)]
    check(func, arrays, "not a sum of products that fit in their type")


@pytest.mark.parametrize("total", ["float32", "float64"])
def test_products_that_are_rounded_before_they_are_summed(total):
    func = product("float16", "float16", lambda a, b: (a * b).astype(total))
    arrays = [numbers("float16", (M, K), 1), numbers("float16", (K, N), 2), np.zeros((M, N), total)]
    check(func, arrays, "not a sum of products that fit in their type")


def test_products_that_are_narrowed():
    func = product("int8", "int8", lambda a, b: (a.astype("int32") * b.astype("int32")).astype("int8").astype("int32"))
    arrays = [numbers("int8", (M, K), 1), numbers("int8", (K, N), 2), np.zeros((M, N), "int32")]
    check(func, arrays, "not a sum of products")


@pytest.mark.parametrize(
    ("dtype", "between"), [("int8", "int16"), ("int8", "int32"), ("uint8", "uint16"), ("float16", "float32")]
)
def test_products_that_their_type_holds_are_supported(dtype, between):
    total = "float64" if dtype == "float16" else "int32"
    func = product(dtype, dtype, lambda a, b: (a.astype(between) * b.astype(between)).astype(total))
    arrays = [numbers(dtype, (M, K), 1), numbers(dtype, (K, N), 2), np.zeros((M, N), total)]
    got = built(tt.tiling_schedule(func).mod["main"], arrays, tt.llvm_target())
    np.testing.assert_allclose(got, built(func, arrays, "llvm"), rtol=1e-12, atol=1e-9)


def test_products_of_bytes_in_words_that_do_not_hold_them():
    func = product("uint8", "uint8", lambda a, b: (a.astype("int16") * b.astype("int16")).astype("int32"))
    arrays = [numbers("uint8", (M, K), 1), numbers("uint8", (K, N), 2), np.zeros((M, N), "int32")]
    check(func, arrays, "not a sum of products that fit in their type")


def test_that_many_products_of_integers_that_int32_may_wrap():
    a, b = te.placeholder((1, 200_000), "int8", "A"), te.placeholder((200_000, 2), "int8", "B")
    k = te.reduce_axis((0, 200_000), "k")
    f = te.compute((1, 2), lambda i, j: te.sum(a[i, k].astype("float32") * b[k, j].astype("float32"), k), "C")
    func = te.create_prim_func([a, b, f])
    arrays = [np.full((1, 200_000), -128, "int8"), np.full((200_000, 2), -128, "int8"), np.zeros((1, 2), "float32")]
    check(func, arrays, "200000 products of int8 may exceed int32, but accumulate in float32")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_epilogue_that_leaves_nothing_of_the_sum(dtype):
    """On an axis of one element the condition is known, and TVM returns zeros instead of products with zero."""
    a, b = te.placeholder((M, K), "int8", "A"), te.placeholder((K, 1), "int8", "B")
    scale = te.placeholder((1,), dtype, "scale")
    k = te.reduce_axis((0, K), "k")
    c = te.compute((M, 1), lambda i, j: te.sum(a[i, k].astype("int32") * b[k, j].astype("int32"), k), "C")
    zero = tirx.const(0, dtype)
    out = te.compute((M, 1), lambda i, j: c[i, j].astype(dtype) * tirx.if_then_else(j >= 1, scale[j - 1], zero), "out")
    func = te.create_prim_func([a, b, scale, out])
    with pytest.raises(UnsupportedOperator, match="does not depend on it"):
        tt.tiling_schedule(func)
    scheduled = schedule_fallback(func, "main", this_cpu())
    tensors = [tvm.runtime.tensor(numbers("int8", shape, 1)) for shape in ((M, K), (K, 1))]
    tensors += [tvm.runtime.empty((1,), dtype), tvm.runtime.empty((M, 1), dtype)]
    tvm.compile(tvm.IRModule({"main": scheduled}), target=tt.llvm_target())["main"](*tensors)
    assert not tensors[-1]._create_view((2 if dtype == "float32" else 1, M), "uint16").numpy().any()


@T.prim_func(s_tir=True)
def starts_at_one(A: T.Buffer((9, 11)), B: T.Buffer((11, 17)), C: T.Buffer((9, 17))):
    for i, j, k in T.grid(9, 17, 11):
        with T.sblock("c"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(1)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


@T.prim_func(s_tir=True)
def adds_to_what_is_there(A: T.Buffer((9, 11)), B: T.Buffer((11, 17)), C: T.Buffer((9, 17))):
    for i, j, k in T.grid(9, 17, 11):
        with T.sblock("c"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


@T.prim_func(s_tir=True)
def under_a_condition(A: T.Buffer((9, 11)), B: T.Buffer((11, 17)), C: T.Buffer((9, 17))):
    for i, j, k in T.grid(9, 17, 11):
        with T.sblock("c"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            T.where(i < 5)
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


@T.prim_func(s_tir=True)
def some_rows(A: T.Buffer((9, 11)), B: T.Buffer((11, 17)), C: T.Buffer((9, 17))):
    for i, j, k in T.grid(4, 17, 11):
        with T.sblock("c"):
            vi = T.axis.spatial(9, i * 2)
            vj, vk = T.axis.remap("SR", [j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


@T.prim_func(s_tir=True)
def from_another_place(A: T.Buffer((9, 11)), B: T.Buffer((11, 17)), C: T.Buffer((9, 17))):
    for i, j, k in T.grid(9, 17, 11):
        with T.sblock("c"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, 16 - vj] + A[vi, vk] * B[vk, vj]


@T.prim_func(s_tir=True)
def twice_into_one(A: T.Buffer((9, 11)), B: T.Buffer((11, 17)), C: T.Buffer((9, 17))):
    for i, j, k in T.grid(9, 17, 11):
        with T.sblock("c"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj // 2] = T.float32(0)
            C[vi, vj // 2] = C[vi, vj // 2] + A[vi, vk] * B[vk, vj]


@T.prim_func(s_tir=True)
def then_over_itself(A: T.Buffer((9, 11)), B: T.Buffer((11, 17)), C: T.Buffer((9, 17))):
    P = T.sblock_alloc_buffer((9, 17))
    for i, j, k in T.grid(9, 17, 11):
        with T.sblock("p"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                P[vi, vj] = T.float32(0)
            P[vi, vj] = P[vi, vj] + A[vi, vk] * B[vk, vj]
    for i, j in T.grid(9, 17):
        with T.sblock("c"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = C[vi, vj] * T.float32(2) + P[vi, vj]


@pytest.mark.parametrize(
    ("func", "said"),
    [
        (starts_at_one, "does not accumulate from 0"),
        (adds_to_what_is_there, "modifies C in place"),
        (under_a_condition, "is conditional"),
        (some_rows, "do not execute each point"),
        (from_another_place, "reads C, which it writes, at other indices"),
        (twice_into_one, "stores several points to one element"),
        (then_over_itself, "modifies C in place"),
    ],
    ids=lambda value: value.attrs["global_symbol"] if isinstance(value, tirx.PrimFunc) else "",
)
def test_blocks_that_are_not_whole(func, said):
    arrays = [np.random.default_rng(n).standard_normal(s).astype("float32") for n, s in enumerate(((M, K), (K, N)))]
    check(func, [*arrays, np.full((M, N), 0.5, "float32")], said)


def test_loops_that_run_backwards_cover_a_block():
    @T.prim_func(s_tir=True)
    def backwards(A: T.Buffer((9, 11)), B: T.Buffer((11, 17)), C: T.Buffer((9, 17))):
        for i, j, k in T.grid(9, 17, 11):
            with T.sblock("c"):
                vi = T.axis.spatial(9, 8 - i)
                vj, vk = T.axis.remap("SR", [j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

    arrays = [np.random.default_rng(n).standard_normal(s).astype("float32") for n, s in enumerate(((M, K), (K, N)))]
    got = built(tt.tiling_schedule(backwards).mod["main"], [*arrays, np.zeros((M, N), "float32")], tt.llvm_target())
    np.testing.assert_allclose(got, arrays[0] @ arrays[1], rtol=1e-5, atol=1e-5)
