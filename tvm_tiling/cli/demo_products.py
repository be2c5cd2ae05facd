"""The matrix multiplications of the demo: decide, compile, check, and compare with TVM's default and libraries.

Each comparison is a paired benchmark on the same data.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..decide.tiling import GemmTiling
from ..measure import Condition, Paired, Side, StopRule, paired
from ..runtime.launcher import use_all_cores
from ..runtime.threads import bind_workers, default_thread_count, own_core
from .demo_rival import SLOW, DemoError, Progress, few_pairs, middle_half
from .table import print_table

SMALLEST, LARGEST = 16, 1024  # TVM's default takes seconds for m = k = n = 1024
SETTLE = 0.15  # seconds; idle threads spin before they sleep, OpenBLAS's for 26 ms and TVM's for about 100 ms
UNIT_ROUNDOFF = 2.0**-24  # float32
SHOWN = ("algorithm", "mr", "nr", "partition_n", "partition_k", "threads_m", "threads_n", "pack_b")


@dataclass(frozen=True)
class Product:
    """C (m x n) = A (m x k) * B (k x n) in float32; `dense`: followed by max(C + bias, 0)."""

    title: str
    m: int
    k: int
    n: int
    dense: bool = False

    @property
    def where(self) -> str:
        """The name in progress messages and errors."""
        return f"{self.title}, {self.m} x {self.k} x {self.n}"

    @property
    def flops(self) -> int:
        """Operations of the multiplication alone."""
        return 2 * self.m * self.k * self.n


@dataclass(frozen=True)
class Rival:
    """A library to compare with: how it is run, and how its output is read."""

    name: str
    side: Side
    output: Callable[[], Any]
    settle: float = 0.0


Maker = Callable[[list[Any]], Rival]  # takes A, B and, of a dense layer, the bias


def demo_products(size: int) -> list[Product]:
    """A dense layer with bias and ReLU, a decoding step (one row), and a multiplication with three prime sizes."""
    m, k, n = [p for p in range(2, size) if all(p % d for d in range(2, math.isqrt(p) + 1))][-3:]
    return [
        Product("dense layer", size, size, size, dense=True),
        Product("decoding step", 1, 4 * size, 4 * size),
        Product("prime sizes", m, k, n),
    ]


def product_steps(products: list[Product]) -> int:
    """The number of steps that demonstrate() reports for all of them."""
    return len(products) * (2 + len(_libraries()) + 1)


# ---- computing -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Demonstration:
    """Results for one multiplication: the decision, times to decide and compile, and paired runs with each library."""

    product: Product
    tiling: GemmTiling
    decide_seconds: float
    compile_seconds: float
    errors: dict[str, float]  # largest difference of any element from a float64 result; all within tolerance
    runs: dict[str, Paired]

    @property
    def seconds(self) -> float:
        """Our median time over all samples."""
        return statistics.median(s for run in self.runs.values() for s in run.ours.seconds)

    def gflops(self, seconds: float) -> float:
        return self.product.flops / seconds / 1e9

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        p = self.product
        return {
            "title": p.title,
            "m": p.m,
            "k": p.k,
            "n": p.n,
            "bias_relu": p.dense,
            "decision": self.tiling.to_dict(),
            "decide_seconds": self.decide_seconds,
            "compile_seconds": self.compile_seconds,
            "gflops": self.gflops(self.seconds),
            "largest_error": self.errors,
            "runs": {
                name: {**run.to_dict(), "gflops": self.gflops(run.peer.median)} for name, run in self.runs.items()
            },
        }


def demonstrate(product: Product, step: Progress) -> Demonstration:
    """Decide, compile, compare with NumPy, then measure. DemoError if a result is wrong."""
    import numpy as np
    import tvm

    from ..schedule import llvm_target, schedule_operator, this_cpu

    where = product.where
    step(f"{where}: deciding and compiling")
    func = tir(product)
    start = time.perf_counter()
    scheduled = schedule_operator(func, "main", this_cpu())
    decided = time.perf_counter()
    assert isinstance(scheduled.tiling, GemmTiling)
    kernel = tvm.compile(tvm.IRModule({"main": scheduled.main}), target=llvm_target())["main"]
    compiled = time.perf_counter()

    generator = np.random.default_rng(0)
    shapes = ((product.m, product.k), (product.k, product.n), (product.n,))
    arrays = [generator.random(shape, dtype=np.float32) * 2 - 1 for shape in shapes[: 2 + product.dense]]
    expected = _expected(arrays)
    ours = _of_tvm("tvm-tiling", kernel, arrays)
    ours.side.run()
    errors = {ours.name: _error(ours, expected, product)}
    runs = {}
    makers: list[Maker] = [*_libraries().values(), functools.partial(_tvm_default, func)]
    for make in makers:
        rival = make(arrays)
        step(f"{where}: measuring {rival.name}")
        before = time.perf_counter()
        rival.side.run()
        first = time.perf_counter() - before
        bind_workers()
        errors[rival.name] = _error(rival, expected, product)
        runs[rival.name] = few_pairs(ours.side, rival.side, first) if first > SLOW else _settled(ours, rival)
        if runs[rival.name].reason:
            raise DemoError(f"{where}, {rival.name}: {runs[rival.name].reason}")
    step(f"{where}: done")
    return Demonstration(product, scheduled.tiling, decided - start, compiled - decided, errors, runs)


def _settled(ours: Rival, rival: Rival) -> Paired:
    return paired(ours.side, rival.side, StopRule(most_seconds=2.0), Condition(settle=rival.settle))


def tir(product: Product) -> Any:
    """Unscheduled TIR of the multiplication: A, B, the bias if any, and the output."""
    from tvm import te, tirx

    m, k, n = product.m, product.k, product.n
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    if not product.dense:
        return te.create_prim_func([a, b, c])
    bias, zero = te.placeholder((n,), name="bias"), tirx.const(0, "float32")
    layer = te.compute((m, n), lambda i, j: tirx.max(c[i, j] + bias[j], zero), name="layer")
    return te.create_prim_func([a, b, bias, layer])


def _expected(arrays: list[Any]) -> Any:
    """The result in float64."""
    import numpy as np

    a, b, *bias = (array.astype(np.float64) for array in arrays)
    return np.maximum(a @ b + bias[0], 0) if bias else a @ b


def _error(rival: Rival, expected: Any, product: Product) -> float:
    """The largest difference of any element. DemoError if rounding cannot explain it.

    For values in [-1, 1), the limit is 4*k*2^-24: rounding errors of k sums grow like k*2^-24/3, and a product that is
    omitted or counted twice contributes a third.
    """
    error, allowed = float(abs(rival.output() - expected).max()), 4 * product.k * UNIT_ROUNDOFF
    if not error <= allowed:
        raise DemoError(
            f"{product.where}: {rival.name} differs from NumPy by {error:.3g}; expected at most {allowed:.3g}"
        )
    return error


# ---- rivals ----------------------------------------------------------------------------------------------------------


def _of_tvm(name: str, kernel: Any, arrays: list[Any]) -> Rival:
    import tvm

    use_all_cores()
    output = tvm.runtime.empty((arrays[0].shape[0], arrays[1].shape[1]), "float32")
    arguments = [*(tvm.runtime.tensor(array) for array in arrays), output]
    return Rival(name, Side(lambda: kernel(*arguments), own_core), output.numpy)


def _tvm_default(func: Any, arrays: list[Any]) -> Rival:
    """The kernel of TVM's default pipeline, without tuning."""
    import tvm

    from ..schedule import llvm_target

    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    return _of_tvm("TVM default", tvm.compile(module, target=llvm_target())["main"], arrays)


def _numpy(arrays: list[Any]) -> Rival:
    import numpy as np

    a, b, *bias = arrays
    out = np.empty((a.shape[0], b.shape[1]), np.float32)

    def run() -> None:
        np.matmul(a, b, out=out)
        if bias:
            np.add(out, bias[0], out=out)
            np.maximum(out, 0, out=out)

    return Rival("NumPy", Side(run, own_core), lambda: out, SETTLE)


def _torch(arrays: list[Any]) -> Rival:
    import torch

    torch.set_num_threads(default_thread_count())
    a, b, *bias = (torch.from_numpy(array) for array in arrays)
    out = torch.empty(a.shape[0], b.shape[1])

    def run() -> None:
        if bias:
            torch.addmm(bias[0], a, b, out=out).relu_()
        else:
            torch.matmul(a, b, out=out)

    return Rival("PyTorch", Side(run, own_core), out.numpy, SETTLE)


def _libraries() -> dict[str, Maker]:
    """The installed libraries."""
    found: dict[str, Maker] = {"NumPy": _numpy}
    if importlib.util.find_spec("torch") is not None:
        found["PyTorch"] = _torch
    return found


# ---- showing ---------------------------------------------------------------------------------------------------------


def print_products(results: list[Demonstration]) -> None:
    """Print each multiplication with its tiling and speeds, then a summary."""
    for result in results:
        p = result.product
        epilogue = ", bias and ReLU" if p.dense else ""
        print(f"{p.title}: ({p.m} x {p.k}) * ({p.k} x {p.n}), float32{epilogue}")
        print(
            f"tiling chosen and code generated in {result.decide_seconds * 1e3:.0f} ms, compiled in "
            f"{result.compile_seconds * 1e3:.0f} ms, without trial runs"
        )
        print_table(("choice", "value", "why"), _choices(result.tiling))
        print_table(("", "time ms", "GFLOP/s", "our speedup", "middle half", "largest error"), _speeds(result))
        print()
    print(_summary(results))


def _choices(tiling: GemmTiling) -> Iterator[tuple[str, str, str]]:
    """The most important choices that have reasons, each reason once."""
    reasons = set()
    for row in tiling.explained():
        if row.name in SHOWN and row.why and row.why not in reasons:
            reasons.add(row.why)
            yield row.title, row.value, row.why


def _speeds(result: Demonstration) -> Iterator[tuple[str, ...]]:
    def row(name: str, seconds: float, *ratio: str) -> tuple[str, ...]:
        return name, f"{seconds * 1e3:.3g}", f"{result.gflops(seconds):.3g}", *ratio, f"{result.errors[name]:.1g}"

    yield row("tvm-tiling", result.seconds, "", "")
    for name, run in result.runs.items():
        yield row(name, run.peer.median, f"{run.ratio:.2f}", middle_half(run) + ", unreliable" * run.doubtful)


def _summary(results: list[Demonstration]) -> str:
    """Geometric mean speedups over TVM and over the fastest library of each multiplication."""
    tvm = _mean([result.runs["TVM default"].ratio for result in results])
    library = _mean([min(result.runs[name].ratio for name in _libraries()) for result in results])
    names = " and ".join(_libraries())
    which = names if len(_libraries()) == 1 else f"the faster of {names}"
    return f"Geometric mean speedup of the three: {tvm:.0f} over TVM's default pipeline, {library:.2f} over {which}."


def _mean(ratios: list[float]) -> float:
    return math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))
