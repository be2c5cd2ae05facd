"""The program of one time step of a recurrent layer, ready to be repeated: who waits for whom, within a step and from
one step to the next (page 04).

The instructions of a step stay as they are, so what a step reads, writes and overwrites lies where it lay in the step
before. Waits within a step are those of the program's queues and tokens; waits for earlier steps follow from the bytes:
results that are read (h and c of the step before), and what is overwritten. The memories of vectors and accumulators,
which COLMV reads as b and writes, are there in `column.versions` for each thread and take turns, so that what a step
overwrites there is of so many steps before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...errors import SimulationError
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
    """One step on a machine. `queue` of each instruction and `members` of each queue are numbers; `edges` of each
    instruction are triples (steps back, instruction, kind of wait). `column` is the queue of its products, `last` the
    last instruction of a step in it. `ports` of each instruction are numbers into `costs.ports`."""

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
    """The step that `program` is on `machine`. SimulationError for a deadlock and for a program without products of the
    column engine, or with products in several queues; HardwareError where the machine lacks what it takes."""
    rows = program.instructions
    products = sorted(set(rows["queue"][rows["op"] == Opcode.COLMV].tolist()))
    if len(products) != 1:
        raise SimulationError(
            f"a task's program has COLMV instructions in {len(products)} queues; accepted: the program of one time "
            "step, all of them in one queue"
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
    """(instruction, steps back, instruction there) of the waits for results of the own queue."""
    count = len(program)
    twice = replace(found, forwards=np.tile(found.forwards, 2), adds_behind=np.tile(found.adds_behind, 2))
    after = twice.after(own_results(np.tile(program.instructions, 2)))[count:].tolist()
    return [(number, int(before < count), before % count) for number, before in enumerate(after) if before >= 0]


def _from_step_to_step(program: Program, versions: int) -> list[tuple[int, int, int, int]]:
    """(instruction, steps back, instruction there, DATA or SPACE) of the waits for earlier steps."""
    rows, count = program.instructions, len(program)
    data = dependences(np.tile(rows, 2)).data
    # As many steps as there are versions, and one more, which has the first one again.
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
