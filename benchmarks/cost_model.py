"""Accuracy of predicted costs for unmeasured shapes: python -m benchmarks.cost_model

Evaluates the recorded trials that the package ships for a microarchitecture (--recorded), without measuring, or those
of --trials, which `python -m benchmarks.cost_trials` records. Uses k-fold cross-validation: models are trained on the
shapes of all folds but one, matrix multiplications and convolutions together, and rank the configurations of the shapes
in the remaining fold. No model is evaluated on a shape that it was trained on. Figures are means over all shapes of an
operator. Compared are

- the formulas, with which a search starts if the microarchitecture is unknown,
- the pre-trained model, with which it starts otherwise,
- the pre-trained model with OWN trials of the shape itself, as after the first batch of a search, evaluated on the
  shape's other configurations,
- MetaSchedule's XGBModel, trained on the same trials as the pre-trained model,
- as the upper bound, the first pass of measurements, evaluated against the other passes.

Pairwise accuracy is defined as in TenSet: the share of pairs of configurations of a workload that are ordered
correctly, averaged over workloads. Only pairs whose costs differ by at least two percent count, because closer ones
cannot be ordered reliably. The accuracy is also given for those pairs that every pass orders the same way.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import tvm_tiling as tt
from tvm_tiling.decide.configs.neighbourhood import neighbourhood
from tvm_tiling.errors import TilingError
from tvm_tiling.hardware import Hardware
from tvm_tiling.tuning.learning.costs import LearnedCosts, group_of, sample_of
from tvm_tiling.tuning.learning.recorded import RecordedShape, Recording, recording
from tvm_tiling.tuning.learning.samples import Sample
from tvm_tiling.workload import ConvWorkload, GemmWorkload

from .cost_trials import read
from .peers.tvm_operator import tir
from .suite import SuiteError

RECORDED = "znver3"
FOLDS = 3  # number of cross-validation folds
APART = 0.02  # relative; pairs whose costs differ by less are not ordered
OWN = 8  # trials of the shape itself: the first batch of a search


class Group:
    """The measured configurations of one workload that are still valid."""

    def __init__(self, recorded: RecordedShape, hardware: Hardware) -> None:
        self.workload, self.prepacked, self.hardware = recorded.workload, recorded.prepacked, hardware
        self.space = neighbourhood(recorded.workload, hardware, prepacked=recorded.prepacked)
        trials = [(config, seconds) for config, seconds in recorded.trials if self._possible(config)]
        self.configs = [config for config, _ in trials]
        self.predicted = np.array([self.space.predicted(config) for config in self.configs])
        passes = np.array([seconds for _, seconds in trials]).T
        level = np.median(passes, axis=1, keepdims=True)  # the machine's speed in each pass
        self.passes = passes / level * np.median(level)
        self.costs = np.median(self.passes, axis=0)

    def _possible(self, config: Any) -> bool:
        try:
            self.space.predicted(config)
        except (TilingError, KeyError):  # KeyError: the workload no longer has this algorithm
            return False
        return True

    def samples(self, count: int | None = None) -> list[Sample]:
        """Train on the first `count` configurations, leaving out none."""
        name = group_of(self.workload, self.hardware, prepacked=self.prepacked)
        pairs = list(zip(self.configs, self.costs, strict=True))[:count]
        return [sample_of(self.space, config, float(cost), name) for config, cost in pairs]


Scores: TypeAlias = Callable[[Sequence[Group], Sequence[Group]], list[np.ndarray]]
"""scores(known, unseen): a score of each configuration of the unseen workloads, smaller is better, given the known
ones."""


class Theirs:
    """MetaSchedule's XGBModel on the lowered loop nests of the configurations of some workloads."""

    def __init__(self, groups: Sequence[Group]) -> None:
        from tvm.s_tir import meta_schedule as ms

        self.candidates = {id(group): _candidates(group) for group in groups}
        self.results = {id(group): [ms.runner.RunnerResult([cost], None) for cost in group.costs] for group in groups}

    def scores(self, known: Sequence[Group], unseen: Sequence[Group]) -> list[np.ndarray]:
        """Score the configurations of each unseen workload; smaller is better."""
        from tvm.s_tir import meta_schedule as ms

        # One thread, because threads wait for each other when cores are busy. A kernel's score is the sum over its
        # stores, about a hundred in our kernels: with the default learning rate of 0.2 the sum overshoots in every
        # step, and the model does not converge.
        config = ms.cost_model.xgb_model.XGBConfig(nthread=1, eta=0.01)
        model = ms.cost_model.XGBModel(num_warmup_samples=0, config=config)
        # By default XGBModel retrains, up to 10,000 rounds, whenever its trials have grown by a fifth. Here it trains
        # once, when it has received the last workload.
        model.last_train_size = math.inf
        for number, group in enumerate(known, 1):
            model.adaptive_training = number < len(known)
            context = ms.TuneContext(mod=tir(group.workload), target=tt.llvm_target())
            model.update(context, self.candidates[id(group)], self.results[id(group)])
        context = ms.TuneContext(target=tt.llvm_target())
        return [-model.predict(context, self.candidates[id(group)]) for group in unseen]


def _candidates(group: Group) -> list[Any]:
    import tvm
    from tvm import s_tir
    from tvm.s_tir import meta_schedule as ms

    func, weights = tir(group.workload), "packed" if group.prepacked else "plain"
    arguments = ms.arg_info.ArgInfo.from_prim_func(func)
    found = []
    for config in group.configs:
        scheduled = tt.tiling_schedule(func, group.hardware, config=config, weights=weights).mod
        schedule = s_tir.Schedule(tvm.IRModule({"main": scheduled["main"]}))
        found.append(ms.MeasureCandidate(schedule, arguments))
    return found


def ours(known: Sequence[Group], unseen: Sequence[Group]) -> list[np.ndarray]:
    """Score the configurations of each workload, smaller is better, by a cost model trained on the others."""
    model = _taught(known)
    return [model.costs(group.space, group.configs) for group in unseen]


def ours_with_own(known: Sequence[Group], unseen: Sequence[Group]) -> list[np.ndarray]:
    """The same with OWN trials of each unseen workload known in addition."""
    model = _taught(known)
    for group in unseen:
        model.residual.learn(group.samples(OWN))
    return [model.costs(group.space, group.configs) for group in unseen]


def _taught(known: Iterable[Group]) -> LearnedCosts:
    model = LearnedCosts()
    for group in known:
        model.residual.learn(group.samples())
    return model


def held_out(groups: Sequence[Group], scores: Scores, count: int = FOLDS) -> list[np.ndarray]:
    """Score each workload by a model trained on the workloads of all other folds."""
    met: Counter[type] = Counter()
    folds = []
    for group in groups:
        folds.append(met[type(group.workload)] % count)
        met[type(group.workload)] += 1
    found: dict[int, np.ndarray] = {}
    for fold in range(count):
        unseen = [group for group, own in zip(groups, folds, strict=True) if own == fold]
        known = [group for group, own in zip(groups, folds, strict=True) if own != fold]
        found.update(zip(map(id, unseen), scores(known, unseen), strict=True))
    return [found[id(group)] for group in groups]


def in_order(passes: np.ndarray) -> np.ndarray:
    """Return a matrix over pairs of configurations that tells whether every pass, a row of `passes`, agrees on which is
    faster."""
    quicker = passes[:, :, None] < passes[:, None, :]
    return np.equal(np.all(quicker, axis=0), np.any(quicker, axis=0))


def figures(scores: Sequence[np.ndarray], groups: Sequence[Group], begin: int = 0) -> dict[str, float]:
    """Average over the workloads the quality of scores, smaller is better, of their configurations from `begin` on."""
    pairs = [
        (score[begin:], group.costs[begin:], group.passes[:, begin:])
        for score, group in zip(scores, groups, strict=True)
    ]
    pairs = [(score, costs, passes) for score, costs, passes in pairs if len(costs) > 1]
    every = [pairwise_accuracy(score, costs, APART) for score, costs, _ in pairs]
    sure = [pairwise_accuracy(score, costs, APART, among=in_order(passes)) for score, costs, passes in pairs]
    return {
        "peak@1": float(np.mean([peak_at(1, score, costs) for score, costs, _ in pairs])),
        "peak@5": float(np.mean([peak_at(5, score, costs) for score, costs, _ in pairs])),
        "pairs": float(np.nanmean(every)),
        "sure pairs": float(np.nanmean(sure)),
    }


def ceiling(groups: Sequence[Group]) -> dict[str, float]:
    """Return the figures of the first pass, evaluated against the other passes."""
    found = []
    for group in groups:
        first, others = group.passes[0], np.median(group.passes[1:], axis=0)
        found.append((peak_at(1, first, others), peak_at(5, first, others), pairwise_accuracy(first, others, APART)))
    return dict(zip(("peak@1", "peak@5", "pairs"), map(float, np.nanmean(found, axis=0)), strict=True))


def evaluate(groups: Sequence[Group], with_theirs: bool, folds: int = FOLDS) -> dict[str, dict[str, dict[str, float]]]:
    """Return the figures of each model for each operator."""
    rows: dict[str, tuple[list[np.ndarray], int]] = {
        "formulas": ([group.predicted for group in groups], 0),
        "pre-trained": (held_out(groups, ours, folds), 0),
        f"formulas, without the first {OWN}": ([group.predicted for group in groups], OWN),
        f"with {OWN} own trials": (held_out(groups, ours_with_own, folds), OWN),
    }
    if with_theirs:
        rows["XGBModel of MetaSchedule"] = held_out(groups, Theirs(groups).scores, folds), 0
    found: dict[str, dict[str, dict[str, float]]] = {}
    for kind in (GemmWorkload, ConvWorkload):
        own = [place for place, group in enumerate(groups) if isinstance(group.workload, kind)]
        if own:
            of_kind = [groups[place] for place in own]
            by_model = {
                name: figures([given[place] for place in own], of_kind, begin) for name, (given, begin) in rows.items()
            }
            found[kind.__name__] = {**by_model, "repeated measurement": ceiling(of_kind)}
    return found


def pairwise_accuracy(
    scores: np.ndarray, costs: np.ndarray, apart: float = 0.02, among: np.ndarray | None = None
) -> float:
    """Share of the pairs of configurations, whose costs differ by at least `apart`, that `scores`, smaller is better,
    order correctly; nan without such a pair. `among`: a matrix over pairs that selects those which count."""
    first, second = np.triu_indices(len(costs), 1)
    differ = np.abs(np.log(costs[first] / costs[second])) >= apart
    if among is not None:
        differ &= among[first, second]
    first, second = first[differ], second[differ]
    if not len(first):
        return float("nan")
    return float(np.mean((scores[first] < scores[second]) == (costs[first] < costs[second])))


def peak_at(count: int, scores: np.ndarray, costs: np.ndarray) -> float:
    """Best speed among the `count` configurations with the smallest scores, relative to the best of all."""
    return float(costs.min() / costs[np.argsort(scores, kind="stable")[:count]].min())


def printed(found: dict[str, dict[str, dict[str, float]]], groups: Sequence[Group]) -> Iterable[str]:
    """Format the figures as a table for each operator."""
    for kind, models in found.items():
        count = sum(type(group.workload).__name__ == kind for group in groups)
        yield f"{f'{kind}, {count} shapes':<32}" + "".join(f"{name:>12}" for name in models["formulas"])
        for name, values in models.items():
            yield f"  {name:<30}" + "".join(f"{value:12.3f}" for value in values.values())


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures. Returns 1 after an error that the user can fix."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cost_model", description=__doc__)
    parser.add_argument(
        "--recorded", default=RECORDED, help="microarchitecture whose shipped trials to use; default: %(default)s"
    )
    parser.add_argument("--trials", type=Path, help="use this file of benchmarks.cost_trials instead")
    parser.add_argument("--folds", type=int, default=FOLDS, help="cross-validation folds; default: %(default)s")
    parser.add_argument(
        "--without-theirs", action="store_true", help="leave out MetaSchedule's model, which takes minutes"
    )
    chosen = parser.parse_args(arguments)
    try:
        trials = recording(chosen.recorded) if chosen.trials is None else Recording.from_dict(read(chosen.trials))
        if trials is None:
            raise SuiteError(
                f"--recorded {chosen.recorded}: the package has no trials of this microarchitecture; pass --trials"
            )
    except TilingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    groups = groups_of(trials)
    print(f"recorded on {trials.hardware.name}, {trials.machine['cpu']}, {trials.machine['date']}")
    for line in printed(evaluate(groups, not chosen.without_theirs, chosen.folds), groups):
        print(line)
    return 0


def groups_of(trials: Recording) -> list[Group]:
    """Return the shapes of a file that have configurations to compare."""
    return [Group(shape, trials.hardware) for shape in trials.shapes if len(shape.trials) > 1]


if __name__ == "__main__":
    sys.exit(main())
