"""Choice of the multiply instruction: one fused multiply-add per lane, or a dot product of narrow elements.

A dot product takes a `group` of adjacent elements of K per lane at once. Operands that it cannot take directly are
converted while they are packed: VNNI multiplies unsigned by signed bytes, so signed bytes of A are offset by 128, and
the accumulators start with the column sums of B times -128. The instructions are listed in
hardware/dot_instructions.py. Some are exact only for a bounded B, which is known of constant weights.

Interleaving B is worthwhile only if several rows of A use it. For fewer rows, operands that a multiply-add at full rate
can read in place are read in place. Relative to the bfloat16 dot product on a Zen 4 server, this took 0.5 to 0.8 of the
time with two rows, 0.9 with five, and 1.05 to 1.4 with eight.

A matrix instruction multiplies two rows of A by two columns of B, with twice the multiply-adds of a dot product. It is
used if this takes fewer instructions: an odd row wastes half of each, and the last group of K may be partly empty.

A 16-bit B that is prepacked for multiply-adds keeps its type if few rows of A use each vector of it: converting it
every time takes less time than transferring twice the bytes.
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

# Number of rows of A from which on B is interleaved at run time.
INTERLEAVED_ROWS = 6


# Number of elements in a tap's channels below which the taps of a kernel row form one run.
SHORT_RUN = 64
# Kernel variants that read A in place.
IN_PLACE_FORMS = ("normal", "nocopy", "inline", "stream")
# Algorithms of a convolution whose kernels do not use matrix instructions.
FORMS_OF_THEIR_OWN = ("depthwise", "wfold", "winograd")


def dot_engine(
    workload: GemmWorkload | ConvWorkload,
    cpu: Cpu,
    *,
    form: str | None = None,
    prepacked: bool = False,
    any_rows: bool = False,
) -> DotInstruction:
    """Return the fastest instruction of `cpu` for the workload's types.

    For a `form` that reads A in place, an instruction that can do so is returned, if one does at full rate.
    any_rows: the same instruction for every number of rows. Raises UnsupportedOperator if no instruction takes the
    types or no kernel reads the encoding of the weights.
    """
    types = workload.types
    if workload.encoding.how.bits is not None:  # these have their own kernels
        refuse_encoding(workload.encoding)
    if types.a != types.b and not is_integer(types.a):  # pattern matching refuses these
        raise UnsupportedOperator(f"operands of {types.operands} on a CPU; expected floats of one type")
    found = fastest(cpu, types.a, types.b, types.acc, b_limit=workload.b_limit)
    if found is None:
        usual = ELEMENTS[types.a].accumulator
        if is_integer(types.a) and types.acc != usual and types.a in multiplied():
            raise UnsupportedOperator(
                f"{types.a} operands with {types.acc} sums are not supported; expected {usual} sums"
            )
        raise UnsupportedOperator(f"operands of {types.operands} on a CPU; expected {', '.join(multiplied())}")
    alike = any_rows and not is_integer(types.a)  # sums of integers are exact
    if form not in FORMS_OF_THEIR_OWN and not alike:
        found = _by_blocks(workload, cpu, found)
    few = isinstance(workload, GemmWorkload) and not prepacked and (workload.m < INTERLEAVED_ROWS or alike)
    if prepacked and isinstance(workload, GemmWorkload) and found.widens(types.b):
        return _kept_narrow(workload, cpu, found)
    if found.in_place or not (few or form in IN_PLACE_FORMS or _reads_beyond(workload, found, form)):
        return found
    in_place = fastest(cpu, types.a, types.b, types.acc, in_place=True)
    return in_place if in_place is not None and in_place.rate >= 1 else found


def _by_blocks(workload: GemmWorkload | ConvWorkload, cpu: Cpu, found: DotInstruction) -> DotInstruction:
    """Return a matrix instruction if the CPU has one that takes fewer steps than `found`, else `found`."""
    types = workload.types
    matrix = fastest(cpu, types.a, types.b, types.acc, b_limit=workload.b_limit, matrix=True)
    assert matrix is not None
    if isinstance(workload, GemmWorkload):
        rows, run = workload.m, workload.k
    else:
        rows, run = workload.n * workload.do * workload.ho * workload.wo, workload.ci // workload.groups
        if run < SHORT_RUN and workload.dilation[1] == 1:
            run *= workload.kw

    def steps(engine: DotInstruction) -> float:
        return ceil_div(rows, engine.rows) * engine.rows * ceil_div(run, engine.group) / engine.rate

    return min(found, matrix, key=steps)


def _kept_narrow(workload: GemmWorkload, cpu: Cpu, found: DotInstruction) -> DotInstruction:
    """Return the instruction with panels of B in B's own type if that is faster, comparing the cycles of a vector of B
    for all rows."""
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
    """Return whether the last group of a tap's channels reads elements past the channels. Zero weights cancel them
    unless they are NaN or infinite. Direct convolutions and matrix multiplications pad the last group with zeros
    instead."""
    uneven = isinstance(workload, ConvWorkload) and workload.ci // workload.groups % found.group > 0
    return uneven and not is_integer(found.a) and form in ("depthwise", "wfold")
