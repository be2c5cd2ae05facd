"""What this machine can do at best, measured: multiply-adds in registers, and a copy at each level of memory (page 10).

A result means something only as a share of these. Every kernel is TIR compiled by the same LLVM as the kernels that are
judged by it, so the peak is one that LLVM's code can reach.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from .hardware.description import Cpu
from .runtime.threads import own_core, set_pool

SECONDS_PER_FIGURE = 0.15
LEAST_CALLS = 10
CALL_SECONDS = 2e-3
ASSUMED_CLOCK_HZ = 3e9  # only sets the length of a call
# The intrinsic of one int8 dot-product instruction, the vector width it has, and the LLVM features that grant it.
DOT_PRODUCTS = (
    ("llvm.x86.avx512.vpdpbusd.512", 512, frozenset({"avx512vnni"})),
    ("llvm.x86.avx512.vpdpbusd.256", 256, frozenset({"avx512vnni", "avx512vl"})),
    ("llvm.x86.avx512.vpdpbusd.256", 256, frozenset({"avxvnni"})),
)


@dataclass(frozen=True, kw_only=True)
class Bandwidth:
    """GB/s (bytes read plus bytes written) that all cores copy at, where the data fits into `capacity` bytes."""

    level: str
    capacity: float
    gbytes: float


@dataclass(frozen=True, kw_only=True)
class Peak:
    """Measured peaks. `gops_int8` count a multiply and an add as two, like `gflops`; None without such instructions."""

    gflops_one_core: float
    gflops: float
    gops_int8_one_core: float | None
    gops_int8: float | None
    bandwidths: tuple[Bandwidth, ...]

    def arithmetic(self, dtype: str) -> float:
        """Giga-operations per second of all cores on `dtype`; the float32 figure where there is none for it."""
        return self.gops_int8 if dtype in ("int8", "uint8") and self.gops_int8 else self.gflops

    def bandwidth(self, footprint: float) -> float:
        """GB/s of the nearest level of memory that holds `footprint` bytes."""
        return next(b.gbytes for b in self.bandwidths if footprint <= b.capacity)

    def roofline(self, operations: float, footprint: float, dtype: str) -> float:
        """Giga-operations per second that work of so many operations on so many bytes, each moved once, can reach."""
        return min(self.arithmetic(dtype), operations / footprint * self.bandwidth(footprint))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; the capacity of main memory is None."""
        plain = asdict(self)
        for level in plain["bandwidths"]:
            if math.isinf(level["capacity"]):
                level["capacity"] = None
        return plain


def accumulators(cpu: Cpu) -> int:
    """Independent chains that hide the multiply-add's latency and leave registers for its operands."""
    return 3 * cpu.vector_registers // 4


def fma_module(lanes: int, chains: int, cores: int) -> Any:
    """TIR: on each of `cores` cores, `steps` times, x = x*a + b in `chains` vectors of float32.

    Arguments: seed (2, lanes) = a and b; out (cores, chains*lanes); steps.
    """
    return _register_loop("float32", lanes, chains, cores, lambda x, a, b: x * a + b)


def dot_product_module(intrinsic: str, lanes: int, chains: int, cores: int) -> Any:
    """TIR: like :func:`fma_module`, of `intrinsic`: each int32 lane of x gains four products of uint8 by int8.

    Arguments: seed (2, lanes) of int32, each four bytes of an operand; out (cores, chains*lanes); steps.
    """
    from tvm.script.ir_builder import tirx

    def dot(x: Any, a: Any, b: Any) -> Any:
        left, right = (tirx.reinterpret(f"{kind}x{4 * lanes}", v) for kind, v in (("uint8", a), ("int8", b)))
        return tirx.call_llvm_pure_intrin(f"int32x{lanes}", intrinsic, x, left, right)

    return _register_loop("int32", lanes, chains, cores, dot)


def _register_loop(dtype: str, lanes: int, chains: int, cores: int, step: Callable[[Any, Any, Any], Any]) -> Any:
    """TIR that keeps `chains` vectors x in registers and does x = step(x, a, b), again and again."""
    from tvm.script.ir_builder import IRBuilder
    from tvm.script.ir_builder import tirx as T  # noqa: N812

    from .lowering.registers import registers

    whole = T.ramp(0, 1, lanes)
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("main")
        # Without aliases LLVM keeps x in registers.
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        seed = T.arg("seed", T.Buffer((2, lanes), dtype))
        out = T.arg("out", T.Buffer((cores, chains * lanes), dtype))
        steps = T.arg("steps", T.int32())
        with T.sblock("root"), T.parallel(0, cores) as core:
            operands, sums = registers(2, lanes, dtype), registers(chains, lanes, dtype)
            for row, operand in enumerate(operands):
                T.buffer_store(operand, seed[row, whole], [whole])
            for x in sums:
                T.buffer_store(x, seed[0, whole], [whole])
            with T.serial(0, steps):
                for x in sums:
                    T.buffer_store(x, step(x[whole], *(operand[whole] for operand in operands)), [whole])
            for chain, x in enumerate(sums):
                T.buffer_store(out, x[whole], [core, T.ramp(chain * lanes, 1, lanes)])
    return builder.get()


def copy_module(lanes: int, cores: int) -> Any:
    """TIR: each core copies its rows of `source` to `target`, `repeats` times. Arguments: source, target, repeats."""
    from tvm.script import tirx

    @tirx.prim_func(s_tir=True)
    def copy(source_handle: tirx.handle, target_handle: tirx.handle, repeats: tirx.int32):
        tirx.func_attr({"global_symbol": "main", "tirx.noalias": True})
        vectors = tirx.int64()
        source = tirx.match_buffer(source_handle, (cores, vectors, lanes), "float32")
        target = tirx.match_buffer(target_handle, (cores, vectors, lanes), "float32")
        for core in tirx.parallel(cores):
            for _ in tirx.serial(repeats):
                for vector in tirx.serial(vectors):
                    for lane in tirx.vectorized(lanes):
                        target[core, vector, lane] = source[core, vector, lane]

    return copy


def compiled(prim_func: Any, target: Any) -> Any:
    """The loaded module of one TIR function, whose entry is "main"."""
    import tvm

    return tvm.compile(tvm.IRModule({"main": prim_func}), target=target)


def _best_rate(run: Callable[[], object], amount: float) -> float:
    """Giga-units per second of the quickest call: a peak is what nothing disturbed."""
    quickest, calls = math.inf, 0
    with own_core():
        run()
        start = time.perf_counter()
        while calls < LEAST_CALLS or time.perf_counter() - start < SECONDS_PER_FIGURE:
            before = time.perf_counter()
            run()
            quickest = min(quickest, time.perf_counter() - before)
            calls += 1
    return amount / quickest / 1e9


def _arithmetic(prim_func: Any, target: Any, dtype: str, lanes: int, chains: int, cores: int, per_lane: int) -> float:
    import numpy as np
    import tvm

    main = compiled(prim_func, target)["main"]
    steps = int(CALL_SECONDS * ASSUMED_CLOCK_HZ / chains)
    # a = 0.5 and b = 1: x stays near 2, clear of infinities and of slow subnormal numbers
    seed = np.repeat(np.array([[0.5], [1.0]] if dtype == "float32" else [[1], [1]]), lanes, axis=1).astype(dtype)
    arguments = (tvm.runtime.tensor(seed), tvm.runtime.tensor(np.zeros((cores, chains * lanes), dtype)), steps)
    return _best_rate(lambda: main(*arguments), per_lane * lanes * chains * steps * cores)


def dot_product_intrinsic(cpu: Cpu) -> tuple[str, int] | None:
    """The widest int8 dot product of this CPU, by intrinsic and int32 lanes; None without one."""
    for intrinsic, bits, needed in DOT_PRODUCTS:
        if needed <= set(cpu.features) and bits <= cpu.vector_bits:
            return intrinsic, bits // 32
    return None


def levels(cpu: Cpu) -> list[tuple[str, float]]:
    """Name and capacity (bytes, of all cores together) of each cache from the second on, then of main memory."""
    found = [
        (f"L{cache.level}", float(cache.size * max(1, cpu.cores // cache.cores)))
        for cache in cpu.caches
        if cache.level >= 2
    ]
    return [*found, ("memory", math.inf)]


def _bandwidths(cpu: Cpu, target: Any, cores: int) -> tuple[Bandwidth, ...]:
    import numpy as np
    import tvm

    lanes = cpu.lanes(4)
    main = compiled(copy_module(lanes, cores), target)["main"]
    known = levels(cpu)
    largest = max((capacity for _, capacity in known if math.isfinite(capacity)), default=32 << 20)
    found = []
    for level, capacity in known:
        # Source and target fill half of a cache, or four times the last one where memory is meant.
        total = capacity / 2 if math.isfinite(capacity) else min(4 * largest, 512 << 20)
        vectors = max(1, int(total / 2 / cores / lanes / 4))
        moved = 2.0 * cores * vectors * lanes * 4
        repeats = max(1, round(CALL_SECONDS * 50e9 / moved))
        arguments = [tvm.runtime.tensor(np.zeros((cores, vectors, lanes), "float32")) for _ in range(2)]
        rate = _best_rate(lambda a=arguments, r=repeats: main(*a, r), moved * repeats)  # type: ignore[misc]
        found.append(Bandwidth(level=level, capacity=capacity, gbytes=rate))
    return tuple(found)


def measure_peak(cpu: Cpu, target: Any) -> Peak:
    """Measure this machine's peaks, in about a second. `target` is the LLVM target that kernels are compiled for.

    Bandwidth counts bytes read plus bytes written, without the reads that a cache makes to fill a written line.
    """
    cores = set_pool(cpu.cores)
    lanes, chains = cpu.lanes(4), accumulators(cpu)
    flops = [
        _arithmetic(fma_module(lanes, chains, n), target, "float32", lanes, chains, n, per_lane=2) for n in (1, cores)
    ]
    dots: list[float | None] = [None, None]
    if (found := dot_product_intrinsic(cpu)) is not None:
        intrinsic, dot_lanes = found
        dots = [
            _arithmetic(
                dot_product_module(intrinsic, dot_lanes, chains, n), target, "int32", dot_lanes, chains, n, per_lane=8
            )
            for n in (1, cores)
        ]
    return Peak(
        gflops_one_core=flops[0],
        gflops=flops[1],
        gops_int8_one_core=dots[0],
        gops_int8=dots[1],
        bandwidths=_bandwidths(cpu, target, cores),
    )
