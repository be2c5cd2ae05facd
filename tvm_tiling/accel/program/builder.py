"""Program builder: instructions are appended with their operands; tokens follow from what they read and write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import ProgramError, nearest
from ...hardware.description import Hardware
from ...hardware.machine import Machine
from ...hardware.vector_functions import Function, VectorFunction
from ..checks.access import spans
from ..checks.dependences import place_tokens
from ..instructions.row import Instruction
from ..instructions.table import uses
from .isa import INSTRUCTION, LOOPS, OPERANDS, QUEUES, Flag
from .program import Program
from .tables import STORAGE, Memory, Region, Tensor, element_type

ALIGNMENT = 64  # bytes
_TYPES = {name: int(element_type(name)) for name in STORAGE}
_NO_TOKENS, _ONCE, _STAY = (0,) * QUEUES, (1,) * LOOPS, (0,) * LOOPS


@dataclass(frozen=True)
class At:
    """An operand: the byte address of its first element in a memory, and for each loop its stride in elements. Missing
    strides, those of the innermost loops, are 0."""

    memory: str
    address: int
    stride: tuple[int, ...]
    dtype: str


class ProgramBuilder:
    """Collects tables and instructions; :meth:`build` returns the program with its tokens.

    Instructions are appended in an order in which sequential execution is correct. Each goes to the in-order queue of
    its engine; across queues, the builder sets exactly the tokens that the data dependences require. `queues` defaults
    to those of the machine; otherwise each named queue is its own engine. HardwareError if the hardware is invalid.
    """

    def __init__(self, hardware: Hardware, queues: Sequence[str] | None = None) -> None:
        self.machine = Machine(hardware)
        self.queues = self.machine.queues if queues is None else tuple(queues)
        if not 0 < len(self.queues) <= QUEUES:
            raise ProgramError(f"program: {len(self.queues)} queues; expected 1 to {QUEUES}")
        self._memories: dict[str, int] = {}  # name -> bytes used by tensors and declarations
        self._numbers: dict[str, int] = {}
        self._engines: dict[str, int] = {}  # engine -> index of its queue
        self._free: dict[str, int] = {}  # name -> first byte after the tensors
        self._tensors: dict[str, Tensor] = {}
        self._regions: list[Region] = []
        self._constants: dict[str, np.ndarray] = {}
        self._rows: list[tuple[object, ...]] = []

    def memory(self, name: str, size: int = 0) -> int:
        """Return the index of a memory, which is created on first use, and reserve at least `size` bytes of it."""
        self._memories[name] = max(self._memories.get(name, 0), size)
        return self._numbers.setdefault(name, len(self._numbers))

    def tensor(
        self,
        name: str,
        dtype: str,
        shape: Sequence[int],
        *,
        role: str,
        operand: str,
        memory: str = "external",
        address: int | None = None,
    ) -> Tensor:
        """Add a tensor. Without an address, it is placed after the existing tensors, aligned to 64 bytes."""
        if name in self._tensors:
            raise ProgramError(f"program: tensor {name!r} already exists; expected another name")
        element_type(dtype)
        if address is None:
            address = -(-self._free.get(memory, 0) // ALIGNMENT) * ALIGNMENT
        extents = tuple(int(extent) for extent in shape)
        tensor = Tensor(name, dtype, extents, memory, address, role, operand)
        self._tensors[name] = tensor
        self._free[memory] = max(self._free.get(memory, 0), address + tensor.bytes)
        self.memory(memory, address + tensor.bytes)
        return tensor

    def constant(
        self, name: str, values: np.ndarray, *, operand: str, dtype: str | None = None, memory: str = "external"
    ) -> Tensor:
        """Add a constant tensor with its values; `dtype` "bfloat16" takes them as uint16 bits."""
        dtype = dtype or str(values.dtype)
        tensor = self.tensor(name, dtype, values.shape, role="constant", operand=operand, memory=memory)
        if values.dtype != STORAGE[dtype]:
            raise ProgramError(
                f"constant {name!r}: the values are {values.dtype}; expected {STORAGE[dtype]} for {dtype}"
            )
        self._constants[name] = np.ascontiguousarray(values, dtype=STORAGE[dtype]).reshape(values.shape)
        return tensor

    def region(self, name: str, workload: str = "", decision: str = "") -> int:
        """Begin a region, to which all further instructions belong. Return its index."""
        self._regions.append(Region(name, workload, decision))
        return len(self._regions) - 1

    def append(
        self,
        op: Instruction,
        engine: str,
        extent: Sequence[int] = (),
        *,
        a: At | None = None,
        b: At | None = None,
        c: At | None = None,
        function: VectorFunction = Function.COPY,
        accumulate: bool = False,
        immediate: Sequence[float] | None = None,
        pad: tuple[int, int, int, int] = (0, 0, 0, 0),
        block: int = 0,
    ) -> int:
        """Append an instruction of an engine and return its number. Its loops are those of its row `op`; missing
        innermost loops have one iteration. A vector function of two operands without `b` takes immediate[0] instead."""
        flags = int(Flag.ACCUMULATE) if accumulate else 0
        if b is None and immediate is not None and op.takes_function:
            flags |= Flag.IMMEDIATE
        first = a or b or c
        kind = _type(first.dtype) if first else 0
        memories, addresses, strides = zip(*(self._operand(at) for at in (a, b, c)), strict=True)
        values = (*(immediate or ()), 0.0, 0.0)[:2]
        self._rows.append(
            (
                int(op),
                self._queue_number(engine),
                int(function),
                flags,
                kind,
                _type(c.dtype) if c else kind,
                max(len(self._regions) - 1, 0),
                _NO_TOKENS,
                _NO_TOKENS,
                *memories,
                block,
                *addresses,
                _loops(extent, _ONCE),
                *strides,
                pad,
                values,
            )
        )
        return len(self._rows) - 1

    def _operand(self, at: At | None) -> tuple[int, int, tuple[int, ...]]:
        """Return memory, address and strides as an instruction stores them."""
        if at is None:
            return 0, 0, _STAY
        if at.memory not in self._numbers:
            self.memory(at.memory)
        return self._numbers[at.memory], at.address, _loops(at.stride, _STAY)

    def build(self) -> Program:
        """Return the program. Memories are as large as tensors, declarations and instructions require."""
        instructions = np.array(self._rows, dtype=INSTRUCTION)
        program = Program(
            hardware=self.machine.hardware,
            memories=tuple(Memory(name, size) for name, size in self._sizes(instructions).items()),
            queues=self.queues,
            tensors=tuple(self._tensors.values()),
            regions=tuple(self._regions),
            instructions=instructions,
            constants=self._constants,
        )
        place_tokens(instructions)
        return program

    def _queue_number(self, engine: str) -> int:
        if engine not in self._engines:
            own = self.queues == self.machine.queues
            queue = self.machine.queue_of(engine) if own and engine in self.machine.engines else engine
            if queue not in self.queues:
                known = {*self.queues, *self.machine.engines} if own else self.queues
                raise ProgramError(f"unknown engine {engine!r}; {nearest(engine, known)}")
            self._engines[engine] = self.queues.index(queue)
        return self._engines[engine]

    def _sizes(self, instructions: np.ndarray) -> dict[str, int]:
        sizes = dict(self._memories)
        used = uses(instructions)
        for operand in OPERANDS:
            rows = instructions[used.of(operand)]
            _, ends = spans(rows, operand)
            for number, name in enumerate(sizes):
                sizes[name] = max(sizes[name], int(ends[rows[f"{operand}_memory"] == number].max(initial=0)))
        return sizes


def _type(name: str) -> int:
    found = _TYPES.get(name)
    return int(element_type(name)) if found is None else found  # raises the error


def _loops(values: Sequence[int], missing: tuple[int, ...]) -> tuple[int, ...]:
    if len(values) > LOOPS:
        raise ProgramError(f"instruction: {len(values)} loops; expected at most {LOOPS}")
    return (*values, *missing[len(values) :])
