"""Pages in a real browser: on a phone and a desktop, light and dark, and on paper. Skipped where none is installed."""

from __future__ import annotations

import re

import pytest
from browser import NAMES, Browser, browser_path
from test_pages import PAGES

pytestmark = pytest.mark.skipif(browser_path() is None, reason=f"no browser is installed: {', '.join(NAMES)}")


@pytest.fixture(scope="module")
def browser():
    with Browser() as found:
        yield found


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    for name, make in PAGES.items():
        (folder / f"{name}.html").write_text(make(), encoding="utf-8")
    return folder


LIGHTNESS = """(names => names.map(name => {
  const [r, g, b] = getComputedStyle(document.body)[name].match(/[0-9.]+/g).map(Number);
  return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;
}))(["backgroundColor", "color"])"""
# Elements that reach beyond the window, those within a table's own scroll area aside.
BEYOND = """[...document.querySelectorAll("body *")].filter(e => !e.closest(".wide") && e.getClientRects().length
  && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"""
SMALLEST_TEXT = """Math.min(...[...document.querySelectorAll("svg text")].map(e => e.getBoundingClientRect().height))"""


@pytest.mark.parametrize("name", PAGES)
def test_a_phone_shows_it_without_scrolling_sideways(browser, files, name):
    seen = browser.show(files / f"{name}.html", width=390, height=844)
    assert (seen.requests, seen.complaints) == ([], [])
    assert seen.evaluate("document.documentElement.scrollWidth") == 390
    assert seen.evaluate(BEYOND) == []
    if seen.evaluate("document.querySelectorAll('svg text').length"):
        assert seen.evaluate(SMALLEST_TEXT) >= 9


@pytest.mark.parametrize("name", ["model", "comparison"])
def test_it_follows_the_readers_light_or_dark_setting(browser, files, name):
    path = files / f"{name}.html"
    ground, text = browser.show(path).evaluate(LIGHTNESS)
    assert ground > 0.95 and text < 0.2
    seen = browser.show(path, dark=True)
    ground, text = seen.evaluate(LIGHTNESS)
    assert ground < 0.1 and text > 0.85
    assert (seen.requests, seen.complaints) == ([], [])
    ground, _ = browser.show(path, dark=True, media="print").evaluate(LIGHTNESS)
    assert ground > 0.95  # paper is white


def test_paper_shows_what_is_folded_away_and_whole_tables(browser, files):
    hidden = "[...document.querySelectorAll('details table')].filter(e => !e.checkVisibility()).length"
    path = files / "model.html"
    assert browser.show(path).evaluate(hidden) > 0
    printed = browser.show(path, width=794, media="print")
    assert printed.evaluate(hidden) == 0
    assert printed.evaluate("getComputedStyle(document.querySelector('.wide')).overflowX") == "visible"
    pages = len(re.findall(rb"/Type\s*/Page\b", printed.pdf()))
    assert 3 <= pages <= 40
