"""README.md: every example runs, every command exists, and the list of slow tests is whole."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tvm_tiling.cli import app, main
from tvm_tiling.cli.demo_resnet import resnet_bytes

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
MOST_EXAMPLE_LINES = 26
HARMLESS = ("explain", "hardware")  # commands that print something at once, and are run here


def blocks(language: str) -> Iterator[tuple[str, str]]:
    """The bold heading or, where there is none, the section above each block of that language; and its text."""
    for found in re.finditer(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL):
        titles = re.findall(r"^(?:\*\*(.+?)\.\*\*|## (.+)$)", README[: found.start()], flags=re.MULTILINE)
        yield "".join(titles[-1]), found.group(1)


def shell_lines() -> list[list[str]]:
    """Every command of every shell block, as words without the comment."""
    return [
        words for _, text in blocks("sh") for line in text.splitlines() if (words := shlex.split(line, comments=True))
    ]


EXAMPLES = list(blocks("python"))
TVM_TILING = [words[1:] for words in shell_lines() if words[0] == "tvm-tiling"]


@pytest.fixture
def beside_files(tmp_path, monkeypatch):
    """A working folder with the files that the README shows or names."""
    (_, npu), *others = blocks("toml")
    assert not others and "in `npu.toml`" in README
    (tmp_path / "npu.toml").write_text(npu)
    (tmp_path / "model.onnx").write_bytes(resnet_bytes(image=32, channels=4))
    monkeypatch.chdir(tmp_path)


def test_there_are_examples():
    assert len(EXAMPLES) >= 11 and len(TVM_TILING) >= 8


@pytest.mark.parametrize(("title", "code"), EXAMPLES, ids=[title for title, _ in EXAMPLES])
def test_example_runs(title, code, beside_files):
    assert len(code.splitlines()) <= MOST_EXAMPLE_LINES
    exec(compile(code, f"README.md: {title}", "exec"), {"__name__": "example"})


@pytest.mark.parametrize("words", TVM_TILING, ids=" ".join)
def test_command_exists_and_runs_where_it_may(words, beside_files, capsys):
    assert words[0] in {row.name for row in app.COMMANDS}
    with pytest.raises(SystemExit) as left:
        main(words if words[0] in HARMLESS else (words[0], "--help"))
    out, err = capsys.readouterr()
    assert (left.value.code or 0, err) == (0, "") and out


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = set(re.findall(r"`make ([a-z]+)`", README)) | {words[1] for words in shell_lines() if words[0] == "make"}
    assert named == {"demo", "test", "bench", "lint"} and named <= targets


def test_modules_that_are_run_exist():
    modules = [words[2] for words in shell_lines() if words[1:2] == ["-m"]]
    assert len(modules) >= 6
    assert all((ROOT / f"{module.replace('.', '/')}.py").is_file() for module in modules)


def test_first_two_commands_do_all_set_up():
    assert [words[:2] for words in shell_lines()[:2]] == [["make", "demo"], ["make", "test"]]


def test_slow_list_misses_none():
    listed = set(re.findall(r"^\| (test_\w+\.py) \|", README, flags=re.MULTILINE))
    assert {path.name for path in (ROOT / "tests" / "slow").glob("test_*.py")} <= listed
