"""Figures of the cost model: cross-validation over shapes, and the noise limit of pairs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import tvm_tiling as tt
from benchmarks.cost_model import FOLDS, ceiling, evaluate, figures, groups_of, held_out, in_order, main, printed
from benchmarks.cost_trials import read, shapes, write
from benchmarks.suite import SuiteError
from tvm_tiling.decide.configs.neighbourhood import neighbourhood
from tvm_tiling.tuning.learning.recorded import Recording
from tvm_tiling.workload import ConvWorkload, GemmWorkload

CPU = tt.Hardware.load("zen4-server-8c")


@dataclasses.dataclass
class Told:
    """The passes of a workload without configurations."""

    workload: GemmWorkload | ConvWorkload
    passes: np.ndarray

    @property
    def costs(self):
        return np.median(self.passes, axis=0)

    @property
    def predicted(self):
        return 1.0 / self.costs  # in reverse order


def product(m, passes=((1.0, 2.0, 4.0),) * 5):
    return Told(GemmWorkload(m=m, k=64, n=64), np.array(passes))


def convolution(size):
    return Told(ConvWorkload(n=1, h=size, w=size, ci=16, co=16, kh=1, kw=1), np.array(((1.0, 2.0, 4.0),) * 5))


def test_every_shape_is_evaluated_once_by_a_model_that_never_saw_it():
    groups = [make(8 + turn) for turn in range(7) for make in (product, convolution)]
    seen = []

    def scores(known, unseen):
        assert not {id(g) for g in known} & {id(g) for g in unseen}
        assert len(known) + len(unseen) == len(groups)
        for kind in (GemmWorkload, ConvWorkload):
            count = sum(isinstance(g.workload, kind) for g in unseen)
            assert 7 // FOLDS <= count <= 7 // FOLDS + 1
        seen.extend(unseen)
        return [g.costs * groups.index(g) for g in unseen]

    found = held_out(groups, scores)
    assert len(seen) == len(groups)
    assert all(
        np.array_equal(score, g.costs * place) for place, (score, g) in enumerate(zip(found, groups, strict=True))
    )


def test_pairs_count_as_sure_where_every_pass_agrees():
    passes = np.array([[1.0, 2.0, 1.5], [1.0, 2.0, 2.5], [1.0, 2.0, 1.6]])
    assert in_order(passes).tolist() == [[True, True, True], [True, True, False], [True, False, True]]


def test_figures_by_hand():
    noisy = product(8, ((1.0, 2.0, 1.5), (1.0, 2.0, 2.5), (1.0, 2.0, 1.6)))
    found = figures([np.array([1.0, 2.0, 3.0])], [noisy])
    assert found["pairs"] == pytest.approx(2 / 3)
    assert found["sure pairs"] == 1.0
    assert found["peak@1"] == found["peak@5"] == 1.0
    steady = product(9)
    turned = figures([noisy.predicted, -steady.costs], [noisy, steady])
    assert turned["peak@1"] == pytest.approx((1 / 2 + 1 / 4) / 2)
    assert turned["peak@5"] == 1.0


def test_the_ceiling_is_what_passes_say_of_each_other():
    steady = product(8)
    assert ceiling([steady]) == {"peak@1": 1.0, "peak@5": 1.0, "pairs": 1.0}
    flips = product(8, ((1.0, 2.0), (2.0, 1.0), (2.0, 1.0)))
    assert ceiling([flips])["pairs"] == 0.0


def test_own_trials_are_not_evaluated():
    twice = product(8, ((1.0, 2.0, 4.0, 3.0),) * 3)
    scores = [np.array([9.0, 8.0, 1.0, 2.0])]
    assert figures(scores, [twice])["peak@1"] == 0.25
    assert figures(scores, [twice], begin=2)["peak@1"] == pytest.approx(3 / 4)
    assert figures(scores, [twice], begin=2)["pairs"] == 0.0


def test_models_are_compared_by_operator(monkeypatch):
    groups = [make(8 + turn) for turn in range(3) for make in (product, convolution)]
    for name in ("ours", "ours_with_own"):
        monkeypatch.setattr(f"benchmarks.cost_model.{name}", lambda known, unseen: [g.costs for g in unseen])
    monkeypatch.setattr("benchmarks.cost_model.OWN", 1)
    found = evaluate(groups, with_theirs=False)
    assert set(found) == {"GemmWorkload", "ConvWorkload"}
    for models in found.values():
        assert models["formulas"]["pairs"] == 0.0
        assert models["pre-trained"]["sure pairs"] == models["with 1 own trials"]["pairs"] == 1.0
    lines = list(printed(found, groups))
    assert len(lines) == 2 * (1 + 5)
    assert lines[0].split()[:3] == ["GemmWorkload,", "3", "shapes"]


def test_trials_are_written_and_read_again(tmp_path):
    record = recorded_trials()
    for name in ("trials.json", "trials.json.gz"):
        write(tmp_path / name, CPU, record)
        found = Recording.from_dict(read(tmp_path / name))
        assert found.hardware == CPU
        assert [trial.cost for trial in found.trials] == [3.0, 5.0]
        (group,) = groups_of(found)
        assert group.costs.tolist() == [3.0, 5.0]
        assert len(group.samples(1)) == 1


def recorded_trials():
    workload = GemmWorkload(m=96, k=64, n=80)
    first, second = list(neighbourhood(workload, CPU).configs(2))
    trials = [[first.to_dict(), [3.0, 3.0, 3.0]], [second.to_dict(), [5.0, 5.0, 5.0]]]
    return [{"workload": workload.to_dict(), "prepacked": False, "trials": trials}]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "tvm-tiling-cost-trials", "version": 3}'])
def test_other_files_are_not_trials(tmp_path, text):
    (tmp_path / "trials.json").write_text(text)
    with pytest.raises(SuiteError, match=r"trials\.json"):
        read(tmp_path / "trials.json")
    assert main(["--trials", str(tmp_path / "trials.json")]) == 1


def test_shapes_are_gemms_and_convolutions_of_some_size():
    found = list(shapes(50))
    assert found == list(shapes(50))
    assert sum(isinstance(workload, GemmWorkload) for workload, _ in found) == 30
    assert all(2e6 <= workload.macs <= 6e8 for workload, _ in found)
    assert {prepacked for _, prepacked in found} == {True, False}
