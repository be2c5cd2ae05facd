"""Timing of in-order queues without a program: the cycles of a few hundred instructions, fast enough to use in a
decision.

An instruction starts when its predecessors in the queue are done, the results that it waits for are available (one
token delay later if they come from another queue), and a port of external memory is free. Ports are granted in order of
request. Results of a queue complete in order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Steps:
    """Instructions in program order: the queue, the cycles for which it is occupied, the additional latency of the
    result, whether a port of external memory is used, and the instructions waited for."""

    queue: list[str] = field(default_factory=list)
    busy: list[int] = field(default_factory=list)
    latency: list[int] = field(default_factory=list)
    port: list[bool] = field(default_factory=list)
    waits: list[list[int]] = field(default_factory=list)

    def add(self, queue: str, busy: int, latency: int, port: bool, waits: list[int]) -> int:
        self.queue.append(queue)
        self.busy.append(busy)
        self.latency.append(latency)
        self.port.append(port)
        self.waits.append(waits)
        return len(self.queue) - 1

    def by_use(self, *loads: list[int]) -> Steps:
        """Return the instructions with each load moved directly before its first user. `loads` lists the loads into
        each storage level, innermost level first; they wait for those of the next level."""
        behind = (len(self.queue),) * len(loads)
        key = [(number, *behind) for number in range(len(self.queue))]
        users: dict[int, list[int]] = {number: [] for own in loads for number in own}
        for number, waits in enumerate(self.waits):
            for other in waits:
                if other in users:
                    users[other].append(number)
        for level, own in enumerate(loads, 1):
            for number in own:
                if users[number]:
                    first = min(key[user] for user in users[number])
                    key[number] = (*first[:level], number, *behind[level:])
        order = sorted(range(len(key)), key=key.__getitem__)
        place = [0] * len(order)
        for new, old in enumerate(order):
            place[old] = new
        return Steps(
            queue=[self.queue[old] for old in order],
            busy=[self.busy[old] for old in order],
            latency=[self.latency[old] for old in order],
            port=[self.port[old] for old in order],
            waits=[[place[other] for other in self.waits[old]] for old in order],
        )


class QueueOrder:
    """Simulates the instructions of `steps`: one is dispatched every `issue` cycles, tokens take `token` cycles between
    queues, and external memory has `ports` ports (None: one per queue)."""

    def __init__(self, steps: Steps, issue: int, token: int, ports: int | None) -> None:
        self.steps, self.issue, self.token, self.ports = steps, issue, token, ports
        self.done: list[int] = [-1] * len(steps.queue)
        self.free = dict.fromkeys(steps.queue, 0)
        self.latest = dict.fromkeys(steps.queue, 0)

    def cycles(self, last: str, limit: float = math.inf) -> float:
        """Return the total cycles; infinity if the queue `last` starts too late to finish before `limit`."""
        if not self.ports:
            return self._without_ports(last, limit)
        steps, queue = self.steps, self.steps.queue
        left = sum(busy for busy, own in zip(steps.busy, queue, strict=True) if own == last)
        servers = [0] * self.ports
        for number, ready in self._whoever_is_ready():
            own, start = queue[number], ready
            if own == last:
                if start + left >= limit:
                    return math.inf
                left -= steps.busy[number]
            if steps.port[number]:
                server = servers.index(min(servers))
                start = max(start, servers[server])
                servers[server] = start + steps.busy[number]
            self.free[own] = start + steps.busy[number]
            self.latest[own] = self.done[number] = max(self.latest[own], self.free[own] + steps.latency[number])
        return max(self.latest.values())

    def _ready(self, number: int) -> int:
        """Return when an instruction could start but for its port; -1 while that is unknown."""
        own = self.steps.queue[number]
        ready = max(self.free[own], (number + 1) * self.issue)
        for other in self.steps.waits[number]:
            done = self.done[other]
            if done < 0:
                return -1
            ready = max(ready, done + (self.token if self.steps.queue[other] != own else 0))
        return ready

    def _without_ports(self, last: str, limit: float) -> float:
        """Same as cycles() if no port is shared: no instruction depends on later ones."""
        steps, done, free, latest, token = self.steps, self.done, self.free, self.latest, self.token
        queue, issued = steps.queue, 0
        left = sum(busy for busy, own in zip(steps.busy, queue, strict=True) if own == last)
        for number, (own, busy, latency, waits) in enumerate(
            zip(queue, steps.busy, steps.latency, steps.waits, strict=True)
        ):
            issued += self.issue
            ready = free[own]
            if issued > ready:
                ready = issued
            for other in waits:
                there = done[other] if queue[other] == own else done[other] + token
                if there > ready:
                    ready = there
            if own == last:
                if ready + left >= limit:
                    return math.inf
                left -= busy
            free[own] = ready = ready + busy
            if ready + latency > latest[own]:
                latest[own] = ready + latency
            done[number] = latest[own]
        return max(latest.values())

    def _whoever_is_ready(self) -> Iterator[tuple[int, int]]:
        """Yield repeatedly, among the heads of all queues, the instruction that is ready first."""
        waiting: dict[str, list[int]] = {}
        for number in range(len(self.done) - 1, -1, -1):
            waiting.setdefault(self.steps.queue[number], []).append(number)
        heads = {own: (numbers[-1], self._ready(numbers[-1])) for own, numbers in waiting.items()}
        while heads:
            ready, number, own = min((ready, number, own) for own, (number, ready) in heads.items() if ready >= 0)
            yield number, ready
            numbers = waiting[own]
            numbers.pop()
            if numbers:
                heads[own] = (numbers[-1], -1)
            else:
                del heads[own]
            for name, (head, known) in heads.items():
                if known < 0:
                    heads[name] = (head, self._ready(head))
