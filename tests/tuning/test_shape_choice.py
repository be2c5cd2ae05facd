"""A match is a candidate: it is used if it is estimated to be cheaper than the analytical decision."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest
from shapes import CPU, VTA, conv, gemm
from simulated_shapes import cycles

from tvm_tiling.decide.configs.config import rule_for
from tvm_tiling.decide.configs.neighbourhood import neighbourhood
from tvm_tiling.hardware import Hardware
from tvm_tiling.tuning.shapes.candidates import candidates
from tvm_tiling.tuning.shapes.choice import choice_of
from tvm_tiling.tuning.shapes.database import ShapeDatabase
from tvm_tiling.tuning.shapes.entries import Entry


def decided(workload, hardware):
    return candidates(workload, hardware, limit=1).configs[0]


def worse(workload, hardware):
    """Return a configuration predicted to cost at least one and a half times as much as the decision."""
    space = neighbourhood(workload, hardware)
    least = 1.5 * space.predicted(space.start)
    return next(config for config in space.configs() if space.predicted(config) > least)


@pytest.mark.parametrize("hardware", ["vta", "neartile", pytest.param("dla3", marks=pytest.mark.slow)])
def test_no_match_makes_a_gemm_slower_than_without_the_database(hardware):
    """Entries of random small shapes, multiples of them by up to 12 along each axis, all simulated."""
    machine, rng = Hardware.load(hardware), random.Random(7)
    shapes = [gemm(*(rng.choice((8, 16, 24, 48, 64)) for _ in range(3))) for _ in range(6)]
    hits = 0
    with ShapeDatabase("sqlite://") as db:
        db.generate(target=machine, shapes=shapes, limit=2, candidates=3, threshold=None)
        for _ in range(12):
            known = rng.choice(shapes)
            wanted = gemm(*(extent * rng.randint(1, 12) for extent in (known.m, known.n, known.k)))
            hit = db.match(wanted, target=machine)
            hits += hit is not None
            config = db.config_for(wanted, machine)
            assert (config is not None) == (hit.chosen == "entry")
            if config is not None:
                assert cycles(wanted, config, machine) <= 1.02 * cycles(wanted, decided(wanted, machine), machine)
    assert hits == 12


def test_what_was_measured_at_the_same_shape_is_believed():
    """A cheaper configuration than the decision is used, however expensive the formulas predict it to be, and a more
    expensive one is not."""
    shape = gemm(512, 512, 512, dtype="float32")
    other = worse(shape, CPU)
    for cost, taken in ((0.8, True), (1.2, False)):
        entry = Entry(workload=shape, config=other, cost=cost, decided_cost=1.0)
        choice = choice_of(entry, shape, CPU)
        assert choice.taken == taken and choice.config == other
        assert (choice.estimate, choice.decided) == (pytest.approx(cost), pytest.approx(1.0))
        assert "the entry's" in choice.why and "the analytical" in choice.why and "% more" in choice.why


def test_both_are_corrected_by_what_they_cost_at_the_entrys_shape():
    shape, larger = gemm(256, 256, 256, dtype="float32"), gemm(768, 512, 512, dtype="float32")
    other, entry_cost, decided_cost = worse(shape, CPU), 0.7, 1.0
    choice = choice_of(Entry(workload=shape, config=other, cost=entry_cost, decided_cost=decided_cost), larger, CPU)

    def predicted(config, workload):
        return rule_for(config.form, workload, CPU).cost(config)

    grown = predicted(choice.config, larger) / predicted(other, shape)
    own = predicted(decided(larger, CPU), larger) / predicted(decided(shape, CPU), shape)
    assert choice.estimate == pytest.approx(entry_cost * grown)
    assert choice.decided == pytest.approx(decided_cost * own)
    margin = 1.03 + 0.02 * math.log2(12 / 2)  # the shape is twelve times as large
    gain = min(decided_cost * own / (entry_cost * grown), decided_cost / entry_cost)
    assert choice.taken == (gain >= margin)


def test_a_small_gain_does_not_carry_over_to_another_shape():
    """Without a gain the decision is used, because it was made for the shape, and an entry's blocks for a smaller
    one."""
    shape, larger = gemm(256, 128, 88, dtype="float32"), gemm(256, 1024, 88, dtype="float32")
    far = gemm(64 * 256, 1024, 88, dtype="float32")  # 512 times as large: 8 doublings beyond 2
    there = decided(shape, CPU)
    assert there != decided(larger, CPU)
    for wanted, gain, taken in (
        (larger, 1.0, False), (larger, 1.02, False), (larger, 1.08, True), (far, 1.17, False), (far, 1.21, True),
    ):  # fmt: skip
        known = Entry(workload=shape, config=there, cost=1.0, decided_cost=1.0)
        even = choice_of(known, wanted, CPU)
        times = min(1.0, even.decided / even.estimate)  # the predicted remainder of a gain
        choice = choice_of(dataclasses.replace(known, cost=times / gain), wanted, CPU)
        assert choice.taken == taken
        if gain == 1.02:
            assert choice.why.endswith("it is estimated to cost 2.0% more, less than the 7% that carry over")


def test_a_gain_carries_over_only_where_the_same_caches_hold_the_blocks():
    """Winograd's blocks are as deep as there are input channels: with eight times as many they leave their cache
    level."""
    shape = conv(8, 88, 232, dtype="float32")
    space = neighbourhood(shape, CPU)
    other = next(config for config in space.configs() if config.form == "winograd" and config != space.start)
    wide, deep = conv(8, 88, 464, dtype="float32"), conv(8, 704, 232, dtype="float32")
    for wanted, taken in ((wide, True), (deep, False)):
        even = choice_of(Entry(workload=shape, config=other, cost=1.0, decided_cost=1.0), wanted, CPU)
        cost = min(1.0, even.decided / even.estimate) / 1.3
        choice = choice_of(Entry(workload=shape, config=other, cost=cost, decided_cost=1.0), wanted, CPU)
        assert choice.config != decided(wanted, CPU) and choice.decided >= 1.29 * choice.estimate
        assert choice.taken == taken and ("held by other cache levels" in choice.why) == (not taken)


def test_a_gain_is_not_believed_to_be_more_than_was_measured():
    """The formulas may predict a lower cost for an entry's configuration than for their decision, which considers more
    than the cost."""
    shape, larger = gemm(256, 256, 256, dtype="float32"), gemm(512, 256, 256, dtype="float32")
    entry = Entry(workload=shape, config=worse(shape, CPU), cost=1.0, decided_cost=1.0)
    grown = choice_of(entry, larger, CPU)
    cheap = Entry(workload=shape, config=entry.config, cost=1.0, decided_cost=1.0 + 1e-3)
    assert not choice_of(cheap, larger, CPU).taken
    assert grown.decided is not None and not grown.taken


def test_an_entry_without_the_decisions_cost_serves_where_it_does_not_grow_faster():
    """An initial entry was at least as cheap as the decision; a boundary entry is only as good as the formulas
    predict."""
    shape, larger = gemm(256, 256, 256, dtype="float32"), gemm(1024, 1024, 1024, dtype="float32")
    other = worse(shape, CPU)
    assert choice_of(Entry(workload=shape, config=other, cost=1.0), shape, CPU).taken
    assert not choice_of(Entry(workload=shape, config=other, cost=1.0, kind="boundary"), shape, CPU).taken
    here = choice_of(Entry(workload=shape, config=decided(larger, CPU), cost=1.0, kind="boundary"), larger, CPU)
    assert here.taken and here.why == "the analytical configuration is the same"


def test_what_the_machine_cannot_do_is_said():
    small = Hardware.neartile(buf_a=4096, buf_b=4096, acc_max=0, bw_a=16, bw_b=16, macs_per_cycle=256, name="no sums")
    entry = Entry(workload=gemm(16, 16, 64), config=decided(gemm(16, 16, 64), small), cost=1)
    choice = choice_of(entry, gemm(16, 16, 65536), small)
    assert choice.config is None and not choice.taken and "does not support the entry's configuration" in choice.why


def test_any_multiple_of_the_shape_itself_or_of_its_padded_extents_is_covered():
    """VTA pads columns to 16: an entry of 24 is 2 units, and matches 48 (3 units) and 72 (5), as well as 120 (8)."""
    with ShapeDatabase("sqlite://") as db:
        db.add(gemm(16, 24, 16), decided(gemm(16, 24, 16), VTA), 100, target=VTA)
        served = [n for n in range(1, 200) if db.match(gemm(16, n, 16), target=VTA)]
        multiples = {n for n in range(1, 200) if n % 24 == 0}
        padded = {n for n in range(1, 200) if -(-n // 16) % 2 == 0}
        assert served == sorted(multiples | padded)
        assert db.match(gemm(32, 72, 48), target=VTA).step == 3


def test_a_generation_keeps_what_decisions_cost():
    with ShapeDatabase("sqlite://") as db:
        db.generate(target=VTA, shapes=[gemm(192, 256, 128), conv(28, 32, 64)], limit=3, candidates=3, threshold=None)
        entries = [entry for _, entry in db.entries()]
        assert {entry.kind for entry in entries} == {"initial", "boundary"}
        for entry in entries:
            assert entry.decided_cost == cycles(entry.workload, decided(entry.workload, VTA), VTA)
            assert entry.kind == "boundary" or entry.cost <= entry.decided_cost
        assert db.check().ok
