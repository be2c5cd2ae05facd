"""Turns of the column engine's threads, planned (page 04)."""

from __future__ import annotations

import pytest

import tvm_tiling as tt
from tvm_tiling.decide.rnn.step import StepCycles
from tvm_tiling.decide.rnn.thread_plan import SequenceTask, thread_plan

STEP = StepCycles(cx=16, ch=16, latency=24)


def plan(lengths, threads, step=STEP, arrivals=None):
    arrivals = arrivals or [0] * len(lengths)
    tasks = [SequenceTask(step, steps, at) for steps, at in zip(lengths, arrivals, strict=True)]
    return thread_plan(tasks, threads)


@pytest.mark.parametrize("latency", [10, 24, 48])
def test_worked_example_of_tasks_of_2_3_and_2_steps(latency):
    """One after the other 7 steps and 4 stalls; threaded no stall where lat - Cx <= Cx + Ch."""
    step = StepCycles(cx=16, ch=16, latency=latency)
    alone, threaded = plan((2, 3, 2), 1, step), plan((2, 3, 2), 3, step)
    assert len(alone.turns) == 7 and alone.stalled == (4 if latency > 16 else 0)
    assert threaded.turns == (0, 1, 2, 0, 1, 2, 1) and threaded.stalled == 0
    assert threaded.cycles == 7 * 32 + latency


def test_a_drain_longer_than_the_other_threads_steps_stalls():
    assert plan((2, 3, 2), 3, StepCycles(cx=16, ch=16, latency=200)).stalled > 0


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("latency", [5, 24, 100])
def test_equal_threads_take_the_rounds_of_the_formula(threads, latency):
    step = StepCycles(cx=16, ch=16, latency=latency)
    assert plan((12,) * threads, threads, step).cycles == step.sequences(12, threads)


def test_a_task_starts_when_it_has_arrived_and_a_thread_is_free():
    found = plan((3, 3, 3), 2, arrivals=(1000, 10, 1000))
    assert found.turns[:3] == (1, 1, 1) and found.starts[0] == 10
    assert found.starts[3] == 1000
    busy = plan((2, 2, 2), 2)
    first_of_third = busy.starts[busy.turns.index(2)]
    assert first_of_third >= 2 * 32 + 32 + 24


def test_tasks_that_are_none_are_refused():
    with pytest.raises(tt.HardwareError, match="steps = 0, accepted: a whole number of at least 1"):
        SequenceTask(STEP, 0)
    with pytest.raises(tt.HardwareError, match="arrival = -1"):
        SequenceTask(STEP, 1, -1)
    with pytest.raises(tt.HardwareError, match="no tasks"):
        thread_plan([], 1)
    with pytest.raises(tt.HardwareError, match="threads = 0"):
        plan((1,), 0)
