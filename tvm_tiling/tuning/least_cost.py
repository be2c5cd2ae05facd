"""What an operator takes at least on a machine, by its peak and its memory, as the description has them."""

from __future__ import annotations

from ..decide.gemm.dot_engine import dot_engine
from ..decide.gemm.traffic import operand_bytes
from ..hardware.description import Cpu, Hardware
from ..hardware.machine import Machine
from ..workload import ConvWorkload, GemmWorkload


def least_cost(workload: GemmWorkload | ConvWorkload, hardware: Hardware) -> float:
    """Seconds on a CPU, cycles on an accelerator: multiply-adds at peak, or every byte once from the nearest level that
    holds them all, on an accelerator between the chip and the memories off it, whichever is more.

    A form with fewer multiply-adds than the operator (Winograd's) may take less. UnsupportedOperator for types that the
    CPU does not multiply.
    """
    if hardware.cpu is None:
        machine = Machine(hardware)
        return max(workload.macs / machine.macs(workload.a_bytes), _moving(workload, machine))
    cpu, engine = hardware.cpu, dot_engine(workload, hardware.cpu)
    arithmetic = workload.macs / (cpu.cores * cpu.fma_units * cpu.lanes(engine.acc_bytes) * engine.speed)
    moving = workload.bytes / (cpu.cores * _bytes_per_cycle(cpu, workload.bytes))
    return max(arithmetic, moving) / (cpu.mhz * 1e6)


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
