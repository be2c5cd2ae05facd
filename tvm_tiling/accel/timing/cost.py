"""The cost of instructions on a machine in cycles, from the machine description alone (design page 06).

The row of the instruction table gives the cycles of an instruction (:mod:`tvm_tiling.accel.instructions.table`). A
memory with a limited number of ports grants one to each instruction that touches it. A level of the storage hierarchy
counts as the sum of its instances: their total capacity and bytes per cycle. An engine adds partial sums at no cost in
its own accumulation buffer. Elsewhere, accumulation is work for the vector engine: ALU instructions, or the same number
of extra cycles for an instruction that itself accumulates there.

An instruction that reads the result of an earlier one in its queue waits for it, with two exceptions. A unit that
`forwards` passes its results directly to its own next instruction. Sums held by an engine are added at the end of its
pipeline, where those of the previous instruction have arrived by then: adding to them never waits.
"""

from __future__ import annotations

import numpy as np

from ...errors import HardwareError
from ...hardware.machine import Machine
from ...hardware.memory import OPERANDS as OPERANDS_OF_LEVEL
from ..instructions.row import Batch, instances
from ..program.isa import ElementType
from ..program.work import Work
from .timing import Costs

WITHOUT_LIMIT = 1 << 62


def costs(work: Work, machine: Machine) -> Costs:
    """Return cycles and ports of every instruction. HardwareError if the machine lacks an engine, memory or function,
    or the capacity that the program needs."""
    count = len(work.program)
    busy = np.zeros(count, dtype=np.int64)
    latency = np.zeros(count, dtype=np.int64)
    fill = np.zeros(count, dtype=np.int64)
    forwards = np.zeros(count, dtype=bool)
    adds_behind = np.zeros(count, dtype=bool)
    check_capacity(work, machine)
    for batch in work.batches:
        _check_unit(batch, machine)
        if batch.row.cycles is not None:
            busy[batch.number], latency[batch.number] = batch.row.cycles(batch, machine)
            outside = _adds_outside(batch, work, machine)
            if outside.any():
                busy[batch.number[outside]] += -(-batch.m[outside] * batch.n[outside] // machine.vector.lanes)
            adds_behind[batch.number] = ~outside
        if batch.row.fill is not None:
            fill[batch.number] = batch.row.fill(batch, machine)
        forwards[batch.number] = machine.forwards(batch.row.unit)
    ports, servers, port = _ports(work, machine)
    issue = machine.issue
    return Costs(
        busy=busy,
        latency=latency,
        fill=fill,
        port=port,
        ports=ports,
        servers=servers,
        depth=WITHOUT_LIMIT if issue.depth is None else issue.depth,
        forwards=forwards,
        adds_behind=adds_behind,
        issue=issue.issue_cycles,
        token=issue.token_cycles,
    )


def capacity(machine: Machine, name: str) -> int | None:
    """Return the bytes of a memory, summed over all instances of its level; None without limit."""
    space = machine.capacity(name)
    return None if space is None else space * instances(machine, name)


def check_capacity(work: Work, machine: Machine) -> None:
    """Raise HardwareError, naming memory and bytes, if a program needs more than the machine has."""
    for name, reach in work.peak.items():
        space = capacity(machine, name)
        if space is not None and reach > space:
            raise HardwareError(
                f"{machine.hardware.name}: the program needs {reach} bytes of memory {name!r}, which has "
                f"{space}; expected a machine with that many, or a program made for this one"
            )
    for level in machine.hardware.levels:
        names = [f"{level.name}.{operand}" for operand in OPERANDS_OF_LEVEL]
        reach = sum(work.peak.get(name, 0) for name in names)
        if level.bytes is not None and reach > level.bytes * instances(machine, names[0]):
            raise HardwareError(
                f"{machine.hardware.name}: the program needs {reach} bytes of level {level.name!r}, whose "
                f"operands share {level.bytes * instances(machine, names[0])}; expected a machine with that "
                "many, or a program made for this one"
            )


def _adds_outside(batch: Batch, work: Work, machine: Machine) -> np.ndarray:
    """Return whether each instruction adds to sums that its engine does not hold itself, which occupies the lanes of
    the vector engine. The adders of an engine reach the accumulation buffer or, on a machine with storage levels, the
    results of the innermost level."""
    if not batch.row.accumulates:
        return np.zeros(len(batch.number), dtype=bool)
    held = ("acc", *(f"{level.name}.out" for level in machine.hardware.levels[-1:]))
    outside = np.array([memory.name not in held for memory in work.program.memories])[batch.column("c_memory")]
    return outside & batch.adds


def _check_unit(batch: Batch, machine: Machine) -> None:
    """Raise HardwareError if the machine lacks the unit that a batch runs on, its function or its element types."""
    unit = batch.row.unit
    if not unit:
        return
    name = machine.hardware.name
    found = machine.vector if unit == "vector" else getattr(machine.hardware, unit)
    if found is None:
        raise HardwareError(
            f"{name} has no {unit}, which {batch.named(int(batch.number[0]))} runs on; expected a machine "
            "that has one, or a program made for this one"
        )
    if batch.row.takes_function and batch.function.name not in machine.vector.functions:
        raise HardwareError(
            f"{name}: the vector engine does not support {batch.function.name!r}, which "
            f"{batch.named(int(batch.number[0]))} needs; expected {', '.join(machine.vector.functions)}"
        )
    for column in ("dtype", "result_dtype") if unit == "vector" else ("dtype",):
        _check_types(batch, machine, column, found.dtypes)


def _check_types(batch: Batch, machine: Machine, column: str, dtypes: tuple[str, ...]) -> None:
    """Raise HardwareError if a unit gets elements of a type outside its `dtypes`; empty `dtypes` accept all."""
    if dtypes:
        kinds = batch.column(column)
        batch.refuse(
            machine,
            ~np.isin(kinds, [int(ElementType[name.upper()]) for name in dtypes]),
            lambda place: f"is of {ElementType(int(kinds[place])).name.lower()}",
            ", ".join(dtypes),
        )


def _ports(work: Work, machine: Machine) -> tuple[tuple[str, ...], tuple[int, ...], np.ndarray]:
    """Return the memories with a limited number of ports, that number for each, and the ports that each instruction
    takes."""
    limited = {
        number: memory.name
        for number, memory in enumerate(work.program.memories)
        if machine.memory(memory.name).ports is not None
    }
    servers = tuple(machine.memory(name).ports or 0 for name in limited.values())
    if not limited:
        return (), (), np.full(work.touched.shape, -1, dtype=np.int64)
    port_of = np.full(len(work.program.memories) + 1, -1, dtype=np.int64)  # the last entry stands for memory -1
    port_of[list(limited)] = np.arange(len(limited))
    return tuple(limited.values()), servers, -np.sort(-port_of[work.touched], axis=1)
