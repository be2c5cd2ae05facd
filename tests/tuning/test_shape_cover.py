"""Which shapes a budget is spent on, before anything is measured."""

from __future__ import annotations

import random

import pytest

import tvm_tiling as tt
from tvm_tiling.errors import DatabaseError
from tvm_tiling.hardware.description import Hardware
from tvm_tiling.tuning.shapes.cover import cover
from tvm_tiling.tuning.shapes.random_shapes import RandomShapes
from tvm_tiling.workload import ConvWorkload, GemmWorkload

VTA = Hardware.load("vta")


def product(m, n, k, dtype="int8"):
    return GemmWorkload(m=m, n=n, k=k, dtype=dtype)


def conv(side, ci, co, taps=3):
    border = (taps // 2,) * 4
    return ConvWorkload(n=1, h=side, w=side, ci=ci, co=co, kh=taps, kw=taps, padding=border, dtype="int8")


def test_a_shape_serves_its_multiples_further_away_than_its_neighbours():
    multiples = [product(96, 64, 64), product(960, 64, 64), product(96, 640, 64)]
    found = cover(multiples, 1)
    assert (found.shapes, found.wanted, found.served, found.multiples) == ((multiples[0],), 3, 3, 3)
    found = cover([product(96, 64, 64), product(953, 64, 64), product(96, 641, 64)], 1)
    assert (found.wanted, found.served, found.multiples) == (3, 1, 1)


def test_common_divisors_are_candidates():
    wanted = [product(1700, 100, 100), product(100, 1700, 100), product(100, 100, 1700)]
    found = cover(wanted, 1)
    assert found.shapes == (product(100, 100, 100),) and found.multiples == found.served == 3


def test_all_are_covered_where_the_budget_is_as_many_and_none_is_spent_in_vain():
    wanted = [product(64, 64, 64), product(4096, 8, 8), conv(28, 64, 64), conv(28, 64, 64, taps=1)]
    found = cover([*wanted, *wanted], 10)
    assert (found.wanted, found.served) == (4, 4) and len(found.shapes) <= 4
    assert set(found.shapes) <= set(wanted)


def test_each_further_shape_serves_more_and_operators_and_types_are_distinguished():
    rng = random.Random(0)
    wanted = [product(*(rng.randint(1, 4096) for _ in range(3))) for _ in range(60)]
    wanted += [product(*(rng.randint(1, 4096) for _ in range(3)), "float32") for _ in range(60)]
    served = [cover(wanted, budget).served for budget in (1, 2, 4, 8, 16)]
    assert served == sorted(served) and served[0] < served[-1] >= 100
    assert len({shape.dtype for shape in cover(wanted, 2).shapes}) == 2
    assert cover(wanted, 4) == cover(wanted, 4)


@pytest.mark.parametrize("budget", (0, -1, 2.0, "4", True))
def test_a_budget_is_a_number_of_shapes(budget):
    with pytest.raises(DatabaseError, match=r"budget = .*expected a whole number"):
        cover([product(1, 1, 1)], budget)


def test_a_plan_is_made_of_random_shapes_too_and_of_none_is_empty():
    drawn = RandomShapes(op="gemm", count=50, ranges={axis: (1, 512) for axis in "mnk"}, multiple=1)
    found = tt.ShapeDatabase.plan(5, target=VTA, shapes=[conv(14, 64, 64)], random=drawn)
    assert len(found.shapes) == 5 and found.wanted == 51
    assert {shape.dtype for shape in found.shapes} == {"int8"}
    empty = tt.ShapeDatabase.plan(5, target=VTA)
    assert (empty.shapes, empty.wanted, empty.served, empty.multiples) == ((), 0, 0, 0)
