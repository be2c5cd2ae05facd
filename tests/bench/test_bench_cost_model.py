"""The figures of the cost model: every shape is judged by who never saw it, and pairs within noise are told apart."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from benchmarks.cost_model import FOLDS, ceiling, evaluate, figures, held_out, in_order
from tvm_tiling.workload import ConvWorkload, GemmWorkload


@dataclasses.dataclass
class Told:
    """A workload's passes, without cuts."""

    workload: GemmWorkload | ConvWorkload
    passes: np.ndarray

    @property
    def costs(self):
        return np.median(self.passes, axis=0)

    @property
    def predicted(self):
        return 1.0 / self.costs  # the wrong way round


def product(m, passes=((1.0, 2.0, 4.0),) * 5):
    return Told(GemmWorkload(m=m, k=64, n=64), np.array(passes))


def convolution(size):
    return Told(ConvWorkload(n=1, h=size, w=size, ci=16, co=16, kh=1, kw=1), np.array(((1.0, 2.0, 4.0),) * 5))


def test_every_shape_is_judged_once_by_a_model_that_never_saw_it():
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
    assert found["pairwise accuracy"] == pytest.approx(2 / 3)
    assert found["of pairs that all passes order alike"] == 1.0
    assert found["peak@1"] == found["peak@5"] == 1.0
    steady = product(9)
    turned = figures([noisy.predicted, -steady.costs], [noisy, steady])
    assert turned["peak@1"] == pytest.approx((1 / 2 + 1 / 4) / 2)
    assert turned["peak@5"] == 1.0


def test_the_ceiling_is_what_passes_say_of_each_other():
    steady = product(8)
    assert ceiling([steady]) == {"peak@1": 1.0, "peak@5": 1.0, "pairwise accuracy": 1.0}
    flips = product(8, ((1.0, 2.0), (2.0, 1.0), (1.0, 2.0), (2.0, 1.0), (1.0, 2.0)))
    assert ceiling([flips])["pairwise accuracy"] == 0.0


def test_models_are_compared_by_operator(monkeypatch):
    groups = [make(8 + turn) for turn in range(3) for make in (product, convolution)]
    monkeypatch.setattr("benchmarks.cost_model.ours", lambda known, unseen: [g.costs for g in unseen])
    found = evaluate(groups, with_theirs=False)
    assert set(found) == {"GemmWorkload", "ConvWorkload"}
    for models in found.values():
        assert models["formulas"]["pairwise accuracy"] == 0.0
        assert models["TilingCostModel"]["of pairs that all passes order alike"] == 1.0
