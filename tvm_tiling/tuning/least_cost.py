"""Lower bounds on the cost of an operator on a machine: its multiply-accumulates at peak, and its compulsory memory
traffic.

`least_cost` uses the machine description, to judge how good a cost is; `least_seconds` uses peaks measured on the
machine itself, including clocks above the description's, to judge whether a measured cost is possible at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..decide.configs.config import Config
from ..decide.gemm.dot_engine import dot_engine
from ..decide.gemm.traffic import operand_bytes
from ..errors import DatabaseError
from ..hardware.cpu import Cpu
from ..hardware.description import Hardware
from ..hardware.dot_instructions import DOT_INSTRUCTIONS
from ..hardware.machine import Machine
from ..peak import Peak, levels
from ..workload import ConvWorkload, GemmWorkload

# A measured peak is a snapshot. A time below this fraction of the lower bound is impossible.
SURE = 0.85
MOST_MHZ = 6500.0  # no CPU has a higher clock
MOST_VECTORS = (512, 2)  # bits, and multiply-accumulates started per cycle: no core has more of both
# Reads may be faster than a copy: a copy also reads the lines that it writes, which is not counted.
READ_TO_COPY = 2.0


@dataclass(frozen=True, kw_only=True)
class Work:
    """The unavoidable work of an operator: `macs` multiply-accumulates, and `bytes` of operands and result, each
    counted once."""

    macs: int
    bytes: int


def least_cost(workload: GemmWorkload | ConvWorkload, hardware: Hardware, config: Config | None = None) -> float:
    """Return a lower bound on the cost: seconds on a CPU, cycles on an accelerator. It is the larger of the
    multiply-accumulates at peak and every byte once from the nearest level that holds them all (on an accelerator,
    between the chip and off-chip memory).

    With a `config`, only the unavoidable work of its algorithm counts (work_of): Winograd has fewer
    multiply-accumulates. Without one, those of the padding count as well. UnsupportedOperator for types that the CPU
    cannot multiply.
    """
    if hardware.cpu is None:
        machine = Machine(hardware)
        return max(workload.macs / machine.macs(workload.a_bytes), _moving(workload, machine))
    cpu, engine = hardware.cpu, dot_engine(workload, hardware.cpu)
    work = Work(macs=workload.macs, bytes=workload.bytes) if config is None else work_of(workload, config)
    arithmetic = work.macs / (cpu.cores * cpu.fma_units * cpu.lanes(engine.acc_bytes) * engine.speed)
    moving = work.bytes / (cpu.cores * _bytes_per_cycle(cpu, work.bytes))
    return max(arithmetic, moving) / (cpu.mhz * 1e6)


def least_seconds(workload: GemmWorkload | ConvWorkload, config: Config, cpu: Cpu, peak: Peak) -> float:
    """Return a lower bound in seconds for a configuration on a machine of measured `peak`.

    Arithmetic: every core runs at the clock of the fastest single core, at the rate of the best instruction for the
    types, whether kernels use it or not. Memory: a call starts with at most what the caches hold, and the remaining
    bytes come from the next level.
    """
    work = work_of(workload, config)
    arithmetic = work.macs / _macs_per_second(workload, cpu, peak)
    moving, held = 0.0, cpu.cores * float(cpu.l1_bytes)
    for (_, capacity), bandwidth in zip(levels(cpu), peak.bandwidths, strict=False):
        rate = READ_TO_COPY * bandwidth.gbytes * 1e9
        moving = max(moving, max(0.0, work.bytes - held) / rate)
        held += capacity
    return SURE * max(arithmetic, moving)


def highest_peak(cpu: Cpu) -> Peak:
    """Return a peak that no machine of this description exceeds, whatever its clock. It says nothing about memory."""
    one = 2 * cpu.fma_units * cpu.lanes(4) * MOST_MHZ / 1e3
    return Peak(gflops_one_core=one, gflops=cpu.cores * one, gops_int8_one_core=None, gops_int8=None, bandwidths=())


def possible_seconds(workload: GemmWorkload | ConvWorkload, config: Config, cpu: Cpu) -> float:
    """Return a lower bound in seconds for any CPU of this description, whatever its clock."""
    anywhere = possible_anywhere(workload, config, cpu.cores)
    if "fma_units" in cpu.assumed:
        return anywhere
    return max(anywhere, least_seconds(workload, config, cpu, highest_peak(cpu)))


def possible_anywhere(workload: GemmWorkload | ConvWorkload, config: Config, cores: int) -> float:
    """Return a lower bound in seconds for any CPU with this many cores, for costs from otherwise unknown machines."""
    types, (bits, units) = workload.types, MOST_VECTORS
    rows = [row for row in DOT_INSTRUCTIONS if row.supports(types.a, types.b, types.acc)]
    fused = max(1, cores) * units * MOST_MHZ * 1e6  # vectors per second
    rates = [fused * bits // (8 * row.acc_bytes) * row.group * max(1.0, row.rate) for row in rows]
    return SURE * work_of(workload, config).macs / max(rates) if rates else 0.0


def work_of(workload: GemmWorkload | ConvWorkload, config: Config) -> Work:
    """Return the work that every kernel of the configuration's algorithm must do. Taps that fall on the padding, and
    input rows and columns that no tap touches, are not counted."""
    if isinstance(workload, GemmWorkload):
        return Work(macs=workload.macs, bytes=workload.bytes)
    w = workload
    axes = (
        _Axis.of(w, w.d, w.do, w.kd, w.stride_d, w.padding_d[0], w.dilation_d),
        _Axis.of(w, w.h, w.ho, w.kh, w.stride[0], w.padding[0], w.dilation[0]),
        _Axis.of(w, w.w, w.wo, w.kw, w.stride[1], w.padding[1], w.dilation[1]),
    )
    pairs, read, taps = (math.prod(getattr(axis, name) for axis in axes) for name in ("pairs", "read", "taps"))
    channels = w.ci // w.groups
    image, kernels = w.n * read * w.ci * w.a_bytes, math.ceil(w.co * channels * taps * w.b_bytes)
    macs = w.n * pairs * w.co * channels
    if config.form == "winograd":
        macs = min(macs, _winograd_macs(w, config))
    return Work(macs=macs, bytes=image + kernels + w.n * w.do * w.ho * w.wo * w.co * w.out_bytes)


@dataclass(frozen=True)
class _Axis:
    """One axis of a convolution: `pairs` of a point and a tap that lie within both images, the minimum number of input
    rows `read`, and the `taps` that touch any."""

    pairs: int
    read: int
    taps: int

    @classmethod
    def of(cls, w: ConvWorkload, size: int, points: int, kernel: int, stride: int, before: int, dilation: int) -> _Axis:
        steps, limit = (size, points) if w.transposed else (points, size)
        met = [_within(steps, stride, tap * dilation - before, limit) for tap in range(kernel)]
        # Rows touched by each tap alone; all taps together touch at least the maximum of these.
        read = max(met, default=0)
        if not w.transposed and dilation == 1 and kernel >= stride:
            read = max(0, min(size, (points - 1) * stride - before + kernel))
        return cls(sum(met), read, sum(count > 0 for count in met))


def _within(steps: int, stride: int, offset: int, limit: int) -> int:
    """Return how many values step * stride + offset lie in [0, limit)."""
    first, last = max(0, -(offset // stride)), min(steps - 1, (limit - 1 - offset) // stride)
    return max(0, last - first + 1)


def _winograd_macs(w: ConvWorkload, config: Config) -> int:
    """Return the multiply-accumulates of F(m x m, r x r), counting image tiles beyond the edge fractionally."""
    tile = config.choice("m")
    if not isinstance(tile, int) or tile < 1:
        raise DatabaseError(f"config: algorithm 'winograd' has m = {tile!r}; expected a whole number of at least 1")
    points = (tile + w.kh - 1) ** 2
    return w.n * w.ho * w.wo * points * w.ci * w.co // tile**2


def _macs_per_second(workload: GemmWorkload | ConvWorkload, cpu: Cpu, peak: Peak) -> float:
    """Return the multiply-accumulates per second that the machine cannot exceed for the workload's types."""
    types, cores = workload.types, cpu.cores
    fused = max(peak.gflops, cores * peak.gflops_one_core) * 1e9 / 2 / cpu.lanes(4)  # vectors per second
    serving = [row for row in DOT_INSTRUCTIONS if row.supports(types.a, types.b, types.acc) and row.form(cpu)]
    # The table has sustained rates; none of these instructions starts more often than a multiply-accumulate.
    found = [fused * cpu.lanes(row.acc_bytes) * row.group * max(1.0, row.rate) for row in serving]
    measured = [1e9 / 2 * peak.gflops_half.get(types.a, 0.0)]
    if types.a in ("int8", "uint8"):
        measured.append(1e9 / 2 * max(peak.gops_int8 or 0.0, cores * (peak.gops_int8_one_core or 0.0)))
    return max(found + measured)


def _moving(workload: GemmWorkload | ConvWorkload, machine: Machine) -> float:
    """Return the cycles to load both operands once and store the result: overlapped, or sequential if the memory has
    one port."""
    w = workload
    if isinstance(w, GemmWorkload):
        elements = (w.batch * w.m * w.k, w.batch * w.k * w.n, w.batch * w.m * w.n)
    else:
        image, kernels = w.n * w.d * w.h * w.w * w.ci, w.co * w.ci // w.groups * w.kd * w.kh * w.kw
        elements = (kernels, image, w.n * w.do * w.ho * w.wo * w.co)
    cycles = []
    each = (*operand_bytes(w), w.out_bytes)
    for operand, memory, count, size in zip(
        ("a", "b", "out"), (w.memory_a, w.memory_b, "external"), elements, each, strict=True
    ):
        rate = machine.rate(memory, operand)
        cycles.append(count * size / rate if rate else 0.0)
    return sum(cycles) if machine.memory("external").ports == 1 else max(cycles)


def _bytes_per_cycle(cpu: Cpu, footprint: int) -> float:
    """Return the bytes per cycle of one core from the nearest level that holds `footprint` bytes."""
    for level, rate in ((2, cpu.l2_bytes_per_cycle), (3, cpu.l3_bytes_per_cycle)):
        cache = cpu.cache(level)
        if cache is not None and footprint <= cache.size * max(1, cpu.cores // cache.cores):
            return rate
    return cpu.memory_bytes_per_cycle
