"""Which instruction multiplies and sums: one fused multiply-add a lane, or a dot product of narrow elements.

A dot product takes a `group` of neighbouring elements of k a lane at once. Operands that it cannot take as they are get
converted while they are packed: VNNI multiplies unsigned by signed bytes, so signed bytes of A are offset by 128 and
the column sums of B, times -128, start the accumulators. The instructions are rows of hardware/dot_instructions.py.

Interleaving B pays once several rows of A use it. Of fewer rows, operands that a multiply-add of full rate reads in
place are read so: beside the dot product of bfloat16 on a Zen 4 server two rows took 0.5 to 0.8 of the time, five 0.9,
eight 1.05 to 1.4.

B of 16 bits that is packed ahead for a multiply-add stays as it is where few rows of A use a vector of it: to convert
it each time takes less than the other half of its bytes would take to arrive.
"""

from __future__ import annotations

from dataclasses import replace

from ...errors import UnsupportedOperator
from ...hardware.description import Cpu
from ...hardware.dot_instructions import DotInstruction, fastest, multiplied
from ...operand_types import ELEMENTS, element_bytes, is_integer
from ...workload import ConvWorkload, GemmWorkload, refuse_encoding
from .microkernel import tallest
from .traffic import ceil_div

# Rows of A from which on B is interleaved while a matrix multiplication runs.
INTERLEAVED_ROWS = 6


# Forms of a product that read A in place.
IN_PLACE_FORMS = ("normal", "nocopy", "inline", "stream")


def dot_engine(
    workload: GemmWorkload | ConvWorkload, cpu: Cpu, *, form: str | None = None, prepacked: bool = False
) -> DotInstruction:
    """The fastest instruction of `cpu` for the workload's types, B arriving packed where `prepacked`; for a `form` that
    reads A in place one that can, if any does at full rate. UnsupportedOperator where there is none, or where no kernel
    reads the weights as they are stored."""
    types = workload.types
    if workload.encoding.how.bits is not None:  # products of such have kernels of their own
        refuse_encoding(workload.encoding)
    if types.a != types.b and not is_integer(types.a):  # which pattern matching refuses
        raise UnsupportedOperator(f"products of {types.operands} on a CPU; expected floats of one type")
    found = fastest(cpu, types.a, types.b, types.acc)
    if found is None:
        usual = ELEMENTS[types.a].accumulator
        if is_integer(types.a) and types.acc != usual and types.a in multiplied():
            raise UnsupportedOperator(f"products of {types.a} are summed in {usual} here, not in {types.acc}")
        raise UnsupportedOperator(f"products of {types.operands} on a CPU; expected {', '.join(multiplied())}")
    few = isinstance(workload, GemmWorkload) and workload.m < INTERLEAVED_ROWS and not prepacked
    if prepacked and isinstance(workload, GemmWorkload) and found.widens(types.b):
        return _kept_narrow(workload, cpu, found)
    if found.in_place or not (few or form in IN_PLACE_FORMS or _reads_beyond(workload, found, form)):
        return found
    in_place = fastest(cpu, types.a, types.b, types.acc, in_place=True)
    return in_place if in_place is not None and in_place.rate >= 1 else found


def _kept_narrow(workload: GemmWorkload, cpu: Cpu, found: DotInstruction) -> DotInstruction:
    """The instruction with panels of B in B's own type if that is faster: cycles of a vector of B for all rows."""
    lanes, elements = cpu.lanes(found.acc_bytes), workload.batch * workload.k * workload.n
    adding = workload.m / found.rate / cpu.fma_units
    tiles = ceil_div(workload.m, tallest(cpu.vector_registers, 2))
    wide, narrow = (
        max(adding + converting, lanes * size / cpu.bytes_per_cycle(elements * size))
        for size, converting in (
            (found.acc_bytes, 0.0),
            (element_bytes(workload.types.b), tiles * cpu.kernel_costs.widened_vector),
        )
    )
    return replace(found, stored=workload.types.b) if narrow < wide else found


def _reads_beyond(workload: GemmWorkload | ConvWorkload, found: DotInstruction, form: str | None) -> bool:
    """Whether the last group of a tap's channels takes what lies behind them, which weights of zero make nothing of
    unless it is NaN or infinite. Direct convolutions and matrix multiplications fill the last group with zeros."""
    uneven = isinstance(workload, ConvWorkload) and workload.ci // workload.groups % found.group > 0
    return uneven and not is_integer(found.a) and form in ("depthwise", "wfold")
