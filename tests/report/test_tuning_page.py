"""The page of a search: all trials, the best so far as a line, failures with their reasons."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re

import pytest
from html_page import Page

import tvm_tiling as tt
from tvm_tiling.decide.configs.neighbourhood import neighbourhood
from tvm_tiling.errors import ModelFormatError
from tvm_tiling.report.save import is_result, page_of, result_page
from tvm_tiling.tuning import trial
from tvm_tiling.tuning.outcome import ModelTuneReport, TaskReport, TuneReport

CPU = tt.Hardware.load("icelake-server-2c")
WORKLOAD = tt.GemmWorkload(m=136, n=200, k=312)
COSTS = (3e-3, None, 2e-3, 2.5e-3, None, 1e-3, 4e-2)
WHY = "killed by SIGSEGV while <it> ran"


def report(costs=COSTS, operator="a <product>", **more) -> TuneReport:
    configs = list(neighbourhood(WORKLOAD, CPU).configs(len(costs)))
    log, best = [], None
    for number, (cost, config) in enumerate(zip(costs, configs, strict=True), start=1):
        best = min((known for known in (best, cost) if known is not None), default=None)
        log.append(
            trial.Trial(
                number=number,
                operator=operator,
                config=config,
                unit="s",
                predicted=1.5e-3,
                cost=cost,
                best=best,
                reason=WHY if cost is None else None,
                disturbed=0.25,
                seconds=0.5,
            )
        )
    given = {
        "workload": WORKLOAD,
        "target": CPU.name,
        "unit": "s",
        "trials": len(costs),
        "earlier": 0,
        "failures": ((WHY, sum(cost is None for cost in costs)),),
        "best": configs[0] if configs else None,
        "cost_before": 3e-3,
        "cost_after": 1e-3,
        "least": 5e-4,
        "stopped": f"{len(costs)} trials done",
        "seconds": (("deciding", 0.1),),
        "disturbed": 0.0,
        "log": tuple(log),
    }
    return TuneReport(**{**given, **more})


def points(text: str) -> list[list[tuple[float, float]]]:
    """Return the drawn lines in page coordinates, in which up is less."""
    lines = re.findall(r'<polyline[^>]* points="([^"]+)"', text)
    return [[tuple(map(float, point.split(","))) for point in line.split()] for line in lines]


def test_the_page_shows_every_trial():
    text = page_of(report(), "Tuning of a <product>")
    page = Page(text)
    assert not page.open and not page.outside
    assert page.titles == ["Convergence", "a <product>", "Failures", "Every trial", "Glossary"]
    measured = sum(cost is not None for cost in COSTS)
    assert page.drawn["circle"] == 2 * measured  # measured costs, and predicted ones
    assert page.cells.count(WHY) == 3  # for two trials, and among the reasons
    for config in report().log:
        assert config.cost is None or str(config.config) in page.cells
    assert {"3.00 ms", "2.50 ms", "40.0 ms", "25%"} <= set(page.cells)
    for figure in ("7", "2 failed", "3.00", "50.0% of the roofline"):
        assert f">{figure}<" in text


def test_the_line_is_the_best_so_far():
    ((*line,),) = points(page_of(report()))
    assert len(line) == len(COSTS)
    heights = [y for _, y in line]
    assert heights == sorted(heights)  # downwards
    steps = [later != earlier for earlier, later in itertools.pairwise(heights)]
    assert steps == [False, True, False, False, True, False]


def test_a_busy_machine_is_on_the_page():
    assert "Doubtful" in page_of(report(disturbed=0.75)) and "Doubtful" not in page_of(report(disturbed=0.5))


def test_a_models_page_has_a_plot_for_each_operator():
    tasks = [
        TaskReport(name=name, calls=2, report=report(costs, operator=name))
        for name, costs in (("conv1", COSTS), ("fc", (1e-3,)), ("idle", ()))
    ]
    found = ModelTuneReport(tasks=tuple(tasks), stopped="8 trials done", seconds=(("all", 1.0),))
    page = Page(page_of(found))
    assert page.titles[:4] == ["Convergence", "conv1", "fc", "Operators"]
    assert page.drawn["polyline"] == 2
    assert page.cells.count("conv1") == 1 + len(COSTS) and page.cells.count("idle") == 1


def test_json_and_logs_are_made_into_the_same_page():
    kept = json.loads(json.dumps(report().to_dict()))
    assert is_result(kept) and result_page(kept, "r.json", "x") == page_of(report(), "x")
    log = {"format": trial.FORMAT, "version": 1, "log": kept["log"]}
    assert is_result(log)
    assert points(result_page(log, "t.jsonl")) == points(page_of(report()))


@pytest.mark.parametrize(
    "change",
    [
        lambda kept: kept["log"][0].pop("cost"),
        lambda kept: kept["log"][0].update(cost="cheap"),
        lambda kept: kept["log"][0].update(cost=-1.0, best=-1.0),
        lambda kept: kept.update(log=3),
        lambda kept: kept["log"][0].update(config={"op": "sort"}),
        lambda kept: kept.pop("log"),
    ],
)
def test_a_corrupted_result_is_refused(change):
    kept = json.loads(json.dumps(report().to_dict()))
    change(kept)
    with pytest.raises(ModelFormatError, match=r"^r\.json is corrupted: "):
        result_page(kept, "r.json")


def test_another_version_is_refused():
    with pytest.raises(ModelFormatError, match="written by a newer tvm-tiling"):
        result_page({**report().to_dict(), "version": 2}, "r.json")


def test_a_search_without_trials_has_a_page():
    page = Page(page_of(dataclasses.replace(report(()), log=())))
    assert page.titles == ["Every trial", "Glossary"] and not page.open
