"""Lowering of the TIR of a schedule to a program: every block of an engine becomes instructions, as its loops say.

The schedule determines everything. A block's annotation "vsim.engine" ("matrix", "wfold", "column", "vector", "load",
"store") names its engine, "vsim.loops" how many of its innermost loops one instruction takes, and "vsim.versions", on a
block that writes a buffer, how many versions of the buffer are used in rotation. The scope "global.x" places a buffer
in memory x, "global" in external memory; "global.<level>.a", ".b" and ".out" are the memories of a storage level, and
"vsim.copies", on a block that loads one, how many copies of a tile its instances hold. Tokens follow from what
instructions read and write.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import tirx
from tvm.ir import TensorLoad

from ...errors import UnsupportedOperator
from ...hardware.description import Hardware
from ...hardware.machine import Machine
from ..checks.dependences import place_tokens
from ..program.program import Program
from ..program.tables import Memory, Region, Tensor
from .border_copy import is_bordered_copy, record_bordered_copy
from .buffers import EXTERNAL, Places
from .column import record_column
from .engines import record_copy, record_product
from .fold import record_fold
from .instances import Coupled, Instances, instances_of
from .levels import level_engine, level_of, record_level_copy
from .nest import Leaf, Nest
from .order import loads_by_use
from .reduction import record_reduction
from .rows import Rows
from .unused import Recorded, drop_unused
from .vector import VectorBlock

ENGINES = ("matrix", "wfold", "column", "vector", "load", "store")


def record(source: tvm.IRModule | tirx.PrimFunc, hardware: Hardware) -> Program:
    """Return the program of a scheduled function on `hardware`.

    source: a PrimFunc, or a module with a single one, for example the `.mod` of tiling_schedule, with or without
    further scheduling. UnsupportedOperator names the block and the expression that no instruction supports,
    HardwareError the buffer that does not fit its memory.
    """
    return blocks_of(source, hardware).program


@dataclass(frozen=True)
class RecordedBlocks:
    """A program and, for each block of its function in order, the tables of instructions that it was lowered to."""

    program: Program
    blocks: tuple[tuple[Instances, tuple[np.ndarray, ...]], ...]


def blocks_of(source: tvm.IRModule | tirx.PrimFunc, hardware: Hardware) -> RecordedBlocks:
    """Like record(), block by block. Raises the same errors."""
    func, name = _function(source)
    nest = Nest(func, name)
    machine = Machine(hardware)
    places = Places(nest, list(func.params), machine)
    rows = Rows([EXTERNAL], machine.queues)
    recorded = []
    for leaf in nest.leaves:
        first = len(rows.tables)
        recorded.append(Recorded(_record(nest, leaf, places, rows, machine), first, len(rows.tables)))
    drop_unused(recorded, places, rows)
    instructions = loads_by_use(rows.in_order(), rows.memories, machine)
    place_tokens(instructions)
    attributes = func.attrs or {}
    region = Region(
        name, str(attributes.get("tvm_tiling.workload", "")), str(attributes.get("tvm_tiling.decision", ""))
    )
    program = Program(
        hardware=hardware,
        memories=tuple(Memory(memory, places.used.get(memory, 0)) for memory in rows.memories),
        queues=rows.queues,
        tensors=tuple(_tensors(func, nest, places)),
        regions=(region,),
        instructions=instructions,
    )
    blocks = tuple((found, tuple(rows.tables[first:end])) for found, first, end in recorded if end > first)
    return RecordedBlocks(program, blocks)


def _function(source: tvm.IRModule | tirx.PrimFunc) -> tuple[tirx.PrimFunc, str]:
    if isinstance(source, tirx.PrimFunc):
        return source, str((source.attrs or {}).get("global_symbol", "main"))
    functions = {g.name_hint: f for g, f in source.functions.items() if isinstance(f, tirx.PrimFunc)}
    if len(functions) != 1:
        raise UnsupportedOperator(f"the module has {len(functions)} PrimFuncs; expected exactly one to be recorded")
    name, func = next(iter(functions.items()))
    return func, name


def _record(nest: Nest, leaf: Leaf, places: Places, rows: Rows, machine: Machine) -> Instances:
    """Record the instructions of a block and return the instances that they belong to."""
    engine = leaf.annotation("vsim.engine")
    if engine not in ENGINES:
        raise nest.refuse(
            f"block {leaf.name!r} has the annotation vsim.engine = {engine!r}; expected {', '.join(ENGINES)}"
        )
    store = leaf.block.body
    if not isinstance(store, tirx.BufferStore):
        raise nest.refuse(f"block {leaf.name!r} contains a {type(store).__name__}; expected one store")
    source = places[store.value.source].memory if isinstance(store.value, TensorLoad) else None
    queue = machine.queue_of(_engine(str(engine), source, places[store.buffer].memory, machine))
    for found in instances_of(nest, leaf):
        try:
            _write(found, str(engine), places, rows, queue, machine)
        except Coupled:
            continue
        return found
    raise nest.refuse(
        f"block {leaf.name!r}: its indices {list(store.indices)} or its condition {leaf.realize.predicate} "
        "are not affine; expected sums of loop variables times constants"
    )


def _engine(engine: str, source: str | None, memory: str, machine: Machine) -> str:
    """Return the engine of the machine that writes to `memory`. The vector engine loads operands other than A and B,
    and uses them."""
    if engine == "column":  # of several column engines, the first
        return next((name for name in machine.engines if name.rstrip("0123456789") == engine), engine)
    of_level = level_engine(machine, engine, source, memory)
    if of_level is not None or engine != "load":
        return of_level or engine
    return f"load_{memory}" if memory in ("a", "b") else "vector"


def _write(found: Instances, engine: str, places: Places, rows: Rows, queue: str, machine: Machine) -> None:
    if engine == "matrix":
        record_product(found, places, rows, queue)
    elif engine == "wfold":
        record_fold(found, places, rows, queue)
    elif engine == "column":
        record_column(found, places, rows, queue)
    elif engine == "vector" and found.leaf.block.init is not None:
        record_reduction(found, places, rows, queue, machine)
    elif engine == "vector" and is_bordered_copy(found):
        record_bordered_copy(found, places, rows, queue)
    elif engine == "vector":
        VectorBlock(found, places, rows, queue, machine).record()
    elif _of_level(found, places, machine):
        record_level_copy(found, places, rows, queue)
    else:
        record_copy(found, places, rows, queue)


def _of_level(found: Instances, places: Places, machine: Machine) -> bool:
    """Return whether a block copies to or from a storage level."""
    store = found.leaf.block.body
    ends = [store.buffer, *([store.value.source] if isinstance(store.value, TensorLoad) else [])]
    return any(level_of(machine, places[end].memory) is not None for end in ends)


def _tensors(func: tirx.PrimFunc, nest: Nest, places: Places) -> list[Tensor]:
    """Return the parameters as inputs or outputs, and the intermediate buffers in external memory."""
    made = [buffer for buffer in nest.buffers if str(buffer.scope()) == "global"]
    tensors: dict[str, Tensor] = {}
    for buffer in (*func.params, *made):
        place = places[buffer]
        role = "output" if buffer in places.writers else "input"
        if any(buffer.same_as(other) for other in made):
            role = "scratch"
        shape = place.shape or (1,)
        name = _unused(buffer.name, tensors)
        tensors[name] = Tensor(name, str(buffer.dtype), shape, EXTERNAL, place.address, role, _operand(buffer, places))
    return list(tensors.values())


def _unused(name: str, used: Collection[str]) -> str:
    """The name, with a number if it is in use: buffers without names of their own are all called "placeholder"."""
    numbered = (f"{name}_{number}" for number in itertools.count(1))
    return name if name not in used else next(each for each in numbered if each not in used)


def _operand(buffer: tirx.Buffer, places: Places) -> str:
    """Return the class that the traffic of a tensor counts towards: the memory it is loaded to, or "out"."""
    if buffer in places.writers:
        return "out"
    for leaf in places.readers.get(buffer, ()):
        memory = places[leaf.block.body.buffer].memory.rpartition(".")[2]
        if memory in ("a", "b"):
            return memory
    return "out"
