"""A timed program as a timeline in the Chrome trace format, which Perfetto and chrome://tracing open.

There is one thread per queue and one event per instruction for as long as it occupies the queue, with what it waited
for and how long; an arrow comes from the instruction whose result ended the wait. A counter for each buffer shows its
occupancy. A second process has the operators of the source, each from its first instruction to its last result. One
cycle is shown as one microsecond.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ...atomic_file import atomic_file
from ...hardware.vector_functions import Function
from ..instructions.table import Opcode
from ..program.program import Program
from ..timing.event_loop import CAUSES
from ..timing.timing import Timing
from .fill import fills

ENGINES, OPERATORS = 0, 1  # processes of the timeline


def save_trace(program: Program, timing: Timing, path: str | os.PathLike[str]) -> None:
    """Write the timeline atomically. OSError says why it cannot be written."""
    write_events(trace_events(program, timing), path)


def write_events(events: Iterable[dict[str, Any]], path: str | os.PathLike[str]) -> None:
    """Write the events of a timeline to a file atomically."""
    with atomic_file(path) as file:
        file.write(b'{"displayTimeUnit": "ms", "otherData": {"unit": "1 us is 1 cycle"}, "traceEvents": [\n')
        for number, event in enumerate(events):
            file.write(((",\n" if number else "") + json.dumps(event, ensure_ascii=False)).encode())
        file.write(b"\n]}\n")


def trace_events(program: Program, timing: Timing) -> Iterator[dict[str, Any]]:
    """Yield the events: names of processes and threads, then instructions in program order, buffer occupancy,
    operators."""
    yield event_name("process_name", program.hardware.name, ENGINES)
    for queue, name in enumerate(program.queues):
        yield event_name("thread_name", name, ENGINES, queue)
        yield {"ph": "M", "name": "thread_sort_index", "pid": ENGINES, "tid": queue, "args": {"sort_index": queue}}
    yield from _instructions(program, timing)
    yield from _fills(program, timing)
    regions = [region.name for region in program.regions]
    if regions:
        yield event_name("process_name", "operators", OPERATORS)
    for place, first, last in region_spans(program, timing):
        yield event_name("thread_name", regions[place], OPERATORS, place)
        yield {
            "ph": "X",
            "name": regions[place],
            "cat": "operator",
            "pid": OPERATORS,
            "tid": place,
            "ts": first,
            "dur": last - first,
            "args": {"workload": program.regions[place].workload},
        }


def _instructions(program: Program, timing: Timing) -> Iterator[dict[str, Any]]:
    """Yield an event for each instruction in program order, and an arrow to it if it waited for the result of another
    one."""
    rows = program.instructions
    regions = [region.name for region in program.regions]
    names, queues = instruction_names(rows), rows["queue"].tolist()
    starts, ends = timing.start.tolist(), timing.end.tolist()
    columns = (rows["region"], timing.done, timing.cause, timing.behind, waits(rows["queue"], timing))
    for number, (region, done, cause, behind, waited) in enumerate(
        zip(*(column.tolist() for column in columns), strict=True)
    ):
        queue, start = queues[number], starts[number]
        detail: dict[str, Any] = {"instruction": number, "result": done}
        if regions:
            detail["operator"] = regions[region]
        if waited:
            detail |= {"waited": waited, "for": CAUSES[cause]}
        if behind >= 0:
            detail |= {"behind": f"{behind} {names[behind]} of {program.queues[queues[behind]]}"}
            arrow = {"name": CAUSES[cause], "cat": "wait", "id": number, "pid": ENGINES}
            # The arrow starts inside the event of the other instruction, since at its very end the next event has
            # begun.
            leaves = (starts[behind] + ends[behind]) / 2
            yield {"ph": "s", **arrow, "tid": queues[behind], "ts": leaves}
            yield {"ph": "f", "bp": "e", **arrow, "tid": queue, "ts": start}
        yield {
            "ph": "X",
            "name": names[number],
            "cat": "instruction",
            "pid": ENGINES,
            "tid": queue,
            "ts": start,
            "dur": ends[number] - start,
            "args": detail,
        }


def waits(queue: np.ndarray, timing: Timing) -> np.ndarray:
    """Return int64[instructions]: cycles that each instruction's queue stalled before it."""
    before = np.zeros(len(queue), dtype=np.int64)
    for number in np.unique(queue):
        own = np.flatnonzero(queue == number)
        before[own[1:]] = timing.end[own[:-1]]
    waited: np.ndarray = timing.start - before
    return waited


def _fills(program: Program, timing: Timing) -> Iterator[dict[str, Any]]:
    """Yield the counter events of each buffer."""
    for memory, fill in fills(program, timing).items():
        for time, held in zip(fill.times.tolist(), fill.bytes.tolist(), strict=True):
            yield {"ph": "C", "name": f"bytes in {memory}", "pid": ENGINES, "ts": time, "args": {"bytes": held}}


def region_spans(program: Program, timing: Timing) -> list[tuple[int, int, int]]:
    """Return (number, first start, last result) of each region that has instructions."""
    count = len(program.regions)
    if not count or not len(program):
        return []
    region = program.instructions["region"]
    first = np.full(count, np.iinfo(np.int64).max)
    last = np.full(count, -1)
    np.minimum.at(first, region, timing.start)
    np.maximum.at(last, region, timing.done)
    return [(place, int(first[place]), int(last[place])) for place in range(count) if last[place] >= 0]


def event_name(kind: str, name: str, process: int, thread: int = 0) -> dict[str, Any]:
    """Return the event that names a process or a thread of the timeline."""
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def instruction_names(rows: np.ndarray) -> list[str]:
    """Return the name of each event: the instruction, or its vector function if it takes one."""
    opcodes = [(row.name, row.takes_function) for row in Opcode]
    functions = [function.name.upper() for function in Function]
    return [
        functions[function] if opcodes[op][1] else opcodes[op][0]
        for op, function in zip(rows["op"].tolist(), rows["function"].tolist(), strict=True)
    ]
