"""The proportional range upwards, for known costs."""

from __future__ import annotations

import pytest
from shapes import VTA, gemm

from tvm_tiling.tuning.measuring.measurer import Measured
from tvm_tiling.tuning.shapes.boundary import proportional_axes
from tvm_tiling.tuning.shapes.database import ShapeDatabase


def doubled(fixed):
    """For a cost of `fixed` plus 1: the deviation of twice the size from twice the cost."""
    return (fixed + 2) / (2 * (fixed + 1)) - 1


@pytest.mark.parametrize(("fixed", "holds"), [(0.0, True), (0.04, True), (0.049, True), (0.052, False), (0.1, False)])
def test_what_does_not_grow_is_all_of_the_error_in_the_end(fixed, holds):
    """Each doubling of 1.052 is off by at most 2.5 percent, and a large multiple costs 5.2 percent less."""
    assert proportional_axes({"m": doubled(fixed)}, 0.05) == ({"m"} if holds else set())


def test_axes_add_and_the_steadiest_come_first():
    growth = {"m": -0.015, "n": -0.005, "k": -0.001}
    assert proportional_axes(growth, 0.05) == {"m", "n", "k"}
    assert proportional_axes(growth, 0.04) == {"n", "k"}
    assert proportional_axes(growth, 0.01) == {"k"}
    assert proportional_axes({}, 0.01) == set()


def test_growth_beyond_proportion_counts_as_much():
    assert proportional_axes({"m": 0.02}, 0.05) == {"m"}
    assert proportional_axes({"m": 0.03}, 0.05) == set()


def test_how_far_a_boundary_shape_is_from_its_initial_one_counts_too():
    growth = {"m": -0.01}
    assert proportional_axes(growth, 0.05, 0.02) == {"m"}
    assert proportional_axes(growth, 0.05, 0.04) == set()  # both are overheads that a larger shape does not have
    assert proportional_axes(growth, 0.05, -0.04) == {"m"}


def test_a_cost_that_all_but_stays_is_in_no_proportion():
    assert proportional_axes({"m": -0.5}, 0.5) == set()


@pytest.mark.parametrize(("fixed", "axes"), [(1000, ("n", "k", "m")), (9000, ("n",)), (20000, ())])
def test_generated_entries_say_along_which_axes_they_may_grow(fixed, axes):
    """2**18 cycles and a fixed overhead: axes are counted as if each had its own share of it."""

    class Fixed:
        def measure(self, jobs):
            for job in jobs:
                yield Measured(job=job, cost=fixed + job.workload.macs / 8)

        def close(self):
            pass

    with ShapeDatabase("sqlite://") as db:
        shape = gemm(128, 128, 128)
        db.generate(target=VTA, shapes=[shape], limit=6, candidates=1, threshold=None, measurer=Fixed())
        assert db.match(shape, target=VTA).entry.proportional == axes
        for _, entry in db.entries():
            if entry.proportional:  # however large the axes become, the fixed overhead is small relative to the rest
                assert entry.cost / (entry.workload.macs / 8) - 1 <= 0.05
