"""Reduction to boundary shapes, on cost functions whose proportional range is known."""

from __future__ import annotations

import itertools
import math

import pytest

from tvm_tiling.errors import DatabaseError
from tvm_tiling.tuning.shapes.boundary import Reduction, boundary_shapes, reduced, smallest_prime_factor


def found(initial, cost, **settings):
    return dict(boundary_shapes(initial, lambda shape: cost(*shape), Reduction(**settings)))


def proportional(*shape):
    return 3.0 * math.prod(shape)


def at_least(*least):
    """Proportional until an axis is below its minimum, from where cost is constant."""
    return lambda *shape: float(math.prod(max(extent, low) for extent, low in zip(shape, least, strict=True)))


def test_an_axis_is_halved_and_odd_ones_go_by_their_smallest_prime_factor():
    assert [reduced(extent, 2) for extent in (1, 2, 12, 15, 49, 7, 35)] == [None, 1, 6, 5, 7, 1, 7]
    assert [reduced(extent, 3) for extent in (1, 9, 12, 10, 25)] == [None, 3, 4, 5, 5]
    assert [smallest_prime_factor(number) for number in (2, 9, 35, 97)] == [2, 3, 5, 97]


def test_the_last_shape_that_held_is_the_boundary():
    """Below 8 cost is constant: 64, 32, 16 and 8 hold, 4 does not."""
    assert found((64,), at_least(8)) == {(8,): 8.0}


def test_an_axis_that_reaches_one_still_holding_ends_there():
    assert found((8,), proportional) == {(1,): 3.0}
    assert found((12,), proportional) == {(1,): 3.0}  # 12, 6, 3, 1


def test_axes_of_size_one_are_skipped():
    assert found((1, 1, 8), at_least(1, 1, 2)) == {(1, 1, 2): 2.0}
    assert found((1, 1), proportional) == {}


def test_no_axis_that_holds_at_the_first_step_gives_no_boundary_shape():
    assert found((8, 8), at_least(8, 8)) == {}


def test_each_axis_by_itself_comes_first():
    shapes = list(found((64, 32, 16), at_least(4, 4, 4)))
    assert shapes[:3] == [(4, 32, 16), (64, 4, 16), (64, 32, 4)]


def test_mixed_axes_reach_the_smallest_shape_of_all():
    shapes = found((64, 32, 16), at_least(4, 4, 4), limit=100)
    assert (4, 4, 4) in shapes and (4, 4, 16) in shapes and (64, 4, 4) in shapes
    assert len(shapes) > 3  # more than one for each axis


def test_an_axis_after_the_first_step_along_another():
    assert (32, 4) in found((64, 32), at_least(4, 4), limit=100)


def test_a_shape_is_given_once_and_measured_once():
    asked = []

    def measure(shape):
        asked.append(shape)
        return at_least(4, 2)(*shape)

    shapes = [shape for shape, _ in boundary_shapes((64, 32), measure, Reduction(limit=100))]
    assert len(set(shapes)) == len(shapes) and len(set(asked)) == len(asked)
    assert (64, 32) not in shapes


def test_the_limit_on_their_number():
    for limit in (0, 1, 3, 5):
        assert len(found((64, 32, 16), at_least(4, 4, 4), limit=limit)) == limit


def test_the_tolerance_between_two_steps():
    def cost(x):
        return x + 4.0  # a pipeline of 4 to fill

    # 1024 -> 512: 1028 / 516 is 1.992; 128 -> 64: 132 / 68 is 1.941, off by 2.9 percent; 64 -> 32: 5.6 percent.
    assert list(found((1024,), cost, tolerance=0.01)) == [(512,)]
    # For 16 the initial shape's ratio is 1028 / 20 to 64, off by 19.7 percent; for 8 by 33.
    assert list(found((1024,), cost, tolerance=0.2)) == [(16,)]


def test_proportionality_is_checked_against_the_initial_shape_too():
    """Each step is off by 4 percent, within the tolerance of 5; two of them are off by 8."""

    def cost(x):
        return x * 1.04 ** (10 - math.log2(x))

    assert list(found((1024,), cost, tolerance=0.05)) == [(512,)]
    assert list(found((1024,), cost, tolerance=0.09)) == [(256,)]


def test_a_shape_that_cannot_be_measured_ends_its_axis():
    shapes = found((16, 16), lambda m, n: None if n < 4 or m == 1 else float(m * n), limit=100)
    assert (16, 4) in shapes and (2, 16) in shapes and (2, 4) in shapes
    assert all(n >= 4 and m > 1 for m, n in shapes)


def test_every_boundary_shape_is_proportional_to_the_initial_one():
    def cost(m, n, k):
        return m * n * k / 7 + 50.0 * m + 11.0

    initial = (96, 90, 64)
    shapes = found(initial, cost, limit=200, tolerance=0.1)
    assert shapes
    for shape, own in shapes.items():
        assert abs(cost(*initial) / own / (math.prod(initial) / math.prod(shape)) - 1) <= 0.1
        assert own == cost(*shape)


def test_one_boundary_at_least_for_each_axis_that_holds():
    for least in itertools.product((2, 64), repeat=3):
        shapes = found((64, 64, 64), at_least(*least), limit=100)
        holding = [axis for axis in range(3) if least[axis] == 2]
        singles = [tuple(2 if place == axis else 64 for place in range(3)) for axis in holding]
        assert set(singles) <= set(shapes) and bool(shapes) == bool(holding)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"factor": 1}, "factor = 1; expected a whole number of at least 2"),
        ({"factor": 2.5}, "factor = 2.5"),
        ({"tolerance": 0}, "tolerance = 0; expected a number above 0"),
        ({"tolerance": True}, "tolerance = True"),
        ({"limit": -1}, "limit = -1"),
    ],
)
def test_impossible_settings(setting, words):
    with pytest.raises(DatabaseError, match=words):
        Reduction(**setting)
