"""The cost model: it corrects the formulas by measurements, and its file is read or refused."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from tvm import s_tir, te

import tvm_tiling as tt
from benchmarks.cost_model import pairwise_accuracy, peak_at
from tvm_tiling.decide.configs.neighbourhood import neighbourhood
from tvm_tiling.tuning.learning.costs import LearnedCosts, group_of, sample_of
from tvm_tiling.tuning.learning.residual import LEAST, Residual
from tvm_tiling.tuning.learning.samples import Sample
from tvm_tiling.tuning.metaschedule.cost_model import UNKNOWN, ScheduleScores
from tvm_tiling.tuning.metaschedule.operator_space import space_of
from tvm_tiling.tuning.metaschedule.rules import sample
from tvm_tiling.tuning.metaschedule.seeds import places

CPU = tt.Hardware.load("zen4-server-8c")
SHAPES = [(384, 512, 640), (127, 257, 509), (1024, 256, 96), (64, 2048, 512), (640, 96, 1000)]


def spaces():
    return [neighbourhood(tt.GemmWorkload(m=m, k=k, n=n), CPU) for m, k, n in SHAPES]


def machine(space, config):
    """Costs of a machine on which deep blocks and wide tiles are slow, which the formulas do not know."""
    rows, vectors = config.choice("microkernel")
    depth = config.choice("depth")
    return space.predicted(config) * (1.0 + 0.2 * vectors / rows + 0.1 * math.log2(depth)) * 3e-3 * space.workload.m


def measured(space, count):
    group = group_of(space.workload, CPU)
    return [sample_of(space, config, machine(space, config), group) for config in list(space.configs(200))[::2][:count]]


def blocked(space):
    return [config for config in space.configs(200) if config.form != "stream"]


def test_what_was_learned_orders_configs_of_a_shape_that_was_not_seen():
    *known, unseen = spaces()
    model = LearnedCosts()
    for space in known:
        model.residual.learn(measured(space, 60))
    configs = blocked(unseen)
    costs = np.array([machine(unseen, config) for config in configs])
    formulas = np.array([unseen.predicted(config) for config in configs])
    learned = model.costs(unseen, configs)
    assert pairwise_accuracy(learned, costs) > max(0.87, pairwise_accuracy(formulas, costs))
    assert peak_at(1, learned, costs) >= 0.95
    assert model.rank(unseen, configs)[0] == configs[int(np.argmin(learned))]


def test_too_few_measurements_leave_the_formulas_as_they_are():
    space = spaces()[0]
    model = LearnedCosts()
    model.residual.learn(measured(space, LEAST - 1))
    configs = blocked(space)
    assert list(model.costs(space, configs)) == [space.predicted(config) for config in configs]


def test_a_workloads_own_scale_teaches_nothing():
    space = spaces()[0]
    samples = measured(space, 60)
    scaled = [Sample(s.group, s.features, s.predicted, 1000 * s.cost) for s in samples]
    configs = [space.features(config) for config in blocked(space)[:30]]
    one, other = Residual(), Residual()
    one.learn(samples)
    other.learn(scaled)
    np.testing.assert_allclose(one.corrections(configs), other.corrections(configs), rtol=1e-4)


def test_what_failed_or_makes_no_sense_is_not_learned():
    model = Residual()
    model.learn([Sample("g", {"x": 1.0}, 1.0, cost) for cost in (0.0, -1.0, math.inf, math.nan)])
    assert model.samples == []


def test_rounds_add_up():
    space = spaces()[0]
    model = LearnedCosts()
    for samples in (measured(space, 40)[:20], measured(space, 40)[20:]):
        model.residual.learn(samples)
    assert len(model.residual.samples) == 40


def test_a_file_brings_the_same_model_back(tmp_path):
    space = spaces()[0]
    model = LearnedCosts()
    model.residual.learn(measured(space, 60))
    model.residual.save(tmp_path / "model.json")
    again = LearnedCosts(Residual.load(tmp_path / "model.json"))
    configs = blocked(space)
    np.testing.assert_allclose(again.costs(space, configs), model.costs(space, configs), rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "was not written by TilingCostModel.save"),
        ("[1, 2]", "was not written by TilingCostModel.save"),
        (json.dumps({"format": "tvm-tiling-cost-model", "version": 99, "samples": []}), "format version 99"),
        (json.dumps({"format": "tvm-tiling-cost-model", "version": 1}), "samples are corrupted"),
        (json.dumps({"format": "tvm-tiling-cost-model", "version": 1, "samples": [["g", 3, 1, 1]]}), "are corrupted"),
    ],
)
def test_files_of_others_are_refused(tmp_path, text, part):
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(tt.DatabaseError, match=part):
        Residual.load(tmp_path / "model.json")


def test_missing_files_and_folders_are_named(tmp_path):
    with pytest.raises(tt.DatabaseError, match="nowhere"):
        Residual.load(tmp_path / "nowhere")
    with pytest.raises(tt.DatabaseError, match="missing"):
        Residual().save(tmp_path / "missing" / "model.json")


def test_metrics_by_hand():
    costs = np.array([1.0, 2.0, 4.0])
    assert pairwise_accuracy(np.array([1.0, 3.0, 2.0]), costs) == pytest.approx(2 / 3)
    assert peak_at(1, np.array([3.0, 1.0, 2.0]), costs) == 0.5
    assert peak_at(2, np.array([2.0, 1.0, 3.0]), costs) == 1.0
    assert math.isnan(pairwise_accuracy(np.array([1.0, 2.0]), np.array([1.0, 1.001])))


def test_pairs_that_do_not_count_are_left_out():
    costs, among = np.array([1.0, 2.0, 4.0]), np.ones((3, 3), bool)
    among[1, 2] = False
    assert pairwise_accuracy(np.array([1.0, 3.0, 2.0]), costs, among=among) == 1.0
    assert math.isnan(pairwise_accuracy(costs, costs, among=np.zeros((3, 3), bool)))


def test_a_config_that_is_much_slower_everywhere_changes_little():
    """The model learns an order: how slow the last one is does not affect the predictions of the others."""
    space = spaces()[0]
    samples = measured(space, 60)
    last = max(samples, key=lambda s: s.cost)
    one, other = Residual(), Residual()
    one.learn(samples)
    other.learn([Sample(s.group, s.features, s.predicted, s.cost * (50 if s is last else 1)) for s in samples])
    costs = np.array([s.cost for s in samples])
    predicted = np.array([s.predicted for s in samples])
    features = [s.features for s in samples]
    for model in (one, other):
        assert pairwise_accuracy(predicted * model.corrections(features), costs) > 0.95


def schedules(space, func, configs):
    made = []
    for config in configs:
        made.append(s_tir.Schedule(func))
        sample(made[-1], space, picks=places(space, config))
    return made


def test_schedules_are_scored_by_their_configs():
    a, b, r = te.placeholder((384, 512)), te.placeholder((512, 640)), te.reduce_axis((0, 512))
    c = te.compute((384, 640), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r))
    func = te.create_prim_func([a, b, c])
    space = space_of(func, CPU)
    configs = blocked(space)[:40]
    predicted = np.array([space.predicted(config) for config in configs])
    scores = ScheduleScores(CPU, LearnedCosts())
    made = schedules(space, func, configs)
    np.testing.assert_allclose(scores.scores(made), space.predicted(space.start) / predicted, rtol=1e-9)
    costs = np.array([machine(space, config) for config in configs])
    before = pairwise_accuracy(predicted, costs)
    scores.learn(made, [*costs[:-1], None])
    assert pairwise_accuracy(-scores.scores(made), costs) > before
    assert len(scores.learned.residual.samples) == 39
    assert list(scores.scores([s_tir.Schedule(func)])) == [UNKNOWN]


def test_the_model_of_metaschedule_keeps_what_it_learned(tmp_path):
    model = tt.TilingCostModel(CPU)
    model.save(str(tmp_path / "model.json"))
    tt.TilingCostModel(CPU).load(str(tmp_path / "model.json"))
    (tmp_path / "model.json").write_text("{}")
    with pytest.raises(tt.DatabaseError, match="was not written by"):
        tt.TilingCostModel(CPU).load(str(tmp_path / "model.json"))
