"""What an operator costs at least on a machine: its multiply-adds at peak, its bytes from memory.

By the machine's description (`least_cost`), to judge how good a cost is; by peaks that were measured on the machine
itself, clocks above the description's included (`least_seconds`), to judge whether a measured cost is possible at all.
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

# Measured peaks are those of a moment. What takes less than this share of its least time is impossible.
SURE = 0.85
MOST_MHZ = 6500.0  # no CPU's clock is above
MOST_VECTORS = (512, 2)  # bits, and multiply-adds that start per cycle: no core has more of both together
# What only reads may come faster than a copy moves bytes: lines that are written are read first, and not counted.
READ_TO_COPY = 2.0


@dataclass(frozen=True, kw_only=True)
class Work:
    """What an operator cannot do without: `macs` multiply-adds, and `bytes` of operands and result, each once."""

    macs: int
    bytes: int


def least_cost(workload: GemmWorkload | ConvWorkload, hardware: Hardware, config: Config | None = None) -> float:
    """Seconds on a CPU, cycles on an accelerator: multiply-adds at peak, or every byte once from the nearest level that
    holds them all, on an accelerator between the chip and the memories off it, whichever is more.

    Of a `config` only what its form cannot do without counts (work_of): Winograd's has fewer multiply-adds. Without one
    those of the padding count as well. UnsupportedOperator for types that the CPU does not multiply.
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
    """Seconds below which nothing of a configuration's form can be on a machine of measured `peak`.

    Arithmetic: every core at the clock of the quickest one alone, at the rate of the best instruction for the types,
    whether kernels use it or not. Memory: a call begins with no more in the caches than they hold, and the rest of its
    bytes comes from the next level.
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
    """A peak that no machine of this description exceeds, whatever its clock; of its memory nothing is said."""
    one = 2 * cpu.fma_units * cpu.lanes(4) * MOST_MHZ / 1e3
    return Peak(gflops_one_core=one, gflops=cpu.cores * one, gops_int8_one_core=None, gops_int8=None, bandwidths=())


def possible_seconds(workload: GemmWorkload | ConvWorkload, config: Config, cpu: Cpu) -> float:
    """Seconds below which no CPU of this description is, whatever its clock."""
    anywhere = possible_anywhere(workload, config, cpu.cores)
    if "fma_units" in cpu.assumed:
        return anywhere
    return max(anywhere, least_seconds(workload, config, cpu, highest_peak(cpu)))


def possible_anywhere(workload: GemmWorkload | ConvWorkload, config: Config, cores: int) -> float:
    """Seconds below which no CPU of so many cores is: for costs of machines of which nothing else is known."""
    types, (bits, units) = workload.types, MOST_VECTORS
    rows = [row for row in DOT_INSTRUCTIONS if row.supports(types.a, types.b, types.acc)]
    fused = max(1, cores) * units * MOST_MHZ * 1e6  # vectors per second
    rates = [fused * bits // (8 * row.acc_bytes) * row.group * max(1.0, row.rate) for row in rows]
    return SURE * work_of(workload, config).macs / max(rates) if rates else 0.0


def work_of(workload: GemmWorkload | ConvWorkload, config: Config) -> Work:
    """What every kernel of a configuration's form has to do. Taps that fall on the padding, and rows and columns of the
    input that no tap falls on, are not counted."""
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
    """Of one axis of a convolution: `pairs` of a point and a tap that meet within both images, rows of the input that
    are `read` at least, `taps` that meet any."""

    pairs: int
    read: int
    taps: int

    @classmethod
    def of(cls, w: ConvWorkload, size: int, points: int, kernel: int, stride: int, before: int, dilation: int) -> _Axis:
        steps, limit = (size, points) if w.transposed else (points, size)
        met = [_within(steps, stride, tap * dilation - before, limit) for tap in range(kernel)]
        # Each tap by itself meets as many rows: those of all taps together are at least the most of any.
        read = max(met, default=0)
        if not w.transposed and dilation == 1 and kernel >= stride:
            read = max(0, min(size, (points - 1) * stride - before + kernel))
        return cls(sum(met), read, sum(count > 0 for count in met))


def _within(steps: int, stride: int, offset: int, limit: int) -> int:
    """How many of step * stride + offset lie in [0, limit)."""
    first, last = max(0, -(offset // stride)), min(steps - 1, (limit - 1 - offset) // stride)
    return max(0, last - first + 1)


def _winograd_macs(w: ConvWorkload, config: Config) -> int:
    """Of the products of F(m x m, r x r), image tiles that reach beyond the edge counted in part."""
    tile = config.choice("m")
    if not isinstance(tile, int) or tile < 1:
        raise DatabaseError(f"config: form 'winograd' with m = {tile!r}, accepted: a whole number of at least 1")
    points = (tile + w.kh - 1) ** 2
    return w.n * w.ho * w.wo * points * w.ci * w.co // tile**2


def _macs_per_second(workload: GemmWorkload | ConvWorkload, cpu: Cpu, peak: Peak) -> float:
    """Multiply-adds per second that the machine cannot exceed for the workload's types."""
    types, cores = workload.types, cpu.cores
    fused = max(peak.gflops, cores * peak.gflops_one_core) * 1e9 / 2 / cpu.lanes(4)  # vectors per second
    serving = [row for row in DOT_INSTRUCTIONS if row.supports(types.a, types.b, types.acc) and row.form(cpu)]
    # Rates of the table are sustained ones; none of these instructions starts more often than a multiply-add does.
    found = [fused * cpu.lanes(row.acc_bytes) * row.group * max(1.0, row.rate) for row in serving]
    measured = [1e9 / 2 * peak.gflops_half.get(types.a, 0.0)]
    if types.a in ("int8", "uint8"):
        measured.append(1e9 / 2 * max(peak.gops_int8 or 0.0, cores * (peak.gops_int8_one_core or 0.0)))
    return max(found + measured)


def _moving(workload: GemmWorkload | ConvWorkload, machine: Machine) -> float:
    """Cycles in which both operands come once and the result leaves: side by side, or one behind the other where the
    memory has one port."""
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
    """Of one core, from the nearest level that holds so many bytes."""
    for level, rate in ((2, cpu.l2_bytes_per_cycle), (3, cpu.l3_bytes_per_cycle)):
        cache = cpu.cache(level)
        if cache is not None and footprint <= cache.size * max(1, cpu.cores // cache.cores):
            return rate
    return cpu.memory_bytes_per_cycle
