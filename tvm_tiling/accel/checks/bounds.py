"""Bounds checks: operands lie inside their memories and use only loops of their instruction, accumulator types are wide
enough, and no instruction writes a byte twice."""

from __future__ import annotations

import math

import numpy as np

from ...errors import SimulationError
from ..instructions.table import Opcode, marked, multiplies, uses, walked
from ..program.disassembler import instruction_name
from ..program.elements import BOUNDS
from ..program.isa import OPERANDS, ElementType
from ..program.program import Program
from .access import extents, spans

MOST_ELEMENTS = 1 << 28
"""Limit for one operand of an instruction: with strides of 0, a few bytes could expand to more elements than any
computer holds."""
_SUMS = (ElementType.INT32, ElementType.INT16)


def check_bounds(program: Program) -> None:
    """Raise SimulationError for the first instruction that violates a bound.

    Checked are: operands that lie outside their memory (the message names the operand, its bytes and the size of the
    memory), operands of too many elements, loops that the operand does not have, accumulator types that are too narrow,
    and results that write the same byte twice, which would depend on the order of the loops.
    """
    instructions = program.instructions
    used = uses(instructions)
    sizes = np.array([memory.bytes for memory in program.memories] or [0], dtype=np.int64)
    for operand in OPERANDS:
        low, high = spans(instructions, operand)
        numbers = np.minimum(instructions[f"{operand}_memory"], len(sizes) - 1)
        outside = used.of(operand) & ((low < 0) | (high > sizes[numbers]))
        if outside.any():
            number = int(outside.argmax())
            memory = program.memories[numbers[number]]
            raise SimulationError(
                f"{instruction_name(program, number)}: operand {operand} takes bytes {low[number]} to "
                f"{high[number] - 1} of memory {memory.name!r}, which has {memory.bytes} bytes"
            )
        loops = extents(instructions, operand).astype(np.float64)
        loops[~walked(instructions, operand)] = 1
        elements = loops.prod(axis=1)
        if (used.of(operand) & (elements > MOST_ELEMENTS)).any():
            number = int((used.of(operand) & (elements > MOST_ELEMENTS)).argmax())
            raise SimulationError(
                f"{instruction_name(program, number)}: operand {operand} has {elements[number]:g} elements; "
                f"expected at most {MOST_ELEMENTS}"
            )
    _check_sums(program)
    _check_loops(program)
    _check_results(program)


def _check_sums(program: Program) -> None:
    """Check that integers are accumulated in int32 or int16 and floats in floats."""
    instructions = program.instructions
    products = multiplies(instructions)
    whole, result = np.isin(instructions["dtype"], tuple(BOUNDS)), instructions["result_dtype"]
    wrong = products & np.where(whole, ~np.isin(result, _SUMS), np.isin(result, tuple(BOUNDS)))
    if wrong.any():
        number = int(wrong.argmax())
        kinds = (ElementType(int(instructions[name][number])).name.lower() for name in ("dtype", "result_dtype"))
        raise SimulationError(
            f"{instruction_name(program, number)}: accumulation of {next(kinds)} in {next(kinds)} is not "
            f"supported; expected {'int32 or int16' if whole[number] else 'a float type'}"
        )


def _check_loops(program: Program) -> None:
    """Check that each operand uses only loops of its instruction."""
    instructions = program.instructions
    used = uses(instructions)
    for operand in OPERANDS:
        strides = instructions[f"{operand}_stride"]
        others = ~walked(instructions, operand)
        wrong = used.of(operand) & (others & (strides != 0) & (instructions["extent"] > 1)).any(axis=1)
        if wrong.any():
            number = int(wrong.argmax())
            loops = Opcode[int(instructions["op"][number])].loops[operand]
            raise SimulationError(
                f"{instruction_name(program, number)}: operand {operand} has strides "
                f"{strides[number].tolist()}; expected 0 for all loops except {', '.join(map(str, loops))}"
            )


def _check_results(program: Program) -> None:
    """Check that no instruction writes an element twice. This holds if each stride steps over the whole range of the
    shorter strides; other results are enumerated, which the size of their memory bounds."""
    instructions = program.instructions
    loops = extents(instructions, "c")
    loops[~walked(instructions, "c")] = 1
    strides = np.abs(instructions["c_stride"].astype(np.int64))
    # A reduction revisits its result on purpose.
    loops[marked(instructions, [row.takes_function for row in Opcode])[:, None] & (strides == 0)] = 1
    strides = np.where(loops > 1, strides, 0)
    order = np.argsort(strides, axis=1)
    strides, steps = np.take_along_axis(strides, order, axis=1), np.take_along_axis(loops, order, axis=1) - 1
    reach = np.cumsum(strides * steps, axis=1) - strides * steps
    doubtful = uses(instructions).writes_c & ((steps > 0) & (strides <= reach)).any(axis=1)
    judged: dict[bytes, bool] = {}
    for number in np.flatnonzero(doubtful).tolist():
        key = strides[number].tobytes() + steps[number].tobytes()
        if key not in judged:
            judged[key] = _meets_itself(strides[number].tolist(), steps[number].tolist())
        if judged[key]:
            raise SimulationError(
                f"{instruction_name(program, number)}: strides {instructions['c_stride'][number].tolist()} "
                "write an element of c twice; expected strides that give every element its own address"
            )


def _meets_itself(strides: list[int], steps: list[int]) -> bool:
    """Return whether two points coincide of loops that take `steps` steps of `strides`."""
    elements = math.prod(step + 1 for step in steps)
    if elements > 1 + sum(stride * step for stride, step in zip(strides, steps, strict=True)):
        return True  # more elements than addresses
    places = np.zeros(1, dtype=np.int64)
    for stride, step in zip(strides, steps, strict=True):
        places = (places[:, None] + stride * np.arange(step + 1)).reshape(-1)
    return len(np.unique(places)) < elements
