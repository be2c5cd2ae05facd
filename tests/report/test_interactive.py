"""The scripts of a page in a real browser: tables sort and filter, terms have tooltips."""

from __future__ import annotations

import itertools

import pytest
from browser import NAMES, Browser, browser_path
from test_pages import PAGES

from tvm_tiling.report.glossary import TERMS, explained
from tvm_tiling.report.page import Section, page, table
from tvm_tiling.report.zoomed import Span, lanes

pytestmark = pytest.mark.skipif(browser_path() is None, reason=f"no browser is installed: {', '.join(NAMES)}")

ROWS = [
    ("b10", "1\N{NARROW NO-BREAK SPACE}024", "12.5%"),
    ("b9", "–", "3.0%"),
    ("a", "0.597", "100%"),
    ("c", "20", "–"),
    *((f"z{n}", str(100 + n), "50%") for n in range(8)),
]
COLUMN = "[...document.querySelectorAll('tbody tr')].map(r => r.cells[{}].textContent)"
SHOWN = "[...document.querySelectorAll('tbody tr')].filter(r => r.checkVisibility()).map(r => r.cells[0].textContent)"
HEADING = "document.querySelectorAll('th')[{}]"


@pytest.fixture(scope="module")
def browser():
    with Browser() as found:
        yield found


@pytest.fixture(scope="module")
def shown(browser, tmp_path_factory):
    path = tmp_path_factory.mktemp("pages") / "t.html"
    path.write_text(page("t", [], [], [Section("T", table(("name", "work, Mop", "share"), ROWS))]), encoding="utf-8")
    return lambda **given: browser.show(path, **given)


def test_headings_sort_figures_by_value_and_words_by_their_numbers(shown):
    seen = shown()
    seen.evaluate(HEADING.format(1) + ".click()")
    found = seen.evaluate(COLUMN.format(1))
    assert found[0] == ROWS[0][1] and found[-2:] == ["0.597", "–"]  # largest first, missing values last
    assert seen.evaluate(HEADING.format(1) + ".getAttribute('aria-sort')") == "descending"
    seen.evaluate(HEADING.format(1) + ".click()")
    found = seen.evaluate(COLUMN.format(1))
    assert found[0] == "0.597" and found[-2:] == [ROWS[0][1], "–"]
    seen.evaluate(HEADING.format(0) + ".dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true}))")
    assert seen.evaluate(COLUMN.format(0))[:4] == ["a", "b9", "b10", "c"]
    assert seen.evaluate(HEADING.format(1) + ".getAttribute('aria-sort')") is None
    assert seen.complaints == []


def test_a_field_filters_rows_by_all_of_its_words(shown):
    seen = shown()
    type_in = "f = document.querySelector('input'); f.value = {!r}; f.dispatchEvent(new Event('input'))"
    seen.evaluate(type_in.format("50 z3"))
    assert seen.evaluate(SHOWN) == ["z3"]
    assert seen.evaluate("document.querySelector('.filter output').textContent") == "1 of 12 rows"
    seen.evaluate(type_in.format("  "))
    assert len(seen.evaluate(SHOWN)) == len(ROWS)


def test_terms_are_explained_at_the_pointer_and_in_a_list(shown):
    seen = shown(width=390)
    seen.evaluate("document.querySelector('abbr').dispatchEvent(new Event('pointerenter'))")
    tip = "document.getElementById('tip')"
    assert seen.evaluate(f"{tip}.hidden") is False
    assert seen.evaluate(f"{tip}.textContent") == TERMS["work"]
    box = seen.evaluate(f"(r => [r.left, r.right, r.top, r.bottom])({tip}.getBoundingClientRect())")
    assert box[0] >= 0 and box[1] <= 390 and box[2] >= 0
    seen.evaluate("document.querySelector('abbr').dispatchEvent(new Event('pointerleave'))")
    assert seen.evaluate(f"{tip}.hidden") is True
    assert seen.evaluate("[...document.querySelectorAll('.glossary dt')].map(e => e.textContent)") == ["work"]


def test_without_scripts_all_content_is_there(browser, tmp_path):
    for name in ("model", "simulation"):
        whole = PAGES[name]()
        path = tmp_path / f"{name}.html"
        path.write_text(whole, encoding="utf-8")
        seen = browser.show(path, scripts=False)
        assert seen.evaluate("[...document.querySelectorAll('table')].every(e => e.rows.length > 1)")
        assert seen.evaluate("document.querySelectorAll('.filter, canvas').length") == 0
        assert seen.evaluate("[...document.querySelectorAll('figure .static')].every(e => e.checkVisibility())")
        assert (seen.requests, seen.complaints) == ([], [])


def test_a_unit_is_not_part_of_a_term():
    assert explained("measured, µs") == f'<abbr title="{TERMS["measured"]}">measured</abbr>, µs'
    assert explained("latency, median (doubtful)").endswith("</abbr> (doubtful)")
    assert explained("nothing known") == "nothing known"


# ---- timelines -------------------------------------------------------------------------------------------------------

SPOKEN = """(x => { const c = document.querySelector('canvas'), r = c.getBoundingClientRect();
  const at = {pointerId: 1, clientX: r.left + x, clientY: r.top + %d, bubbles: true};
  c.dispatchEvent(new PointerEvent('pointermove', at));
  const t = document.getElementById('tip'); return t.hidden ? '' : t.textContent; })(%d)"""
WINDOW = "document.querySelector('.tools output').textContent"


def key(name):
    return f"document.querySelector('canvas').dispatchEvent(new KeyboardEvent('keydown', {{key: {name!r}}}))"


@pytest.fixture(scope="module")
def timeline_page(browser, tmp_path_factory):
    path = tmp_path_factory.mktemp("pages") / "s.html"
    path.write_text(PAGES["simulation"](), encoding="utf-8")
    return lambda **given: browser.show(path, **given)


@pytest.mark.parametrize("width", [390, 1280])
def test_a_timeline_zooms_moves_and_explains(timeline_page, width):
    seen = timeline_page(width=width)
    assert seen.evaluate(WINDOW) == "0 to 1.792 k cycles"
    assert seen.evaluate("document.querySelector('figure.live .static').checkVisibility()") is False
    wide = seen.evaluate("document.querySelector('canvas').clientWidth")
    assert seen.evaluate(SPOKEN % (5, wide * 0.4)) == "operators: first <block>\nfrom 0, 896"
    seen.evaluate(key("+"))
    assert seen.evaluate(WINDOW) == "448 to 1.344 k cycles"
    seen.evaluate(key("ArrowRight"))
    assert seen.evaluate(WINDOW) == "627.2 to 1.523 k cycles"
    for _ in range(30):
        seen.evaluate(key("+"))
    first, last = seen.evaluate(WINDOW).removesuffix(" cycles").split(" to ")
    assert float(last.removesuffix(" k")) * (1000 if last.endswith("k") else 1) > 0 and first != last
    seen.evaluate(key("0"))
    assert seen.evaluate(WINDOW) == "0 to 1.792 k cycles"
    seen.evaluate(key("-"))
    seen.evaluate(key("ArrowLeft"))
    assert seen.evaluate(WINDOW) == "0 to 1.792 k cycles"  # no further than the whole range
    assert seen.complaints == []


def test_a_timeline_has_every_instruction_where_there_are_few(timeline_page):
    seen = timeline_page()
    data = seen.evaluate("JSON.parse(document.querySelector('script.timeline').textContent)")
    rows = {row["name"]: row["spans"] for row in data["rows"]}
    assert {"operators", "load_a", "load_b", "matrix", "in a", "in b"} <= set(rows)
    assert len(rows["matrix"]) == 4 * 16 and sum(rows["matrix"][1::4]) == 16
    assert data["names"][rows["matrix"][2]] == "GEMM of first <block>"
    assert all(shade == 8 for shade in rows["matrix"][3::4])


def test_a_timeline_is_drawn_in_the_colours_of_light_and_dark(timeline_page):
    # The painted share of the canvas, and the lightness of its first row.
    painted = """(c => { const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let n = 0;
      for (let i = 3; i < d.length; i += 4) n += d[i] > 0;
      return n / (d.length / 4); })(document.querySelector('canvas'))"""
    corner = "(c => [...c.getContext('2d').getImageData(c.width - 20, 5, 1, 1).data])(document.querySelector('canvas'))"
    light, dark = timeline_page(), timeline_page(dark=True)
    assert light.evaluate(painted) > 0.3 and dark.evaluate(painted) > 0.3
    assert light.evaluate(corner) != dark.evaluate(corner)


def test_paper_has_the_still_drawing(timeline_page):
    seen = timeline_page(width=794, media="print")
    assert seen.evaluate("document.querySelector('figure .static').checkVisibility()") is True
    assert seen.evaluate("document.querySelector('canvas').checkVisibility()") is False


def test_overlapping_spans_lie_in_rows_of_their_own():
    spans = [Span(0, 10), Span(5, 10), Span(10, 5), Span(12, 3), Span(15, 1)]
    rows = lanes(spans)
    assert sorted(span for row in rows for span in row) == sorted(spans)
    assert all(one.start + one.length <= two.start for row in rows for one, two in itertools.pairwise(row))
    assert len(rows) == 3  # three of them overlap between 12 and 15


def test_a_long_program_is_drawn_in_slices(browser, tmp_path, monkeypatch):
    monkeypatch.setattr("tvm_tiling.report.timeline.MOST_SPANS", 10)
    (tmp_path / "s.html").write_text(PAGES["simulation"](), encoding="utf-8")
    seen = browser.show(tmp_path / "s.html")
    assert seen.evaluate("document.body.textContent.includes('48 instructions are drawn in slices of 1 cycles')")
    data = seen.evaluate("JSON.parse(document.querySelector('script.timeline').textContent)")
    spans = next(row["spans"] for row in data["rows"] if row["name"] == "matrix")
    busy = sum(length * shade / 8 for length, shade in zip(spans[1::4], spans[3::4], strict=True))
    assert 16 <= busy <= 16 + len(spans) / 4 * 2  # cycles, each slice rounded up to an eighth
    assert seen.complaints == []
