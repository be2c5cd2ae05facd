"""Execution of single instructions on the bytes of the memories, dispatched by the instruction table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from ...hardware.description import Hardware
from ...hardware.vector_functions import Function
from ..checks.access import extents
from ..instructions.row import How
from ..instructions.table import Opcode, Uses, uses
from ..program.elements import STORED
from ..program.isa import OPERANDS, ElementType, Operand, element_bytes

T = TypeVar("T")
_STORED = [STORED[kind] for kind in ElementType]
_SAID = ("dtype", "result_dtype", "function", "pad", "immediate", "block")  # fields that How is made of
_NOTHING = np.empty(0, np.uint8)  # stands for an absent operand
_KEPT = 1 << 16  # most cached views, and most cached Hows


class Steps:
    """Executes instructions one after another on views of the memories.

    `data` are the bytes of the memories, by number; `hardware` is the machine that the program was made for. For small
    instructions, creating views dominates the run time: views are created in batches and cached, since most
    instructions access the same bytes in the same way as earlier ones.
    """

    def __init__(self, data: list[np.ndarray], hardware: Hardware) -> None:
        self._data, self._hardware = data, hardware
        self._views: dict[bytes, np.ndarray] = {}
        self._hows: dict[bytes, How] = {}
        self._functions = list(Function)

    def prepare(self, instructions: np.ndarray) -> None:
        """Prepare these instructions for execution. Their operands must have passed check_bounds."""
        used = uses(instructions)
        op = instructions["op"]
        executes = [row.execute for row in Opcode]
        self._execute = [executes[number] for number in op.tolist()]
        self._how = self._hows_of(instructions, used)
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
                        found = self._views_of(instructions[places], operand, kept)
                        for place, view in zip(places.tolist(), found, strict=True):
                            views[operand][place] = view
        self._a, self._b, self._c = views["a"], views["b"], views["c"]

    def execute(self, place: int) -> None:
        """Execute the instruction at `place` of those prepared. SimulationError if its function does not support its
        type."""
        self._execute[place](self._a[place], self._b[place], self._c[place], self._how[place])

    def _hows_of(self, instructions: np.ndarray, used: Uses) -> list[How]:
        """Return the fields of each instruction other than its operands."""

        def made(place: int) -> How:
            one = instructions[place]
            pad = one["pad"].tolist()
            return How(
                (int(one["dtype"]), int(one["result_dtype"])),
                self._functions[one["function"]],
                bool(used.reads_b[place]),
                bool(used.reads_c[place]),
                pad if any(pad) else None,
                one["immediate"].tolist(),
                int(one["block"]),
                self._hardware.w_fold,
            )

        return _kept(self._hows, [instructions[name] for name in _SAID] + [used.reads_b, used.reads_c], made)

    def _views_of(self, instructions: np.ndarray, operand: Operand, loops: list[int]) -> list[np.ndarray]:
        """Return an operand of each instruction as an array over `loops`."""
        shape = extents(instructions, operand)[:, loops]
        kind = instructions["result_dtype" if operand == "c" else "dtype"]
        memory, address = instructions[f"{operand}_memory"], instructions[operand]
        strides = instructions[f"{operand}_stride"][:, loops] * element_bytes(instructions, operand)[:, None]

        def made(place: int) -> np.ndarray:
            return np.ndarray(
                shape[place].tolist(),
                _STORED[kind[place]],
                self._data[memory[place]],
                int(address[place]),
                strides[place].tolist(),
            )

        return _kept(self._views, [shape, kind, memory, address, strides], made)


def _kept(known: dict[bytes, T], columns: Sequence[np.ndarray], made: Callable[[int], T]) -> list[T]:
    """Return, for each row of `columns`, the cached value of an equal row, or made(row index)."""
    rows = len(columns[0])
    bytes_of = [np.ascontiguousarray(column).view(np.uint8).reshape(rows, -1) for column in columns]
    keys = np.concatenate(bytes_of, axis=1)
    found = []
    if len(known) > _KEPT:
        known.clear()
    for place, key in enumerate(keys.view(f"V{keys.shape[1]}").reshape(-1).tolist()):
        one = known.get(key)
        if one is None:
            one = known[key] = made(place)
        found.append(one)
    return found
