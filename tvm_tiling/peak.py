"""Measured peak performance of this machine: multiply-adds in registers, and copies at each memory level.

A result is meaningful only as a fraction of these. Every kernel is TIR compiled by the same LLVM as the kernels under
test, so the peak is reachable by LLVM's code.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import Any

from .hardware.description import Cpu
from .hardware.dot_instructions import FMA_FLOAT32, DotInstruction, fastest
from .operand_types import element_bytes, is_integer
from .runtime.threads import own_core, set_pool

SECONDS_PER_FIGURE = 0.15
LEAST_CALLS = 10
CALL_SECONDS = 2e-3
ASSUMED_CLOCK_HZ = 3e9  # determines only the length of a call


@dataclass(frozen=True, kw_only=True)
class Bandwidth:
    """Copy bandwidth of all cores in GB/s (bytes read plus bytes written) for data that fits into `capacity` bytes."""

    level: str
    capacity: float
    gbytes: float


@dataclass(frozen=True, kw_only=True)
class Peak:
    """Measured peaks. `gops_int8` counts a multiply and an add as two, like `gflops`; None without such instructions.
    `gflops_half`: of all cores, by half-precision type, for types that the CPU multiplies natively."""

    gflops_one_core: float
    gflops: float
    gops_int8_one_core: float | None
    gops_int8: float | None
    bandwidths: tuple[Bandwidth, ...]
    gflops_half: dict[str, float] = field(default_factory=dict)

    def arithmetic(self, dtype: str) -> float:
        """Giga-operations per second of all cores for `dtype`; the float32 value if it has none."""
        if dtype in ("int8", "uint8") and self.gops_int8:
            return self.gops_int8
        return self.gflops_half.get(dtype, self.gflops)

    def bandwidth(self, footprint: float) -> float:
        """GB/s of the nearest memory level that holds `footprint` bytes."""
        return next(b.gbytes for b in self.bandwidths if footprint <= b.capacity)

    def roofline(self, operations: float, footprint: float, dtype: str) -> float:
        """Attainable giga-operations per second for `operations` on `footprint` bytes, each moved once."""
        return min(self.arithmetic(dtype), operations / footprint * self.bandwidth(footprint))

    def or_better(self, other: Peak) -> Peak:
        """The higher value of each figure: merges two measurements of one machine."""
        numbers = {name: _higher(getattr(self, name), getattr(other, name)) for name in _NUMBERS}
        names = {*self.gflops_half, *other.gflops_half}
        half = {name: max(self.gflops_half.get(name, 0.0), other.gflops_half.get(name, 0.0)) for name in names}
        pairs = zip(self.bandwidths, other.bandwidths, strict=True)
        return Peak(
            **numbers,
            bandwidths=tuple(max(pair, key=lambda level: level.gbytes) for pair in pairs),
            gflops_half=half,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; the capacity of main memory is None."""
        plain = asdict(self)
        for level in plain["bandwidths"]:
            if math.isinf(level["capacity"]):
                level["capacity"] = None
        return plain


_NUMBERS = ("gflops_one_core", "gflops", "gops_int8_one_core", "gops_int8")


def _higher(one: float | None, other: float | None) -> Any:
    return max((value for value in (one, other) if value is not None), default=None)


def accumulators(cpu: Cpu) -> int:
    """Independent chains that hide the multiply-add's latency and leave registers for its operands."""
    return 3 * cpu.vector_registers // 4


def instruction_module(instruction: DotInstruction, bits: int, chains: int, cores: int) -> Any:
    """TIR: on each of `cores` cores, `steps` times, x = x + a*b in `chains` vectors of `bits` bits.

    Arguments: seed (2, lanes) of the accumulators' type = a and b, each lane the bits of a group of elements; out
    (cores, chains*lanes); steps.
    """
    from tvm.script.ir_builder import tirx

    from .lowering.dot import dot, linked

    lanes = bits // (8 * instruction.acc_bytes)

    def step(x: Any, a: Any, b: Any) -> Any:
        if instruction.in_place:
            return x * a + b  # stays near 2, unlike x + a*b
        left = tirx.reinterpret(f"{instruction.lane_word}x{lanes}", a)
        packed = f"{instruction.operand}x{bits // (8 * element_bytes(instruction.operand))}"
        return dot(instruction, x, left, tirx.reinterpret(packed, b), lanes)

    return _register_loop(instruction.acc, lanes, chains, cores, step, linked(instruction))


def _register_loop(
    dtype: str,
    lanes: int,
    chains: int,
    cores: int,
    step: Callable[[Any, Any, Any], Any],
    around: AbstractContextManager[object],
) -> Any:
    """TIR that keeps `chains` vectors x in registers and repeats x = step(x, a, b)."""
    from tvm.script.ir_builder import IRBuilder
    from tvm.script.ir_builder import tirx as T  # noqa: N812

    from .lowering.registers import registers

    whole = T.ramp(0, 1, lanes)
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("main")
        # Without aliasing LLVM keeps x in registers.
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        seed = T.arg("seed", T.Buffer((2, lanes), dtype))
        out = T.arg("out", T.Buffer((cores, chains * lanes), dtype))
        steps = T.arg("steps", T.int32())
        with T.sblock("root"), around, T.parallel(0, cores) as core:
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
    """Giga-units per second of the fastest call: a peak is the least disturbed measurement."""
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


def _arithmetic(instruction: DotInstruction, cpu: Cpu, target: Any, cores: int) -> float:
    """Giga-operations per second of `cores` cores, a multiply and an add counted as two."""
    import numpy as np
    import tvm

    chains, bits = accumulators(cpu), cpu.vector_bits
    lanes = bits // (8 * instruction.acc_bytes)
    main = compiled(instruction_module(instruction, bits, chains, cores), target)["main"]
    steps = int(CALL_SECONDS * ASSUMED_CLOCK_HZ / chains)
    # a = 0.5 and b = 1: x stays near 2, without infinities or slow subnormal numbers. The upper half of a float's bits
    # is the same value in bfloat16.
    seed = np.array([[1], [1]] if is_integer(instruction.acc) else [[0.5], [1.0]])
    seed = np.repeat(seed, lanes, axis=1).astype(instruction.acc)
    arguments = (tvm.runtime.tensor(seed), tvm.runtime.tensor(np.zeros((cores, chains * lanes), seed.dtype)), steps)
    return _best_rate(lambda: main(*arguments), 2 * instruction.group * lanes * chains * steps * cores)


def byte_instruction(cpu: Cpu) -> DotInstruction | None:
    """The dot product of bytes with the most multiply-adds per vector of this CPU; None without one."""
    kinds = (("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8"))
    found = (fastest(cpu, a, b, "int32", emitted=False, matrix=True) for a, b in kinds)
    bytes_alone = [row for row in found if row is not None and not row.takes]
    return max(bytes_alone, key=lambda row: row.speed, default=None)


def levels(cpu: Cpu) -> list[tuple[str, float]]:
    """Name and capacity (bytes, of all cores together) of L2 and later caches, then of main memory."""
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
        # Source and target fill half of a cache; for main memory, four times the last-level cache.
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
    flops = [_arithmetic(FMA_FLOAT32, cpu, target, n) for n in (1, cores)]
    of_bytes = byte_instruction(cpu)
    dots = [None, None] if of_bytes is None else [_arithmetic(of_bytes, cpu, target, n) for n in (1, cores)]
    half = {dtype: fastest(cpu, dtype, dtype, dtype, emitted=False, matrix=True) for dtype in ("float16", "bfloat16")}
    native = {dtype: row for dtype, row in half.items() if row is not None and not row.takes}
    return Peak(
        gflops_one_core=flops[0],
        gflops=flops[1],
        gops_int8_one_core=dots[0],
        gops_int8=dots[1],
        bandwidths=_bandwidths(cpu, target, cores),
        gflops_half={dtype: _arithmetic(row, cpu, target, cores) for dtype, row in native.items()},
    )
