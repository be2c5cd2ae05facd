"""The documentation is built without a warning; in a real browser, from file://: no overflow, no errors, and search."""

from __future__ import annotations

import importlib.util
import itertools
import os
import re
import shutil
import subprocess
import sys
import time

import pytest
from browser import NAMES, Browser, browser_path
from documented import REFERENCE, ROOT

pytestmark = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("material", "mkdocstrings"))), reason="mkdocs is not installed: extra docs"
)
IN_A_BROWSER = pytest.mark.skipif(browser_path() is None, reason=f"no browser is installed: {', '.join(NAMES)}")
# Elements that extend beyond the window; tables, code and figures scroll within boxes of their own.
BEYOND = """[...document.querySelectorAll(".md-content *, .md-header, .md-footer")].filter(e =>
  !e.closest(".md-typeset__scrollwrap, pre, .md-code__content, svg, p:has(> img)") && e.getClientRects().length
  && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 120))"""
LIGHTNESS = """(names => names.map(name => {
  const [r, g, b] = getComputedStyle(document.body)[name].match(/[0-9.]+/g).map(Number);
  return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;
}))(["backgroundColor", "color"])"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with the built pages, and the process that built them, whose output tells whether that is right."""
    folder = tmp_path_factory.mktemp("documentation")
    for name in ("docs", "tvm_tiling", "mkdocs.yml"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # a message of the theme
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, env=quiet)
    return folder / "build" / "docs", done


@pytest.fixture(scope="module")
def site(built):
    return built[0]


@pytest.fixture(scope="module")
def browser():
    with Browser() as found:
        yield found


def test_pages_are_built_without_a_warning(built):
    site, done = built
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    reference = "".join(page.read_text() for page in (site / "api").glob("*.html"))
    missing = [path for path in REFERENCE if f'id="tvm_tiling.{path}"' not in reference]
    assert missing == []
    outside = [
        f"{page.name}: {link}"
        for page in site.rglob("*.html")
        for link in re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)"', page.read_text())
    ]
    assert outside == []


@IN_A_BROWSER
def test_every_page_fits_and_loads_nothing_from_other_hosts(browser, site):
    """Each page is loaded once, every second one dark, and seen in a wide and in a narrow window."""
    wrong = []
    pages = sorted(set(site.rglob("*.html")) - {site / "404.html"})  # this one requires a server
    for page, dark in zip(pages, itertools.cycle([False, True]), strict=False):
        seen = browser.show(page, width=1280, height=844, dark=dark)
        ground, text = seen.evaluate(LIGHTNESS)
        found = {"contrast": not (ground < 0.25 and text > 0.6 if dark else ground > 0.9 and text < 0.4)}
        for width in (1280, 390):
            seen.view(width, 844, dark)
            found[f"wide at {width}"] = seen.evaluate("document.documentElement.scrollWidth") > width
            found[f"beyond at {width}"] = seen.evaluate(BEYOND)
        found["requests"] = [url for url in seen.requests if not url.startswith(("file://", "data:"))]
        found["complaints"] = seen.complaints
        if any(found.values()):
            wrong.append((page.relative_to(site), {name: value for name, value in found.items() if value}))
        browser.close(seen)
    assert wrong == []


@IN_A_BROWSER
def test_search_works_without_a_server(browser, site):
    seen = browser.show(site / "index.html", width=1280)
    seen.evaluate("""(box => { box.focus(); box.value = "Winograd"; box.dispatchEvent(new Event("keyup")) })(
        document.querySelector("input.md-search__input"))""")
    results = "[...document.querySelectorAll('.md-search-result__item a')].map(e => e.getAttribute('href'))"
    end = time.monotonic() + 20
    while not (found := seen.evaluate(results)) and time.monotonic() < end:
        time.sleep(0.1)
    assert any("decisions/convolutions.html" in link for link in found)
    assert seen.complaints == []
