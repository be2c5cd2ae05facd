"""The graph of a model and the profile of a run in reports: edges, boxes, colours, threads, counters."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re

import pytest
from browser import NAMES, Browser, browser_path
from html_page import Page
from report_subjects import graph, model, profile

from tvm_tiling.model.graph import GraphStep
from tvm_tiling.model.profile import Profile
from tvm_tiling.report.graph_view import HIGH, MOST_STEPS, WIDE, graph_view, layout
from tvm_tiling.report.save import page_of, result_page

needs_browser = pytest.mark.skipif(browser_path() is None, reason=f"no browser is installed: {', '.join(NAMES)}")


@pytest.fixture(scope="module")
def browser():
    with Browser() as found:
        yield found


# ---- the graph -------------------------------------------------------------------------------------------------------


def diamond():
    shape = ("1 float32",)
    return [
        GraphStep("a", (-1,), shape),
        GraphStep("b", (0,), shape),
        GraphStep("c", (0, -2), shape),
        GraphStep("d", (1, 2), shape),
        GraphStep("e", (3, 0), shape),
    ]


def test_every_step_lies_below_what_it_reads_and_none_on_another():
    for steps in (diamond(), list(graph())):
        places = layout(steps)
        for number, step in enumerate(steps):
            assert all(places[read][1] + HIGH < places[number][1] for read in step.reads if read >= 0)
        for (x, y), (a, b) in itertools.combinations(places, 2):
            assert abs(x - a) >= WIDE or abs(y - b) >= HIGH
        assert min(x for x, _ in places) >= 0
    assert [y for _, y in layout(diamond())][1] == [y for _, y in layout(diamond())][2]  # side by side


def test_the_drawing_has_every_edge_and_the_slowest_step_is_strongest():
    text = page_of(model())
    edges = re.findall(r'data-from="(\d+)" data-to="(\d+)"', text)
    expected = [(read, n) for n, step in enumerate(graph()) for read in step.reads if read >= 0]
    assert sorted((int(a), int(b)) for a, b in edges) == sorted(expected)
    heat = [float(value) for value in re.findall(r'class="heat"[^>]*fill-opacity="([\d.]+)"', text)]
    times = {o.name: o.measured_seconds / o.calls for o in model().report.operators}
    order = sorted(range(len(heat)), key=lambda n: -times[graph()[n].operator])
    assert heat[order[0]] == max(heat) and heat[order[-1]] == min(heat)
    assert "1 × 56 × 56 × 64 · " in text and "(measured)" in text
    assert "(predicted; nothing was measured)" in page_of(model(measured=False))


def test_a_model_without_a_graph_has_none_and_a_long_one_is_truncated():
    assert graph_view((), {}) is None
    bare = dataclasses.replace(model(), report=dataclasses.replace(model().report, graph=()))
    assert 'class="graph"' not in page_of(bare)
    chain = [GraphStep("x", (n - 1,), ("1 float32",)) for n in range(MOST_STEPS + 7)]
    text = graph_view(chain, {})
    assert f"The first {MOST_STEPS} of {MOST_STEPS + 7} steps are drawn" in text
    assert text.count('class="step"') == MOST_STEPS


@needs_browser
def test_a_step_shows_its_edges_and_the_drawing_grows_and_shrinks(browser, tmp_path):
    (tmp_path / "m.html").write_text(page_of(model()), encoding="utf-8")
    seen = browser.show(tmp_path / "m.html")
    box = "document.querySelector('.step[data-step=\"{}\"] .box')"
    click = f"{box}.dispatchEvent(new MouseEvent('click', {{{{bubbles: true}}}}))"
    seen.evaluate(click.format(11))
    lit = "[...document.querySelectorAll('.edge.on')].map(e => e.dataset.from + '-' + e.dataset.to).sort()"
    assert seen.evaluate(lit) == ["0-11", "10-11", "11-12"]
    seen.evaluate(click.format(11))
    assert seen.evaluate(lit) == []
    wide = "document.querySelector('.pane svg').getBoundingClientRect().width"
    before = seen.evaluate(wide)
    seen.evaluate("[...document.querySelectorAll('.graph .tools button')].find(b => b.textContent === '+').click()")
    assert seen.evaluate(wide) == pytest.approx(1.4 * before, abs=2)
    seen.evaluate("[...document.querySelectorAll('.graph .tools button')].find(b => b.textContent === 'Fit').click()")
    assert seen.evaluate(wide) < before
    assert seen.complaints == []


# ---- the profile -----------------------------------------------------------------------------------------------------


def test_the_table_adds_up_times_and_counters_of_all_threads():
    page = Page(page_of(profile(), "p"))
    assert {"Threads over time", "Operators by thread"} <= set(page.titles)
    operators = profile().operators()
    first = operators["fused_conv2d0_add_relu"]
    assert (first.calls, first.seconds) == (1, 4e-4)
    assert first.busy == pytest.approx([3.9e-4, 3.9e-4]) and first.efficiency == pytest.approx(0.975)
    assert first.counters == {"cycles": 2000, "instructions": 4000}  # of its tasks, not of the caller's whole step
    alone = operators["max_pool2d"]
    assert alone.busy == pytest.approx([9e-5, 0.0]) and alone.counters == {"cycles": 10, "instructions": 20}
    assert list(operators) == sorted(operators, key=lambda name: -operators[name].seconds)
    assert "2.00" in page.cells and "0.67" in page.cells  # instructions per cycle
    assert "98%" in page.cells and "50%" in page.cells


def test_what_was_not_counted_is_said():
    text = page_of(dataclasses.replace(profile(), refused="this one has none", counters=("task clock",)))
    assert "No hardware counters: this one has none; counted by the system: task clock." in text
    assert "per cycle" not in Page(text).cells


def test_a_profile_unlike_other_runs_is_doubted():
    assert 'class="banner"' not in page_of(profile(), "p")
    slow = dataclasses.replace(profile(), unprofiled=3e-4)
    text = page_of(slow, "p")
    assert text.index("took 3.0 times as long as runs without profiling") < text.index("<h1>")
    assert "took 3.0 times as long" in page_of(dataclasses.replace(model(), profile=slow))


def test_a_profile_is_kept_with_the_model_and_shown_again():
    timed = dataclasses.replace(model(), profile=profile())
    kept = json.loads(json.dumps(timed.to_dict()))
    assert Profile.from_dict(kept["profile"]) == profile()
    assert result_page(kept, "r.json") == page_of(timed)
    earlier = {name: value for name, value in kept.items() if name not in ("profile", "graph", "others")}
    assert "Threads over time" not in Page(result_page(earlier, "r.json")).titles
    broken = {**kept, "profile": {**kept["profile"], "steps": [{"operator": "x"}]}}
    with pytest.raises(Exception, match=r"r\.json is corrupted"):
        result_page(broken, "r.json")


def test_a_trace_has_named_threads_and_every_task(tmp_path):
    profile().save(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert names == {0: "operators", 1: "thread 0 (caller)", 2: "thread 1"}
    own = [e for e in events if e["ph"] == "X"]
    assert [e["name"] for e in own if e["tid"] == 0] == [step.operator for step in profile().steps]
    tasks = sorted((e["tid"] - 1, round(e["ts"], 3), round(e["dur"], 3)) for e in own if e["tid"])
    expected = [(0, 0.0, 390.0), (0, 410.0, 90.0), (0, 500.0, 400.0), (1, 10.0, 390.0), (1, 700.0, 200.0)]
    assert tasks == expected
    assert next(e for e in own if e["name"] == "max_pool2d")["args"]["nodes"] == "pool <1>"
    assert next(e for e in own if e["cat"] == "task")["args"]["cycles"] == 1000


@needs_browser
def test_threads_are_drawn_and_explained(browser, tmp_path):
    (tmp_path / "p.html").write_text(page_of(profile(), "p"), encoding="utf-8")
    seen = browser.show(tmp_path / "p.html", width=1000)
    assert seen.evaluate("document.querySelector('.tools output').textContent") == "0 s to 900 µs"
    found = seen.evaluate(
        """(c => { const r = c.getBoundingClientRect(), at = {pointerId: 1, clientX: r.left + 200, clientY: r.top + 50};
        c.dispatchEvent(new PointerEvent('pointermove', {...at, bubbles: true}));
        return document.getElementById('tip').textContent; })(document.querySelector('canvas'))"""
    )
    assert found == "thread 1: 1  fused_conv2d0_add_relu\nfrom 10 µs, 390 µs"
