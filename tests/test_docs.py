"""docs/: every snippet, command and example runs, the reference is complete, and figures match current decisions."""

from __future__ import annotations

import importlib
import inspect
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from documented import COSTLY_PAGES, DOCS, PAGES, REFERENCE, ROOT, blocks, our_commands, run_page

import tvm_tiling as tt

FIGURES = DOCS / "figures"
EXAMPLES = sorted((DOCS / "examples").glob("*.py"))
WITH_SNIPPETS = [page for page in PAGES if page.name not in COSTLY_PAGES and any(blocks(page, "python", "sh"))]


def name_of(path: Path) -> str:
    return str(path.relative_to(DOCS))


# ---- snippets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", WITH_SNIPPETS, ids=name_of)
def test_snippets_of_a_page_run_in_sequence(page, tmp_path, monkeypatch):
    if "import torch" in page.read_text():
        pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.chdir(tmp_path)
    run_page(page, tmp_path)


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_example_runs_in_any_folder(example, tmp_path, monkeypatch):
    if "import torch" in example.read_text():
        pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(example), run_name="__main__")


def test_examples_are_listed():
    listed = set(re.findall(r"\(examples/(\w+\.py)\)", (DOCS / "examples.md").read_text()))
    assert listed == {path.name for path in EXAMPLES} and len(listed) >= 12


def test_commands_of_every_kind_are_documented():
    from tvm_tiling.cli import app

    shown = {words[0] for page in (*PAGES, ROOT / "README.md") for words in our_commands(page)}
    assert {row.name for row in app.COMMANDS} <= shown


def test_modules_that_pages_run_exist():
    text = "".join(page.read_text() for page in PAGES)
    modules = set(re.findall(r"\b(benchmarks(?:\.\w+)+)", text)) - {"benchmarks.X"}
    paths = {ROOT / module.replace(".", "/") for module in modules}
    assert len(modules) >= 12
    assert [path for path in paths if not path.with_suffix(".py").is_file() and not path.is_file()] == []


# ---- wholeness -------------------------------------------------------------------------------------------------------


def test_links_and_pictures_are_there():
    missing = []
    for page in PAGES:
        prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose):
            if not link.startswith("http") and not (page.parent / link).exists():
                missing.append(f"{name_of(page)}: {link}")
    assert missing == []


def test_every_page_is_in_the_navigation():
    named = set(re.findall(r"(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), flags=re.MULTILINE))
    assert named == {name_of(page) for page in PAGES}


def test_slow_list_misses_none():
    listed = set(re.findall(r"^\| (test_\w+\.py) \|", (DOCS / "tests.md").read_text(), flags=re.MULTILINE))
    assert {path.name for path in (ROOT / "tests" / "slow").glob("test_*.py")} == listed


def test_reference_has_every_public_name():
    deeper = {path for path in REFERENCE if "." in path} - {
        "decide.decide.decide"
    }  # a function in a package of the same name
    assert {path.split(".")[-1] for path in REFERENCE if path not in deeper} == set(tt.__all__)
    assert len(REFERENCE) == len(set(REFERENCE))


def of_reference(path: str) -> object:
    """Return the object of a path in the reference."""
    found: object = tt
    parts = path.split(".")
    for place, part in enumerate(parts):
        inner = ".".join(("tvm_tiling", *parts[: place + 1]))
        found = getattr(found, part) if hasattr(found, part) else importlib.import_module(inner)
    return found


@pytest.mark.parametrize("path", REFERENCE)
def test_public_name_has_a_docstring(path):
    found = of_reference(path)
    assert inspect.getdoc(found) and not (inspect.getdoc(found) or "").startswith(f"{path}("), f"{path} has none"
    if not inspect.isclass(found):
        return
    own = {name: value for base in found.__mro__ if is_ours(base) for name, value in vars(base).items()}
    called = {name for name, value in own.items() if inspect.isroutine(value) or isinstance(value, property)}
    silent = [name for name in sorted(called) if name[0] != "_" and not inspect.getdoc(getattr(found, name))]
    assert silent == [], f"of {path} these have no docstring"


def is_ours(kind: type) -> bool:
    return kind.__module__.startswith("tvm_tiling")


# ---- figures and pages -----------------------------------------------------------------------------------------------


def test_figures_are_those_of_todays_decisions(tmp_path):
    """`make figures` redraws them after an intended change."""
    drawn = subprocess.run(
        [sys.executable, str(FIGURES / "draw.py"), str(tmp_path)], capture_output=True, text=True, cwd=ROOT, timeout=300
    )
    assert (drawn.returncode, drawn.stderr) == (0, "")
    names = sorted(path.name for path in tmp_path.glob("*.svg"))
    assert names == sorted(path.name for path in FIGURES.glob("*.svg")) and len(names) >= 10
    changed = [name for name in names if (tmp_path / name).read_bytes() != (FIGURES / name).read_bytes()]
    assert changed == [], "run `make figures` if the change is wanted"


def test_figures_are_shown():
    text = "".join(page.read_text() for page in PAGES)
    assert {path.name for path in FIGURES.glob("*.svg")} == set(re.findall(r"figures/([\w-]+\.svg)\)", text))
