"""Why an instruction waits for a token of another one: for its data, for space that it frees, or for the token alone.

This follows from the bytes of the instructions at both ends of a token: DATA if the giver wrote what the taker reads,
SPACE if the giver read or wrote what the taker overwrites. A token covers everything that the giver's queue did before,
and handwritten programs give one token for several instructions or have a NOP give and take it. So if the two have no
bytes in common, the giver's predecessors are checked, back to the previous token taken; for a NOP that takes the token,
the instruction after it is checked.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from ..checks.access import Footprint, Walk
from ..checks.tokens import Channels
from ..instructions.table import Opcode, marked, uses
from ..program.isa import OPERANDS, QUEUES, Operand
from .event_loop import DATA, SPACE, TOKEN

_PAIRS = 1 << 20  # most pairs (wait, instruction checked for it) processed together


@dataclass(frozen=True)
class _Bytes:
    """The bytes that an operand of each instruction touches: bytes `low` .. `high` of a memory, either all of them or,
    where there are `gaps`, its footprint from `low` on, with index `form` in `forms`."""

    memory: np.ndarray
    low: np.ndarray
    high: np.ndarray
    gaps: np.ndarray
    form: np.ndarray
    forms: list[Footprint]


def wait_kinds(
    instructions: np.ndarray,
    found: Channels,
    takers: np.ndarray,
    sources: np.ndarray,
    walked: dict[Operand, Walk],
) -> np.ndarray:
    """Return int64[waits]: DATA, SPACE or TOKEN for each wait of instruction `takers[i]` for queue `sources[i]`.

    `takers` are in program order, each with a token that some instruction gives. `walked` are the access patterns.
    """
    touched = {operand: _bytes(instructions, operand, walked[operand]) for operand in OPERANDS}
    used = uses(instructions)
    reads: dict[Operand, np.ndarray] = {"a": used.reads_a, "b": used.reads_b, "c": used.reads_c}
    place = found.place[found.needs[takers, sources]]
    least = _places_before(found, takers, sources, place)
    working = _behind_nops(instructions, found)[takers]
    members, first = np.concatenate(found.members), np.cumsum([0, *map(len, found.members)])
    kinds = np.full(len(takers), TOKEN, dtype=np.int64)
    left, span = np.flatnonzero(working >= 0), 1
    while len(left):
        # Each unresolved wait checks its giver and the `span` - 1 instructions before it.
        asks = np.minimum(span, place[left] - least[left])
        of = np.repeat(np.arange(len(left)), asks)
        back = np.arange(len(of)) - np.repeat(np.cumsum(asks) - asks, asks)
        giver, taker = members[first[sources[left[of]]] + place[left[of]] - back], working[left[of]]
        data = np.zeros(len(of), dtype=bool)
        space = np.zeros(len(of), dtype=bool)
        for operand in OPERANDS:
            asked = np.flatnonzero(used.writes_c[giver] & reads[operand][taker])
            data[asked] |= _common(touched["c"], giver[asked], touched[operand], taker[asked])
            writes_it = used.writes_c if operand == "c" else reads[operand]
            asked = np.flatnonzero(writes_it[giver] & used.writes_c[taker] & ~data)
            space[asked] |= _common(touched[operand], giver[asked], touched["c"], taker[asked])
        hits = np.flatnonzero(data | space)
        answered, latest = np.unique(of[hits], return_index=True)
        kinds[left[answered]] = np.where(data[hits[latest]], DATA, SPACE)
        place[left] -= asks
        unanswered = np.delete(left, answered)
        left = unanswered[place[unanswered] > least[unanswered]]
        span = max(1, min(2 * span, _PAIRS // max(1, len(left))))
    return kinds


def _places_before(found: Channels, takers: np.ndarray, sources: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Return, for each wait, the position of the giver of the previous wait of the same channel, or -1."""
    least = np.full(len(takers), -1, dtype=np.int64)
    channel = found.queue[takers] * QUEUES + sources
    for number in np.unique(channel):
        own = np.flatnonzero(channel == number)
        least[own[1:]] = place[own[:-1]]
    return least


def _behind_nops(instructions: np.ndarray, found: Channels) -> np.ndarray:
    """Return each instruction itself, or for a NOP the next other instruction of its queue, or -1 if there is none."""
    behind = np.arange(len(instructions), dtype=np.int64)
    nop = marked(instructions, [not row.loops for row in Opcode])
    behind[nop] = -1
    for own in found.members:
        if not nop[own].any():
            continue
        working = own[~nop[own]]
        following = np.searchsorted(working, own)
        there = following < len(working)
        behind[own[there]] = working[following[there]]
    return behind


def _bytes(instructions: np.ndarray, operand: Operand, own: Walk) -> _Bytes:
    gaps = np.array([bool(one.loops) for one in own.forms], dtype=bool)[own.form]
    return _Bytes(instructions[f"{operand}_memory"].astype(np.int64), own.low, own.high, gaps, own.form, own.forms)


def _common(one: _Bytes, ones: np.ndarray, other: _Bytes, others: np.ndarray) -> np.ndarray:
    """Return for each pair, operand `one` of instruction `ones[i]` and `other` of `others[i]`, whether they share a
    byte."""
    shared: np.ndarray = (
        (one.memory[ones] == other.memory[others])
        & (one.low[ones] < other.high[others])
        & (other.low[others] < one.high[ones])
    )
    # Spans that overlap may still interleave, like two tiles of a matrix; most pairs repeat the same relative layout.
    pairs = np.flatnonzero(shared & (one.gaps[ones] | other.gaps[others]))
    if len(pairs):
        mine, theirs = ones[pairs], others[pairs]
        lie = np.stack([one.form[mine], other.form[theirs], other.low[theirs] - one.low[mine]])
        ways, way = np.unique(lie, axis=1, return_inverse=True)
        meet = [_meet(one.forms[a], other.forms[b], offset) for a, b, offset in ways.T.tolist()]
        shared[pairs] = np.array(meet)[way.reshape(-1)]
    return shared


@functools.lru_cache(maxsize=1 << 16)
def _meet(one: Footprint, other: Footprint, offset: int) -> bool:
    """Return whether `other`, `offset` bytes after `one`, touches a byte that `one` touches."""
    starts = np.sort(_starts(one))
    theirs = _starts(other) + offset
    before = np.searchsorted(starts, theirs, side="right") - 1  # the last run of `one` that does not start after it
    inside = (before >= 0) & (theirs < starts[np.maximum(before, 0)] + one.run)
    after = np.minimum(before + 1, len(starts) - 1)
    return bool((inside | ((starts[after] >= theirs) & (starts[after] < theirs + other.run))).any())


def _starts(form: Footprint) -> np.ndarray:
    """Return the first byte of every run."""
    starts = np.zeros(1, dtype=np.int64)
    for step, points in form.loops:
        starts = np.add.outer(np.arange(points) * step, starts).reshape(-1)
    return starts
