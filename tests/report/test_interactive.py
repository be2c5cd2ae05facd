"""What the scripts of a page do, in a real browser: tables sort and filter, terms explain themselves."""

from __future__ import annotations

import pytest
from browser import NAMES, Browser, browser_path
from test_pages import PAGES

from tvm_tiling.report.glossary import TERMS, explained
from tvm_tiling.report.page import Section, page, table

pytestmark = pytest.mark.skipif(browser_path() is None, reason=f"no browser is installed: {', '.join(NAMES)}")

ROWS = [
    ("b10", "1\N{NARROW NO-BREAK SPACE}024", "12.5 %"),
    ("b9", "–", "3.0 %"),
    ("a", "0.597", "100 %"),
    ("c", "20", "–"),
    *((f"z{n}", str(100 + n), "50 %") for n in range(8)),
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
    assert found[0] == ROWS[0][1] and found[-2:] == ["0.597", "–"]  # the largest first, what is missing last
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


def test_a_unit_is_no_part_of_a_term():
    assert explained("measured, µs") == f'<abbr title="{TERMS["measured"]}">measured</abbr>, µs'
    assert explained("latency, median (doubtful)").endswith("</abbr> (doubtful)")
    assert explained("nothing known") == "nothing known"
