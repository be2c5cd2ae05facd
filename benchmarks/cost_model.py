"""How well costs are predicted for shapes that were not measured: python -m benchmarks.cost_model --json trials.json

Measures cuts of many shapes (minutes; the file is gone on with) in pairs with the decision's own configuration, several
times with the others between, for on a shared machine a core may be slow for a second or two. Then every third of the
shapes is held out in turn: models learn from the others, products and convolutions together, and rank the
configurations of these. So every shape is judged once, by a model that never saw it, and the figures are means over all
shapes of an operator. Compared are the formulas, TilingCostModel, MetaSchedule's XGBModel on the same trials, and, as
the ceiling, every other measurement, judged by those between.

Many cuts differ by less than what one and the same configuration differs from pass to pass: no model can put such pairs
in order. So pairwise accuracy is given twice: of all pairs that differ by two percent, and of those among them that
every pass puts in the same order.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import tvm_tiling as tt
from tvm_tiling.decide.configs.config import Config
from tvm_tiling.decide.configs.neighbourhood import Space, neighbourhood
from tvm_tiling.errors import TilingError
from tvm_tiling.measure import machine_record
from tvm_tiling.tuning.learning.costs import LearnedCosts, group_of, sample_of
from tvm_tiling.tuning.measuring.measurer import Job
from tvm_tiling.tuning.shapes.key import workload_from_dict
from tvm_tiling.workload import ConvWorkload, GemmWorkload

from .operands import Workload
from .peers.tvm_operator import this_machine, tir
from .result import earlier_entries, write_whole
from .side_by_side import SideBySide

FORMAT = "tvm-tiling-cost-trials"
VERSION = 3
SHAPES = 40  # of each operator
CONFIGS = 24  # of each shape
PASSES = 6
ROUNDS = 20  # of each pass
PASS_SECONDS = 1.5
FOLDS = 3  # of the shapes; each is held out once
APART = 0.02  # of a cost: pairs that are nearer have no order
# Configurations from here on in the order of prediction are never tried by a search, and not asked about here.
NEAREST = 160
LEAST_MACS = 2e6  # what takes a few microseconds is mostly the start of threads


def shapes(count: int = SHAPES, seed: int = 7) -> Iterator[Workload]:
    """Random products and random convolutions, of a few milliseconds at most, in turn."""
    kinds = []
    for make in (_product, _convolution):
        found = map(make, itertools.repeat(random.Random(seed)))
        kinds.append(workload for workload in found if workload.macs >= LEAST_MACS)
    return itertools.chain.from_iterable(itertools.islice(zip(*kinds, strict=True), count))


def _product(rng: random.Random) -> GemmWorkload:
    m, k, n = (int(2 ** rng.uniform(5, 10.5)) for _ in range(3))
    return GemmWorkload(m=m, k=k, n=n)


def _convolution(rng: random.Random) -> ConvWorkload:
    kernel = rng.choice([1, 3, 3, 3, 5])
    size = rng.choice([7, 14, 17, 28, 35, 56])
    ci, co = (int(2 ** rng.uniform(4, 8.5)) // 8 * 8 for _ in range(2))
    stride = rng.choice([1, 1, 2]) if kernel > 1 else 1
    border = kernel // 2
    return ConvWorkload(
        n=1, h=size, w=size, ci=ci, co=co, kh=kernel, kw=kernel, stride=(stride, stride), padding=(border,) * 4
    )


def configs_to_measure(space: Space, seed: int) -> list[Config]:
    """Some of the nearest cuts, the decision's own among them."""
    near = [config for config in space.configs(NEAREST) if config != space.start]
    return [space.start, *random.Random(seed).sample(near, min(CONFIGS - 1, len(near)))]


def measure(workload: Workload, seed: int, bench: SideBySide) -> dict[str, Any]:
    """Some cuts of one workload, each with its seconds in every pass; what failed is left out."""
    configs = configs_to_measure(neighbourhood(workload, this_machine()), seed)
    jobs = [Job(workload=workload, config=config, hardware=this_machine()) for config in configs]
    found = bench.measure(jobs, PASSES, ROUNDS, PASS_SECONDS)
    return {
        "workload": workload.to_dict(),
        "trials": [[job.config.to_dict(), seconds] for job, seconds in found.items()],
    }


class Group:
    """The measured configurations of one workload; of an older file those that are still possible."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.workload = workload_from_dict(record["workload"])
        self.space = neighbourhood(self.workload, this_machine())
        found = ((Config.from_dict(config), seconds) for config, seconds in record["trials"])
        trials = [(config, predicted, seconds) for config, seconds in found if (predicted := self._predicted(config))]
        self.configs = [config for config, _, _ in trials]
        self.predicted = np.array([predicted for _, predicted, _ in trials])
        passes = np.array([seconds for _, _, seconds in trials]).T
        level = np.median(passes, axis=1, keepdims=True)  # the machine's speed during a pass
        self.passes = passes / level * np.median(level)
        self.costs = np.median(self.passes, axis=0)

    def _predicted(self, config: Config) -> float | None:
        """None where the configuration is not possible any more."""
        try:
            return self.space.predicted(config)
        except (TilingError, KeyError):  # KeyError: no form of this workload any more
            return None


Scores: TypeAlias = Callable[[Sequence[Group], Sequence[Group]], list[np.ndarray]]
"""scores(known, unseen): of the configurations of each unseen workload, smaller is better, by what is known of the
others."""


class Theirs:
    """MetaSchedule's XGBModel for the nests that the configurations of some workloads are lowered to."""

    def __init__(self, groups: Sequence[Group]) -> None:
        from tvm.s_tir import meta_schedule as ms

        self.candidates = {id(group): _candidates(group) for group in groups}
        self.results = {id(group): [ms.runner.RunnerResult([cost], None) for cost in group.costs] for group in groups}

    def scores(self, known: Sequence[Group], unseen: Sequence[Group]) -> list[np.ndarray]:
        """Of the configurations of each unseen workload, smaller is better."""
        from tvm.s_tir import meta_schedule as ms

        # One thread: threads wait for each other where cores are taken. A kernel's score is the sum over its stores, of
        # which ours have a hundred: with its own step, 0.2, the sum goes too far every time, and it learns nothing.
        config = ms.cost_model.xgb_model.XGBConfig(nthread=1, eta=0.01)
        model = ms.cost_model.XGBModel(num_warmup_samples=0, config=config)
        # By itself it trains anew, up to 10,000 rounds, whenever its trials have grown by a fifth. Here once: when it
        # has been told of the last workload.
        model.last_train_size = math.inf
        for number, group in enumerate(known, 1):
            model.adaptive_training = number < len(known)
            context = ms.TuneContext(mod=tir(group.workload), target=tt.llvm_target())
            model.update(context, self.candidates[id(group)], self.results[id(group)])
        context = ms.TuneContext(target=tt.llvm_target())
        return [-model.predict(context, self.candidates[id(group)]) for group in unseen]


def _candidates(group: Group) -> list[Any]:
    from tvm import s_tir
    from tvm.s_tir import meta_schedule as ms

    func = tir(group.workload)
    arguments = ms.arg_info.ArgInfo.from_prim_func(func)
    return [
        ms.MeasureCandidate(s_tir.Schedule(tt.tiling_schedule(func, config=config).mod), arguments)
        for config in group.configs
    ]


def ours(known: Sequence[Group], unseen: Sequence[Group]) -> list[np.ndarray]:
    """The scores, smaller is better, of TilingCostModel for the configurations of each unseen workload."""
    model = LearnedCosts()
    for group in known:
        pairs = zip(group.configs, group.costs, strict=True)
        name = group_of(group.workload, this_machine())
        model.residual.learn([sample_of(group.space, config, float(cost), name) for config, cost in pairs])
    return [model.costs(group.space, group.configs) for group in unseen]


def held_out(groups: Sequence[Group], scores: Scores) -> list[np.ndarray]:
    """The scores of each workload by a model that learned from the two thirds of the workloads that it is not in."""
    met: Counter[type] = Counter()
    folds = []
    for group in groups:
        folds.append(met[type(group.workload)] % FOLDS)
        met[type(group.workload)] += 1
    found: dict[int, np.ndarray] = {}
    for fold in range(FOLDS):
        unseen = [group for group, own in zip(groups, folds, strict=True) if own == fold]
        known = [group for group, own in zip(groups, folds, strict=True) if own != fold]
        found.update(zip(map(id, unseen), scores(known, unseen), strict=True))
    return [found[id(group)] for group in groups]


def in_order(passes: np.ndarray) -> np.ndarray:
    """Of all configurations by all configurations, whether every pass, a row of `passes`, says the same of which is the
    quicker."""
    quicker = passes[:, :, None] < passes[:, None, :]
    return np.equal(np.all(quicker, axis=0), np.any(quicker, axis=0))


def figures(scores: Sequence[np.ndarray], groups: Sequence[Group]) -> dict[str, float]:
    """Means over the workloads of scores, smaller is better."""
    pairs = list(zip(scores, groups, strict=True))
    every = [pairwise_accuracy(score, group.costs, APART) for score, group in pairs]
    sure = [pairwise_accuracy(score, group.costs, APART, among=in_order(group.passes)) for score, group in pairs]
    return {
        "peak@1": float(np.mean([peak_at(1, score, group.costs) for score, group in pairs])),
        "peak@5": float(np.mean([peak_at(5, score, group.costs) for score, group in pairs])),
        "pairwise accuracy": float(np.nanmean(every)),
        "of pairs that all passes order alike": float(np.nanmean(sure)),
    }


def ceiling(groups: Sequence[Group]) -> dict[str, float]:
    """The figures of every other pass, judged by those between."""
    found = []
    for group in groups:
        even, odd = (np.median(group.passes[turn::2], axis=0) for turn in (0, 1))
        found.append((peak_at(1, odd, even), peak_at(5, odd, even), pairwise_accuracy(odd, even, APART)))
    return dict(zip(("peak@1", "peak@5", "pairwise accuracy"), map(float, np.nanmean(found, axis=0)), strict=True))


def evaluate(groups: Sequence[Group], with_theirs: bool) -> dict[str, dict[str, dict[str, float]]]:
    """The figures of each model for each operator."""
    scores = {"formulas": [group.predicted for group in groups], "TilingCostModel": held_out(groups, ours)}
    if with_theirs:
        scores["XGBModel of MetaSchedule"] = held_out(groups, Theirs(groups).scores)
    found: dict[str, dict[str, dict[str, float]]] = {}
    for kind in (GemmWorkload, ConvWorkload):
        own = [place for place, group in enumerate(groups) if isinstance(group.workload, kind)]
        if own:
            of_kind = [groups[place] for place in own]
            by_model = {name: figures([given[place] for place in own], of_kind) for name, given in scores.items()}
            found[kind.__name__] = {**by_model, "measured, by the passes between": ceiling(of_kind)}
    return found


def pairwise_accuracy(
    scores: np.ndarray, costs: np.ndarray, apart: float = 0.02, among: np.ndarray | None = None
) -> float:
    """The share of pairs of configurations, whose costs differ by `apart` at least, that `scores`, smaller is better,
    order rightly; nan without such a pair. `among`: of all configurations by all configurations, which pairs count."""
    first, second = np.triu_indices(len(costs), 1)
    differ = np.abs(np.log(costs[first] / costs[second])) >= apart
    if among is not None:
        differ &= among[first, second]
    first, second = first[differ], second[differ]
    if not len(first):
        return float("nan")
    return float(np.mean((scores[first] < scores[second]) == (costs[first] < costs[second])))


def peak_at(count: int, scores: np.ndarray, costs: np.ndarray) -> float:
    """The best speed among the `count` cuts with the smallest scores, as part of the best of all."""
    return float(costs.min() / costs[np.argsort(scores, kind="stable")[:count]].min())


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is not in the file yet, then print the figures; 1 after an error that the user can mend."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cost_model", description=__doc__)
    parser.add_argument("--json", type=Path, default=Path("results/cost_trials.json"), help="default: %(default)s")
    parser.add_argument("--shapes", type=int, default=SHAPES, help="of each operator; default: %(default)s")
    parser.add_argument(
        "--seconds", type=float, help="begin with no further shape after so long; default: go on to the end"
    )
    parser.add_argument("--without-theirs", action="store_true", help="MetaSchedule's model takes minutes")
    chosen = parser.parse_args(arguments)
    try:
        records = earlier_entries(chosen.json, FORMAT, VERSION, "workloads")
    except TilingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    known = {json.dumps(record["workload"]) for record in records}
    left = [w for w in shapes(chosen.shapes) if json.dumps(w.to_dict()) not in known]
    if left:
        until = time.monotonic() + (math.inf if chosen.seconds is None else chosen.seconds)
        with contextlib.closing(SideBySide()) as bench:
            for number, workload in enumerate(left, len(records)):
                if time.monotonic() > until:
                    return 0
                records.append(measure(workload, number, bench))
                print(f"measured {len(records[-1]['trials'])} cuts of {workload}", file=sys.stderr)
                result = {"format": FORMAT, "version": VERSION, "machine": machine_record(this_machine())}
                write_whole(chosen.json, json.dumps({**result, "workloads": records}))
    groups = [Group(record) for record in records if len(record["trials"]) > 1]
    for kind, models in evaluate(groups, not chosen.without_theirs).items():
        for name, values in models.items():
            print(f"{kind}: {name}: " + ", ".join(f"{key} {value:.3f}" for key, value in values.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
