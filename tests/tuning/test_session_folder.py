"""Folders of sessions: removed by the next session when their process was killed, and nothing else ever is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tvm_tiling.tuning.measuring.session_folder import SessionFolder, remove_abandoned

HOLDING = """
import sys
from tvm_tiling.tuning.measuring.session_folder import SessionFolder
folder = SessionFolder()
(folder.piece() / "cut.so").write_text("built")
print(folder.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def temporary(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def session(temporary):
    """Another session, in a process of its own, and its folder."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process, Path(process.stdout.readline().strip())
        process.kill()


def test_the_folder_of_a_killed_session_is_removed_by_the_next(session, temporary):
    process, path = session
    assert (path / "000001" / "cut.so").is_file()
    with_it = SessionFolder()
    assert path.is_dir()  # that session lives
    process.send_signal(signal.SIGKILL)
    process.wait()
    alone = SessionFolder()
    assert sorted(temporary.iterdir()) == sorted([with_it.path, alone.path])
    for folder in (with_it, alone):
        folder.close()
        folder.close()
    assert list(temporary.iterdir()) == []


def test_pieces_are_folders_of_their_own(temporary):
    folder = SessionFolder()
    pieces = [folder.piece() for _ in range(3)]
    assert len(set(pieces)) == 3 and all(piece.is_dir() and piece.parent == folder.path for piece in pieces)
    folder.close()


@pytest.mark.parametrize(
    "name", ["tvm-tiling-tune-notes", "tvm-tiling-tune-1-abcdefgh2", "x-tvm-tiling-tune-1-abcdefgh"]
)
def test_what_is_named_otherwise_stays(temporary, name):
    (temporary / name).mkdir()
    remove_abandoned(temporary)
    assert (temporary / name).is_dir()


def test_what_holds_something_else_stays(temporary):
    folder, linked = temporary / "tvm-tiling-tune-1-abcdefgh", temporary / "elsewhere"
    (folder / "000001").mkdir(parents=True)
    (folder / "notes.txt").write_text("not a session's")
    linked.mkdir()
    (temporary / "tvm-tiling-tune-2-abcdefgh").symlink_to(linked)
    (temporary / "tvm-tiling-tune-3-abcdefgh").write_text("no folder")
    remove_abandoned(temporary)
    assert len(list(temporary.iterdir())) == 4 and (folder / "notes.txt").is_file() and (folder / "000001").is_dir()
    (folder / "notes.txt").unlink()
    remove_abandoned(temporary)
    assert not folder.exists()


def test_folders_of_another_user_stay(temporary, monkeypatch):
    folder = temporary / "tvm-tiling-tune-1-abcdefgh"
    folder.mkdir()
    own = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    remove_abandoned(temporary)
    assert folder.is_dir()
    monkeypatch.undo()
    remove_abandoned(temporary)
    assert not folder.exists()
