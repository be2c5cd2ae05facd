"""Single instructions carried out on the bytes of the memories."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import moves, products, vector
from .access import PRODUCTS, element_bytes, uses
from .elements import STORED
from .isa import Flag, Opcode

_PRODUCTS = frozenset(map(int, PRODUCTS))


class Steps:
    """Instructions of one chunk of a program as Python numbers, and the memories they work on.

    `data` are the memories' bytes, by number. Operands must have been found to lie inside (check_bounds).
    """

    def __init__(self, instructions: np.ndarray, data: list[np.ndarray]) -> None:
        self._data = data
        used = uses(instructions)
        near = instructions["dtype"].tolist()
        far = instructions["result_dtype"].tolist()
        self._op = instructions["op"].tolist()
        self._function = instructions["function"].tolist()
        self._kinds = list(zip(near, far, strict=True))
        self._extent = instructions["extent"].tolist()
        self._pad = list(map(tuple, instructions["pad"].tolist()))
        self._immediate = list(map(tuple, instructions["immediate"].tolist()))
        self._accumulate = ((instructions["flags"] & Flag.ACCUMULATE) != 0).tolist()
        self._second = used.reads_b.tolist()
        self._reduces = (used.reads_c & (instructions["op"] == Opcode.ALU)).tolist()
        self._at = {
            operand: list(
                zip(
                    instructions[f"{operand}_memory"].tolist(),
                    instructions[operand].tolist(),
                    (instructions[f"{operand}_stride"] * element_bytes(instructions, operand)[:, None]).tolist(),
                    strict=True,
                )
            )
            for operand in ("a", "b", "c")
        }

    def carry_out(self, place: int) -> None:
        """Do the instruction at `place` of the chunk. SimulationError where its function does not have its type."""
        op = self._op[place]
        if op in _PRODUCTS:
            self._multiply(place)
        elif op == Opcode.ALU:
            self._apply(place)
        elif op == Opcode.FILL:
            shape = self._extent[place][:4]
            moves.fill(self._view("c", place, shape), self._kinds[place][1], self._immediate[place][0])
        elif op != Opcode.NOP:
            self._copy(place)

    def _view(self, operand: str, place: int, shape: Any, loops: slice = slice(0, 4)) -> np.ndarray:
        memory, address, strides = self._at[operand][place]
        kind = STORED[self._kinds[place][operand == "c"]]
        return np.ndarray(shape, kind, self._data[memory], address, strides[loops])

    def _multiply(self, place: int) -> None:
        m, n0, n1, k0, k1, k2 = self._extent[place]
        near, far = self._kinds[place]
        (am, a0, sa), (bm, b0, sb), (cm, c0, sc) = (self._at[operand][place] for operand in ("a", "b", "c"))
        data = self._data
        if n0 == k0 == k1 == 1:
            a = np.ndarray((m, k2), STORED[near], data[am], a0, (sa[0], sa[5]))
            b = np.ndarray((n1, k2), STORED[near], data[bm], b0, (sb[2], sb[5]))
            c = np.ndarray((m, n1), STORED[far], data[cm], c0, (sc[0], sc[2]))
        else:
            a = np.ndarray((m, k0, k1, k2), STORED[near], data[am], a0, (sa[0], *sa[3:]))
            b = np.ndarray((n0, n1, k0, k1, k2), STORED[near], data[bm], b0, sb[1:])
            c = np.ndarray((m, n0, n1), STORED[far], data[cm], c0, sc[:3])
        products.multiply(a, b, c, self._kinds[place], self._accumulate[place])

    def _copy(self, place: int) -> None:
        shape = self._extent[place][:4]
        top, bottom, left, right = pad = self._pad[place]
        bordered = (shape[0], shape[1] + top + bottom, shape[2] + left + right, shape[3])
        a, c = self._view("a", place, shape), self._view("c", place, bordered)
        moves.copy(a, c, self._kinds[place], pad, self._immediate[place][0])

    def _apply(self, place: int) -> None:
        shape = self._extent[place][:4]
        function, kinds, immediate = self._function[place], self._kinds[place], self._immediate[place]
        a = self._view("a", place, shape)
        if self._reduces[place]:
            strides = self._at["c"][place][2]
            axes = tuple(axis for axis in range(4) if shape[axis] > 1 and strides[axis] == 0)
            c = self._view("c", place, [1 if axis in axes else count for axis, count in enumerate(shape)])
            c[...] = vector.reduce(function, a, c, axes, kinds)
        else:
            b = self._view("b", place, shape) if self._second[place] else immediate[0]
            self._view("c", place, shape)[...] = vector.apply(function, a, b, kinds, immediate)
