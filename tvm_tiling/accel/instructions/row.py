"""A row of the instruction set: what programs, checks and both kinds of runs know about an instruction."""

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
"""The loops of an operand that is accessed element by element."""

Work: TypeAlias = Literal["", "bytes", "elements", "sums"]
Unit: TypeAlias = Literal["", "near_tile", "w_fold", "column", "vector"]


class How(NamedTuple):
    """The fields of an instruction other than its operands: the element types of a and b and of c; the vector function;
    whether it reads b, and c (because it accumulates or reduces into it); the border, or None; the immediate numbers;
    its `block`; and the W-fold engine of the machine, or None."""

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

    `number` is its opcode in program files, `name` its mnemonic in assembler text. `loops` maps each operand to the
    loops that it uses: operands with loops are read (a, b) or written (c), and no other memory is touched. `execute(a,
    b, c, how)` executes it on strided views of stored elements, with one axis per loop; an operand that is not read is
    an empty array. `when_once` are loops that the views omit if each has a single iteration, which speeds up small
    instructions.

    `work` selects the cost model: "bytes" moved (a copy, or a fill if a has no loops), "elements" of c, or "sums",
    multiply-accumulates over the loops m, n0, n1, k0, k1, k2. Each multiply-accumulate and each vector element costs
    its energy, bytes of operands cost what their memory states. `unit` is the part of the machine description that
    executes it: near_tile, w_fold, column, vector, or "" for what every machine has. For a batch on a machine, `cycles`
    returns how long each instruction occupies its queue and how much later its result is available; `fill` returns how
    long before that it needs its operands, during the previous instruction (None: not at all); `traffic` returns the
    bytes of a, b and c that each touches if its engine reads elements several times (None: each operand once).

    `accumulates`: the flag ACCUMULATE adds to c. `takes_function`: the field `function` selects the operation, and a
    loop with stride 0 in c reduces. `border`: the field `pad` adds a border around what it copies. `block`: it has the
    field `block`. `inward`: its traffic counts as that of the operand that it brings in, otherwise as results.
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
        """Number of loops."""
        return max((1 + max(loops) for loops in self.loops.values()), default=len(ELEMENTS))


@dataclass(frozen=True)
class Batch:
    """Instructions of a program with the same cost model: one row, one `function` where they take functions, and one
    path where they move bytes.

    `all` is the INSTRUCTION array of the program, `number` the indices of the batch in it, `named` names an index in
    messages. A path is the name of the `queue`, the memories `source` ("" for fills) and `target`, and the `operand`
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
        """Return a field of the records."""
        return self.all[name][self.number]

    @functools.cached_property
    def _extent(self) -> np.ndarray:
        return self.column("extent").astype(np.int64)

    @property
    def m(self) -> np.ndarray:
        """For sums: rows of a."""
        return self._extent[:, 0]

    @functools.cached_property
    def n(self) -> np.ndarray:
        """For sums: columns."""
        return self._extent[:, 1:3].prod(axis=1)

    @functools.cached_property
    def k(self) -> np.ndarray:
        """For sums: length of the reduction axis."""
        return self._extent[:, 3:].prod(axis=1)

    @functools.cached_property
    def macs(self) -> np.ndarray:
        """For sums: multiply-accumulates."""
        return self.m * self.n * self.k

    @functools.cached_property
    def adds(self) -> np.ndarray:
        """For sums: whether each instruction adds to c. The others do not read c."""
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
        """Bytes that each instruction writes, without its border."""
        return self.elements * (self.element if self.source else self.result)

    @functools.cached_property
    def read(self) -> np.ndarray:
        """Bytes that each instruction reads: fewer than it writes if one transfer multicasts to several instances of a
        storage level, through loops with stride 0 in the source."""
        if not self.source:
            return np.zeros_like(self.bytes)
        if "." not in self.target:
            return self.bytes
        inner = slice(len(ELEMENTS))
        still = (self.column("a_stride")[:, inner] == 0) & (self.column("c_stride")[:, inner] != 0)
        times: np.ndarray = np.where(still, self._extent[:, inner], 1).prod(axis=1)
        return self.bytes // times

    def each(self, values: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """Return the distinct `values`, given one per instruction, each with the mask of its instructions."""
        return [(value, values == value) for value in np.unique(values).tolist()]

    def refuse(self, machine: Machine, wrong: np.ndarray, does: Callable[[int], str], accepted: str) -> None:
        """Raise HardwareError if any instruction is `wrong`, naming the first one and what it `does`, given its index
        in the batch."""
        if wrong.any():
            place = int(wrong.argmax())
            named = self.named(int(self.number[place]))
            raise HardwareError(f"{machine.hardware.name}: {named} {does(place)}; expected {accepted}")


def nothing(a: np.ndarray, b: np.ndarray, c: np.ndarray, how: How) -> None:
    """Execute an instruction without operands."""


def instances(machine: Machine, name: str) -> int:
    """Return the total number of instances of the level that a memory belongs to; 1 for a memory outside the levels."""
    total, level = 1, name.rpartition(".")[0]
    for one in machine.hardware.levels if level else ():
        total *= one.instances
        if one.name == level:
            break
    return total


def ceil_quotient(amount: np.ndarray, rate: float | np.ndarray) -> np.ndarray:
    """Return ceil(amount / rate) as int64, ignoring an excess over an integer that is due to rounding."""
    cycles: np.ndarray = np.ceil(amount / rate * (1 - 1e-14)).astype(np.int64)
    return cycles
