"""Single instructions carried out on the bytes of the memories."""

from __future__ import annotations

import numpy as np

from ..checks.access import PRODUCTS, Operand, element_bytes, extents, uses
from ..program.elements import STORED
from ..program.isa import ElementType, Flag, Opcode
from . import moves, products, vector

_STORED = [STORED[kind] for kind in ElementType]
# The loops of a product's operands, and those that are left where the others are gone round once.
_LOOPS: dict[Operand, tuple[list[int], list[int]]] = {
    "a": ([0, 3, 4, 5], [0, 5]),
    "b": ([1, 2, 3, 4, 5], [2, 5]),
    "c": ([0, 1, 2], [0, 2]),
}
_PLAIN = [0, 1, 2, 3]
_NOTHING = np.empty(0, np.uint8)  # in the place of an operand that is not there
# As plain numbers, which compare faster than members of an enumeration.
_NOP, _FILL, _ALU = int(Opcode.NOP), int(Opcode.FILL), int(Opcode.ALU)
_OF_PRODUCTS = frozenset(map(int, PRODUCTS))


class Steps:
    """Instructions in the order in which they are carried out, their operands as views of the memories' bytes.

    `data` are the memories' bytes, by number. Operands must have been found to lie inside (check_bounds). Views are
    made for many instructions at a time, as that is most of the work of small ones.
    """

    def __init__(self, instructions: np.ndarray, data: list[np.ndarray]) -> None:
        used = uses(instructions)
        op = instructions["op"]
        self._op = op.tolist()
        self._function = instructions["function"].tolist()
        self._kinds = list(zip(instructions["dtype"].tolist(), instructions["result_dtype"].tolist(), strict=True))
        self._pad = [pad if any(pad) else None for pad in instructions["pad"].tolist()]
        self._immediate = instructions["immediate"].tolist()
        self._accumulate = ((instructions["flags"] & Flag.ACCUMULATE) != 0).tolist()
        self._has_b = used.reads_b.tolist()
        self._reduces = (used.reads_c & (op == _ALU)).tolist()
        product = np.isin(op, PRODUCTS)
        short = product & (instructions["extent"][:, [1, 3, 4]] == 1).all(axis=1)
        views: dict[Operand, list[np.ndarray]] = {}
        for operand, (all_loops, short_loops) in _LOOPS.items():
            found = views[operand] = [_NOTHING] * len(instructions)
            for group, loops in ((short, short_loops), (product & ~short, all_loops), (~product, _PLAIN)):
                places = np.flatnonzero(group & used.of(operand))
                own = _views(instructions[places], operand, loops, data)
                for place, view in zip(places.tolist(), own, strict=True):
                    found[place] = view
        self._a, self._b, self._c = views["a"], views["b"], views["c"]

    def carry_out(self, place: int) -> None:
        """Do the instruction at `place`. SimulationError where its function does not have its type."""
        op = self._op[place]
        if op in _OF_PRODUCTS:
            a, b, c = self._a[place], self._b[place], self._c[place]
            products.multiply(a, b, c, self._kinds[place], self._accumulate[place])
        elif op == _ALU:
            self._apply(place)
        elif op == _FILL:
            moves.fill(self._c[place], self._kinds[place][1], self._immediate[place][0])
        elif op != _NOP:
            a, c = self._a[place], self._c[place]
            moves.copy(a, c, self._kinds[place], self._pad[place], self._immediate[place][0])

    def _apply(self, place: int) -> None:
        a, c = self._a[place], self._c[place]
        function, kinds, immediate = self._function[place], self._kinds[place], self._immediate[place]
        if self._reduces[place]:
            axes = tuple(axis for axis in _PLAIN if c.strides[axis] == 0 and c.shape[axis] > 1)
            c = c[tuple(slice(1) if axis in axes else slice(None) for axis in _PLAIN)]
            c[...] = vector.reduce(function, a, c, axes, kinds)
        else:
            b = self._b[place] if self._has_b[place] else immediate[0]
            c[...] = vector.apply(function, a, b, kinds, immediate)


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
