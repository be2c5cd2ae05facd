"""A model compared with a baseline: operators are matched by nodes, differences add up, and doubts come first."""

from __future__ import annotations

import dataclasses
import json

import pytest
from html_page import Page
from report_subjects import model

import tvm_tiling as tt
from tvm_tiling.errors import ModelFormatError
from tvm_tiling.model.report import OperatorRecord
from tvm_tiling.report.save import page_of, result_page
from tvm_tiling.report.timed_model import TimedModel
from tvm_tiling.report.versus import Versus, differing_choices, matched

PAIRED = {"ratio": 1.5, "spread": 0.02, "pairs": 40, "doubtful": False}


def record(name, seconds, nodes=(), **more):
    return OperatorRecord(
        name=name, kind="other", calls=1, flops=0, measured_seconds=seconds, nodes=tuple(nodes), **more
    )


def timed(*operators, seconds=1e-3, name="net", **more) -> TimedModel:
    whole = model()
    report = dataclasses.replace(whole.report, operators=operators, seconds=seconds, **more)
    return dataclasses.replace(whole, name=name, report=report)


def versus(**more) -> Versus:
    ours = timed(record("fused_a", 4e-4, ["conv1", "relu1"]), record("b", 1e-4), record("new", 5e-5), seconds=6e-4)
    theirs = timed(record("fused_other", 7e-4, ["conv1", "relu1"]), record("b", 1e-4), record("old", 2e-5), name="base")
    return Versus(**{"subject": ours, "baseline": theirs, **more})


def test_operators_are_paired_by_nodes_then_by_name():
    found = matched(versus().subject.report.operators, versus().baseline.report.operators)
    pairs = [(both.subject and both.subject.name, both.baseline and both.baseline.name) for both in found]
    assert pairs == [("fused_a", "fused_other"), ("new", None), (None, "old"), ("b", "b")]
    assert [round(both.saved * 1e6) for both in found] == [300, -50, 20, 0]


def test_operators_of_one_name_are_paired_one_by_one():
    found = matched([record("a", 1e-3), record("a", 2e-3)], [record("a", 1e-3)])
    assert sorted((both.subject.measured_seconds, both.baseline is None) for both in found) == [
        (1e-3, False),
        (2e-3, True),
    ]


def test_the_page_says_which_is_faster_and_why():
    page = Page(page_of(versus()))
    assert not page.open and not page.outside
    assert "What makes the difference" in page.titles and "Every operator" in page.titles
    text = page_of(versus())
    assert "net beside base" in text and "1.67" in text  # 1 ms / 0.6 ms
    assert "one after the other, not in paired runs" in text
    assert "saves 320 µs in some operators and loses 50.0 µs in others" in text
    assert any("(only baseline)" in cell for cell in page.cells) and any(
        "(only subject)" in cell for cell in page.cells
    )
    assert "1.75" in page.cells and "−300" in page.cells
    turns = page_of(versus(paired=PAIRED))
    assert "40 pairs" in turns and "1.50" in turns and "spread 0.02" in turns


def test_doubts_of_either_side_are_in_the_banner():
    busy = versus(baseline=timed(record("b", 1e-4), others=0.4), paired={**PAIRED, "doubtful": True})
    elsewhere = dataclasses.replace(busy.baseline, machine={**busy.baseline.machine, "cpu": "another"})
    text = page_of(dataclasses.replace(busy, baseline=elsewhere))
    banner = text[text.index('class="banner"') : text.index("<h1>")]
    assert "Baseline: Doubtful: other processes took 40%" in banner
    assert "speedup is doubtful" in banner and "different processors" in banner
    assert 'class="banner"' not in page_of(versus())


def test_decisions_that_differ_are_shown():
    first = {"reasons": [["form", "direct", "x"], ["rows", 4, "y"]], "product": {"reasons": [["mr", 8, ""]]}}
    second = {"reasons": [["form", "winograd", "z"], ["rows", 4, "y"]]}
    (both,) = matched([record("a", 1e-3, decision=first)], [record("a", 1e-3, decision=second)])
    assert list(differing_choices(both)) == [("form", "direct", "winograd"), ("mr", "8", "–")]
    whole = model()
    again = Versus(subject=whole, baseline=whole)
    assert "Decisions that differ" not in Page(page_of(again)).titles and "two runs" in page_of(again)


def test_it_is_made_of_its_json_again_and_refused_when_corrupted():
    plain = json.loads(json.dumps(versus(paired=PAIRED).to_dict()))
    assert result_page(plain, "v.json") == page_of(versus(paired=PAIRED))
    del plain["paired"]
    with pytest.raises(ModelFormatError, match=r"v\.json is corrupted"):
        result_page(plain, "v.json")


def test_two_reports_are_compared_from_python(tmp_path):
    whole = model().report
    slower = dataclasses.replace(whole, seconds=2 * whole.seconds)
    tt.save_report(whole, tmp_path / "r.html", "new build", against=slower)
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "new build beside baseline" in text and "2.00" in text
    with pytest.raises(ModelFormatError, match="cannot be compared; expected two of"):
        tt.save_report(whole, tmp_path / "r.html", against=3)
