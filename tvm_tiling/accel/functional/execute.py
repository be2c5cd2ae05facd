"""Single instructions executed on the bytes of the memories, each by its row of the table."""

from __future__ import annotations

import itertools

import numpy as np

from ...hardware.description import Hardware
from ...hardware.vector_functions import Function
from ..checks.access import extents
from ..instructions.row import How
from ..instructions.table import Opcode, uses
from ..program.elements import STORED
from ..program.isa import OPERANDS, ElementType, Operand, element_bytes

_STORED = [STORED[kind] for kind in ElementType]
_NOTHING = np.empty(0, np.uint8)  # in the place of an operand that is not there


class Steps:
    """Instructions in the order in which they are executed, their operands as views of the memories' bytes.

    `data` are the memories' bytes, by number, `hardware` is the machine that the program was made for. Operands must
    have been found to lie inside (check_bounds). Views are made for many instructions at a time, as that is most of the
    work of small ones.
    """

    def __init__(self, instructions: np.ndarray, data: list[np.ndarray], hardware: Hardware) -> None:
        used = uses(instructions)
        op = instructions["op"]
        executes = [row.execute for row in Opcode]
        functions = list(Function)
        self._execute = [executes[number] for number in op.tolist()]
        self._how = list(
            map(
                How,
                zip(instructions["dtype"].tolist(), instructions["result_dtype"].tolist(), strict=True),
                [functions[number] for number in instructions["function"].tolist()],
                used.reads_b.tolist(),
                used.reads_c.tolist(),
                [pad if any(pad) else None for pad in instructions["pad"].tolist()],
                instructions["immediate"].tolist(),
                instructions["block"].tolist(),
                itertools.repeat(hardware.w_fold),
            )
        )
        views: dict[Operand, list[np.ndarray]] = {operand: [_NOTHING] * len(instructions) for operand in OPERANDS}
        for number in np.unique(op).tolist():
            row = Opcode[number]
            own = op == row
            short = own & (instructions["extent"][:, row.when_once] == 1).all(axis=1)
            for group, left_out in ((short, row.when_once), (own & ~short, ())):
                for operand, loops in row.loops.items():
                    places = np.flatnonzero(group & used.of(operand))
                    if len(places):
                        kept = [loop for loop in loops if loop not in left_out]
                        found = _views(instructions[places], operand, kept, data)
                        for place, view in zip(places.tolist(), found, strict=True):
                            views[operand][place] = view
        self._a, self._b, self._c = views["a"], views["b"], views["c"]

    def execute(self, place: int) -> None:
        """Execute the instruction at `place`. SimulationError where its function does not have its type."""
        self._execute[place](self._a[place], self._b[place], self._c[place], self._how[place])


def _views(instructions: np.ndarray, operand: Operand, loops: list[int], data: list[np.ndarray]) -> list[np.ndarray]:
    """An operand of each instruction as an array over `loops`."""
    strides = instructions[f"{operand}_stride"][:, loops] * element_bytes(instructions, operand)[:, None]
    return [
        np.ndarray(shape, _STORED[kind], data[memory], address, steps)
        for shape, kind, memory, address, steps in zip(
            extents(instructions, operand)[:, loops].tolist(),
            instructions["result_dtype" if operand == "c" else "dtype"].tolist(),
            instructions[f"{operand}_memory"].tolist(),
            instructions[operand].tolist(),
            strides.tolist(),
            strict=True,
        )
    ]
