"""In-order queues by hand: start times in a decision's evaluation of instructions."""

from __future__ import annotations

import math

import pytest

from tvm_tiling.decide.gemm.queue_order import QueueOrder, Steps


def steps(*rows):
    """Instructions from (queue, busy, latency, port, instructions waited for)."""
    found = Steps()
    for row in rows:
        found.add(*row)
    return found


def cycles(program, issue=0, token=0, ports=None, **limit):
    return QueueOrder(program, issue, token, ports).cycles("matrix", **limit)


CHAIN = (("load", 10, 5, True, []), ("matrix", 8, 2, False, [0]), ("store", 4, 5, True, [1]))


@pytest.mark.parametrize("ports", [None, 1])
def test_a_chain_is_its_sum_with_tokens_and_issue(ports):
    assert cycles(steps(*CHAIN), ports=ports) == 10 + 5 + 8 + 2 + 4 + 5
    assert cycles(steps(*CHAIN), token=3, ports=ports) == 34 + 2 * 3
    assert cycles(steps(*CHAIN), issue=2, ports=ports) == 34 + 2


def test_a_queue_overlaps_latency_but_not_busy_cycles():
    loads = steps(("load", 10, 50, True, []), ("load", 10, 50, True, []), ("load", 10, 0, True, []))
    assert cycles(loads, token=9) == 30 + 40  # the third's result comes after the second's


@pytest.mark.parametrize("ports", [None, 1])
def test_a_queue_waits_for_its_own_results_but_for_no_token_of_its_own(ports):
    loads = steps(("load", 10, 50, True, []), ("load", 10, 50, True, [0]), ("load", 10, 0, True, []))
    assert cycles(loads, token=9, ports=ports) == 10 + 50 + 10 + 50


@pytest.mark.parametrize("ports", [None, 1])
def test_loads_come_in_the_order_of_their_use(ports):
    """The second load is used first; an unused one stays in place."""
    program = steps(
        ("load", 10, 0, True, []),
        ("load", 10, 0, True, []),
        ("load", 10, 0, True, []),
        ("matrix", 3, 0, False, [1]),
        ("matrix", 3, 0, False, [0, 1]),
    )
    assert cycles(program, ports=ports) == 30  # of the loads
    used = program.by_use([0, 1])
    assert used.queue == ["load", "load", "matrix", "load", "matrix"] and used.waits == [[], [], [1], [], [3, 1]]
    assert cycles(used, ports=ports) == 33


def test_loads_of_an_outer_level_come_in_the_order_of_those_that_use_them():
    program = steps(
        ("outer", 10, 0, True, []),
        ("outer", 10, 0, True, []),
        ("inner", 1, 0, False, [0]),
        ("inner", 1, 0, False, [1]),
        ("matrix", 1, 0, False, [3]),
        ("matrix", 1, 0, False, [2]),
    )
    used = program.by_use([2, 3], [0, 1])
    assert used.queue == ["outer", "inner", "matrix", "outer", "inner", "matrix"]
    assert (cycles(program), cycles(used)) == (22 + 1, 20 + 2)


def test_one_port_serves_whoever_asked_first():
    # Both loads are ready at once, the earlier one starts first; the store is ready at 12 and before the third load.
    program = (
        ("load_a", 10, 0, True, []),
        ("load_b", 10, 0, True, []),
        ("matrix", 2, 0, False, [0]),
        ("store", 10, 0, True, [2]),
        ("load_b", 10, 0, True, []),
    )
    order = QueueOrder(steps(*program), 0, 0, 1)
    assert order.cycles("matrix") == 40
    assert order.done == [10, 20, 12, 30, 40]
    assert cycles(steps(*program)) == 22
    assert cycles(steps(*program), ports=2) == 22


def test_what_cannot_be_done_before_the_limit_is_infinite():
    assert cycles(steps(*CHAIN), limit=24) == 34  # multiplications could be done by 23
    assert cycles(steps(*CHAIN), limit=23) == math.inf
