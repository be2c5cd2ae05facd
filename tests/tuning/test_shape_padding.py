"""Padding and its estimate."""

from __future__ import annotations

import math
import random

import pytest
from shapes import CPU, PLAIN, VTA, config, conv, gemm

from tvm_tiling.errors import DatabaseError
from tvm_tiling.hardware import Hardware
from tvm_tiling.tuning.shapes.database import ShapeDatabase
from tvm_tiling.tuning.shapes.key import extents_of, key_of
from tvm_tiling.tuning.shapes.padding import Padding, Unit, padding_of


def estimated(cost, units, known, wanted):
    """a' = a * prod ceil(x'/h) / prod ceil(x/h)."""
    more = math.prod(-(-extent // unit) for extent, unit in zip(wanted, units, strict=True))
    return cost * more / math.prod(-(-extent // unit) for extent, unit in zip(known, units, strict=True))


def test_the_least_padding_to_a_unit():
    assert Unit(axis="m", unit=5).padded(13) == 15
    assert [Unit(axis="m", unit=5).padded(extent) for extent in (1, 5, 6, 10)] == [5, 5, 10, 10]


def test_the_formula_as_printed():
    """a' = a * prod ceil(x'/h) / prod ceil(x/h)."""
    assert estimated(10, (5,), (13,), (26,)) == 10 * 6 / 3
    assert estimated(7, (1, 16, 4), (3, 16, 5), (6, 17, 8)) == 7 * (6 * 2 * 2) / (3 * 1 * 2)
    assert estimated(7, (1, 1), (3, 5), (12, 10)) == 7 * 8


def test_the_database_estimates_by_the_formula(tmp_path):
    rng, units = random.Random(3), {"m": 1, "n": 16, "k": 16}
    with ShapeDatabase(tmp_path / "x.db") as db:
        for number in range(40):
            known = {axis: rng.randint(1, 60) for axis in units}
            db.add(gemm(**known, trans_a=number % 2 == 0), config(), 1 + number, target=VTA)
            wanted = {axis: extent * rng.randint(1, 3) for axis, extent in known.items()}
            hits = db.matches(gemm(**wanted, trans_a=number % 2 == 0), target=VTA, order="estimate", limit=100)
            for hit in hits:
                own = tuple(getattr(hit.entry.workload, axis) for axis in units)
                expected = estimated(hit.entry.cost, tuple(units.values()), own, tuple(wanted.values()))
                assert hit.estimate == pytest.approx(expected)
            assert all(math.isfinite(hit.estimate) for hit in hits)


def test_what_machines_pad():
    def units(workload, hardware):
        return [(unit.axis, unit.unit, unit.factor, unit.divisor) for unit in padding_of(workload, hardware).units]

    assert units(gemm(5, 5, 5), VTA) == [("n", 16, 1, 1), ("k", 16, 1, 1)]
    assert units(gemm(5, 5, 5), Hardware.load("dla3")) == [("m", 16, 1, 1), ("n", 16, 1, 1), ("k", 4, 1, 1)]
    assert units(gemm(5, 5, 5), PLAIN) == units(gemm(5, 5, 5), CPU) == []
    # Channels of a convolution count once per kernel position; points are one axis where it is tiled as a GEMM.
    assert units(conv(8, 4, 4), VTA) == [("ci", 16, 9, 1)]
    assert units(conv(8, 4, 4, groups=2), Hardware.load("dla3")) == [
        ("co", 16, 1, 2),
        ("ci", 4, 9, 2),
        ("points", 16, 1, 1),
    ]
    assert units(conv(8, 4, 4), Hardware.load("wfold16")) == []


def test_costs_of_convolutions_go_with_the_points_of_the_output():
    small, large = (conv(h, 16, 16, padding=(0, 0, 0, 0)) for h in (10, 20))
    padding, key = Padding(), key_of(small)
    sizes = [padding.size(key, workload, extents_of(workload)) for workload in (small, large)]
    assert sizes[1] / sizes[0] == (18 * 18) / (8 * 8)


def test_units_read_back_and_refused():
    key, padding = key_of(gemm(5, 5, 5)), padding_of(gemm(5, 5, 5), VTA)
    assert Padding.from_list(padding.to_list(), key) == padding
    for wrong in ({}, [1], [{"axis": "h", "unit": 2, "factor": 1, "divisor": 1}], [{"axis": "m", "unit": 2}]):
        with pytest.raises(DatabaseError, match="padding"):
            Padding.from_list(wrong, key)
    with pytest.raises(DatabaseError, match="numbers above 0"):
        Padding.from_list([{"axis": "m", "unit": 0, "factor": 1, "divisor": 1}], key)
