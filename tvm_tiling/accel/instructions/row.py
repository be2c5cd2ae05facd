"""A row of the instruction set: what programs, checks, the functional run and the timing run know of an instruction."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from ...errors import HardwareError
from ...hardware.machine import Machine
from ...hardware.numbered import Row
from ...hardware.vector_functions import VectorFunction
from ...hardware.w_fold import WFold
from ..program.isa import Flag, Operand, element_bytes

ELEMENTS = (0, 1, 2, 3)
"""The loops of an operand that is walked element by element."""

Work: TypeAlias = Literal["", "bytes", "elements", "sums"]
Unit: TypeAlias = Literal["", "near_tile", "w_fold", "column", "vector"]


class How(NamedTuple):
    """What an instruction says beside its operands: the element types of a and b and of c; the vector function; whether
    it reads b, and c, because it adds to it or reduces into it; the border, None for none; the immediate numbers; its
    `block`; and the W-fold engine of the program's machine, None where it has none."""

    kinds: tuple[int, int]
    function: VectorFunction
    reads_b: bool
    reads_c: bool
    pad: list[int] | None
    immediate: list[float]
    block: int
    w_fold: WFold | None


Execute: TypeAlias = Callable[[np.ndarray, np.ndarray, np.ndarray, How], None]
Cycles: TypeAlias = "tuple[np.ndarray | int, np.ndarray | int]"
Cost: TypeAlias = "Callable[[Batch, Machine], Cycles]"
Fill: TypeAlias = "Callable[[Batch, Machine], np.ndarray]"
Traffic: TypeAlias = "Callable[[Batch, Machine], tuple[np.ndarray, np.ndarray, np.ndarray]]"


@dataclass(frozen=True, eq=False)
class Instruction(Row):
    """An instruction of the simulated accelerator.

    `number` is its opcode in program files, `name` its word in assembler text. `loops` are its operands, and of each
    the loops that it walks: what has loops is read (a, b) or written (c), and memory outside of them is not touched.
    `execute(a, b, c, how)` does it: the operands are strided views of stored elements, one axis a loop of `loops`, an
    operand that is not read is an empty array. `when_once`: loops that the views leave out where all of them go round
    once, which makes small instructions faster.

    `work` is what it costs: "bytes" that are moved (a copy, or a fill where a has no loops), "elements" of c,
    or "sums", multiply-accumulates over the loops m, n0, n1, k0, k1, k2. Sums cost a multiply-accumulate's energy each,
    elements the vector engine's; bytes of operands cost what their memory says. `unit` is the part of the machine's
    description that does it: near_tile, w_fold, column, vector, or "" for what every machine has. `cycles` returns,
    of a batch on a machine, how long each instruction keeps its queue and how much later its result is there; `fill`
    how long before that it needs its operands, during the instruction before it, None: not at all;
    `traffic` the bytes that each touches of a, b and c where its engine reads elements several times, None: each
    operand once.

    `accumulates`: the flag ACCUMULATE adds to c. `takes_function`: the field `function` says what it computes; a loop
    whose stride in c is 0 reduces. `border`: the field `pad` puts a border around what it copies. `block`: it has the
    field `block`. `inward`: its bytes are those of the operand that it brings in, else they are results.
    """

    loops: Mapping[Operand, tuple[int, ...]]
    execute: Execute
    work: Work = ""
    unit: Unit = ""
    cycles: Cost | None = None
    traffic: Traffic | None = None
    fill: Fill | None = None
    when_once: tuple[int, ...] = ()
    accumulates: bool = False
    takes_function: bool = False
    border: bool = False
    block: bool = False
    inward: bool = False

    @property
    def depth(self) -> int:
        """How many loops it has."""
        return max((1 + max(loops) for loops in self.loops.values()), default=len(ELEMENTS))


@dataclass(frozen=True)
class Batch:
    """Instructions of a program that cost alike: those of one row, of one `function` where they take functions, of one
    way where they move bytes.

    `all` is the program's INSTRUCTION array, `number` the places of the batch in it, `named` how messages name a place.
    A way is the name of the `queue`, the memories `source` ("" for fills) and `target`, and the `operand` that is
    moved: a, b or out.
    """

    row: Instruction
    all: np.ndarray = field(repr=False)
    number: np.ndarray
    function: VectorFunction
    named: Callable[[int], str]
    queue: str = ""
    source: str = ""
    target: str = ""
    operand: str = ""

    def column(self, name: str) -> np.ndarray:
        """A field of the records."""
        return self.all[name][self.number]

    @functools.cached_property
    def _extent(self) -> np.ndarray:
        return self.column("extent").astype(np.int64)

    @property
    def m(self) -> np.ndarray:
        """Of sums: rows of a."""
        return self._extent[:, 0]

    @functools.cached_property
    def n(self) -> np.ndarray:
        """Of sums: columns."""
        return self._extent[:, 1:3].prod(axis=1)

    @functools.cached_property
    def k(self) -> np.ndarray:
        """Of sums: the length of the reduction axis."""
        return self._extent[:, 3:].prod(axis=1)

    @functools.cached_property
    def macs(self) -> np.ndarray:
        """Of sums: multiply-accumulates."""
        return self.m * self.n * self.k

    @functools.cached_property
    def adds(self) -> np.ndarray:
        """Of sums: whether each adds to what lies in c. The others read nothing there."""
        flagged: np.ndarray = (self.column("flags") & Flag.ACCUMULATE) != 0
        return flagged

    @functools.cached_property
    def elements(self) -> np.ndarray:
        """Elements of the innermost four loops."""
        return self._extent[:, : len(ELEMENTS)].prod(axis=1)

    @functools.cached_property
    def element(self) -> np.ndarray:
        """Bytes of an element of a and b."""
        return element_bytes(self.all[self.number], "a")

    @functools.cached_property
    def result(self) -> np.ndarray:
        """Bytes of an element of c."""
        return element_bytes(self.all[self.number], "c")

    @functools.cached_property
    def bytes(self) -> np.ndarray:
        """Bytes that each writes, without its border."""
        return self.elements * (self.element if self.source else self.result)

    @functools.cached_property
    def read(self) -> np.ndarray:
        """Bytes that each reads: fewer than it writes where several instances of a storage level get the same ones in
        one transfer, by loops that do not move in the source."""
        if not self.source:
            return np.zeros_like(self.bytes)
        if "." not in self.target:
            return self.bytes
        inner = slice(len(ELEMENTS))
        still = (self.column("a_stride")[:, inner] == 0) & (self.column("c_stride")[:, inner] != 0)
        times: np.ndarray = np.where(still, self._extent[:, inner], 1).prod(axis=1)
        return self.bytes // times

    def each(self, values: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """The distinct `values`, one of each instruction, and where each is."""
        return [(value, values == value) for value in np.unique(values).tolist()]

    def refuse(self, machine: Machine, wrong: np.ndarray, does: Callable[[int], str], accepted: str) -> None:
        """HardwareError if any instruction is `wrong`, naming the first one and, from its place in the batch, what it
        `does`."""
        if wrong.any():
            place = int(wrong.argmax())
            named = self.named(int(self.number[place]))
            raise HardwareError(f"{machine.hardware.name}: {named} {does(place)}; accepted: {accepted}")


def nothing(a: np.ndarray, b: np.ndarray, c: np.ndarray, how: How) -> None:
    """Executes an instruction that has no operands."""


def instances(machine: Machine, name: str) -> int:
    """How many instances the level of a memory has in all; 1 for a memory of no level."""
    total, level = 1, name.rpartition(".")[0]
    for one in machine.hardware.levels if level else ():
        total *= one.instances
        if one.name == level:
            break
    return total


def ceil_quotient(amount: np.ndarray, rate: float | np.ndarray) -> np.ndarray:
    """ceil(amount / rate) as int64, a quotient that only rounding puts above a whole number not rounded up."""
    cycles: np.ndarray = np.ceil(amount / rate * (1 - 1e-14)).astype(np.int64)
    return cycles
