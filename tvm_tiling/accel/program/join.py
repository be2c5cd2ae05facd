"""Concatenation of programs: a network from its operators, or from pieces with other work in between.

Parts share the on-chip memories, each from address 0, and pass tensors to each other in off-chip memories. Within one
program, tokens are placed across all parts, so that the loads of one part overlap with the computation of another.
Where other work runs in between, a barrier holds every queue until all have finished.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...errors import ProgramError
from ..checks.dependences import place_tokens
from ..instructions.table import Opcode, uses
from .isa import INSTRUCTION, OPERANDS
from .program import Program
from .tables import Memory, Region, Tensor

ALIGNMENT = 64  # bytes, of tensors


@dataclass(frozen=True)
class Part:
    """A program as part of another. `names` renames its tensors, `regions` replaces its regions, and `memories` maps
    its memories to those of the whole; tensors and memories that are not listed keep their names."""

    program: Program
    names: Mapping[str, str] = field(default_factory=dict)
    regions: tuple[Region, ...] | None = None
    memories: Mapping[str, str] = field(default_factory=dict)

    def called(self, tensor: Tensor) -> str:
        """Return the name of a tensor of the part in the whole program."""
        return self.names.get(tensor.name, tensor.name)

    def memory(self, tensor: Tensor) -> str:
        """Return the memory that holds a tensor of the part."""
        return self.memories.get(tensor.name, tensor.memory)


def join(
    parts: Sequence[Part], outputs: Collection[str], constants: Mapping[str, np.ndarray], *, barriers: bool = False
) -> Program:
    """Return the parts joined in order as one program.

    Tensors of the same name are one tensor, described by its first part; later parts may give it another shape of the
    same size in bytes. `outputs` names the outputs of the whole, `constants` gives known values in addition to the
    parts' own. Other tensors are scratch if a part writes them and inputs otherwise. With `barriers`, every part keeps
    its own tokens and waits for the end of the previous one. ProgramError for parts of different machines or tensors of
    different sizes.
    """
    if not parts:
        raise ProgramError("join: no parts; expected one or more")
    first = parts[0].program
    for part in parts:
        if part.program.hardware != first.hardware or part.program.queues != first.queues:
            raise ProgramError("join: the parts are for different machines; expected programs made for one machine")
    values = {**constants}
    for part in parts:
        for tensor in part.program.of_role("constant"):
            values[part.called(tensor)] = part.program.constants[tensor.name]
    tensors, memories = _tensors(parts, outputs, values)
    numbers = {memory.name: number for number, memory in enumerate(memories)}
    places = {tensor.name: tensor for tensor in tensors}
    tables: list[np.ndarray] = []
    regions: list[Region] = []
    for part in parts:
        rows = _moved(part, places, numbers)
        rows["region"] += np.uint16(len(regions))
        regions += part.program.regions if part.regions is None else part.regions
        if barriers and tables:
            tables.append(_barrier(len(first.queues), int(rows["region"][0]) if len(rows) else 0))
        tables.append(rows)
    instructions = np.concatenate(tables)
    if not barriers:
        instructions["wait"], instructions["signal"] = 0, 0
        place_tokens(instructions)
    return Program(
        hardware=first.hardware,
        memories=memories,
        queues=first.queues,
        tensors=tuple(tensors),
        regions=tuple(regions),
        instructions=instructions,
        constants={tensor.name: values[tensor.name] for tensor in tensors if tensor.role == "constant"},
    )


def _tensors(
    parts: Sequence[Part], outputs: Collection[str], values: Mapping[str, np.ndarray]
) -> tuple[list[Tensor], tuple[Memory, ...]]:
    """Return the tensors of the whole, placed one after another, and the memories sized for all parts."""
    found: dict[str, Tensor] = {}
    written: set[str] = set()
    used: dict[str, int] = {}
    for part in parts:
        for memory in part.program.memories:
            if not any(tensor.memory == memory.name for tensor in part.program.tensors):
                used[memory.name] = max(used.get(memory.name, 0), memory.bytes)
    for part in parts:
        for tensor in part.program.tensors:
            name, place = part.called(tensor), part.memory(tensor)
            if tensor.role in ("output", "scratch"):
                written.add(name)
            known = found.get(name)
            if known is None:
                address = -(-used.get(place, 0) // ALIGNMENT) * ALIGNMENT
                used[place] = address + tensor.bytes
                found[name] = Tensor(name, tensor.dtype, tensor.shape, place, address, tensor.role, tensor.operand)
            elif (known.bytes, known.memory) != (tensor.bytes, place):
                raise ProgramError(
                    f"join: tensor {name!r} has {known.bytes} bytes of memory {known.memory!r} and "
                    f"{tensor.bytes} of {place!r}; expected the same size and memory"
                )
    if missing := [name for name in outputs if name not in written]:
        raise ProgramError(f"join: no part writes the output {missing[0]!r}")
    tensors = []
    for tensor in found.values():
        role = "scratch" if tensor.name in written else "input"
        role = "output" if tensor.name in outputs else role
        role = "constant" if tensor.name in values else role
        shape = values[tensor.name].shape if role == "constant" else tensor.shape
        tensors.append(Tensor(tensor.name, tensor.dtype, shape, tensor.memory, tensor.address, role, tensor.operand))
    return tensors, tuple(Memory(name, size) for name, size in used.items())


def _moved(part: Part, places: Mapping[str, Tensor], numbers: Mapping[str, int]) -> np.ndarray:
    """Return the instructions of a part with the tensor addresses and memory indices of the whole."""
    program = part.program
    rows = program.instructions.copy()
    used = uses(program.instructions)
    for operand in OPERANDS:
        touched = used.of(operand)
        memory, address = program.instructions[f"{operand}_memory"], program.instructions[operand]
        for number, own in enumerate(program.memories):
            here = np.flatnonzero(touched & (memory == number))
            tensors = sorted((t for t in program.tensors if t.memory == own.name), key=lambda t: t.address)
            if not len(here):
                continue
            if not tensors:
                rows[f"{operand}_memory"][here] = numbers[own.name]
                continue
            starts = np.array([tensor.address for tensor in tensors])
            moved = [places[part.called(tensor)] for tensor in tensors]
            steps = np.array([new.address - old.address for new, old in zip(moved, tensors, strict=True)])
            which = np.maximum(np.searchsorted(starts, address[here], side="right") - 1, 0)
            rows[f"{operand}_memory"][here] = np.array([numbers[new.memory] for new in moved])[which]
            rows[operand][here] += steps[which]
    return rows


def _barrier(queues: int, region: int) -> np.ndarray:
    """Return NOP instructions that make every queue wait for all others: the others signal queue 0, which then signals
    them."""
    others = np.arange(1, queues)
    rows = np.zeros(2 * len(others) + 1, INSTRUCTION)
    rows["op"], rows["extent"], rows["region"] = Opcode.NOP, 1, region
    arriving, leaving = rows[: len(others)], rows[len(others) + 1 :]
    arriving["queue"] = leaving["queue"] = others
    arriving["signal"][:, 0] = 1
    rows["wait"][len(others), 1:queues] = 1
    rows["signal"][len(others), 1:queues] = 1
    leaving["wait"][:, 0] = 1
    return rows
