"""Why an instruction waits for a token, compared with sets of bytes, one giver at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import programs

from tvm_tiling.accel.checks.access import walks
from tvm_tiling.accel.checks.tokens import channels
from tvm_tiling.accel.instructions.table import uses
from tvm_tiling.accel.program.isa import INSTRUCTION, OPERANDS
from tvm_tiling.accel.timing.event_loop import DATA, SPACE, TOKEN
from tvm_tiling.accel.timing.timing import ordering


def touched(instructions, number, operand, walked):
    """The bytes of an operand, each with its memory."""
    form = walked[operand].forms[walked[operand].form[number]]
    starts = {int(walked[operand].low[number])}
    for step, points in form.loops:
        starts = {start + step * point for start in starts for point in range(points)}
    memory = int(instructions[f"{operand}_memory"][number])
    return {(memory, start + byte) for start in starts for byte in range(form.run)}


def told(program):
    """The kind of every wait, in program order and per instruction by queue."""
    instructions = program.instructions
    used, walked, found = uses(instructions), walks(instructions), channels(instructions)
    reads = {"a": used.reads_a, "b": used.reads_b, "c": used.reads_c}

    def sets(number):
        read = [touched(instructions, number, operand, walked) for operand in OPERANDS if reads[operand][number]]
        return set().union(*read), touched(instructions, number, "c", walked) if used.writes_c[number] else set()

    kinds, before = [], {}
    for taker, row in enumerate(found.needs.tolist()):
        for source, giver in enumerate(row):
            if giver < 0:
                continue
            place, kind = int(found.place[giver]), TOKEN
            read, written = sets(taker)
            for earlier in range(place, before.get((int(found.queue[taker]), source), -1), -1):
                theirs, results = sets(int(found.members[source][earlier]))
                kind = DATA if results & read else SPACE if (theirs | results) & written else TOKEN
                if kind != TOKEN:
                    break
            before[int(found.queue[taker]), source] = place
            kinds.append(kind)
    return kinds


@given(programs(least=6, most=40))
@settings(max_examples=60, deadline=None)
def test_kinds_are_those_told_byte_by_byte(made):
    program, _ = made
    assert ordering(program).kind.tolist() == told(program)


@given(programs(least=20, most=60), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_a_token_speaks_for_all_that_its_giver_did_before(made, seed):
    """Tokens given later than the data's origin, as in programs written by hand."""
    program, _ = made
    instructions, rng = program.instructions.copy(), np.random.default_rng(seed)
    found = channels(instructions)
    late: list[tuple[int, int, int]] = []
    last: dict[tuple[int, int], int] = {}
    for taker, row in enumerate(found.needs.tolist()):
        for source, giver in enumerate(row):
            if giver >= 0:
                own = found.members[source]
                channel = (int(found.queue[taker]), source)
                least = max(last.get(channel, -1) + 1, int(found.place[giver]))
                most = int(np.searchsorted(own, taker)) - 1  # given before the taker, so that there is no deadlock
                last[channel] = int(rng.integers(least, most + 1)) if least <= most else most
                late.append((taker, source, int(own[last[channel]])))
    instructions["signal"], instructions["wait"] = 0, 0
    for taker, source, giver in late:
        instructions["signal"][giver, found.queue[taker]] += 1
        instructions["wait"][taker, source] += 1
    assert instructions.dtype == INSTRUCTION
    moved = type(program)(**{**vars(program), "instructions": instructions})
    assert ordering(moved).kind.tolist() == told(moved)
