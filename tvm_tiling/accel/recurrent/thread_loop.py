"""Threads of the column engine over time: how tasks get threads, and how threads take turns (design page 04).

Every thread has its own queues for the instructions of its task; the engines behind them are shared. The column engine
switches threads at the end of a time step, and whenever the next instruction of its thread cannot start: it continues
with the next thread in rotation that can. Other engines and memory ports are granted in order of readiness. Nothing
that has started is interrupted.

A task gets a thread once it has arrived and one is free, in order of arrival; among several free threads, it gets the
one that has been free longest, on the engine with the fewest tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...errors import SimulationError
from ..timing.event_loop import KINDS, LATENCY
from .time_step import TimeStep

CAUSES = ("data", "space", "token", "latency", "engine", "port", "dispatch")
"""Why a thread stalls: a result that it reads, a buffer that it overwrites, a token in transit or one that no data
requires, a result of its own queue still in the pipeline, the engine working for another thread, a memory port, nothing
dispatched yet."""


@dataclass(eq=False)
class Run:
    """A task in its thread. All times are in cycles: `begin`, when it got the thread; `start` and `done` of all
    instructions of all steps in sequence, -1 for those still to come; `stalls` of its products, by cause."""

    step: TimeStep
    steps: int
    slot: int
    begin: int
    start: list[int] = field(init=False)
    done: list[int] = field(init=False)
    stalls: list[int] = field(init=False)

    def __post_init__(self) -> None:
        count, queues = len(self.step.queue), len(self.step.members)
        self.start, self.done = [-1] * (self.steps * count), [-1] * (self.steps * count)
        self.stalls = [0] * len(CAUSES)
        self.left = self.steps * count
        self.clock, self.front = self.begin, 0
        self.arrival = [0] * (self.steps * count)
        self.dispatched, self.started = [0] * queues, [0] * queues
        self.free, self.result = [self.begin] * queues, [self.begin] * queues
        # For the head of each queue, once all of its tokens have been given: (ready, latest time by kind of wait).
        self.heads: list[tuple[int, list[int]] | None] = [None] * queues

    @property
    def end(self) -> int:
        """The time of its last result; the task must have finished."""
        return max(self.done, default=self.begin)

    def head(self, queue: int) -> int:
        """Return the next instruction of a queue, which must not be empty."""
        own, place = self.step.members[queue], self.started[queue]
        return place // len(own) * len(self.step.queue) + own[place % len(own)]

    def dispatch(self) -> None:
        """Dispatch instructions into the queues of the thread in program order, until one is full."""
        count, issue, depth = len(self.step.queue), self.step.costs.issue, self.step.costs.depth
        while self.front < len(self.start):
            queue = self.step.queue[self.front % count]
            leaver = self.dispatched[queue] - depth
            if leaver >= self.started[queue]:
                return
            self.clock += issue
            if leaver >= 0:
                own = self.step.members[queue]
                self.clock = max(self.clock, self.start[leaver // len(own) * count + own[leaver % len(own)]])
            self.arrival[self.front] = self.clock
            self.dispatched[queue] += 1
            self.front += 1

    def ready(self, queue: int) -> int | None:
        """Return when the head of a queue can start, apart from its engine and ports, or None if not yet known."""
        if self.heads[queue] is None:
            if self.started[queue] == self.dispatched[queue]:
                return None
            number = self.head(queue)
            step, place = divmod(number, len(self.step.queue))
            seen = [-1] * (KINDS + 1)  # the last entry is its own queue, which sends no token
            for back, producer, kind in self.step.edges[place]:
                if back <= step:
                    given = self.done[(step - back) * len(self.step.queue) + producer]
                    if given < 0:
                        return None
                    seen[kind] = max(seen[kind], given)
            latest, own = max(seen[:LATENCY]), seen[LATENCY]
            given = latest + self.step.costs.token if latest >= 0 else 0
            ready = max(self.arrival[number], self.free[queue], given, own)
            self.heads[queue] = (ready, seen)
        found = self.heads[queue]
        assert found is not None
        return found[0]

    def begin_head(self, queue: int, turn: int, begin: int) -> int:
        """Start the head of a queue at `begin`, its engine having been free for it at `turn`. Return its number."""
        number, known = self.head(queue), self.heads[queue]
        assert known is not None
        ready, seen = known
        place = number % len(self.step.queue)
        if queue == self.step.column:
            self._stand_still(number, ready, seen, turn, begin)
        end = begin + self.step.busy[place]
        self.start[number] = begin
        self.free[queue] = end
        self.result[queue] = max(self.result[queue], end + self.step.latency[place])
        self.done[number] = self.result[queue]
        self.heads[queue] = None
        self.started[queue] += 1
        self.left -= 1
        return number

    def _stand_still(self, number: int, ready: int, seen: list[int], turn: int, begin: int) -> None:
        waited = self.free[self.step.column]
        if self.arrival[number] > waited:
            self.stalls[CAUSES.index("dispatch")] += self.arrival[number] - waited
            waited = self.arrival[number]
        for kind, latest in enumerate(seen):
            if latest > waited:
                self.stalls[kind] += latest - waited
                waited = latest
        self.stalls[CAUSES.index("token")] += ready - waited
        self.stalls[CAUSES.index("engine")] += turn - ready
        self.stalls[CAUSES.index("port")] += begin - turn


def run_threads(
    tasks: Sequence[tuple[TimeStep, int, int]], threads: int, engines: int, names: Sequence[Sequence[object]]
) -> list[Run]:
    """Run tasks (step, number of steps, arrival) on `engines` column engines of `threads` threads each. Return the runs
    in the order of the tasks. `names` gives the engine of each queue of each task: queues of the same name share an
    engine."""
    loop = _Loop(threads, engines)
    waiting = sorted(range(len(tasks)), key=lambda number: tasks[number][2])
    runs: dict[int, Run] = {}
    while waiting or loop.running:
        event = loop.next_event()
        slot = loop.free_slot()
        if waiting and slot is not None:
            step, steps, arrival = tasks[waiting[0]]
            begin = max(arrival, loop.slot_free[slot])
            if event is None or begin <= event[0]:
                number = waiting.pop(0)
                runs[number] = loop.admit(Run(step, steps, slot, begin), names[number])
                continue
        if event is None:
            raise SimulationError(
                "tasks: the queues are too short for the program of a task; expected deeper queues, or a "
                "program whose tokens come earlier"
            )
        loop.start(*event)
    return [runs[number] for number in range(len(tasks))]


class _Loop:
    """The threads, the resources they share, and the order in which they proceed."""

    def __init__(self, threads: int, engines: int) -> None:
        self.slots, self.engines = threads * engines, engines
        self.running: dict[int, Run] = {}
        self.slot_free = [0] * self.slots
        self.resource_free: dict[object, int] = dict.fromkeys(range(engines), 0)  # column engines by their number
        self.places: dict[int, list[object]] = {}  # per slot: the engine of each of its queues
        self.turn = [self.slots - 1] * engines  # the slot that each column engine worked for last
        self.ended = [True] * engines  # whether a time step ended there
        self.ports: dict[str, list[int]] = {}

    def free_slot(self) -> int | None:
        """Return the slot for the next task, or None if none is free."""
        free = [slot for slot in range(self.slots) if slot not in self.running]
        tasks = [sum(slot % self.engines == engine for slot in self.running) for engine in range(self.engines)]
        return min(free, key=lambda slot: (self.slot_free[slot], tasks[slot % self.engines], slot), default=None)

    def admit(self, run: Run, names: Sequence[object]) -> Run:
        """Assign a slot to a task."""
        self.running[run.slot] = run
        here = [run.slot % self.engines if queue == run.step.column else name for queue, name in enumerate(names)]
        self.places[run.slot] = here
        for place in here:
            self.resource_free.setdefault(place, 0)
        for port, servers in zip(run.step.costs.ports, run.step.costs.servers, strict=True):
            self.ports.setdefault(port, [0] * servers)
        run.dispatch()
        return run

    def next_event(self) -> tuple[int, Run, int, object] | None:
        """Return (cycle, run, queue, engine) of the next instruction to start, apart from its ports."""
        heads: dict[object, list[tuple[int, int, int]]] = {}
        for slot, run in self.running.items():
            for queue, place in enumerate(self.places[slot]):
                ready = run.ready(queue)
                if ready is not None:
                    heads.setdefault(place, []).append((ready, slot, queue))
        if not heads:
            return None
        # Among engines that are free in the same cycle, column engines come last: an instruction of another engine that
        # takes no time may make a thread ready.
        turn, _, place = min(
            (max(self.resource_free[place], min(own)[0]), isinstance(place, int), place) for place, own in heads.items()
        )
        own = [head for head in heads[place] if head[0] <= turn]
        _, slot, queue = self._by_turn(place, own) if isinstance(place, int) else min(own)
        return turn, self.running[slot], queue, place

    def _by_turn(self, engine: int, heads: list[tuple[int, int, int]]) -> tuple[int, int, int]:
        last = self.turn[engine]
        if not self.ended[engine]:
            for head in heads:
                if head[1] == last:
                    return head
        return min(heads, key=lambda head: (head[1] - last - 1) % self.slots)

    def start(self, turn: int, run: Run, queue: int, place: object) -> None:
        """Start the head of a queue, whose engine is free at `turn`, on the first free server of each of its ports."""
        instruction = run.head(queue) % len(run.step.queue)
        taken = []
        begin = turn
        for port in run.step.ports[instruction]:
            servers = self.ports[run.step.costs.ports[port]]
            server = min(range(len(servers)), key=servers.__getitem__)
            taken.append((servers, server))
            begin = max(begin, servers[server])
        run.begin_head(queue, turn, begin)
        run.dispatch()
        end = begin + run.step.busy[instruction]
        self.resource_free[place] = end
        for servers, server in taken:
            servers[server] = end
        if isinstance(place, int):
            self.turn[place], self.ended[place] = run.slot, instruction == run.step.last
        if not run.left:
            self.slot_free[run.slot] = run.end
            del self.running[run.slot]
