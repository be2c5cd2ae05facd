"""Start and end of each instruction of a program: its queues, tokens and costs are run through the event loop (design
page 06).

What does not depend on the machine (the waits and their kinds) is computed once per program; costs are arrays that
depend on the machine. So timing one program on many machines costs only the loop.

Rules. The front end dispatches in program order, one instruction every `issue` cycles, into queues that hold `depth`
waiting instructions each. The head of a queue starts when the previous instruction no longer occupies the queue, its
tokens have arrived (`token` cycles after they were given) and its ports are free; ports are granted in order of
readiness. An instruction occupies its queue and ports for its busy cycles and gives its tokens `latency` cycles later;
results of one queue become available in order. Within a queue, the next instruction can start as soon as the queue is
free, unless it reads the result of an earlier one: it then waits for that result, except where the engine forwards its
results to itself or adds sums at the end of its own pipeline. An instruction that fills buffers ahead of its turn needs
its operands `fill` cycles before, and space for its results at its turn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...errors import SimulationError
from ..checks.access import walks
from ..checks.own_results import OwnResults, own_results
from ..checks.tokens import channels, legal_order
from ..program.disassembler import instruction_name
from ..program.isa import QUEUES
from ..program.program import Program
from .event_loop import CAUSES, KINDS, NOTHING, PORTS, run
from .wait_kind import wait_kinds


@dataclass(frozen=True)
class Ordering:
    """The machine-independent waits between instructions, all uint32 except `own`.

    `queue` of each instruction; its edges `producer[first[i]:first[i + 1]]`, the instructions of other queues whose
    tokens it takes, and the `kind` of each; `members[member_first[q]:member_first[q + 1]]`, the instructions of queue
    q; `own`, whose results each instruction reads within its queue.
    """

    queue: np.ndarray
    first: np.ndarray
    producer: np.ndarray
    kind: np.ndarray
    members: np.ndarray
    member_first: np.ndarray
    own: OwnResults


@dataclass(frozen=True)
class Costs:
    """The costs of a program on a machine.

    int64[instructions] `busy` and `latency` (cycles); int64[instructions, PORTS] `port`, distinct indices into `ports`
    padded with -1; `servers` of each port, how many instructions it serves at once; `depth` of the queues; cycles of
    `issue` and `token`. int64[instructions] `fill`: how long before its turn each instruction needs its operands.
    bool[instructions] `forwards`: it may start at once although it reads what its own unit wrote; `adds_behind`:
    likewise if it adds to sums of its own unit.
    """

    busy: np.ndarray
    latency: np.ndarray
    fill: np.ndarray
    port: np.ndarray
    ports: tuple[str, ...]
    servers: tuple[int, ...]
    depth: int
    forwards: np.ndarray
    adds_behind: np.ndarray
    issue: int = 0
    token: int = 0

    def after(self, own: OwnResults) -> np.ndarray:
        """Return int64[instructions]: the instruction of its own queue whose result each instruction waits for, or
        -1."""
        same = np.where(self.forwards, -1, own.same)
        found: np.ndarray = np.maximum(np.maximum(same, own.other), np.where(self.adds_behind, -1, own.sums))
        return found


@dataclass(frozen=True)
class Timing:
    """The times of all instructions, in cycles.

    int64[instructions] `start`, `end` (queue and ports are free again), `done` (the result is available); `cause` of
    the wait before it, an index into CAUSES, the last to end if there were several, -1 if it started as soon as its
    queue was free; `behind`, the instruction whose result ended that wait, or -1; `stalls`: int64[queues, causes],
    cycles in which a queue stalled with work left; `cycles`, the total.
    """

    cycles: int
    start: np.ndarray
    end: np.ndarray
    done: np.ndarray
    cause: np.ndarray
    behind: np.ndarray
    stalls: np.ndarray


def ordering(program: Program) -> Ordering:
    """Return the waits that queues and tokens of `program` impose, with the reason for each token. SimulationError for
    a deadlock."""
    found = channels(program.instructions)
    if not (found.needs < np.arange(len(program))[:, None]).all():
        legal_order(program)  # tokens from later instructions may form a deadlock
    takers, sources = np.nonzero(found.needs >= 0)
    walked = walks(program.instructions)
    sizes = [len(own) for own in found.members]
    return Ordering(
        queue=_numbers(found.queue),
        first=_numbers(np.searchsorted(takers, np.arange(len(program) + 1))),
        producer=_numbers(found.needs[takers, sources]),
        kind=_numbers(wait_kinds(program.instructions, found, takers, sources, walked)),
        members=_numbers(np.concatenate(found.members)),
        member_first=_numbers(np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])),
        own=own_results(program.instructions, walked),
    )


def time_queues(program: Program, order: Ordering, costs: Costs, compiled: bool | None = None) -> Timing:
    """Run the queues of `program` in its `order`. `compiled` as in :func:`tvm_tiling.accel.timing.event_loop.run`.

    SimulationError if queues are too short for the program: the front end waits for space in a queue whose head waits
    for a token of an instruction that has not been dispatched.
    """
    count = len(order.queue)
    queues = len(program.queues)
    outputs = {
        "server_free": np.zeros(sum(costs.servers), dtype=np.int64),
        "arrival": np.zeros(count, dtype=np.int64),
        "start": np.zeros(count, dtype=np.int64),
        "done": np.full(count, -1, dtype=np.int64),
        "cause": np.full(count, NOTHING, dtype=np.int64),
        "behind": np.full(count, -1, dtype=np.int64),
        "stalls": np.zeros(queues * len(CAUSES), dtype=np.int64),
        "dispatched": np.zeros(queues, dtype=np.int64),
        "started": np.zeros(queues, dtype=np.int64),
        "free": np.zeros(queues, dtype=np.int64),
        "result": np.zeros(queues, dtype=np.int64),
        "cursor": _first_edges(order, queues),
        "ready": np.full(queues, -1, dtype=np.int64),
        "seen": np.full(queues * KINDS, -1, dtype=np.int64),
        "giver": np.full(queues * KINDS, -1, dtype=np.int64),
        "head": np.zeros(queues, dtype=np.int64),
        "taken": np.zeros(PORTS, dtype=np.int64),
    }
    over = run(
        (
            order.queue,
            costs.busy,
            costs.latency,
            costs.fill,
            costs.port.reshape(-1),
            order.first,
            order.producer,
            order.kind,
            costs.after(order.own),
            order.members,
            order.member_first,
            np.full(queues, costs.depth),
            costs.issue,
            costs.token,
            _numbers(np.concatenate([[0], np.cumsum(costs.servers, dtype=np.int64)])),
        ),
        tuple(outputs.values()),
        compiled,
    )
    if over < count:
        raise SimulationError(_too_short(program, order, costs, outputs))
    done = outputs["done"]
    return Timing(
        cycles=int(done.max(initial=0)),
        start=outputs["start"],
        end=outputs["start"] + costs.busy,
        done=done,
        cause=outputs["cause"],
        behind=outputs["behind"],
        stalls=outputs["stalls"].reshape(queues, len(CAUSES)),
    )


def bounds(program: Program, order: Ordering, costs: Costs) -> tuple[int, int, str]:
    """Return a lower bound and an upper bound on the cycles of any order of the queues, and the resource of the lower
    one.

    The lower bound is the roofline: the busiest of the queues, the ports and the front end. The upper bound has
    everything in series: each instruction is dispatched, its token delivered, and it executes to its result before the
    next.
    """
    busy = queue_busy(order, costs).tolist()
    lower = {name: busy[queue] for queue, name in enumerate(program.queues)}
    lower |= {f"port {name}": -(-port_busy(costs, p) // costs.servers[p]) for p, name in enumerate(costs.ports)}
    lower["dispatch"] = len(program) * costs.issue
    bound = max(lower, key=lambda name: lower[name])
    waiting = int(np.count_nonzero(np.diff(order.first)))
    upper = (
        int(costs.fill.sum() + costs.busy.sum() + costs.latency.sum())
        + len(program) * costs.issue
        + waiting * costs.token
    )
    return lower[bound], upper, bound


def queue_busy(order: Ordering, costs: Costs) -> np.ndarray:
    """Return int64[queues]: cycles in which each queue executes."""
    # Sums below 2^53 are exact in the float64 of bincount.
    return np.bincount(order.queue, weights=costs.busy, minlength=QUEUES).astype(np.int64)


def port_busy(costs: Costs, port: int) -> int:
    """Return the cycles in which the servers of a port are busy, summed."""
    return int(costs.busy[(costs.port == port).any(axis=1)].sum())


def _numbers(array: np.ndarray) -> np.ndarray:
    """Convert to the integer type that the event loop uses for indices."""
    return array.astype(np.uint32)


def _first_edges(order: Ordering, queues: int) -> np.ndarray:
    """Return, for each queue, the first edge of its first instruction; 0 for an empty queue."""
    cursor = np.zeros(queues, dtype=np.int64)
    for queue in range(queues):
        if order.member_first[queue] < order.member_first[queue + 1]:
            cursor[queue] = order.first[order.members[order.member_first[queue]]]
    return cursor


def _too_short(program: Program, order: Ordering, costs: Costs, outputs: dict[str, np.ndarray]) -> str:
    """Return the message for a run in which nothing can start although the program is legal."""
    front = int(outputs["dispatched"].sum())
    full = int(order.queue[front])
    head = int(order.members[order.member_first[full] + outputs["started"][full]])
    missing = next(
        int(producer)
        for producer in order.producer[order.first[head] : order.first[head + 1]]
        if outputs["done"][producer] < 0
    )
    return (
        f"queue {program.queues[full]!r} of depth {costs.depth} is too short for this program: it has no "
        f"space for {instruction_name(program, front)}, and its head {instruction_name(program, head)} waits "
        f"for {instruction_name(program, missing)}; expected a deeper queue, or a program whose tokens come "
        "earlier"
    )
