"""Pages and their parts: they show the given data, and need no external resources."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from html import unescape

import numpy as np
import pytest
from html_page import Page
from report_subjects import PEAK, comparison, model, profile, program, simulation

import tvm_tiling as tt
import tvm_tiling.report.page
from tvm_tiling.accel.report.sweep import sweep
from tvm_tiling.errors import ModelFormatError
from tvm_tiling.figures import column, count, percent, quantity, scaled, seconds, size, times
from tvm_tiling.hardware import Hardware
from tvm_tiling.model.precision.record import Compared, PrecisionRecord
from tvm_tiling.model.report import OperatorRecord
from tvm_tiling.report.advice import advice
from tvm_tiling.report.bars import Bar, bars
from tvm_tiling.report.labels import CHARACTER, box
from tvm_tiling.report.markup import Html, join, tag
from tvm_tiling.report.model_page import model_page
from tvm_tiling.report.operator_work import executed_flops, peak_of
from tvm_tiling.report.page import Cell, legend, table
from tvm_tiling.report.plot import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Axis, Series, plot
from tvm_tiling.report.save import page_of, result_page
from tvm_tiling.report.simulation_advice import simulation_advice
from tvm_tiling.report.sweep_page import sweep_page
from tvm_tiling.report.timed_model import timed_from_dict, workload_text
from tvm_tiling.report.timeline import SLICES, stretches
from tvm_tiling.report.versus import Versus
from tvm_tiling.workload import ConvWorkload, GemmWorkload


def sweep_text():
    hardware = Hardware.load("neartile")
    points = list(sweep(program(), hardware, {"near_tile.bw_a": (2, 64, 4096.0)}))
    return sweep_page(points, "a <product>", hardware)


SCRIPTS = 2  # of the page itself: report.js and zoom.js
PAGES = {
    "model": lambda: page_of(model()),
    "unmeasured": lambda: page_of(model(measured=False)),
    "simulation": lambda: page_of(simulation(), "p.vsim"),
    "comparison": lambda: page_of(comparison()),
    "sweep": sweep_text,
    "profiled": lambda: page_of(dataclasses.replace(model(), profile=profile())),
    "profile": lambda: page_of(profile(), "p"),
    "versus": lambda: page_of(Versus(subject=model(), baseline=model(operators=9))),
}


@pytest.fixture(scope="module")
def pages():
    return {name: make() for name, make in PAGES.items()}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_and_needs_nothing_else(pages, name):
    page = Page(pages[name])
    assert not page.open and not page.outside and page.scripts == SCRIPTS
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
        "Algorithms compared",
        "Memory and traffic",
        "Decisions and reasons",
    ):
        assert title in page.titles
    for operator in timed.report.operators:
        assert any(operator.name in cell for cell in page.cells) and operator.why in page.cells
        reasons = [why for _, _, why in (operator.decision or {}).get("reasons", ())]
        assert set(reasons) <= set(page.cells)
    pairs = sum(o.predicted_seconds is not None for o in timed.report.operators)
    assert page.drawn["circle"] == 2 * pairs  # against the prediction, and below the roofs
    assert "time of onnxruntime over ours" in pages["model"] and "a &lt;fast&gt; chip" in pages["model"]


def test_what_was_not_measured_is_left_out(pages):
    titles = Page(pages["unmeasured"]).titles
    assert "Predicted against measured" not in titles and "Roofline" not in titles
    assert "nothing was measured" in pages["unmeasured"] and "Algorithms compared" in titles


def test_a_models_page_is_made_of_its_json_again(pages):
    kept = json.loads(json.dumps(model().to_dict()))
    assert model_page(timed_from_dict(kept, "r.json")) == result_page(kept, "r.json") == pages["model"]
    del kept["operators"][0]["name"]
    with pytest.raises(ModelFormatError, match=r"r\.json is corrupted: .*expected what `tvm-tiling report --json`"):
        result_page(kept, "r.json")


def test_a_simulations_page_has_engines_memories_and_operators(pages):
    page, report = Page(pages["simulation"]), simulation()
    for engine, time in report.engines.items():
        assert engine in page.cells and count(time.busy) in page.cells
    assert {"Where the cycles go", "Roofline", "Energy", "Operators"} <= set(page.titles)
    assert page.cells.count("first <block>") == 1  # operators have one table
    assert page.drawn["rect"] >= 3  # spans in which an engine is busy


def test_a_comparison_shows_who_won_and_what_went_wrong(pages):
    page = Page(pages["comparison"])
    numbers = [place for place in re.findall(r'class="label"[^>]*>([\d, +]+)<', pages["comparison"])]
    assert sorted(name for text in numbers for name in text.split(", ")) == list("123456")  # ours, for each case
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
    with pytest.raises(ModelFormatError, match=r"a int is not a report; expected what exe\.report"):
        tt.save_report(3, tmp_path / "x.html")
    with pytest.raises(ModelFormatError, match="format 'other'; expected"):
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
    assert "latency, p90" in text and "p99 2.5" in text and "960" in text
    plain = timed.to_dict()
    assert timed_from_dict(plain, "x").latency == latency
    earlier = timed_from_dict({name: value for name, value in plain.items() if name not in latency}, "x")
    assert earlier.latency is None and "latency, p90" not in model_page(earlier)


# ---- parts -----------------------------------------------------------------------------------------------------------


def test_text_is_escaped_and_markup_passes():
    assert tag("p", "a < b", Html("<br>"), None, 3, class_="x", hidden=True, title='"') == (
        '<p class="x" hidden title="&quot;">a &lt; b<br>3</p>'
    )
    assert join(["<", tag("br")]) == "&lt;<br>"


def test_columns_of_figures_stand_to_the_right():
    text = table(("name", "time", "share"), [("a", "1.5 ms", Cell("3%", "won")), ("7 x 7", "–", None)])
    assert re.findall(r"<th([^>]*)>", text)[1:] == [' scope="col"', *[' scope="col" class="n"'] * 2]
    assert '<td class="won n">3%</td>' in text


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
    found = list(stretches(start, end, 100_000))
    drawn = sum((last - first) * shade for first, last, shade in found)
    assert 0 <= drawn - (end - start).sum() / 100_000 <= 1 / 8
    assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(found))
    assert list(stretches(np.array([0, 60]), np.array([30, 100]), 100)) == [(0.0, 0.3, 1.0), (0.6, 1.0, 1.0)]
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
    assert scaled(123456.0, "op/s") == "123 kop/s" and scaled(-2e9) == "-2.00 G" and percent(0.1234) == "12.3%"
    assert [quantity(n, "tile") for n in (0, 1, 2)] == ["0 tiles", "1 tile", "2 tiles"] and times(1) == "once"
    assert quantity(3, "axis", "axes") == "3 axes"
    assert (percent(-0.0381), percent(-0.0001)) == ("−3.8%", "0.0%")


def test_a_column_has_one_unit():
    assert column("time", [1.79e-4, 5.97e-7, None, 0.0], "s") == ("time, µs", ["179", "0.597", "–", "0"])
    assert column("held", [1 << 20, 3 << 20], binary=True) == ("held, MiB", ["1.00", "3.00"])
    assert column("energy", [8.4e-10, 1.5e-6, 9e-10], "J") == ("energy, pJ", ["840", "1\u202f500\u202f000", "900"])
    assert column("cycles", [None]) == ("cycles", ["–"])


def test_no_two_series_have_one_colour():
    names = [f"series {place}" for place in range(40)]
    classes = re.findall(r'<li class="(s\d+)">', legend(names))
    assert len(set(classes)) == len(names)
    style = tvm_tiling.report.page._style()
    colors = {name: re.search(rf"\.{name} {{ --own: ([^;]+);", style)[1] for name in classes}
    assert len(set(colors.values())) == len(names)


def test_points_have_labels_that_do_not_cover_each_other():
    points = [(float(x), float(x * x % 7 + 1)) for x in range(1, 13)]
    names = [str(place) for place in range(len(points))]
    roofs = [Series(f"roof {y}", [(1.0, y), (12.0, y + 1)], line=True, dots=False, named=True) for y in (2.0, 5.0)]
    text = plot("p", Axis("x"), Axis("y"), [Series("s", points, labels=names), *roofs])
    found = re.findall(r'class="label" x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)">([^<]+)<', text)
    written = [name for *_, label in found for name in label.split(", ")]
    assert sorted(written) == sorted([*names, "roof 2.0", "roof 5.0"])
    boxes = [box(float(x), float(y), anchor, CHARACTER * len(label)) for x, y, anchor, label in found]
    assert all(one.overlap(other) == 0 for one, other in itertools.combinations(boxes, 2))
    assert "legend" not in text  # names at the lines make it unnecessary


def test_points_at_one_place_share_a_label():
    text = plot("p", Axis("x"), Axis("y"), [Series("s", [(1.0, 1.0)] * 6 + [(9.0, 9.0)], labels=list("abcdefg"))])
    assert re.findall(r'class="label"[^>]*>([^<]+)<', text) == ["a, b, c, d +2", "g"]


def test_the_share_of_the_peak_counts_what_winograd_executes():
    workload = ConvWorkload(n=1, h=8, w=8, ci=32, co=64, kh=3, kw=3, padding=(1, 1, 1, 1))
    given = {"name": "c", "kind": "convolution", "calls": 2, "flops": 2 * workload.flops, "form": "winograd"}
    record = OperatorRecord(**given, decision={"winograd": {"m": 4, "points": 6}}, workload=workload.to_dict())
    assert executed_flops(record) == 2 * (
        2 * 36 * 4 * 32 * 64
    )  # 36 matrix multiplications for each of 4 tiles and each call
    assert executed_flops(dataclasses.replace(record, form="direct")) == 2 * workload.flops
    timed = model(operators=1)
    fast = dataclasses.replace(record, measured_seconds=record.flops / 250e9)  # faster than 200 Gop/s, by Winograd
    report = dataclasses.replace(timed.report, operators=(fast,), seconds=fast.measured_seconds)
    html = model_page(dataclasses.replace(timed, report=report))
    assert "250 Gop/s" in html
    assert percent(executed_flops(record) / record.flops * 250 / 200) in Page(html).cells


@pytest.mark.parametrize(
    ("dtype", "most"), [("float32", 200e9), ("int8", 800e9), ("float16", 400e9), ("bfloat16", 200e9)]
)
def test_every_type_has_its_own_peak(dtype, most):
    measured = {"gflops": 200.0, "gops_int8": 800.0, "gflops_half": {"float16": 400.0}}
    assert peak_of(measured, dtype) == most
    assert peak_of(None, dtype) is None
    assert peak_of({**measured, "gops_int8": None}, "int8") is None


def test_a_busy_machine_is_said_above_the_title():
    timed = model()
    quiet = dataclasses.replace(timed.report, others=0.01)
    assert 'class="banner"' not in model_page(dataclasses.replace(timed, report=quiet))
    busy = dataclasses.replace(timed, report=dataclasses.replace(timed.report, others=0.31))
    html = model_page(busy)
    assert html.index('class="banner"') < html.index("<h1>")
    assert "other processes took 31% of the cores" in unescape(html) and "latency, median</abbr> (doubtful)" in html
    assert timed_from_dict(json.loads(json.dumps(busy.to_dict())), "x").report.others == 0.31
    rival = dataclasses.replace(timed, rival={**timed.rival, "doubtful": True})
    assert "comparison with onnxruntime is doubtful" in model_page(rival)


def test_doubtful_cases_of_a_suite_are_counted_in_the_headline():
    result = comparison()
    result["rows"][0]["peers"]["numpy"]["doubtful"] = result["rows"][2]["ours"]["doubtful"] = True
    assert "in 2 of 6 cases other work kept threads off their cores" in page_of(result)


def test_sizes_of_workloads_for_people():
    conv = ConvWorkload(n=2, h=14, w=14, ci=8, co=16, kh=3, kw=3, stride=(2, 2), padding=(1, 1, 1, 1), groups=4)
    assert workload_text(conv) == "2 of 14 × 14 × 8 → 16, 3 × 3 / 2, 4 groups"
    assert workload_text(GemmWorkload(m=1, k=2, n=3)) == "1 × 2 × 3 (m × k × n)"
    assert workload_text(None) == ""


# ---- advice ----------------------------------------------------------------------------------------------------------


def advised(workload, kind, seconds, **more):
    """Return the advice for one operator with this time, on a machine with 200 Gop/s and 20 GB/s."""
    given = {"name": "o", "kind": kind, "calls": 1, "flops": 0, "measured_seconds": seconds, **more}
    if workload is not None:
        given |= {"flops": workload.flops, "workload": workload.to_dict()}
    timed = model()
    memory = dataclasses.replace(timed.report.memory, weights=1 << 30)
    report = dataclasses.replace(timed.report, operators=(OperatorRecord(**given),), seconds=seconds, memory=memory)
    return advice(dataclasses.replace(timed, report=report, peak={**PEAK, "gflops_half": {"float16": 400.0}}))


def test_a_layer_that_reads_weights_is_to_be_batched():
    product = GemmWorkload(m=1, k=2048, n=1024)  # 8 MiB of weights, 0.42 ms at 20 GB/s
    (first, *_) = advised(product, "gemm", 5e-4)
    assert "memory-bound" in first.what and "--batch" in first.what and "--weights int8" in first.what
    assert first.gain == pytest.approx(5e-4 - product.flops / 200e9) and first.numbers == [1]  # then compute-bound
    assert not advised(dataclasses.replace(product, batch=8), "gemm", 4e-3)  # each multiplies a different matrix


def test_a_compute_bound_layer_is_to_be_narrower_and_a_slow_one_tuned():
    workload = ConvWorkload(n=1, h=56, w=56, ci=256, co=256, kh=3, kw=3, padding=(1, 1, 1, 1))
    best = workload.flops / 200e9
    (only,) = advised(workload, "convolution", 1.1 * best)
    assert "2.0 times that of float32 (--precision float16)" in only.what
    assert only.gain == pytest.approx(0.55 * best)
    search, narrower = advised(workload, "convolution", 4 * best)
    assert "tvm-tiling tune" in search.what and search.gain == pytest.approx(3 * best)
    assert narrower.gain == pytest.approx(2 * best)


def test_what_multiplies_nothing_is_named():
    (only,) = advised(None, "other", 1e-3)
    assert "100% of the time" in only.what and only.gain == 1e-3
    timed = model()
    assert advice(dataclasses.replace(timed, report=dataclasses.replace(timed.report, seconds=None))) == []


def test_time_between_operators_is_advice_on_an_idle_machine_alone():
    timed = model()
    report = dataclasses.replace(timed.report, seconds=1.5 * timed.report.seconds, others=0.01)
    idle = advice(dataclasses.replace(timed, report=report))
    busy = advice(dataclasses.replace(timed, report=dataclasses.replace(report, others=0.4)))
    told = [each for each in idle if "spent between them" in each.what]
    assert len(told) == 1 and told[0].gain == pytest.approx(report.seconds / 3, rel=1e-2)
    assert not any("spent between them" in each.what for each in busy)


def test_advice_comes_in_order_and_is_called_a_prediction():
    timed = model()
    found = advice(timed)
    assert [each.gain for each in found] == sorted((each.gain for each in found), reverse=True)
    html = model_page(timed)
    assert html.index(">Advice<") < html.index(">Where the time goes<")
    assert "they were not measured" in html and html.count("Predicted to save at most") == len(found)


def test_a_simulation_says_what_its_engine_waits_for():
    report = simulation()
    told = simulation_advice(report)
    assert told[0].startswith("matrix waits 99% of the cycles (1\N{NARROW NO-BREAK SPACE}768) because its operands")
    assert told[-1].startswith("The lower bound is memory-bound: ")
    assert "lower bound is memory-bound" in page_of(report)
