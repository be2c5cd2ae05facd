"""The parts of a program of the simulated accelerator, tables and instructions, checked on construction: every
reference of an instruction is valid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import ProgramError, nearest
from ...hardware.description import Hardware
from ..checks.validity import check_instructions
from .elements import STORED
from .isa import INSTRUCTION, QUEUES, ElementType

ROLES = ("input", "output", "constant", "scratch")
OPERAND_CLASSES = ("a", "b", "out")
MOST_BYTES = 1 << 40  # per memory

# How arrays and files store the element types; bfloat16, which NumPy lacks, as its bits.
STORAGE: dict[str, np.dtype[Any]] = {kind.name.lower(): STORED[kind].newbyteorder("<") for kind in ElementType}


@dataclass(frozen=True)
class Memory:
    """A memory of the machine, as far as the program uses it: bytes 0 .. `bytes`."""

    name: str
    bytes: int


@dataclass(frozen=True)
class Tensor:
    """A dense row-major array in a memory. `address` is in bytes; `role` is input, output, constant or scratch;
    `operand` is the class that its traffic counts towards: a, b or out."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    memory: str
    address: int
    role: str
    operand: str

    @property
    def elements(self) -> int:
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def bytes(self) -> int:
        return self.elements * STORAGE[self.dtype].itemsize


@dataclass(frozen=True)
class Region:
    """The origin of instructions: an operator of the source, its workload as text, its decision as JSON."""

    name: str
    workload: str = ""
    decision: str = ""


@dataclass(frozen=True, eq=False)
class ProgramTables:
    """The data of a :class:`.program.Program`, without saving and loading."""

    hardware: Hardware
    memories: tuple[Memory, ...]
    queues: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    regions: tuple[Region, ...]
    instructions: np.ndarray
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for table in ("memories", "queues", "tensors", "regions"):
            object.__setattr__(self, table, tuple(getattr(self, table)))
        object.__setattr__(self, "constants", dict(self.constants))
        _check_names("queue", self.queues, most=QUEUES, plain=True)
        _check_names("memory", [memory.name for memory in self.memories], most=256, plain=True)
        _check_names("tensor", [tensor.name for tensor in self.tensors])
        if len(self.regions) > 1 << 16:
            raise ProgramError(f"program: {len(self.regions)} regions; expected at most {1 << 16}")
        for memory in self.memories:
            if not 0 <= memory.bytes <= MOST_BYTES:
                raise ProgramError(f"memory {memory.name!r}: {memory.bytes} bytes; expected 0 to {MOST_BYTES}")
        for tensor in self.tensors:
            self._check_tensor(tensor)
        self._check_constants()
        if self.instructions.dtype != INSTRUCTION or self.instructions.ndim != 1:
            raise ProgramError(
                f"program: the instructions are {self.instructions.dtype}; expected an array of INSTRUCTION"
            )
        check_instructions(self.instructions, len(self.queues), len(self.memories), len(self.regions))

    def _check_tensor(self, tensor: Tensor) -> None:
        where = f"tensor {tensor.name!r}"
        for name, value, known in (
            ("dtype", tensor.dtype, tuple(STORAGE)),
            ("memory", tensor.memory, tuple(memory.name for memory in self.memories)),
            ("role", tensor.role, ROLES),
            ("operand", tensor.operand, OPERAND_CLASSES),
        ):
            if value not in known:
                raise ProgramError(f"{where}: {name} = {value!r}; {nearest(str(value), known)}")
        if not all(isinstance(extent, int) and 0 < extent <= MOST_BYTES for extent in tensor.shape):
            raise ProgramError(f"{where}: shape {tensor.shape}; expected whole numbers of at least 1")
        size = next(memory.bytes for memory in self.memories if memory.name == tensor.memory)
        if not 0 <= tensor.address <= size - tensor.bytes:
            raise ProgramError(
                f"{where}: {tensor.bytes} bytes at address {tensor.address} exceed memory {tensor.memory!r}, "
                f"which has {size}"
            )

    def _check_constants(self) -> None:
        wanted = {tensor.name: tensor for tensor in self.tensors if tensor.role == "constant"}
        if wanted.keys() != self.constants.keys():
            name = min(wanted.keys() ^ self.constants.keys())
            problem = "a constant tensor without values" if name in wanted else "a value without a constant tensor"
            raise ProgramError(f"program: {name!r} is {problem}")
        for name, tensor in wanted.items():
            array = self.constants[name]
            if array.shape != tensor.shape or array.dtype != STORAGE[tensor.dtype]:
                raise ProgramError(
                    f"constant {name!r}: {array.dtype}{list(array.shape)}; expected "
                    f"{STORAGE[tensor.dtype]}{list(tensor.shape)}"
                )

    def __len__(self) -> int:
        return len(self.instructions)

    def __eq__(self, other: object) -> bool:
        """Return whether machine, tables, instructions and the bits of the constants are equal."""
        if not isinstance(other, ProgramTables):
            return NotImplemented
        tables = ("hardware", "memories", "queues", "tensors", "regions")
        return (
            all(getattr(self, name) == getattr(other, name) for name in tables)
            and self.instructions.tobytes() == other.instructions.tobytes()
            and self.constants.keys() == other.constants.keys()
            and all(self.constants[name].tobytes() == other.constants[name].tobytes() for name in self.constants)
        )

    __hash__ = None  # type: ignore[assignment]

    def memory_number(self, name: str) -> int:
        """Return the index of a memory in instructions. ProgramError for an unknown name."""
        return _number("memory", name, [memory.name for memory in self.memories])

    def queue_number(self, name: str) -> int:
        """Return the index of a queue in instructions. ProgramError for an unknown name."""
        return _number("queue", name, self.queues)

    def tensor(self, name: str) -> Tensor:
        """Return the tensor of that name. ProgramError for an unknown name."""
        return self.tensors[_number("tensor", name, [tensor.name for tensor in self.tensors])]

    def of_role(self, role: str) -> tuple[Tensor, ...]:
        """Return the tensors of a role in table order; inputs and outputs are in the order of the source."""
        return tuple(tensor for tensor in self.tensors if tensor.role == role)


def element_type(name: str) -> ElementType:
    """Return the element type of that name, such as "int8". ProgramError for an unknown name."""
    if not isinstance(name, str) or name not in STORAGE:
        raise ProgramError(f"element type {name!r}; {nearest(str(name), STORAGE)}")
    return ElementType[name.upper()]


def _number(kind: str, name: str, known: tuple[str, ...] | list[str]) -> int:
    if name not in known:
        raise ProgramError(f"unknown {kind} {name!r}; {nearest(name, known)}")
    return known.index(name)


def _check_names(kind: str, names: tuple[str, ...] | list[str], most: int | None = None, plain: bool = False) -> None:
    if most is not None and len(names) > most:
        raise ProgramError(f"program: {len(names)} entries of kind {kind}; expected at most {most}")
    seen = set()
    for name in names:
        if not isinstance(name, str) or not name or not name.isprintable() or name in seen:
            raise ProgramError(f"program: {kind} {name!r}; expected non-empty, printable, unique names")
        if plain and not name.replace(".", "_").isidentifier():
            raise ProgramError(f"program: {kind} {name!r}; expected names of letters, digits, underscores and dots")
        seen.add(name)
