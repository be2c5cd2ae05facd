"""README.md: every example and command runs, and what it names is there."""

from __future__ import annotations

import re
import shlex

import pytest
from documented import IMAGE, ROOT, blocks, onnx_bytes, our_commands, run_or_read, run_python

README = ROOT / "README.md"
TEXT = README.read_text()
MOST_EXAMPLE_LINES = 10
EXAMPLES = list(blocks(README, "python"))
SHELL = [words for block in blocks(README, "sh") for words in block.commands()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working folder with the model that the README names, the same for all of its examples."""
    path = tmp_path_factory.mktemp("readme")
    (path / "model.onnx").write_bytes(onnx_bytes())
    return path


@pytest.mark.parametrize("block", EXAMPLES, ids=lambda block: f"line {block.line}")
def test_example_is_short_and_runs(block, folder, monkeypatch):
    assert len(block.text.splitlines()) <= MOST_EXAMPLE_LINES
    assert "1, 3, 32, 32" not in block.text or IMAGE == (1, 3, 32, 32)
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
    modules = [words[2] for words in SHELL if words[1:2] == ["-m"]]
    assert len(modules) >= 2
    assert all((ROOT / f"{module.replace('.', '/')}.py").is_file() for module in modules)


def test_first_two_commands_do_all_set_up():
    assert [words[:2] for words in SHELL[:2]] == [["make", "demo"], ["make", "test"]]


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+)", TEXT)
    assert len(links) >= 15
    assert [link for link in links if not (ROOT / link).exists()] == []
