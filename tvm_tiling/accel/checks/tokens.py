"""Tokens between queues: which instruction waits for which, the orders that this allows, and deadlocks (design page
06).

The tokens of a channel from queue p to queue q are indistinguishable. Both queues are in order, so the nth token that p
puts is the nth that q takes: the instruction of q that takes it starts after the instruction of p that put it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from ...errors import SimulationError
from ..program.disassembler import instruction_name
from ..program.isa import QUEUES
from ..program.program import Program

NEVER = np.iinfo(np.int64).max
"""In `needs`: a token that no instruction puts."""


@dataclass(frozen=True)
class Channels:
    """`queue`, `place`: int64[instructions], the queue of each instruction and its position in that queue from 0.
    `members`: the instructions of each queue in order. `needs`: int64[instructions, QUEUES], for each queue the last
    instruction whose token is taken, -1 if none is taken, NEVER if no instruction puts it."""

    queue: np.ndarray
    place: np.ndarray
    members: tuple[np.ndarray, ...]
    needs: np.ndarray


def channels(instructions: np.ndarray) -> Channels:
    """Match every token taken with the one put, for an INSTRUCTION array."""
    queue = instructions["queue"].astype(np.int64)
    place = np.zeros(len(instructions), dtype=np.int64)
    needs = np.full((len(instructions), QUEUES), -1, dtype=np.int64)
    members = tuple(np.flatnonzero(queue == number) for number in range(QUEUES))
    for own in members:
        place[own] = np.arange(len(own))
    for source, givers in enumerate(members):
        for sink, takers in enumerate(members):
            taken = instructions["wait"][takers, source].astype(np.int64)
            waiting = np.flatnonzero(taken)
            if not len(waiting):
                continue
            put = np.cumsum(instructions["signal"][givers, sink].astype(np.int64))
            giver = np.searchsorted(put, np.cumsum(taken)[waiting])
            enough = giver < len(givers)
            last = np.full(len(waiting), NEVER)
            last[enough] = givers[giver[enough]]
            needs[takers[waiting], source] = last
    return Channels(queue, place, members, needs)


def legal_order(program: Program, seed: int | None = None) -> np.ndarray:
    """Return instruction numbers in an order that queues and tokens allow.

    This is program order if it is legal, otherwise each queue in turn runs as far as it can; with a `seed`, a random
    order in which queues take turns at random. SimulationError for a deadlock names the waiting queues, their
    instructions and what they wait for.
    """
    found = channels(program.instructions)
    numbers = np.arange(len(program))
    if seed is None and (found.needs < numbers[:, None]).all():
        return numbers
    chance = None if seed is None else random.Random(seed)
    waits = _waits(found)
    members = [own.tolist() for own in found.members]
    done = [False] * len(program)
    heads = [0] * QUEUES
    order: list[int] = []
    sleeping: dict[int, list[int]] = {}  # instruction -> the queues waiting for it
    awake = [queue for queue in range(QUEUES) if members[queue]]
    while awake:
        turn = 0 if chance is None else chance.randrange(len(awake))
        queue = awake[turn]
        number = members[queue][heads[queue]]
        missing = next((need for need in waits.get(number, ()) if need == NEVER or not done[need]), None)
        if missing is not None:
            sleeping.setdefault(missing, []).append(awake.pop(turn))
            continue
        done[number] = True
        order.append(number)
        heads[queue] += 1
        if heads[queue] == len(members[queue]):
            awake.pop(turn)
        awake += sleeping.pop(number, ())
    if len(order) < len(program):
        raise SimulationError(_deadlock(program, found, heads))
    return np.array(order, dtype=np.int64)


def done_before(found: Channels, order: np.ndarray) -> np.ndarray:
    """Return int64[instructions, QUEUES]: how many instructions of each queue have finished in every legal order when
    an instruction starts. `order` is any legal order."""
    waits = _waits(found)
    before = np.zeros((len(order), QUEUES), dtype=np.int64)
    known: list[list[int]] = [[0] * QUEUES for _ in range(QUEUES)]  # per queue, after its last instruction
    after: dict[int, list[int]] = {}  # per instruction that gives tokens
    givers = {need for needs in waits.values() for need in needs}
    queues = found.queue.tolist()
    for number in order.tolist():
        queue = queues[number]
        mine = known[queue]
        for need in waits.get(number, ()):
            mine = [max(pair) for pair in zip(mine, after[need], strict=True)]
        before[number] = mine
        mine = mine.copy()
        mine[queue] += 1
        known[queue] = mine
        if number in givers:
            after[number] = mine
    return before


def _waits(found: Channels) -> dict[int, list[int]]:
    """Return instruction -> the instructions whose tokens it takes, for those that take any."""
    waits: dict[int, list[int]] = {}
    takers, sources = np.nonzero(found.needs >= 0)
    for taker, need in zip(takers.tolist(), found.needs[takers, sources].tolist(), strict=True):
        waits.setdefault(taker, []).append(need)
    return waits


def _deadlock(program: Program, found: Channels, heads: list[int]) -> str:
    """Return the message for a deadlock in which every queue has reached `heads`."""
    stuck = []
    instructions = program.instructions
    for queue, name in enumerate(program.queues):
        own = found.members[queue]
        if heads[queue] == len(own):
            continue
        number = int(own[heads[queue]])
        for source in np.flatnonzero(found.needs[number] >= 0).tolist():
            need = int(found.needs[number, source])
            if need == NEVER:
                taken = int(instructions["wait"][own[: heads[queue] + 1], source].sum(dtype=np.int64))
                put = int(instructions["signal"][found.members[source], queue].sum(dtype=np.int64))
                reason = f"token {taken} of queue {program.queues[source]!r}, which puts {put} of them"
            elif found.place[need] >= heads[source]:
                reason = f"a token of {instruction_name(program, need)}"
            else:
                continue
            stuck.append(f"queue {name!r} waits at {instruction_name(program, number)} for {reason}")
            break
    return "deadlock: " + "; ".join(stuck)
