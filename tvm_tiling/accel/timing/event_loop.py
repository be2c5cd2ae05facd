"""In-order queues over time: the inner loop of the timing run, one function over plain arrays (page 06).

The function is written so that numba compiles it and plain Python runs it unchanged; :func:`run` picks one of the two.
What numbers and places are read from is uint32: numba asks of each signed index whether it counts from the end, which
took a fifth of the loop's time.
Whoever could start first starts first: of all heads of queues that have everything but perhaps their port, the one that
got it earliest is next, the earlier in the program on a tie. Its start is final, because whatever is still waiting for
something cannot be ready before then. So every instruction is looked at once, and ports are given in order of demand.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

DATA, SPACE, TOKEN, LATENCY, PORT, DISPATCH = range(6)
NOTHING = -1  # an instruction that started as soon as its queue was free has waited for nothing
CAUSES = ("data", "space", "token", "latency", "port", "dispatch")
"""Why an engine stands still although it has something left to do, by number."""

PORTS = 3  # most ports of an instruction, one for each memory that it touches
KINDS = 3  # of what a token says: DATA, SPACE, or TOKEN: nothing but itself
NEVER = 1 << 62
WORTH_COMPILING = 50_000  # instructions; fewer take plain Python less time than loading numba takes


def run_queues(
    queue: Any,  # per instruction: its queue
    busy: Any,  # cycles it keeps its queue and its ports
    latency: Any,  # further cycles until its result is there
    fill: Any,  # cycles before its turn in which it needs what it waits for, but for space
    port: Any,  # the ports that it needs, PORTS places each, -1 in those behind the last
    edge_first: Any,  # its edges are edge_first[i] .. edge_first[i + 1]
    edge_producer: Any,  # per edge: the instruction whose result it is
    edge_kind: Any,  # DATA, SPACE or TOKEN
    after: Any,  # per instruction: the one of its own queue whose result it waits for, -1 for none
    order: Any,  # instructions queue by queue
    order_first: Any,  # those of queue q are order_first[q] .. order_first[q + 1]
    depth: Any,  # per queue: most instructions that wait in it
    issue: int,  # cycles from one dispatch to the next
    token: int,  # cycles that a token travels
    server_first: Any,  # the servers of port p are server_first[p] .. server_first[p + 1]
    server_free: Any,  # per server: 0; holds when it is free
    arrival: Any,  # per instruction: space for when it is in its queue
    start: Any,  # per instruction: 0; gets when it starts
    done: Any,  # per instruction: -1; gets when its result is there
    cause: Any,  # per instruction: NOTHING; gets what it waited for last
    behind: Any,  # per instruction: -1; gets the instruction whose result that was
    stalls: Any,  # per queue and cause: 0; gets the cycles
    dispatched: Any,  # per queue: 0
    started: Any,  # per queue: 0
    free: Any,  # per queue: 0; holds when its last instruction is over
    result: Any,  # per queue: 0; holds when the result of its last instruction is there
    cursor: Any,  # per queue: the first edge of its head that has not been seen
    ready: Any,  # per queue: -1; holds when its head may start but for its ports
    seen: Any,  # per queue and kind: -1; holds the latest of the edges seen
    giver: Any,  # per queue and kind: the instruction whose edge that is
    head: Any,  # per queue: holds the number of its head once that may start but for its ports
    taken: Any,  # per place of a port: space for its server
) -> int:
    """Times `queue` and the rest until nothing can start any more; gives the number of instructions that started, all
    unless there is a deadlock."""
    count, queues = len(queue), len(depth)
    front, clock, over = 0, 0, 0
    while over < count:
        # The front end puts instructions into their queues, in program order, until one is full.
        while front < count:
            q = queue[front]
            leaver = dispatched[q] - depth[q]  # the place in its queue of the one that has to start first
            if leaver >= started[q]:
                break
            clock += issue
            if leaver >= 0 and start[order[order_first[q] + leaver]] > clock:
                clock = start[order[order_first[q] + leaver]]
            arrival[front] = clock
            dispatched[q] += 1
            front += 1
        # Of the heads of the queues, who has been ready first?
        chosen, chosen_ready, chosen_number = -1, NEVER, -1
        for q in range(queues):
            if started[q] == dispatched[q]:
                continue
            if ready[q] < 0:
                number = order[order_first[q] + started[q]]
                edge, last = cursor[q], edge_first[number + 1]
                while edge < last:
                    producer = edge_producer[edge]
                    came = done[producer]
                    if came < 0:
                        break
                    place = q * KINDS + edge_kind[edge]
                    if came > seen[place]:
                        seen[place], giver[place] = came, producer
                    edge += 1
                cursor[q] = edge
                if edge < last:
                    continue
                when = arrival[number]
                latest = max(seen[q * KINDS + DATA], seen[q * KINDS + TOKEN])
                if latest >= 0:
                    when = max(when, latest + token)
                if after[number] >= 0:
                    when = max(when, done[after[number]])
                when = max(when + fill[number], free[q])
                if seen[q * KINDS + SPACE] >= 0:
                    when = max(when, seen[q * KINDS + SPACE] + token)
                ready[q] = when
                head[q] = number
            if ready[q] < chosen_ready or (ready[q] == chosen_ready and head[q] < chosen_number):
                chosen, chosen_ready, chosen_number = q, ready[q], head[q]
        if chosen < 0:
            break
        # It takes, of each of its ports, the server that is free first.
        q, number, begin = chosen, chosen_number, chosen_ready
        needed = 0
        while needed < PORTS and port[number * PORTS + needed] >= 0:
            first = server_first[port[number * PORTS + needed]]
            taken[needed] = first
            for server in range(first + 1, server_first[port[number * PORTS + needed] + 1]):
                if server_free[server] < server_free[taken[needed]]:
                    taken[needed] = server
            begin = max(begin, server_free[taken[needed]])
            needed += 1
        end = begin + busy[number]
        for place in range(needed):
            server_free[taken[place]] = end
        # What it waited for, cycle by cycle: not in its queue yet, a token missing, a result of its own queue, a token
        # on its way, operands that its buffers are filled with, the port.
        waited = free[q]
        place = q * len(CAUSES)
        why, whose = NOTHING, -1
        if arrival[number] > waited:
            stalls[place + DISPATCH] += arrival[number] - waited
            why = DISPATCH
            waited = arrival[number]
        last, latest = -1, -1
        for kind in range(KINDS):
            came = seen[q * KINDS + kind]
            if came >= 0:
                if came > latest:
                    latest, last = came, giver[q * KINDS + kind]
                if came > waited:
                    stalls[place + kind] += came - waited
                    why, whose = kind, giver[q * KINDS + kind]
                    waited = came
                seen[q * KINDS + kind] = -1
        if after[number] >= 0 and done[after[number]] > waited:
            stalls[place + LATENCY] += done[after[number]] - waited
            why, whose = LATENCY, after[number]
            waited = done[after[number]]
        if chosen_ready > waited:
            filling = min(fill[number], chosen_ready - waited)
            stalls[place + DATA] += filling
            stalls[place + TOKEN] += chosen_ready - waited - filling
            if chosen_ready > waited + filling:
                if whose != last:  # else what the token brings is the cause
                    why, whose = TOKEN, last
            elif waited == free[q]:  # nothing but its buffers, filled with what came while the engine was busy
                why, whose = DATA, last
        if begin > chosen_ready:
            stalls[place + PORT] += begin - chosen_ready
            why, whose = PORT, -1
        # Results of a queue come in order.
        start[number] = begin
        cause[number], behind[number] = why, whose
        free[q] = end
        result[q] = max(result[q], end + latency[number])
        done[number] = result[q]
        ready[q] = -1
        started[q] += 1
        if order_first[q] + started[q] < order_first[q + 1]:
            cursor[q] = edge_first[order[order_first[q] + started[q]]]
        over += 1
    return over


@functools.cache
def _compiled() -> Callable[..., int] | None:
    """The function in machine code, None where numba is not installed. Kept on disk from one process to the next, in
    the user's cache folder where the package's own cannot be written, and nowhere where neither can."""
    try:
        import numba
    except ImportError:
        return None
    try:
        return numba.njit(cache=True)(run_queues)
    except RuntimeError:  # no folder to keep it in
        return numba.njit(run_queues)


def run(inputs: Sequence[np.ndarray | int], outputs: Sequence[np.ndarray], compiled: bool | None = None) -> int:
    """:func:`run_queues` on `inputs`, int64 arrays or, of numbers and places, uint32 ones, and on int64 `outputs` (from
    `server_free` on), which are changed.

    `compiled` None takes machine code where numba is installed and the program is large enough to pay for loading it;
    True asks for it (ImportError where numba is not installed), False for plain Python.
    """
    worth = len(outputs[1]) >= WORTH_COMPILING or "numba" in sys.modules
    function = _compiled() if compiled or (compiled is None and worth) else None
    if function is not None:
        return int(function(*inputs, *outputs))
    if compiled:
        raise ImportError("numba is not installed; accepted: compiled=None or False, or `pip install tvm-tiling[sim]`")
    # Lists are several times as fast as arrays, element by element.
    lists = [array.tolist() for array in outputs]
    over = run_queues(*(value.tolist() if isinstance(value, np.ndarray) else value for value in inputs), *lists)
    for array, values in zip(outputs, lists, strict=True):
        array[:] = values
    return over
