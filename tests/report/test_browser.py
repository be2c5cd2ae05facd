"""Pages in a real browser: on a phone and a desktop, light and dark, and in print. Skipped if none is installed."""

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
# Elements that extend beyond the window, except those within a table's own scroll area.
BEYOND = """[...document.querySelectorAll("body *")].filter(e => !e.closest(".wide, .pane") && e.getClientRects().length
  && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"""
# Tables and drawings that are wider than their container.
CUT = """[...document.querySelectorAll(".wide, .track, figure")].filter(e => e.scrollWidth > e.clientWidth + 1)
  .map(e => e.outerHTML.slice(0, 80))"""
# Charts that are higher than their content, as if stretched to their neighbours' height.
STRETCHED = """[...document.querySelectorAll(".plots > figure.bars")].filter(e =>
  e.getBoundingClientRect().bottom - e.lastElementChild.getBoundingClientRect().bottom > 4).map(e => e.innerText)"""
SMALLEST_TEXT = """Math.min(...[...document.querySelectorAll("svg text")].map(e => e.getBoundingClientRect().height))"""


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", PAGES)
def test_it_is_shown_without_scrolling_sideways(browser, files, name, width, dark):
    seen = browser.show(files / f"{name}.html", width=width, height=844, dark=dark)
    assert (seen.requests, seen.complaints) == ([], [])
    assert seen.evaluate("document.documentElement.scrollWidth") == width
    if width == 1280:
        assert seen.evaluate(CUT) == []
    assert seen.evaluate(BEYOND) == []
    if seen.evaluate("document.querySelectorAll('svg text').length"):
        assert seen.evaluate(SMALLEST_TEXT) >= 9


@pytest.mark.parametrize("name", ["model", "simulation"])
def test_charts_keep_their_own_height_and_sizes_one_line(browser, files, name):
    seen = browser.show(files / f"{name}.html", width=1280)
    assert seen.evaluate(STRETCHED) == []
    heights = seen.evaluate(
        "[...document.querySelectorAll('td.sizes')].map(e => { const r = document.createRange();"
        " r.selectNodeContents(e); return r.getBoundingClientRect().height; })"
    )
    assert all(height < 30 for height in heights)


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
    assert printed.evaluate("document.documentElement.scrollWidth") <= 794
    pages = len(re.findall(rb"/Type\s*/Page\b", printed.pdf()))
    assert 3 <= pages <= 40
