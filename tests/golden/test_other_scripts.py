"""TIR of element-wise operators, reductions and pooling: no copies, no scalar calls, few threads."""

from __future__ import annotations

import re

import pytest
from tvm import te, tirx, topi

import tvm_tiling as tt
from tvm_tiling.decide.vector.elementwise import Work, decide_elementwise, shared_axis
from tvm_tiling.decide.vector.reduction import ACROSS_VECTORS, strip_vectors
from tvm_tiling.schedules.fallback import schedule_fallback

ICE_LAKE = tt.Hardware.load("icelake-server-2c")


def script(*tensors) -> str:
    return schedule_fallback(te.create_prim_func(list(tensors)), "main", ICE_LAKE).script()


def allocations(text: str) -> list[int]:
    return [int(size) for size in re.findall(r"T\.alloc_buffer\(\((?:T\.int64\()?(\d+)\)?,\)", text)]


def test_neighbouring_axes_are_one_loop():
    x = te.placeholder((1, 64, 14, 14), name="x")
    text = script(x, topi.nn.relu(x))
    assert "T.grid(1, 784)" in text and "T.vectorized(16)" in text


def test_small_work_starts_no_threads():
    small, large = te.placeholder((1000,), name="x"), te.placeholder((4_000_000,), name="x")
    assert "T.parallel" not in script(small, topi.nn.relu(small))
    assert "T.parallel(2)" in script(large, topi.nn.relu(large))


@pytest.mark.parametrize("axis", [1, 3])
@pytest.mark.parametrize("count", [3, 33, 100])
def test_each_of_many_concatenated_tensors_is_copied_by_a_loop_of_its_own(count, axis):
    tensors = [te.placeholder((1, 16, 4, 16), name=f"x{i}") for i in range(count)]
    text = script(*tensors, topi.nn.relu(topi.concatenate(tensors, axis)))
    assert "if_then_else" not in text and "Select" not in text
    assert text.count("T.vectorized(16)") == count


def test_short_pieces_are_not_loops_of_their_own():
    tensors = [te.placeholder((1, 16, 4, 1), name=f"x{i}") for i in range(33)]
    assert script(*tensors, topi.concatenate(tensors, 3)).count("for ") < 33


def test_a_softmax_keeps_one_row_only():
    x = te.placeholder((640, 100), name="x")
    text = script(x, topi.nn.softmax(x))
    assert max(allocations(text)) == 100
    assert "T.exp" not in text


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_pooling_copies_no_borders(layout):
    shape = (1, 32, 56, 56) if layout == "NCHW" else (1, 56, 56, 32)
    x = te.placeholder(shape, name="x")
    text = script(x, topi.nn.pool2d(x, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "max", layout=layout))
    assert max(allocations(text)) <= 64
    assert "if_then_else" not in text


def test_a_pad_asks_nothing_per_element():
    x = te.placeholder((1, 8, 31, 33), name="x")
    text = script(x, topi.nn.pad(x, (0, 0, 1, 1)))
    assert "if_then_else" not in text and "Select" not in text


def test_a_transpose_goes_through_registers():
    x = te.placeholder((128, 256), name="x")
    assert "T.Shuffle" in script(x, topi.transpose(x))
    small = te.placeholder((12, 256), name="x")
    assert "T.Shuffle" not in script(small, topi.transpose(small))


def test_a_short_axis_is_woven():
    x = te.placeholder((3, 256), name="x")
    text = script(x, topi.transpose(x))
    assert ", [0, 16, 32, 1, 17, 33, 2, 18, 34, 3, 19, 35, 4, 20, 36, 5])" in text
    assert text.count("T.Shuffle") == 3


def test_each_strand_of_a_woven_axis_may_come_from_its_own_tensor():
    x, y = (te.placeholder((4, 32), name=name) for name in "xy")
    text = script(x, y, topi.transpose(topi.reshape(topi.concatenate([x, y], 1), (4, 2, 32)), (0, 2, 1)))
    assert text.count("T.Shuffle") == 2 and "if_then_else" not in text


def test_functions_that_are_not_supported_keep_their_meaning():
    x = te.placeholder((1, 4, 7, 7), name="x")
    func = te.create_prim_func([x, topi.nn.adaptive_pool(x, (3, 3), "avg")])
    scheduled = schedule_fallback(func, "pool", ICE_LAKE)
    assert isinstance(scheduled, tirx.PrimFunc) and str(scheduled.attrs["global_symbol"]) == "pool"


def test_a_machine_without_a_cpu_is_refused():
    x = te.placeholder((8,), name="x")
    with pytest.raises(tt.HardwareError, match="has no CPU"):
        schedule_fallback(te.create_prim_func([x, topi.nn.relu(x)]), "main", tt.Hardware.load("neartile"))


# ---- decisions -------------------------------------------------------------------------------------------------------


def test_threads_where_they_save_more_than_they_cost():
    one = decide_elementwise(Work(bytes=100_000, points=12_500, word=4), ICE_LAKE.cpu)
    two = decide_elementwise(Work(bytes=2_000_000, points=250_000, word=4), ICE_LAKE.cpu)
    costly = decide_elementwise(Work(bytes=100_000, points=12_500, word=4, functions=2), ICE_LAKE.cpu)
    assert (one.tasks, two.tasks, costly.tasks) == (1, 2, 2)
    assert one.lanes == 16 and "start" in one.why("tasks")
    assert decide_elementwise(Work(bytes=100, points=50, word=1), ICE_LAKE.cpu).lanes == 64


def test_the_outermost_axis_with_enough_shares_is_shared():
    assert shared_axis((1, 64, 3), 2) == 1
    assert shared_axis((2, 64, 3), 2) == 0
    assert shared_axis((3, 1, 7), 2) == 2
    assert shared_axis((5,), 8) == 0


def test_strips_are_narrow_where_tasks_would_wait():
    assert strip_vectors(1024, 16, 64, 2) == ACROSS_VECTORS
    assert strip_vectors(256, 16, 1, 4) == 1
    assert strip_vectors(7, 16, 64, 2) == 1
