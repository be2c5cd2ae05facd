"""In-order queues over time: the inner loop of the timing run, one function over plain arrays.

The function can be compiled by numba and also runs unchanged in plain Python; :func:`run` picks one of the two. Indices
are uint32: numba checks each signed index for counting from the end, which took a fifth of the loop's time.

Instructions start in order of readiness: among all heads of queues that lack nothing except possibly a port, the one
that has been ready longest is next, and the earlier in the program on a tie. Its start is final, because an instruction
that is still waiting cannot become ready before then. So every instruction is visited once, and ports are granted in
order of demand.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

DATA, SPACE, TOKEN, LATENCY, PORT, DISPATCH = range(6)
NOTHING = -1  # the instruction started as soon as its queue was free
CAUSES = ("data", "space", "token", "latency", "port", "dispatch")
"""Why an engine stalls with work left to do, by number."""

PORTS = 3  # most ports of an instruction: one for each memory that it touches
KINDS = 3  # of tokens: DATA, SPACE, or TOKEN for one that protects neither
NEVER = 1 << 62
WORTH_COMPILING = 50_000  # instructions; below this, plain Python is faster than loading numba


def run_queues(
    queue: Any,  # per instruction: its queue
    busy: Any,  # cycles it occupies its queue and its ports
    latency: Any,  # further cycles until its result is available
    fill: Any,  # cycles before its turn at which it needs what it waits for, except space
    port: Any,  # the ports that it needs, PORTS entries each, padded with -1
    edge_first: Any,  # its edges are edge_first[i] .. edge_first[i + 1]
    edge_producer: Any,  # per edge: the instruction that produces the result
    edge_kind: Any,  # DATA, SPACE or TOKEN
    after: Any,  # per instruction: the one of its own queue whose result it waits for, or -1
    order: Any,  # instructions queue by queue
    order_first: Any,  # those of queue q are order_first[q] .. order_first[q + 1]
    depth: Any,  # per queue: maximum number of waiting instructions
    issue: int,  # cycles from one dispatch to the next
    token: int,  # cycles that a token is in transit
    server_first: Any,  # the servers of port p are server_first[p] .. server_first[p + 1]
    server_free: Any,  # per server: initially 0; when it is free
    arrival: Any,  # per instruction: buffer for the time it enters its queue
    start: Any,  # per instruction: initially 0; set to its start
    done: Any,  # per instruction: initially -1; set to when its result is available
    cause: Any,  # per instruction: initially NOTHING; set to what it waited for last
    behind: Any,  # per instruction: initially -1; set to the instruction that produced that result
    stalls: Any,  # per queue and cause: initially 0; set to the cycles
    dispatched: Any,  # per queue: 0
    started: Any,  # per queue: 0
    free: Any,  # per queue: initially 0; when its last instruction ends
    result: Any,  # per queue: initially 0; when the result of its last instruction is available
    cursor: Any,  # per queue: the first edge of its head not yet visited
    ready: Any,  # per queue: initially -1; when its head can start apart from its ports
    seen: Any,  # per queue and kind: initially -1; the latest of the edges visited
    giver: Any,  # per queue and kind: the instruction of that edge
    head: Any,  # per queue: the number of its head once it can start apart from its ports
    taken: Any,  # per port of an instruction: buffer for its server
) -> int:
    """Run the queues until nothing can start any more. Return the number of instructions that started: all of them,
    unless there is a deadlock."""
    count, queues = len(queue), len(depth)
    front, clock, over = 0, 0, 0
    while over < count:
        # The front end dispatches instructions into their queues in program order, until one is full.
        while front < count:
            q = queue[front]
            leaver = dispatched[q] - depth[q]  # the position in its queue of the instruction that must start first
            if leaver >= started[q]:
                break
            clock += issue
            if leaver >= 0 and start[order[order_first[q] + leaver]] > clock:
                clock = start[order[order_first[q] + leaver]]
            arrival[front] = clock
            dispatched[q] += 1
            front += 1
        # Among the heads of the queues, find the one that has been ready longest.
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
        # It takes, for each of its ports, the first free server.
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
        # Attribute its wait, cycle by cycle: not in its queue yet, a missing token, a result of its own queue, a token
        # in transit, operands that fill its buffers, the port.
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
                if whose != last:  # otherwise the data or space behind the token is the cause
                    why, whose = TOKEN, last
            elif waited == free[q]:  # only its buffers, filled with data that arrived while the engine was busy
                why, whose = DATA, last
        if begin > chosen_ready:
            stalls[place + PORT] += begin - chosen_ready
            why, whose = PORT, -1
        # Results of a queue become available in order.
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
    """Return the function in machine code, or None if numba is not installed. It is cached on disk between processes:
    in the user's cache directory if the package directory is not writable, and not at all if neither is."""
    try:
        import numba
    except ImportError:
        return None
    try:
        return numba.njit(cache=True)(run_queues)
    except RuntimeError:  # no writable cache directory
        return numba.njit(run_queues)


def run(inputs: Sequence[np.ndarray | int], outputs: Sequence[np.ndarray], compiled: bool | None = None) -> int:
    """Run :func:`run_queues` on `inputs`, which are int64 arrays, or uint32 for indices, and on int64 `outputs` (from
    `server_free` on), which are modified.

    With `compiled` None, machine code is used if numba is installed and the program is large enough to pay for loading
    it; True requires it (ImportError if numba is not installed), False selects plain Python.
    """
    worth = len(outputs[1]) >= WORTH_COMPILING or "numba" in sys.modules
    function = _compiled() if compiled or (compiled is None and worth) else None
    if function is not None:
        return int(function(*inputs, *outputs))
    if compiled:
        raise ImportError("numba is not installed; expected compiled=None or False, or `pip install tvm-tiling[sim]`")
    # Element by element, lists are several times as fast as arrays.
    lists = [array.tolist() for array in outputs]
    over = run_queues(*(value.tolist() if isinstance(value, np.ndarray) else value for value in inputs), *lists)
    for array, values in zip(outputs, lists, strict=True):
        array[:] = values
    return over
