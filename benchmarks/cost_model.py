"""How well costs are predicted for shapes that were not measured: python -m benchmarks.cost_model --json trials.json

Measures cuts of many shapes (minutes; the file is gone on with) in pairs with the decision's own cut, several times
with the others between, for on a shared machine a core may be slow for a second or two. Then trains on two thirds of
the shapes and ranks the cuts of the others: by the formulas, by TilingCostModel, by MetaSchedule's XGBModel on the same
trials, and, as the ceiling, by every other measurement those between.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tvm_tiling as tt
from tvm_tiling.decide.cuts.cut import Cut
from tvm_tiling.decide.cuts.neighbourhood import Space, neighbourhood
from tvm_tiling.errors import TilingError
from tvm_tiling.measure import machine_record
from tvm_tiling.tuning.learning.costs import LearnedCosts, group_of, sample_of
from tvm_tiling.tuning.learning.residual import pairwise_accuracy, peak_at
from tvm_tiling.tuning.measuring.contest import Alone, Contest
from tvm_tiling.tuning.measuring.local import LocalBench
from tvm_tiling.tuning.measuring.measurer import Job
from tvm_tiling.tuning.measuring.referee import TrialFailed
from tvm_tiling.workload import ConvWorkload, GemmWorkload

from .operands import Workload
from .peers.tvm_operator import this_machine, tir
from .result import earlier_entries, write_whole
from .seeded import workload_of

FORMAT = "tvm-tiling-cost-trials"
VERSION = 2
SHAPES = 24  # of each operator
CUTS = 24  # of each shape
PASSES = 5
HELD_OUT = 3  # one shape in so many
# Cuts from here on in the order of prediction are never tried by a search, and not asked about here.
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


def cuts_to_measure(space: Space, seed: int) -> list[Cut]:
    """Some of the nearest cuts, the decision's own among them."""
    near = [cut for cut in space.cuts(NEAREST) if cut != space.start]
    return [space.start, *random.Random(seed).sample(near, min(CUTS - 1, len(near)))]


def measure(workload: Workload, seed: int, bench: LocalBench) -> dict[str, Any]:
    """Some cuts of one workload, each with its seconds in passes of different order; what failed is left out."""
    cuts = cuts_to_measure(neighbourhood(workload, this_machine()), seed)
    jobs = [Job(workload=workload, cut=cut, hardware=this_machine()) for cut in cuts]
    bench.prepare(jobs)
    alone = bench.hold(jobs[0], None, False)
    assert isinstance(alone, Alone)
    found: dict[Job, list[float]] = {job: [] for job in jobs}
    for turn in range(PASSES):
        for job in random.Random(seed + turn).sample(jobs, len(jobs)):
            with contextlib.suppress(TrialFailed):
                contest = bench.hold(job, jobs[0], False)
                assert isinstance(contest, Contest)
                found[job].append(alone.seconds / contest.ratio)
    for job in jobs:
        bench.release(job)
    return {
        "workload": workload.to_dict(),
        "trials": [[job.cut.to_dict(), seconds] for job, seconds in found.items() if len(seconds) == PASSES],
    }


class Group:
    """The measured cuts of one workload."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.workload = workload_of(record["workload"])
        self.space = neighbourhood(self.workload, this_machine())
        self.cuts = [Cut.from_dict(cut) for cut, _ in record["trials"]]
        self.passes = np.array([seconds for _, seconds in record["trials"]]).T
        self.costs = np.median(self.passes, axis=0)
        self.predicted = np.array([self.space.predicted(cut) for cut in self.cuts])


def theirs(known: Sequence[Group], unseen: Sequence[Group]) -> list[np.ndarray]:
    """The scores, smaller is better, of MetaSchedule's XGBModel for the nests that the cuts are lowered to."""
    from tvm import s_tir
    from tvm.s_tir import meta_schedule as ms

    context = ms.TuneContext(target=tt.llvm_target())
    model = ms.cost_model.XGBModel(num_warmup_samples=0)

    def candidates(group: Group) -> list[Any]:
        func = tir(group.workload)
        arguments = ms.arg_info.ArgInfo.from_prim_func(func)
        return [
            ms.MeasureCandidate(s_tir.Schedule(tt.tiling_schedule(func, cut=cut).mod), arguments) for cut in group.cuts
        ]

    for group in known:
        results = [ms.runner.RunnerResult([cost], None) for cost in group.costs]
        model.update(ms.TuneContext(mod=tir(group.workload), target=tt.llvm_target()), candidates(group), results)
    return [-model.predict(context, candidates(group)) for group in unseen]


def figures(scores: Sequence[np.ndarray], costs: Sequence[np.ndarray]) -> dict[str, float]:
    """Means over the workloads of scores, smaller is better, judged by costs."""
    pairs = list(zip(scores, costs, strict=True))
    accuracy = [a for score, costs in pairs if not math.isnan(a := pairwise_accuracy(score, costs))]
    return {
        "peak@1": float(np.mean([peak_at(1, *pair) for pair in pairs])),
        "peak@5": float(np.mean([peak_at(5, *pair) for pair in pairs])),
        "pairwise accuracy": float(np.mean(accuracy)),
    }


def evaluate(groups: Sequence[Group], with_theirs: bool) -> dict[str, dict[str, float]]:
    """Each model's figures on the shapes that are held out."""
    unseen = list(groups[::HELD_OUT])
    known = [group for group in groups if group not in unseen]
    model = LearnedCosts()
    for group in known:
        pairs = zip(group.cuts, group.costs, strict=True)
        name = group_of(group.workload, this_machine())
        model.residual.learn([sample_of(group.space, cut, float(cost), name) for cut, cost in pairs])
    scores = {
        "formulas": [group.predicted for group in unseen],
        "TilingCostModel": [model.costs(group.space, group.cuts) for group in unseen],
    }
    if with_theirs:
        scores["XGBModel of MetaSchedule"] = theirs(known, unseen)
    found = {name: figures(given, [group.costs for group in unseen]) for name, given in scores.items()}
    even, odd = ([np.median(group.passes[turn::2], axis=0) for group in unseen] for turn in (0, 1))
    return {**found, "measured, by the passes between": figures(even, odd)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is not in the file yet, then print the figures; 1 after an error that the user can mend."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cost_model", description=__doc__)
    parser.add_argument("--json", type=Path, default=Path("results/cost_trials.json"), help="default: %(default)s")
    parser.add_argument("--shapes", type=int, default=SHAPES, help="of each operator; default: %(default)s")
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
        with contextlib.closing(LocalBench()) as bench:
            for number, workload in enumerate(left, len(records)):
                records.append(measure(workload, number, bench))
                print(f"measured {len(records[-1]['trials'])} cuts of {workload}", file=sys.stderr)
                result = {"format": FORMAT, "version": VERSION, "machine": machine_record(this_machine())}
                write_whole(chosen.json, json.dumps({**result, "workloads": records}))
    groups = [Group(record) for record in records if len(record["trials"]) > 1]
    for kind in (GemmWorkload, ConvWorkload):
        own = [group for group in groups if isinstance(group.workload, kind)]
        for name, values in evaluate(own, not chosen.without_theirs).items():
            print(f"{kind.__name__}: {name}: " + ", ".join(f"{key} {value:.3f}" for key, value in values.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
