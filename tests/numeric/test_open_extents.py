"""Element-wise operators, data movement and reductions with dynamic extents, at sizes around a vector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, tirx, topi

import tvm_tiling as tt
from tvm_tiling.lowering.prim_func import DECISION
from tvm_tiling.model.kernels import Kind, _safe
from tvm_tiling.schedule import this_cpu
from tvm_tiling.schedules.fallback import schedule_fallback

N, M, P = (tirx.Var(name, "int64") for name in "nmp")
# Of n, m and p: less than a vector, whole vectors, several, and 0.
SIZES = [
    *((1, 1, 1), (2, 3, 5), (1, 7, 2), (3, 8, 1), (2, 9, 16), (5, 15, 3), (1, 16, 17), (2, 17, 9), (1, 31, 2)),
    *((2, 33, 7), (3, 64, 1), (1, 100, 31), (2, 257, 3), (0, 5, 2), (3, 0, 2), (3, 4, 0), (40, 70, 33)),
]


def long(extent: Any) -> Any:
    return tirx.const(extent, "int64") if isinstance(extent, int) else extent


def tensor(*shape: Any, dtype: str = "float32") -> te.Tensor:
    return te.placeholder(list(map(long, shape)), dtype=dtype)


@dataclass(frozen=True)
class Case:
    """A function of tensor expressions; `reference` on NumPy arrays, or None for TVM's plain build."""

    inputs: list[te.Tensor]
    output: te.Tensor
    reference: Callable[..., np.ndarray] | None = None


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    if not x.size:
        return x
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def cases() -> dict[str, Case]:
    x, other, row, more = tensor(N, M), tensor(N, M), tensor(M), tensor(N, P)
    cube, weights, heads, flat = tensor(N, M, 64), tensor(64), tensor(N, M, 12, 64), tensor(N * M, 64)
    scores, mask = tensor(N, 12, M, M), tensor(N, 1, 1, M)
    table, places, narrow = tensor(50, 64), tensor(M, dtype="int64"), te.placeholder((N, M, 16))
    image, half, truth = tensor(N, M, M, 16), tensor(N, M, dtype="float16"), tensor(N, M, dtype="bool")
    scale, shift, least = tensor(M), tensor(M), tirx.const(-1e9, "float32")
    swapped = topi.transpose(heads, (0, 2, 1, 3))
    three = topi.concatenate([x, more, other], 1)
    second = te.compute((N, tirx.floordiv(M, long(2))), lambda i, j: x[i, j * 2 + 1])
    causal = te.compute((N, M, M), lambda b, i, j: tirx.Select(j <= i, x[b, j], least))
    across = topi.reshape(topi.transpose(scores, (0, 2, 1, 3)), (N * M, M * 12))
    by = tirx.const(8.0, "float32")
    return {
        "scaled": Case([x], topi.exp(topi.multiply(x, by)), lambda x: np.exp(x * 8)),
        "row added": Case([x, row], topi.add(x, row), np.add),
        "fixed row added": Case([cube, weights], topi.add(cube, weights), np.add),
        "axes of 32 bits": Case([narrow], topi.exp(narrow), np.exp),
        "transposed": Case([x], topi.transpose(x), np.transpose),
        "heads": Case([heads], swapped, lambda x: x.transpose(0, 2, 1, 3)),
        "heads turned": Case([heads], topi.transpose(heads, (0, 2, 3, 1)), lambda x: x.transpose(0, 2, 3, 1)),
        "all axes turned": Case([cube], topi.transpose(cube, (2, 1, 0)), np.transpose),
        "reshaped": Case([flat], topi.reshape(flat, (N, M, long(64)))),
        "heads joined": Case([heads], topi.reshape(swapped, (N * 12, M, long(64)))),
        "scores joined": Case([scores], across),
        "many concatenated": Case([x, more], topi.concatenate([x, more] * 10, 1), lambda *x: np.concatenate(x * 10, 1)),
        "concatenated": Case([x, more, other], three, lambda *parts: np.concatenate(parts, 1)),
        "padded": Case([x], topi.nn.pad(x, (1, 2), (0, 3)), lambda x: np.pad(x, ((1, 0), (2, 3)))),
        "masked": Case([scores, mask], topi.add(topi.divide(scores, by), mask), lambda x, y: x / 8 + y),
        "causal": Case([x], causal),
        "chosen": Case([truth, x, other], topi.where(truth, x, other), np.where),
        "widened": Case([half], topi.cast(half, "float32"), lambda x: x.astype("float32")),
        "taken": Case([table, places], topi.take(table, places, axis=0, mode="clip"), lambda x, i: x[i]),
        "every second": Case([x], second, lambda x: x[:, 1::2]),
        "flipped": Case([x], topi.flip(x, 1), lambda x: x[:, ::-1]),
        "softmax": Case([x], topi.nn.softmax(x), softmax),
        "masked softmax": Case([scores, mask], topi.nn.softmax(topi.add(scores, mask)), lambda x, y: softmax(x + y)),
        "softmax across": Case([cube], topi.nn.softmax(cube, 1), lambda x: softmax(x, 1)),
        "log softmax": Case([x], topi.nn.log_softmax(x)),
        "sum of rows": Case([x], topi.sum(x, -1), lambda x: x.sum(-1)),
        "sum of columns": Case([x], topi.sum(x, 0), lambda x: x.sum(0)),
        "sum across": Case([cube], topi.sum(cube, 1), lambda x: x.sum(1)),
        "sum of heads": Case([scores], topi.sum(scores, 1), lambda x: x.sum(1)),
        "sum of all": Case([cube], topi.sum(cube), np.sum),
        "largest": Case([x], topi.max(x, -1)),
        "place of the largest": Case([x], topi.argmax(x, 1)),
        "normed": Case([cube, weights], topi.nn.rms_norm(cube, weights, [2], 1e-5)),
        "open rows normed": Case([x, scale, shift], topi.nn.layer_norm(x, scale, shift, [1], 1e-5)),
        "pooled": Case([image], topi.nn.pool2d(image, [3, 3], [2, 2], [1, 1], [1, 1, 1, 1], "max", layout="NHWC")),
    }


CASES = cases()


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    return rng.integers(0, 3, shape).astype(dtype) if "int" in dtype else rng.standard_normal(shape).astype(dtype)


def shape_at(of: te.Tensor, sizes: Sequence[int]) -> tuple[int, ...]:
    known = {v: tirx.const(size, "int64") for v, size in zip((N, M, P), sizes, strict=True)}
    simplify = tvm.sym.Analyzer().simplify
    return tuple(int(simplify(tvm_ffi.structural_map(e, (tirx.Var, lambda v: known[v])))) for e in of.shape)


@pytest.mark.values
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_every_size_is_right_and_vectorised(name: str, cores: int) -> None:
    case = CASES[name]
    func = te.create_prim_func([*case.inputs, case.output]).with_attr("global_symbol", "main")
    cpu = this_cpu().cpu
    costs = replace(cpu.kernel_costs, parallel_start=1e-9)  # tasks even for little work
    hardware = replace(this_cpu(), cpu=replace(cpu, cores=cores, threads=cores, costs=costs))
    scheduled = schedule_fallback(func, "main", hardware)
    assert DECISION in scheduled.attrs, "plain loops serve it"
    ours = tvm.compile(tvm.IRModule({"main": _safe(scheduled, Kind.SCHEDULED)}), target=tt.llvm_target())
    plain = tvm.compile(tvm.IRModule({"main": func}), target="llvm") if case.reference is None else None
    rng = np.random.default_rng(0)
    for sizes in SIZES:
        arrays = [values(rng, shape_at(t, sizes), str(t.dtype)) for t in case.inputs]
        if plain is not None and not sizes[1]:
            continue  # TVM's build stores nothing for an empty sum
        given = [tvm.runtime.tensor(np.ascontiguousarray(a)) for a in arrays]
        found, wanted = (tvm.runtime.empty(shape_at(case.output, sizes), str(case.output.dtype)) for _ in range(2))
        ours["main"](*given, found)
        if plain is not None:
            plain["main"](*given, wanted)
        want = case.reference(*arrays) if case.reference is not None else wanted.numpy()
        np.testing.assert_allclose(found.numpy(), want, rtol=1e-4, atol=1e-4, err_msg=f"sizes {sizes}")
