"""Searches with a trained cost model find better configurations in 16 trials than those in the formulas' order, on
average."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

import tvm_tiling as tt
from tvm_tiling.decide.configs.neighbourhood import neighbourhood
from tvm_tiling.tuning.learning.costs import LearnedCosts
from tvm_tiling.tuning.learning.past import past_trials
from tvm_tiling.tuning.measuring.measurer import Job, Measured
from tvm_tiling.tuning.search import Formulas
from tvm_tiling.tuning.shapes.database import ShapeDatabase
from tvm_tiling.tuning.shapes.trials import TrialLog
from tvm_tiling.tuning.tune import tune

ZEN4 = tt.Hardware.load("zen4-server-8c")
CPU = replace(ZEN4, cpu=replace(ZEN4.cpu, mcpu="znver5"))  # of a kind without recorded trials
KNOWN = [tt.GemmWorkload(m=m, k=k, n=n) for m, k, n in ((384, 512, 640), (127, 257, 509), (640, 96, 1000))]
UNSEEN = [tt.GemmWorkload(m=m, k=k, n=n) for m, k, n in ((256, 300, 700), (500, 128, 384), (200, 800, 333))]
SPACES = {workload: neighbourhood(workload, CPU) for workload in (*KNOWN, *UNSEEN)}
TRIALS = 16


def cost(job: Job) -> float:
    """Costs of a machine on which deep blocks and wide tiles are slow, which the formulas do not know."""
    predicted = SPACES[job.workload].predicted(job.config)
    if job.config.form == "stream":
        return 3 * predicted
    rows, vectors = job.config.choice("microkernel")
    return predicted * (1.0 + 0.2 * vectors / rows + 0.1 * math.log2(job.config.choice("depth")))


class Machine:
    """A measurer that returns `cost`."""

    def measure(self, jobs: Sequence[Job]) -> Iterator[Measured]:
        for job in jobs:
            yield Measured(job=job, cost=cost(job))

    def close(self) -> None:
        raise AssertionError("whoever made it closes it")


def measured(workload, count=40):
    configs = list(SPACES[workload].configs(4 * count))[::4]
    jobs = [Job(workload=workload, config=config, hardware=CPU) for config in configs]
    return [Measured(job=job, cost=cost(job)) for job in jobs]


@pytest.fixture
def database(tmp_path):
    """A database with 40 trials of each known shape, and a failed one."""
    with ShapeDatabase(f"sqlite:///{tmp_path / 'shapes.db'}") as opened:
        with TrialLog(opened) as log:
            for workload in KNOWN:
                for found in measured(workload):
                    log.add(found)
            log.add(Measured(job=measured(KNOWN[0])[0].job, reason="it failed"))
        yield opened


def least(workload, **options):
    """The cost of the best configuration found in 16 trials, relative to the minimum of all."""
    report = tune(workload, CPU, trials=TRIALS, runner=Machine(), progress=False, seeded=False, **options)
    best = min(cost(Job(workload=workload, config=config, hardware=CPU)) for config in SPACES[workload].configs(200))
    return report.cost_after / best


def test_past_trials_are_the_newest_of_this_machine_that_did_not_fail(database):
    every = past_trials(database, CPU, 1000)
    assert len(every) == 40 * len(KNOWN)
    newest = past_trials(database, CPU, 7)
    assert newest == every[:7]
    assert [(p.workload, p.config, p.cost, p.prepacked, p.epilogue) for p in newest] == [
        (KNOWN[-1], found.job.config, found.cost, False, "") for found in reversed(measured(KNOWN[-1])[-7:])
    ]
    assert past_trials(database, tt.Hardware.load("vta"), 1000) == []


def test_what_is_remembered_is_what_was_learned(database):
    remembered, learned = LearnedCosts(), LearnedCosts()
    remembered.remember(past_trials(database, CPU, 1000), CPU)
    for workload in KNOWN:
        learned.update(SPACES[workload], measured(workload))
    assert sorted(remembered.residual.samples, key=str) == sorted(learned.residual.samples, key=str)


def test_configs_that_are_not_possible_any_more_are_not_remembered(database):
    model = LearnedCosts()
    model.remember(past_trials(database, CPU, 5), tt.Hardware.load("vta"))
    assert model.residual.samples == []


def test_what_other_shapes_taught_finds_better_configs_in_few_trials(database):
    formulas = [least(workload, cost_model=Formulas()) for workload in UNSEEN]
    taught = [least(workload, database=database) for workload in UNSEEN]
    assert np.mean(taught) < np.mean(formulas) - 0.01
    assert max(taught) <= max(formulas)


def test_a_search_that_knows_nothing_loses_nothing():
    formulas = [least(workload, cost_model=Formulas()) for workload in UNSEEN]
    alone = [least(workload) for workload in UNSEEN]
    assert np.mean(alone) <= np.mean(formulas)


def test_a_model_of_metaschedule_leads_a_search_and_learns_from_it():
    model = tt.TilingCostModel(CPU)
    report = tune(UNSEEN[0], CPU, trials=TRIALS, runner=Machine(), progress=False, cost_model=model)
    assert len(model.schedules.learned.residual.samples) == report.trials == TRIALS
