"""Trials recorded on a machine of the same kind guide a search from its first trial on, and no others do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tvm_tiling as tt
from benchmarks.cost_model import groups_of, pairwise_accuracy, peak_at
from tvm_tiling.decide.configs.neighbourhood import neighbourhood
from tvm_tiling.tuning.learning.costs import LearnedCosts, group_of, sample_of
from tvm_tiling.tuning.learning.process import Process
from tvm_tiling.tuning.learning.recorded import pretrained, recording
from tvm_tiling.tuning.learning.residual import Residual
from tvm_tiling.tuning.learning.samples import Table

ZEN4 = tt.Hardware.load("zen4-server-8c")


RECORDED = {"znver3": 256, "znver4": 512}  # with the bits of a vector


@pytest.fixture(scope="module")
def zen3():
    found = recording("znver3")
    assert found is not None
    return found


@pytest.fixture(scope="module", params=RECORDED)
def recorded(request):
    found = recording(request.param)
    assert found is not None
    return found


def with_cpu(hardware, **fields):
    return replace(hardware, cpu=replace(hardware.cpu, **fields))


def test_a_recording_says_where_and_when_it_was_made(recorded):
    assert recorded.hardware.cpu.vector_bits == RECORDED[recorded.hardware.cpu.mcpu]
    assert recorded.machine["cpu"]
    assert recorded.machine["date"]


def test_every_recorded_configuration_is_possible_today(recorded):
    """The formulas have changed since: if they refuse many of the configurations, trials must be recorded again."""
    known = pretrained(recorded.hardware).residual.recorded
    assert len(known) > 0.9 * sum(len(shape.trials) for shape in recorded.shapes)


def test_machines_of_other_kinds_begin_with_the_formulas(zen3):
    others = [
        tt.Hardware.load("icelake-server-2c"),
        with_cpu(ZEN4, vector_bits=256, features=()),
        tt.Hardware.load("vta"),
        with_cpu(zen3.hardware, mcpu="", features=()),
        with_cpu(zen3.hardware, mcpu="../znver3"),
        with_cpu(zen3.hardware, vector_bits=128),
    ]
    for hardware in others:
        assert pretrained(hardware).residual.recorded == ()
    assert recording("nothing") is None


def test_the_same_kind_with_other_cores_begins_with_it(zen3):
    several = with_cpu(zen3.hardware, cores=8, threads=8)
    assert pretrained(several).residual.recorded == pretrained(zen3.hardware).residual.recorded != ()
    assert pretrained(ZEN4).residual.recorded != pretrained(several).residual.recorded


def test_pretrained_models_order_unseen_shapes_better_than_formulas(recorded):
    """Train on two thirds of the shapes, evaluate on the others."""
    groups = groups_of(recorded)
    model = LearnedCosts(Residual(recorded=[s for place, g in enumerate(groups) if place % 3 for s in g.samples()]))
    unseen = groups[::3]
    scores = [model.costs(group.space, group.configs) for group in unseen]
    learned = np.nanmean([pairwise_accuracy(s, g.costs) for s, g in zip(scores, unseen, strict=True)])
    formulas = np.nanmean([pairwise_accuracy(g.predicted, g.costs) for g in unseen])
    assert learned > formulas + 0.02
    peaks = [peak_at(1, s, g.costs) for s, g in zip(scores, unseen, strict=True)]
    assert np.mean(peaks) > np.mean([peak_at(1, g.predicted, g.costs) for g in unseen]) - 0.005


def test_other_types_are_not_led_by_what_was_recorded(zen3):
    model = pretrained(zen3.hardware)
    for dtype, led in (("float32", True), ("int8", False)):
        space = neighbourhood(tt.GemmWorkload(m=96, n=128, k=64, dtype=dtype), zen3.hardware)
        configs = list(space.configs(30))
        assert (list(model.costs(space, configs)) != [space.predicted(config) for config in configs]) == led


def test_what_was_recorded_is_not_saved(zen3, tmp_path):
    model = tt.TilingCostModel(zen3.hardware)
    residual = model.schedules.learned.residual
    assert residual.ready()
    assert residual.samples == []
    model.save(str(tmp_path / "model.json"))
    model.load(str(tmp_path / "model.json"))
    assert model.schedules.learned.residual.samples == []
    assert model.schedules.learned.residual.recorded == residual.recorded


def test_own_trials_of_a_shape_count_beside_what_was_recorded(zen3):
    """Own costs contradict the recorded order: the model adapts."""
    space = neighbourhood(tt.GemmWorkload(m=300, n=200, k=150), zen3.hardware)
    configs = list(space.configs(60))
    model = pretrained(zen3.hardware)
    before = model.costs(space, configs)
    costs = np.exp(-3 * np.log(before / before.min())) * before.min()
    group = group_of(space.workload, zen3.hardware)
    pairs = list(zip(configs, costs, strict=True))
    model.residual.learn([sample_of(space, config, float(cost), group) for config, cost in pairs[::2]])
    after = pairwise_accuracy(model.costs(space, configs)[1::2], costs[1::2])
    assert after > pairwise_accuracy(before[1::2], costs[1::2]) + 0.2


def test_constants_of_workloads_say_nothing(zen3):
    group = groups_of(zen3)[0]
    samples = group.samples()
    shifted = [replace(sample, group="other", cost=1e3 * sample.cost) for sample in samples[12:]]
    rows = [sample.features for sample in samples]
    one, other = (
        Table([*samples[:12], *rest]) for rest in ([replace(s, group="other") for s in samples[12:]], shifted)
    )
    np.testing.assert_allclose(
        Process(one).corrections(one.rows(rows)), Process(other).corrections(other.rows(rows)), atol=1e-6
    )
