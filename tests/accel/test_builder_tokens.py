"""Tokens follow from data: enough for every legal order, none that another implies."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from accel_programs import MACHINE, product
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_tiling.accel.checks import cells
from tvm_tiling.accel.checks.access import footprint
from tvm_tiling.accel.checks.dependences import dependences
from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.accel.program.builder import At, ProgramBuilder
from tvm_tiling.accel.program.isa import QUEUES


def channels(program):
    """Return (producing instruction, waiting instruction) of every token: the nth put is the nth taken."""
    instructions = program.instructions
    found = []
    for source in range(QUEUES):
        for sink in range(QUEUES):
            puts = [i for i, x in enumerate(instructions) if x["queue"] == source for _ in range(x["signal"][sink])]
            takes = [i for i, x in enumerate(instructions) if x["queue"] == sink for _ in range(x["wait"][source])]
            assert len(puts) == len(takes)
            found += zip(puts, takes, strict=True)
    return set(found)


def test_tokens_of_a_gemm_with_two_slots():
    program = product(m=32, slots=2, block=8)
    # 0: B; then load, multiplication, relu, store for each of four blocks.
    load, gemm, relu, store = ([1 + 4 * step + part for step in range(4)] for part in range(4))
    wanted = {(0, gemm[0])}
    for step in range(4):
        wanted |= {(load[step], gemm[step]), (gemm[step], relu[step]), (relu[step], store[step])}
        if step >= 2:
            wanted |= {(gemm[step - 2], load[step]), (store[step - 2], gemm[step])}
    assert channels(program) == wanted


def test_one_slot_less_is_one_step_more_of_waiting():
    program = product(m=16, slots=1, block=8)
    load, gemm, store = (1, 5), (2, 6), (4, 8)
    assert {(gemm[0], load[1]), (store[0], gemm[1])} <= channels(program)


def test_data_and_space_are_distinguished():
    program = product(m=32, slots=2, block=8)
    found = dependences(program.instructions)
    load_a, load_b, matrix, store = (program.queue_number(name) for name in ("load_a", "load_b", "matrix", "store"))
    gemm = 1 + 4 * 2 + 1
    assert (found.data[gemm, load_a], found.data[gemm, load_b]) == (gemm - 1, 0)
    assert found.space[gemm, store] == gemm - 8 + 2
    assert (found.space[gemm - 1, matrix], found.data[gemm - 1, matrix]) == (gemm - 8, -1)


def test_tiles_beside_each_other_do_not_depend():
    build = ProgramBuilder(MACHINE)
    left, right = (At("acc", start, (32, 1), "int32") for start in (0, 64))
    for tile in (left, right):
        build.append(Opcode.FILL, "matrix", (8, 16), c=tile)
    build.append(Opcode.STORE, "store", (8, 16), a=left, c=At("external", 0, (16, 1), "int32"))
    assert channels(build.build()) == {(0, 2)}


def bytes_of(extent, stride, element):
    grid = np.zeros((1,), dtype=np.int64)
    for count, step in zip(extent, stride, strict=True):
        grid = (grid[:, None] + np.arange(count) * step * element).reshape(-1)
    return set((grid[:, None] + np.arange(element)).reshape(-1).tolist())


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(-20, 20)), min_size=1, max_size=4), st.sampled_from([1, 2, 4]))
@settings(deadline=None)
def test_footprint_is_every_byte_and_no_other(loops, element):
    extent, stride = zip(*loops, strict=True)
    form = footprint(extent, stride, element)
    exact = bytes_of(extent, stride, element)
    counts, steps = [n for _, n in form.loops], [s for s, _ in form.loops]
    covered = {start + i for start in bytes_of(counts, steps, 1) for i in range(form.run)}
    assert covered == {byte - min(exact) for byte in exact}


@st.composite
def copies(draw):
    """Return instructions that copy tiles between two small memories from four queues, as plain tuples."""
    tile = st.tuples(st.integers(0, 40), st.integers(1, 3), st.integers(1, 6), st.integers(6, 9))
    one = st.tuples(
        st.integers(0, 3), st.sampled_from(["x", "y"]), tile, st.sampled_from(["x", "y"]), st.integers(0, 40)
    )
    return draw(st.lists(one, min_size=2, max_size=14))


@given(copies(), st.sampled_from([(0, 1), (100, 1), (100, 1 << 20)]))
@settings(max_examples=150, deadline=None)
def test_tokens_order_all_that_overlaps_and_nothing_twice(rows, limits):
    """Results are equal whether accesses are visited one by one or analysed together, with one extent or several."""
    with patch.object(cells, "MOST_CELLS", limits[0]), patch("tvm_tiling.accel.checks.dependences.PIECES", limits[1]):
        _check_tokens(rows)


def _check_tokens(rows):
    build = ProgramBuilder(MACHINE, queues=("p", "q", "r", "s"))
    touched = []
    for queue, source, (start, count, width, step), sink, goal in rows:
        a, c = At(source, start, (step, 1), "int8"), At(sink, goal, (step, 1), "int8")
        build.append(Opcode.LOAD, build.queues[queue], (count, width), a=a, c=c)
        offsets = bytes_of((count, width), (step, 1), 1)
        touched.append(({(source, start + o) for o in offsets}, {(sink, goal + o) for o in offsets}))
    program = build.build()
    tokens = channels(program)

    def reachable(pairs):
        """Return the instructions completed before each starts, by tokens and by the order within a queue."""
        before = [set() for _ in rows]
        for number in range(len(rows)):
            direct = {i for i, j in pairs if j == number}
            direct |= {i for i in range(number) if rows[i][0] == rows[number][0]}
            before[number] = direct.union(*(before[i] for i in direct))
        return before

    conflicts = {
        (i, j)
        for j in range(len(rows))
        for i in range(j)
        if rows[i][0] != rows[j][0]
        and (touched[i][1] & (touched[j][0] | touched[j][1]) or touched[i][0] & touched[j][1])
    }
    before = reachable(tokens)
    assert all(i in before[j] for i, j in conflicts)
    for token in tokens:
        without = reachable(tokens - {token})
        assert token[0] not in without[token[1]]
