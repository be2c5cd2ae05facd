"""README.md: every example and command runs, and the files that it names exist."""

from __future__ import annotations

import re
import shlex

import pytest
from documented import ROOT, blocks, image_bytes, onnx_bytes, our_commands, run_or_read, run_python

from tvm_tiling.cli.demo_files import DIRECTORY

README = ROOT / "README.md"
TEXT = README.read_text()
MOST_EXAMPLE_LINES = 10
EXAMPLES = list(blocks(README, "python"))
SHELL = [words for block in blocks(README, "sh") for words in block.commands()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working folder with small files named like those of the demo, shared by all examples of the README."""
    path = tmp_path_factory.mktemp("readme")
    (path / "model.onnx").write_bytes(onnx_bytes())
    (path / "input.npz").write_bytes(image_bytes())
    return path


@pytest.mark.parametrize("block", EXAMPLES, ids=lambda block: f"line {block.line}")
def test_example_is_short_and_runs(block, folder, monkeypatch):
    assert len(block.text.splitlines()) <= MOST_EXAMPLE_LINES
    monkeypatch.chdir(folder)
    run_python(block.text, f"README.md, line {block.line}")


@pytest.mark.parametrize("words", our_commands(README), ids=shlex.join)
def test_command_runs(words, folder, monkeypatch):
    monkeypatch.chdir(folder)
    run_or_read(words, folder)


def test_there_is_an_example_of_each_use():
    assert len(EXAMPLES) == 6 and len(our_commands(README)) >= 7


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = set(re.findall(r"`make ([a-z]+)`", TEXT)) | {words[1] for words in SHELL if words[0] == "make"}
    assert named == {"demo", "test", "bench", "lint", "docs"} and named <= targets


def test_modules_that_are_run_exist():
    modules = re.findall(r"`python -m (\S+?)[ `]", TEXT)
    assert len(modules) >= 8
    assert all((ROOT / f"{module.replace('.', '/')}.py").is_file() for module in modules)


def test_the_first_commands_make_an_environment_and_the_files_of_all_others():
    first = [shlex.join(words) for words in SHELL[:5]]
    install = first.pop(2)
    assert first == ["python3 -m venv .venv", ". .venv/bin/activate", "tvm-tiling demo", f"cd {DIRECTORY}"]
    assert install.startswith("pip install '.[")


def test_there_is_a_picture_of_a_report():
    assert re.search(r"^!\[[^\]]+\]\(docs/pictures/\w+\.png\)$", TEXT, flags=re.MULTILINE)


def test_every_result_has_its_command():
    table = re.search(r"^\| what \|.*?\n\n", TEXT, flags=re.MULTILINE | re.DOTALL)
    rows = [row.strip("|\n ").split(" | ") for row in (table[0] if table else "").strip().splitlines()[2:]]
    assert len(rows) >= 8
    assert all(len(row) == 4 and "`" in row[3] for row in rows)


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+)", TEXT)
    assert len(links) >= 15
    assert [link for link in links if not (ROOT / link).exists()] == []
