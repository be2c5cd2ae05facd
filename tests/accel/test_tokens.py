"""Tokens: givers and takers, legal orders, and deadlocks reported by the waiting queues."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from accel_programs import product
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import programs

from tvm_tiling.accel.checks.tokens import NEVER, channels, done_before, legal_order
from tvm_tiling.accel.functional.run import run
from tvm_tiling.accel.program.isa import INSTRUCTION, QUEUES
from tvm_tiling.errors import SimulationError


def nops(rows):
    """Return an INSTRUCTION array of NOPs from (queue, {queue: tokens taken}, {queue: tokens given})."""
    array = np.zeros(len(rows), INSTRUCTION)
    array["extent"] = 1
    for row, (queue, wait, signal) in zip(array, rows, strict=True):
        row["queue"] = queue
        for name, tokens in (("wait", wait), ("signal", signal)):
            for other, count in tokens.items():
                row[name][other] = count
    return array


def with_instructions(program, instructions):
    return dataclasses.replace(program, instructions=instructions)


def test_the_nth_token_put_is_the_nth_taken():
    found = channels(
        nops(
            [
                (0, {}, {1: 2}),  # 0: tokens 1 and 2
                (0, {}, {}),
                (0, {}, {1: 1}),  # 2: token 3
                (1, {0: 1}, {}),  # 3 takes the first
                (1, {0: 2}, {}),  # 4 takes the second and third
                (1, {0: 1}, {}),  # 5 takes a fourth that is never put
            ]
        )
    )
    assert found.needs[:, 0].tolist() == [-1, -1, -1, 0, 2, NEVER]
    assert (found.needs[:, 1:] == -1).all()
    assert found.place.tolist() == [0, 1, 2, 0, 1, 2]


def test_what_is_over_follows_chains_of_tokens():
    rows = nops([(0, {}, {}), (0, {}, {1: 1}), (1, {0: 1}, {2: 1}), (1, {}, {}), (2, {}, {}), (2, {1: 1}, {})])
    before = done_before(channels(rows), np.arange(len(rows)))
    assert before[5].tolist() == [2, 1, 1] + [0] * (QUEUES - 3)
    assert before[3].tolist() == [2, 1, 0] + [0] * (QUEUES - 3)
    assert before[4].tolist() == [0] * QUEUES


def over_before(rows):
    """The same by definition: all pairs ordered by queue or token, transitively closed."""
    n = len(rows)
    reach = np.zeros((n, n), dtype=bool)
    for queue in range(QUEUES):
        own = np.flatnonzero(rows["queue"] == queue)
        reach[own[:-1], own[1:]] = True
        for sink in range(QUEUES):
            puts = [i for i in own for _ in range(rows["signal"][i, sink])]
            takes = [i for i in np.flatnonzero(rows["queue"] == sink) for _ in range(rows["wait"][i, queue])]
            for put, take in zip(puts, takes, strict=False):
                reach[put, take] = True
    for middle in range(n):
        reach |= reach[:, [middle]] & reach[[middle], :]
    return np.array([[int(reach[rows["queue"] == q, i].sum()) for q in range(QUEUES)] for i in range(n)])


@given(programs())
@settings(max_examples=25, deadline=None)
def test_what_is_over_is_as_defined(case):
    program, _ = case
    rows = program.instructions
    assert (done_before(channels(rows), legal_order(program)) == over_before(rows)).all()


@given(programs(), st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_any_legal_order_gives_the_same_result(case, seed):
    program, inputs = case
    order = legal_order(program, seed)
    queue = program.instructions["queue"]
    assert sorted(order.tolist()) == list(range(len(program)))
    for number in range(QUEUES):
        assert (np.diff(order[queue[order] == number]) > 0).all()
    np.testing.assert_array_equal(run(program, inputs)["y"], run(program, inputs, order=seed)["y"])


def test_random_orders_do_differ():
    program = product()
    orders = {tuple(legal_order(program, seed).tolist()) for seed in range(10)}
    assert len(orders) > 1


def test_program_order_is_kept_where_it_is_legal():
    program = product()
    assert legal_order(program).tolist() == list(range(len(program)))


def test_instructions_written_before_those_they_wait_for_run_after_them():
    # The same queues, all instructions of the last queue first.
    program = product()
    order = np.argsort(-program.instructions["queue"].astype(int), kind="stable")
    turned = with_instructions(program, program.instructions[order])
    values = np.arange(32 * 24).astype(np.int8).reshape(32, 24)
    legal = legal_order(turned)
    needs = channels(turned.instructions).needs
    when = np.argsort(legal)
    for number, row in enumerate(needs):
        assert all(when[need] < when[number] for need in row if need >= 0)
    np.testing.assert_array_equal(run(turned, {"a": values})["c"], run(program, {"a": values})["c"])


def test_a_surplus_wait_is_a_deadlock_that_names_the_queues():
    program = product(m=32, slots=2, block=8)
    rows = program.instructions.copy()
    load_a, matrix = program.queue_number("load_a"), program.queue_number("matrix")
    gemm = int(np.flatnonzero(rows["queue"] == matrix)[-1])
    rows["wait"][gemm, load_a] += 1
    with pytest.raises(SimulationError) as caught:
        run(with_instructions(program, rows), {"a": np.zeros((32, 24), np.int8)})
    message = str(caught.value)
    assert message.startswith("deadlock: queue 'matrix' waits at instruction")
    assert (
        f"instruction {gemm} (GEMM, queue 'matrix', of 'product') for token 5 of queue 'load_a', which puts 4 of them"
        in (message)
    )
    assert re.search(r"queue 'vector' waits at instruction \d+ \(ALU RELU.* for a token of instruction", message)
    assert "queue 'load_a'," not in message.split("queue 'vector'")[0].replace("of queue 'load_a', which", "")


def test_queues_that_wait_for_each_other_are_a_deadlock():
    program = product()
    rows = nops([(0, {1: 1}, {1: 1}), (1, {0: 1}, {0: 1})])
    with pytest.raises(
        SimulationError, match=r"queue 'load_a' waits at instruction 0 .* queue 'load_b' waits at"
    ) as caught:
        legal_order(with_instructions(program, rows))
    assert "a token of instruction 1" in str(caught.value)


def test_tokens_that_nobody_takes_do_no_harm():
    program = product()
    rows = program.instructions.copy()
    rows["signal"][-1, 0] = 3
    np.testing.assert_array_equal(legal_order(with_instructions(program, rows)), np.arange(len(rows)))
