"""Slow commands of README.md and docs/, which the default tests only parse, and pages with a search."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from documented import (
    COSTLY_PAGES,
    DOCS,
    PAGES,
    ROOT,
    is_costly,
    is_endless,
    our_commands,
    provide,
    run_command,
    run_page,
)

pytestmark = pytest.mark.slow

COMMANDS = sorted(
    {
        shlex.join(words)
        for page in (ROOT / "README.md", *PAGES)
        for words in our_commands(page)
        if is_costly(words) and not is_endless(words)
    }
)


@pytest.mark.parametrize("line", COMMANDS)
def test_it_runs_as_printed(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line)
    provide(tmp_path, [word for word in words if not word.endswith(".db")])
    run_command(words)


@pytest.mark.parametrize("name", COSTLY_PAGES)
def test_snippets_of_a_costly_page_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(DOCS / name, tmp_path)
