"""Hazards: removing a token leaves two accesses unordered, and both are named."""

from __future__ import annotations

import re

import numpy as np
import pytest
from accel_programs import MACHINE, product
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import programs
from test_tokens import over_before, with_instructions

from tvm_tiling.accel.checks.access import footprints, spans, under
from tvm_tiling.accel.checks.hazards import check_hazards
from tvm_tiling.accel.checks.tokens import channels
from tvm_tiling.accel.instructions.table import Opcode, uses
from tvm_tiling.accel.program.builder import At, ProgramBuilder
from tvm_tiling.accel.program.isa import OPERANDS
from tvm_tiling.errors import SimulationError


def test_programs_of_the_builder_have_none():
    for slots in (1, 2, 3):
        check_hazards(product(m=40, slots=slots))


def without_token(program, taker, source):
    """Return the program without one token that `taker` takes from `source`, at both ends."""
    rows = program.instructions.copy()
    giver = int(channels(rows).needs[taker, source])
    rows["wait"][taker, source] -= 1
    rows["signal"][giver, rows["queue"][taker]] -= 1
    return with_instructions(program, rows), giver


def test_every_token_of_a_gemm_is_needed():
    program = product(m=40, slots=2, block=8)
    takers, sources = np.nonzero(program.instructions["wait"])
    assert len(takers) > 10
    for taker, source in zip(takers.tolist(), sources.tolist(), strict=True):
        with pytest.raises(SimulationError, match="hazard: no token orders instruction"):
            check_hazards(without_token(program, taker, source)[0])


def test_a_removed_token_names_both_instructions_and_the_bytes():
    program = product(m=16, slots=2, block=8)
    # 0: B; then load, multiplication, relu, store, twice. The store of the second block waits for its relu.
    broken, giver = without_token(program, 8, program.queue_number("vector"))
    assert giver == 7
    with pytest.raises(SimulationError) as caught:
        check_hazards(broken)
    sentence, first, second = str(caught.value).split("\n")
    assert sentence == (
        "hazard: no token orders instruction 7 (ALU RELU, queue 'vector', of 'product') and instruction 8 (STORE, "
        "queue 'store', of 'product'): the first writes and the second reads bytes 512 to 1023 of memory 'acc'"
    )
    assert first.startswith("  7: vector ALU function=relu extent=8x16") and second.startswith(
        "  8: store STORE extent="
    )


def conflict_without_order(program):
    """The same by definition: two concurrent instructions of different queues that share a byte which one of them
    writes."""
    rows = program.instructions
    order = over_before(rows)
    used = uses(rows)
    place = channels(rows).place
    touched = [{}, {}]
    for operand in OPERANDS:
        low, _ = spans(rows, operand)
        forms, number = footprints(rows, operand)
        for i in np.flatnonzero(used.of(operand)):
            memory = int(rows[f"{operand}_memory"][i])
            marks = np.zeros(10_000, bool)
            under(marks, int(low[i]), forms[number[i]])[...] = True
            bytes_ = {(memory, at) for at in np.flatnonzero(marks).tolist()}
            touched[operand == "c"].setdefault(i, set()).update(bytes_)
            if operand == "c" and used.reads_c[i]:
                touched[0].setdefault(i, set()).update(bytes_)
    for i in range(len(rows)):
        for j in range(i):
            if rows["queue"][i] == rows["queue"][j]:
                continue
            ordered = order[i, rows["queue"][j]] > place[j] or order[j, rows["queue"][i]] > place[i]
            reads_i, writes_i, reads_j, writes_j = (t.get(x, set()) for x in (i, j) for t in touched)
            if not ordered and (writes_i & (reads_j | writes_j) or writes_j & reads_i):
                return True
    return False


@given(programs(most=16), st.data())
@settings(max_examples=30, deadline=None)
def test_a_hazard_is_found_exactly_where_the_definition_has_one(case, data):
    program, _ = case
    check_hazards(program)
    takers, sources = np.nonzero(program.instructions["wait"])
    token = data.draw(st.integers(0, len(takers) - 1))
    broken, _ = without_token(program, int(takers[token]), int(sources[token]))
    if conflict_without_order(broken):
        with pytest.raises(SimulationError, match="hazard: "):
            check_hazards(broken)
    else:
        check_hazards(broken)


def test_tiles_side_by_side_are_no_hazard_and_a_common_byte_is():
    for shift, hazard in ((64, False), (63, True)):
        build = ProgramBuilder(MACHINE)
        for queue, start in (("matrix", 0), ("vector", shift)):
            build.append(Opcode.FILL, queue, (8, 64), c=At("acc", start, (128, 1), "int8"), immediate=(1,))
        program = build.build()
        rows = program.instructions.copy()
        rows["wait"] = rows["signal"] = 0
        bare = with_instructions(program, rows)
        if hazard:
            with pytest.raises(SimulationError, match=re.escape("bytes 63 to 959 of memory 'acc'")):
                check_hazards(bare)
        else:
            check_hazards(bare)


def test_two_readers_need_no_token():
    build = ProgramBuilder(MACHINE)
    x = build.tensor("x", "int8", (64,), role="input", operand="a")
    for queue, memory in (("load_a", "a"), ("load_b", "b")):
        source = At("external", x.address, (1,), "int8")
        build.append(Opcode.LOAD, queue, (64,), a=source, c=At(memory, 0, (1,), "int8"))
    program = build.build()
    assert not program.instructions["wait"].any()
    check_hazards(program)
