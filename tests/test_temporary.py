"""Temporary folders: those of killed processes are removed by the next process, and nothing else ever is."""

from __future__ import annotations

import gc
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tvm_tiling import temporary as module
from tvm_tiling.temporary import TemporaryFolder, remove_abandoned, temporary_folder

HOLDING = """
import os, sys
from tvm_tiling.temporary import TemporaryFolder
folder = TemporaryFolder()
(folder.piece() / "cut.so").write_text("built")
if sys.argv[1:] == ["fork"] and not os.fork():
    os.setsid()  # no signal that its parent gets
    print(os.getpid(), folder.path, flush=True)
    sys.stdin.read()
    os._exit(0)
if not sys.argv[1:]:
    print(os.getpid(), folder.path, flush=True)
sys.stdin.read()
"""
NAME = "tvm-tiling-1-abcdefgh"


@pytest.fixture
def temporary(monkeypatch, tmp_path):
    """An empty folder for temporary files, in which this process has not created one yet."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(module, "_uses", iter([0, *[1] * 100]))
    return tmp_path


@pytest.fixture
def holding(temporary):
    """Start a process that holds a folder; return the process, the id of it or of its fork, and the folder."""
    started = []

    def start(*words):
        command = [sys.executable, "-c", HOLDING, *words]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        number, path = process.stdout.readline().split()
        return process, int(number), Path(path)

    yield start
    for process in started:
        with process:  # closes its pipes, too
            process.kill()


def abandoned(temporary, name=NAME):
    """Create a folder as a killed process leaves it."""
    folder = temporary / name
    (folder / "000001").mkdir(parents=True)
    for path in (folder / "model.so", folder / "000001" / "any.thing"):
        path.touch()
    (folder / "devc.o").symlink_to("/proc/1/fd/99")  # a file in the memory of the process
    return folder


def killed(process):
    process.kill()
    process.wait()


def test_the_folder_of_a_killed_process_is_removed_by_the_next(holding, temporary):
    process, _, path = holding()
    assert (path / "000001" / "cut.so").is_file()
    remove_abandoned(temporary)
    assert path.is_dir()  # that process is alive
    killed(process)
    with temporary_folder() as folder:
        assert list(temporary.iterdir()) == [folder] and os.listdir(folder) == []
    assert list(temporary.iterdir()) == []


def test_a_process_removes_what_others_left_once(holding, temporary):
    with temporary_folder():
        pass
    process, _, path = holding()
    killed(process)
    with temporary_folder():
        assert path.is_dir()


def test_the_folder_of_a_live_fork_stays(holding, temporary):
    """The process that created the folder is dead, but a fork of it may still use its contents."""
    process, _, path = holding("fork")
    killed(process)
    remove_abandoned(temporary)
    assert (path / "000001" / "cut.so").is_file()
    process.stdin.close()  # the fork ends
    until = time.monotonic() + 10
    while path.exists() and time.monotonic() < until:
        remove_abandoned(temporary)
        time.sleep(0.01)
    assert not path.exists()


def test_the_folder_of_a_process_in_another_container_stays(holding, temporary):
    """Process ids are meaningless here."""
    inside = ["unshare", "--fork", "--pid", "--kill-child", sys.executable, "-c", HOLDING]
    try:
        process = subprocess.Popen(inside, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    except FileNotFoundError:
        pytest.skip("needs the right to make a process namespace of its own")
    with process:
        said = process.stdout.readline().split()
        if not said:
            pytest.skip("needs the right to make a process namespace of its own")
        number, path = int(said[0]), Path(said[1])
        assert number < 10 and path.name.startswith(f"tvm-tiling-{number}-")
        remove_abandoned(temporary)
        assert path.is_dir()
        process.kill()
    until = time.monotonic() + 10
    while path.exists() and time.monotonic() < until:
        remove_abandoned(temporary)
        time.sleep(0.01)
    assert not path.exists()


def test_a_fork_leaves_the_folder_to_the_process_that_made_it(temporary):
    folder = TemporaryFolder()
    (folder.piece() / "cut.so").write_text("built")
    fork = multiprocessing.get_context("fork").Process(target=folder.close)
    fork.start()
    fork.join(10)
    remove_abandoned(temporary)
    assert (folder.path / "000001" / "cut.so").is_file()
    folder.close()
    folder.close()
    assert list(temporary.iterdir()) == []


def test_pieces_are_folders_of_their_own(temporary):
    folder = TemporaryFolder()
    pieces = [folder.piece() for _ in range(3)]
    assert len(set(pieces)) == 3 and all(piece.is_dir() and piece.parent == folder.path for piece in pieces)
    folder.close()


def test_the_folder_is_removed_after_an_error_and_is_its_owners_alone(temporary):
    with pytest.raises(ValueError), temporary_folder() as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "model.so").write_text("built")
        raise ValueError
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("name", ["tvm-tiling-notes", "tvm-tiling-abcdefgh", f"{NAME}2", f"x-{NAME}"])
def test_what_is_named_otherwise_stays(temporary, name):
    (temporary / name).mkdir()
    remove_abandoned(temporary)
    assert (temporary / name).is_dir()


def test_what_is_filled_otherwise_stays(temporary):
    linked = abandoned(temporary, "elsewhere")
    (temporary / "tvm-tiling-2-abcdefgh").symlink_to(linked)
    (temporary / "tvm-tiling-3-abcdefgh").write_text("no folder")
    foreign = [
        abandoned(temporary, f"tvm-tiling-{number}-abcdefgh") / name
        for number, name in enumerate(("notes.txt", "000001.txt", "data", ".o", "model.so.bak", "0000001", "000002"), 4)
    ]
    for path in foreign:
        path.write_text("not this package's")
    (abandoned(temporary, "tvm-tiling-20-abcdefgh") / "x.so").mkdir()
    before = sorted(temporary.rglob("*"))
    remove_abandoned(temporary)
    assert sorted(temporary.rglob("*")) == before
    for path in foreign:
        path.unlink()
    remove_abandoned(temporary)
    assert not any(path.parent.exists() for path in foreign)


def test_links_in_a_folder_are_not_followed(temporary):
    outside = temporary / "outside"
    outside.mkdir()
    (outside / "kept").write_text("stays")
    folder = abandoned(temporary)
    for place in (folder, folder / "000001"):
        (place / "folder.so").symlink_to(outside)
        (place / "file.so").symlink_to(outside / "kept")
    remove_abandoned(temporary)
    assert list(temporary.iterdir()) == [outside] and (outside / "kept").read_text() == "stays"


def test_folders_of_another_user_stay(temporary, monkeypatch):
    folder, own = abandoned(temporary), os.geteuid()
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: own + 1)
        remove_abandoned(temporary)
    assert (folder / "000001" / "any.thing").is_file()
    remove_abandoned(temporary)
    assert not folder.exists()


@pytest.mark.parametrize("step", ["rmdir", "unlink"])
@pytest.mark.parametrize("allowed", range(2))
def test_a_removal_that_was_killed_itself_is_finished(temporary, monkeypatch, step, allowed):
    """A partially removed folder is still recognised as one of this package."""
    real, folder = getattr(os, step), abandoned(temporary)
    left = iter(range(allowed))

    def until_killed(*arguments, **options):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, step, until_killed)
        with pytest.raises(KeyboardInterrupt):
            remove_abandoned(temporary)
    assert folder.is_dir()
    remove_abandoned(temporary)
    assert list(temporary.iterdir()) == []


def test_processes_that_start_at_once_remove_all_and_nothing_of_each_other(temporary):
    code = """
import tempfile
from tvm_tiling.temporary import temporary_folder
for _ in range(20):
    with temporary_folder() as folder:
        (folder / "built.so").write_text("x")
        from tvm_tiling.temporary import remove_abandoned
        remove_abandoned(folder.parent)
        assert (folder / "built.so").read_text() == "x"
"""
    for number in range(50):
        abandoned(temporary, f"tvm-tiling-{number}-abcdefgh")
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, env=os.environ.copy())
        for _ in range(4)
    ]
    assert [(process.communicate(timeout=60)[1], process.returncode) for process in processes] == [("", 0)] * 4
    assert list(temporary.iterdir()) == []


def test_a_start_looks_at_and_removes_only_that_many(temporary, monkeypatch):
    """In a folder with very many entries the rest is left to the next processes."""

    def left_by(**bounds):
        for number in range(30):
            (temporary / f"tvm-tiling-{number}-abcdefgh").mkdir()
        for name, bound in {"_REMOVING_SECONDS": 60.0, **bounds}.items():
            monkeypatch.setattr(module, name, bound)
        remove_abandoned(temporary)
        left = len(list(temporary.iterdir()))
        monkeypatch.undo()
        monkeypatch.setattr(module, "_REMOVING_SECONDS", 60.0)  # a busy machine takes more than a tenth of a second
        remove_abandoned(temporary)
        assert list(temporary.iterdir()) == []
        return left

    assert left_by(_MOST_ENTRIES=10) == 20
    assert left_by(_REMOVING_SECONDS=-1.0) == 29
    assert left_by() == 0


def test_what_is_not_there_is_nothing_to_remove(temporary):
    remove_abandoned(temporary / "none")
    (temporary / "file").touch()
    remove_abandoned(temporary / "file")


def test_an_error_of_the_lock_is_none_of_the_folder(temporary, monkeypatch):
    """On file systems without locks, folders are created, and none is considered abandoned."""

    def without_locks(handle, operation):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(module.fcntl, "flock", without_locks)
    abandoned(temporary)
    with temporary_folder() as folder:
        assert folder.is_dir()
    assert [path.name for path in temporary.iterdir()] == [NAME]


@pytest.mark.parametrize("times", [1, 3])
def test_an_interrupt_of_the_removal_comes_after_it(times, temporary, monkeypatch):
    """After Ctrl-C between two files of a folder that is being removed, all are removed before it is raised."""
    interrupts, unlink = iter(range(times)), os.unlink

    def interrupted(path, **options):
        unlink(path, **options)
        for _ in interrupts:
            raise KeyboardInterrupt

    monkeypatch.setattr(module.shutil.os, "unlink", interrupted)
    with pytest.raises(KeyboardInterrupt), temporary_folder() as folder:
        for name in "abcde":
            (folder / f"{name}.o").touch()
    assert list(temporary.iterdir()) == []


def test_a_folder_that_nobody_holds_is_removed(temporary):
    """If its owner is interrupted before closing it, the folder is left to the garbage collector."""
    TemporaryFolder()
    gc.collect()
    assert list(temporary.iterdir()) == []


def test_a_name_that_is_taken_is_left_alone(temporary, monkeypatch):
    names = iter(["00000000", "00000000", "11111111"])
    monkeypatch.setattr(module.secrets, "token_hex", lambda size: next(names))
    with temporary_folder() as taken:
        (taken / "a.o").touch()
        with temporary_folder() as folder:
            assert folder.name.endswith("11111111")
        assert [path.name for path in taken.iterdir()] == ["a.o"]
