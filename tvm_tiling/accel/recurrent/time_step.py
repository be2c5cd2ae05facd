"""The program of one time step of a recurrent layer, prepared for repetition: the waits within a step and from one step
to the next (design page 04).

The instructions of a step are the same every time, so a step reads, writes and overwrites the same addresses as the
previous one. Waits within a step are those of the program's queues and tokens; waits for earlier steps follow from the
bytes: results that are read (h and c of the previous step), and data that is overwritten. The memories of vectors and
accumulators, which COLMV reads as b and writes, exist in `column.versions` versions per thread, used in rotation, so
that a step overwrites data from that many steps earlier.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...errors import SimulationError
from ...figures import quantity
from ...hardware.column import Column
from ...hardware.machine import Machine
from ..checks.dependences import dependences
from ..checks.own_results import own_results
from ..instructions.table import Opcode, uses
from ..program.builder import ALIGNMENT
from ..program.isa import OPERANDS
from ..program.program import Program
from ..program.work import Work, work
from ..timing.cost import costs
from ..timing.event_loop import DATA, LATENCY, SPACE
from ..timing.timing import Costs, ordering


@dataclass(frozen=True)
class TimeStep:
    """One step on a machine. `queue` of each instruction and `members` of each queue are indices; `edges` of each
    instruction are triples (steps back, instruction, kind of wait). `column` is the queue of its products, `last` the
    last instruction of a step in it. `ports` of each instruction are indices into `costs.ports`."""

    program: Program
    work: Work
    costs: Costs
    queue: list[int]
    members: list[list[int]]
    edges: list[list[tuple[int, int, int]]]
    busy: list[int]
    latency: list[int]
    ports: list[list[int]]
    column: int
    last: int

    @property
    def macs(self) -> int:
        return self.work.macs


def time_step(program: Program, machine: Machine, column: Column) -> TimeStep:
    """Return `program` as a step on `machine`. SimulationError for a deadlock and for a program without products of the
    column engine or with products in several queues; HardwareError if the machine lacks what the program needs."""
    rows = program.instructions
    products = sorted(set(rows["queue"][rows["op"] == Opcode.COLMV].tolist()))
    if len(products) != 1:
        raise SimulationError(
            f"the program of a task has COLMV instructions in {quantity(len(products), 'queue')}; expected the program "
            "of one time step, all of them in one queue"
        )
    own = work(program)
    found = costs(own, machine)
    members = [np.flatnonzero(rows["queue"] == number).tolist() for number in range(len(program.queues))]
    within = ordering(program)
    edges = [
        [
            (0, int(within.producer[edge]), int(within.kind[edge]))
            for edge in range(within.first[number], within.first[number + 1])
        ]
        for number in range(len(program))
    ]
    for number, back, producer, kind in _from_step_to_step(program, column.versions):
        edges[number].append((back, producer, kind))
    for number, back, producer in _of_own_queue(program, found):
        edges[number].append((back, producer, LATENCY))
    return TimeStep(
        program=program,
        work=own,
        costs=found,
        queue=rows["queue"].tolist(),
        members=members,
        edges=edges,
        busy=(found.fill + found.busy).tolist(),
        latency=found.latency.tolist(),
        ports=[[port for port in ports if port >= 0] for ports in found.port.tolist()],
        column=products[0],
        last=members[products[0]][-1],
    )


def _of_own_queue(program: Program, found: Costs) -> list[tuple[int, int, int]]:
    """Return (instruction, steps back, instruction there) of the waits for results of the same queue."""
    count = len(program)
    twice = replace(found, forwards=np.tile(found.forwards, 2), adds_behind=np.tile(found.adds_behind, 2))
    after = twice.after(own_results(np.tile(program.instructions, 2)))[count:].tolist()
    return [(number, int(before < count), before % count) for number, before in enumerate(after) if before >= 0]


def _from_step_to_step(program: Program, versions: int) -> list[tuple[int, int, int, int]]:
    """Return (instruction, steps back, instruction there, DATA or SPACE) of the waits for earlier steps."""
    rows, count = program.instructions, len(program)
    data = dependences(np.tile(rows, 2)).data
    # One step per version, plus one that uses the first version again.
    steps = np.tile(rows, versions + 1)
    products = rows[rows["op"] == Opcode.COLMV]
    doubled = np.unique(np.concatenate([products["b_memory"], products["c_memory"]]))
    allocator = -(-max(program.memories[number].bytes for number in doubled.tolist()) // ALIGNMENT) * ALIGNMENT
    used = uses(steps)
    shift = np.repeat(np.arange(versions + 1) % versions, count) * allocator
    for operand in OPERANDS:
        here = used.of(operand) & np.isin(steps[f"{operand}_memory"], doubled)
        steps[operand][here] += shift[here]
    space = dependences(steps).space
    found = []
    for table, before, kind in ((data, 1, DATA), (space, versions, SPACE)):
        own = table[before * count :]
        for number, queue in zip(*(place.tolist() for place in np.nonzero(own >= 0)), strict=True):
            back = before - int(own[number, queue]) // count
            if back:
                found.append((number, back, int(own[number, queue]) % count, kind))
    return found
