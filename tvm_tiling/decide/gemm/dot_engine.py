"""Which instruction multiplies and sums: one fused multiply-add a lane, or a dot product of small integers.

A dot engine takes `group` neighbouring elements of the summed axis a lane at once. Operands that it cannot take as they
are get converted while they are packed: VNNI multiplies unsigned by signed bytes, so signed bytes of A are offset by
128 and the column sums of B, times -128, start the accumulators.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import UnsupportedOperator
from ...hardware.description import Cpu
from ...operand_types import element_bytes
from ...workload import ConvWorkload, GemmWorkload, refuse_encoding

MULTIPLIED = ("float64", "float32", "float16", "bfloat16", "int8", "uint8")
"""Types of operands that kernels for CPUs multiply."""


@dataclass(frozen=True)
class DotEngine:
    """An instruction form. `group`: summed elements a lane takes at once; `speed`: multiply-adds of a lane beside those
    of a float32 lane, the fewer lanes of a wider type not counted.

    `operand` is the type operands have in packed buffers, `offset` what is added to A on the way there.
    """

    name: str
    group: int
    operand: str
    accumulator: str
    speed: float
    offset: int = 0

    @property
    def acc_bytes(self) -> int:
        return element_bytes(self.accumulator)

    @property
    def in_place(self) -> bool:
        """Whether operands may be read where they lie; a grouped engine needs them interleaved."""
        return self.group == 1


def dot_engine(workload: GemmWorkload | ConvWorkload, cpu: Cpu) -> DotEngine:
    """The fastest engine of `cpu` for the workload's types."""
    types = workload.types
    dtype, acc = types.a, types.acc
    if types.b != dtype:
        raise UnsupportedOperator(f"products of {types.operands} on a CPU; accepted: operands of one type")
    if not workload.encoding.how.emitted:
        refuse_encoding(workload.encoding)
    if dtype in ("float32", "float64", "float16", "bfloat16"):
        kind = "float64" if "float64" in (dtype, acc) else "float32"
        return DotEngine(f"fma.{kind}", 1, kind, kind, 1.0)
    if dtype not in MULTIPLIED:
        raise UnsupportedOperator(f"products of {dtype} on a CPU; accepted: {', '.join(MULTIPLIED)}")
    if acc != "int32":
        raise UnsupportedOperator(f"products of {dtype} are summed in int32 here, not in {acc}")
    signed = dtype == "int8"
    if signed and cpu.arch == "aarch64" and "dotprod" in cpu.features:
        return DotEngine("sdot", 4, "int8", "int32", 4.0)
    if signed and cpu.arch == "x86_64" and _vnni(cpu):
        return DotEngine("vpdpbusd", 4, "int8", "int32", 4.0, offset=128)
    if cpu.arch == "x86_64" and (cpu.vector_bits < 512 or "avx512bw" in cpu.features):
        return DotEngine("pmaddwd", 2, "int16", "int32", 1.6)
    return DotEngine("imul", 1, "int32", "int32", 0.5)


def _vnni(cpu: Cpu) -> bool:
    wanted = {"avx512vnni"} if cpu.vector_bits == 512 else {"avxvnni", "avx512vnni"}
    return bool(wanted & set(cpu.features))
