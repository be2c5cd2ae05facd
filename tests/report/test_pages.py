"""Pages and their parts: what is drawn is what was given, and a page needs nothing outside of itself."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re

import numpy as np
import pytest
from html_page import Page
from report_subjects import comparison, model, program, simulation

import tvm_tiling as tt
from tvm_tiling.accel.report.sweep import sweep
from tvm_tiling.errors import ModelFormatError
from tvm_tiling.hardware import Hardware
from tvm_tiling.model.precision.record import Compared, PrecisionRecord
from tvm_tiling.report.bars import Bar, bars
from tvm_tiling.report.figures import percent, scaled, seconds, size
from tvm_tiling.report.markup import Html, join, tag
from tvm_tiling.report.model_page import model_page
from tvm_tiling.report.page import Cell, table
from tvm_tiling.report.plot import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Axis, Series, plot
from tvm_tiling.report.save import page_of, result_page
from tvm_tiling.report.sweep_page import sweep_page
from tvm_tiling.report.timed_model import timed_from_dict, workload_text
from tvm_tiling.report.timeline import SLICES, shades
from tvm_tiling.workload import ConvWorkload, GemmWorkload


def sweep_text():
    hardware = Hardware.load("neartile")
    points = list(sweep(program(), hardware, {"near_tile.bw_a": (2, 64, 4096.0)}))
    return sweep_page(points, "a <product>", hardware)


PAGES = {
    "model": lambda: page_of(model()),
    "unmeasured": lambda: page_of(model(measured=False)),
    "simulation": lambda: page_of(simulation(), "p.vsim"),
    "comparison": lambda: page_of(comparison()),
    "sweep": sweep_text,
}


@pytest.fixture(scope="module")
def pages():
    return {name: make() for name, make in PAGES.items()}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_and_needs_nothing_else(pages, name):
    page = Page(pages[name])
    assert not page.open and not page.outside and not page.scripts
    assert len(page.names) == len(set(page.names)) > 1
    anchors = re.findall(r'href="#([^"]+)"', pages[name])
    assert anchors == page.names
    assert "prefers-color-scheme: dark" in pages[name] and "@media print" in pages[name]
    assert len(pages[name]) < 200_000


def test_a_models_page_has_every_part(pages):
    page, timed = Page(pages["model"]), model()
    for title in (
        "Where the time goes",
        "Predicted against measured",
        "Roofline",
        "Forms compared",
        "Memory and traffic",
        "Decisions and reasons",
    ):
        assert title in page.titles
    for operator in timed.report.operators:
        assert operator.name in page.cells and operator.why in page.cells
        reasons = [why for _, _, why in (operator.decision or {}).get("reasons", ())]
        assert set(reasons) <= set(page.cells)
    pairs = sum(o.predicted_seconds is not None for o in timed.report.operators)
    assert page.drawn["circle"] == 2 * pairs  # against the prediction, and below the roofs
    assert "1.25 ×" in pages["model"] and "a &lt;fast&gt; chip" in pages["model"]


def test_what_was_not_measured_is_left_out(pages):
    titles = Page(pages["unmeasured"]).titles
    assert "Predicted against measured" not in titles and "Roofline" not in titles
    assert "nothing was measured" in pages["unmeasured"] and "Forms compared" in titles


def test_a_models_page_is_made_of_its_json_again(pages):
    kept = json.loads(json.dumps(model().to_dict()))
    assert model_page(timed_from_dict(kept, "r.json")) == result_page(kept, "r.json") == pages["model"]
    del kept["operators"][0]["name"]
    with pytest.raises(ModelFormatError, match=r"r\.json is corrupted: .*accepted: what `tvm-tiling report --json`"):
        result_page(kept, "r.json")


def test_a_simulations_page_has_engines_memories_and_operators(pages):
    page, report = Page(pages["simulation"]), simulation()
    for engine, time in report.engines.items():
        assert engine in page.cells and str(time.busy) in page.cells
    assert {"Where the cycles go", "Roofline", "Energy", "Operators"} <= set(page.titles)
    assert page.cells.count("first <block>") == 2  # as a region, and with its traffic
    assert page.drawn["rect"] >= 3  # stretches in which an engine is busy


def test_a_comparison_shows_who_won_and_what_went_wrong(pages):
    page = Page(pages["comparison"])
    assert "0.70" in page.cells and "Failed, wrong or doubtful" in page.titles
    assert "differs from the &lt;right&gt; answer" in pages["comparison"]
    assert "Skipped none" in pages["comparison"] and "none" not in page.cells
    damaged = {**comparison(), "rows": [{}]}
    with pytest.raises(ModelFormatError, match=r"r\.json is corrupted"):
        result_page(damaged, "r.json")


def test_a_sweep_plots_every_value_and_escapes_names(pages):
    page = Page(pages["sweep"])
    assert page.drawn["circle"] == 9 and page.drawn["polyline"] == 3
    assert "a &lt;product&gt;" in pages["sweep"] and "<product>" not in pages["sweep"]
    hardware = Hardware.load("neartile")
    words = list(sweep(program(), hardware, {"near_tile.partial_blocks": ("skipped", "padded")}))
    assert ">padded</text>" in sweep_page(words, "", hardware)
    refused = list(sweep(program(), hardware, {"near_tile.buf_a": (64, 65536)}))
    assert Page(sweep_page(refused, "", hardware)).drawn["circle"] == 3


def test_save_report_writes_one_file_and_refuses_what_is_none(tmp_path):
    tt.save_report(simulation(), tmp_path / "r.html")
    tt.save_report(model().report, tmp_path / "m.html", "net")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.html", "r.html"]
    with pytest.raises(ModelFormatError, match=r"a int is not a report; accepted: what exe\.report"):
        tt.save_report(3, tmp_path / "x.html")
    with pytest.raises(ModelFormatError, match="format 'other'; accepted"):
        tt.save_report({"format": "other", "version": 1}, tmp_path / "x.html")
    with pytest.raises(FileNotFoundError, match=r"directory .* does not exist"):
        tt.save_report(simulation(), tmp_path / "none" / "x.html")


def test_another_precision_is_shown_and_kept():
    timed = model()
    compared = (
        Compared(precision="int8", error=0.015, seconds=1e-3),
        Compared(precision="float16", error=float("nan")),
    )
    record = PrecisionRecord(
        precision="int8", error=0.015, inputs=4, tolerance=0.02, left=("conv1",), compared=compared
    )
    timed = dataclasses.replace(timed, report=dataclasses.replace(timed.report, precision=record))
    assert "precision" not in model_page(model())
    html = model_page(timed)
    assert "precision: int8, 1.5 percent from float32 on 4 inputs" in html and "conv1" in html
    kept = timed_from_dict(json.loads(json.dumps(timed.to_dict())), "x.json").report.precision
    assert str(kept) == str(record)
    with pytest.raises(ModelFormatError, match=r"x\.json is corrupted"):
        timed_from_dict({**timed.to_dict(), "precision": {**record.to_dict(), "precision": "int4"}}, "x.json")


def test_latency_is_shown_and_kept():
    latency = {"p50": 1e-3, "p90": 1.25e-3, "p99": 2.5e-3, "throughput": 960.0}
    timed = dataclasses.replace(model(), latency=latency)
    text = model_page(timed)
    assert "a run, p90" in text and "p99 2.5" in text and "960" in text
    plain = timed.to_dict()
    assert timed_from_dict(plain, "x").latency == latency
    earlier = timed_from_dict({name: value for name, value in plain.items() if name not in latency}, "x")
    assert earlier.latency is None and "a run, p90" not in model_page(earlier)


# ---- parts -----------------------------------------------------------------------------------------------------------


def test_text_is_escaped_and_markup_passes():
    assert tag("p", "a < b", Html("<br>"), None, 3, class_="x", hidden=True, title='"') == (
        '<p class="x" hidden title="&quot;">a &lt; b<br>3</p>'
    )
    assert join(["<", tag("br")]) == "&lt;<br>"


def test_columns_of_figures_stand_to_the_right():
    text = table(("name", "time", "share"), [("a", "1.5 ms", Cell("3 %", "won")), ("7 x 7", "–", None)])
    assert re.findall(r'<th(?: class="n")?>', text) == ["<th>", '<th class="n">', '<th class="n">']
    assert '<td class="won n">3 %</td>' in text


def test_bars_are_in_proportion():
    text = bars("b", ["x", "y"], [Bar("one", [(0, 30.0), (1, 10.0)], "40"), Bar("two", [(1, 20.0)], "20", start=20.0)])
    assert re.findall(r"width:([\d.]+)%", text) == ["75.00", "25.00", "50.00", "50.00"]


@pytest.mark.parametrize("log", [False, True])
def test_points_lie_where_their_values_are(log):
    points = [(1.0, 10.0), (10.0, 100.0), (100.0, 1000.0)]
    text = plot("p", Axis("x", log=log), Axis("y", log=log), [Series("s", points, line=True)])
    at = np.array([[float(n) for n in pair] for pair in re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', text)])
    assert (at[:, 0] >= LEFT).all() and (at[:, 0] <= WIDTH - RIGHT).all()
    assert (at[:, 1] >= TOP).all() and (at[:, 1] <= HEIGHT - BOTTOM).all()
    steps = np.diff(at, axis=0)
    assert (steps[:, 0] > 0).all() and (steps[:, 1] < 0).all()
    share = steps[0] / steps.sum(axis=0)
    np.testing.assert_allclose(share, 0.5 if log else 9 / 99, atol=2e-3)
    assert plot("p", Axis("x"), Axis("y"), [Series("s", [])]) is None


def test_one_point_alone_and_equal_values_have_axes():
    for log in (False, True):
        text = plot("p", Axis("x", log=log), Axis("y", log=log), [Series("s", [(5.0, 5.0)])])
        assert "nan" not in text and text.count("<text") > 3


def test_the_shades_of_a_timeline_add_up_to_what_is_busy():
    rng = np.random.default_rng(0)
    edges = np.sort(rng.choice(100_000, 4000, replace=False))
    start, end = edges[::2], edges[1::2]
    found = list(shades(start, end, 100_000))
    drawn = sum((last - first) * shade for first, last, shade in found)
    assert 0 <= drawn - (end - start).sum() / 100_000 <= 1 / 8
    assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(found))
    assert list(shades(np.array([0, 60]), np.array([30, 100]), 100)) == [(0.0, 0.3, 1.0), (0.6, 1.0, 1.0)]
    assert len(found) <= SLICES


def test_figures_have_the_prefix_that_fits():
    assert [seconds(value) for value in (None, 0.0, 1.5e-9, 2.345e-6, 0.0123, 4.0)] == [
        "–",
        "0 s",
        "1.50 ns",
        "2.35 µs",
        "12.3 ms",
        "4.00 s",
    ]
    assert (size(None), size(100), size(1536), size(5 << 20)) == ("–", "100 B", "1.50 KiB", "5.00 MiB")
    assert scaled(123456.0, "op/s") == "123 kop/s" and scaled(-2e9) == "-2.00 G" and percent(0.1234) == "12.3 %"


def test_sizes_of_workloads_for_people():
    conv = ConvWorkload(n=2, h=14, w=14, ci=8, co=16, kh=3, kw=3, stride=(2, 2), padding=(1, 1, 1, 1), groups=4)
    assert workload_text(conv) == "2 of 14 × 14 × 8 → 16, 3 × 3 / 2, 4 groups"
    assert workload_text(GemmWorkload(m=1, k=2, n=3)) == "1 × 2 × 3 (m × k × n)"
    assert workload_text(None) == ""
