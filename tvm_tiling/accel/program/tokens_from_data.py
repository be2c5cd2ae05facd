"""Tokens between queues, placed from what instructions read and write."""

from __future__ import annotations

import numpy as np

from ..checks.dependences import dependences
from .isa import QUEUES


def place_tokens(instructions: np.ndarray) -> None:
    """Set `wait` and `signal` of an INSTRUCTION array without tokens so that every order they allow has the results of
    program order.

    Walks in program order and keeps, of each queue, the latest instruction of every other queue that is known to be
    done when its next one starts. An instruction that needs more than is known takes one token: the needed instruction
    puts it. Whoever has waited for an instruction knows all that this one had waited for, and all before it in its
    queue, so a token that an earlier wait implies is left out.
    """
    found = dependences(instructions)
    needs = np.maximum(found.data, found.space)
    rows, producers = np.nonzero(needs >= 0)
    wanted: dict[int, list[tuple[int, int]]] = {}
    for row, producer, needed in zip(rows.tolist(), producers.tolist(), needs[rows, producers].tolist(), strict=True):
        wanted.setdefault(row, []).append((needed, producer))
    known = [[-1] * QUEUES for _ in range(QUEUES)]  # of each queue, what its next instruction can be sure of
    behind: list[tuple[int, ...]] = []  # of each instruction, what is done when it is
    for number, queue in enumerate(instructions["queue"].tolist()):
        mine = known[queue]
        # The latest first: what it implies need not be waited for.
        for needed, producer in sorted(wanted.get(number, ()), reverse=True):
            if needed > mine[producer]:
                instructions["wait"][number, producer] = 1
                instructions["signal"][needed, queue] = 1
                known[queue] = mine = [max(pair) for pair in zip(mine, behind[needed], strict=True)]
        mine[queue] = number
        behind.append(tuple(mine))
