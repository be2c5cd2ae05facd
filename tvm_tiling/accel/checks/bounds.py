"""Operands lie inside their memories and walk their own loops, sums have types that hold them, no instruction writes a
byte twice."""

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
"""Of an operand of one instruction; strides of 0 could make more of few bytes than any computer holds."""
_SUMS = (ElementType.INT32, ElementType.INT16)


def check_bounds(program: Program) -> None:
    """SimulationError, naming the instruction, its operand, the bytes and the size of the memory, for an operand that
    lies outside; likewise for an operand of too many elements, for a loop that the operand does not have, for sums in a
    type that does not hold them, and for a result that writes the same byte twice, so that it would depend on the order
    of its loops."""
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
                f"{instruction_name(program, number)}: operand {operand} is walked over {elements[number]:g} elements, "
                f"accepted: at most {MOST_ELEMENTS}"
            )
    _check_sums(program)
    _check_loops(program)
    _check_results(program)


def _check_sums(program: Program) -> None:
    """Whole numbers are summed in int32 or int16, floats in floats."""
    instructions = program.instructions
    products = multiplies(instructions)
    whole, result = np.isin(instructions["dtype"], tuple(BOUNDS)), instructions["result_dtype"]
    wrong = products & np.where(whole, ~np.isin(result, _SUMS), np.isin(result, tuple(BOUNDS)))
    if wrong.any():
        number = int(wrong.argmax())
        kinds = (ElementType(int(instructions[name][number])).name.lower() for name in ("dtype", "result_dtype"))
        raise SimulationError(
            f"{instruction_name(program, number)}: a product of {next(kinds)} summed in {next(kinds)}, accepted: "
            f"{'int32 or int16' if whole[number] else 'a float type'}"
        )


def _check_loops(program: Program) -> None:
    """Operands walk the loops of their instruction only."""
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
                f"{instruction_name(program, number)}: strides {strides[number].tolist()} of operand {operand}, "
                f"accepted: 0 for all loops but {', '.join(map(str, loops))}"
            )


def _check_results(program: Program) -> None:
    """Where each stride steps over all that shorter strides reach, no element is written twice; other results are
    counted out, which their memory's size bounds."""
    instructions = program.instructions
    loops = extents(instructions, "c")
    loops[~walked(instructions, "c")] = 1
    strides = np.abs(instructions["c_stride"].astype(np.int64))
    # A reduction goes over its result again, on purpose.
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
                f"{instruction_name(program, number)}: strides {instructions['c_stride'][number].tolist()} write an "
                "element of c twice, accepted: strides that give every element a place of its own"
            )


def _meets_itself(strides: list[int], steps: list[int]) -> bool:
    """Whether two points of loops that go `steps` further by `strides` are the same."""
    elements = math.prod(step + 1 for step in steps)
    if elements > 1 + sum(stride * step for stride, step in zip(strides, steps, strict=True)):
        return True  # more of them than places
    places = np.zeros(1, dtype=np.int64)
    for stride, step in zip(strides, steps, strict=True):
        places = (places[:, None] + stride * np.arange(step + 1)).reshape(-1)
    return len(np.unique(places)) < elements
