"""Output files replace nothing but regular files; links to files stay, and their targets are written.

Pipes and sockets in a temporary folder stand for everything else that is not a file, including devices.
"""

from __future__ import annotations

import json
import os
import socket
import stat
from pathlib import Path

import numpy as np
import pytest
from networks import Network
from tvm import relax

import tvm_tiling as tt
from tvm_tiling import atomic_file as module
from tvm_tiling.accel.report.trace import write_events
from tvm_tiling.atomic_file import atomic_file, refuse_unwritable
from tvm_tiling.cli import main


def write(path, content=b"new"):
    with atomic_file(path) as file:
        file.write(content)


def refusal(path) -> str:
    """Return the result of both queries, which change nothing."""
    before = sorted(Path(path).parent.iterdir()) if Path(path).parent.is_dir() else None
    said = []
    for ask in (refuse_unwritable, write):
        with pytest.raises(OSError) as refused:
            ask(path)
        said.append(str(refused.value))
    assert said[0] == said[1] and "\n" not in said[0] and "cannot be written" in said[0]
    assert before is None or sorted(Path(path).parent.iterdir()) == before
    return said[0]


@pytest.fixture
def pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_a_file_is_written_whole_and_again(tmp_path):
    write(tmp_path / "a", b"one")
    write(tmp_path / "a", b"two")
    assert (tmp_path / "a").read_bytes() == b"two" and [*tmp_path.iterdir()] == [tmp_path / "a"]


def test_pipes_are_refused(pipe):
    assert refusal(pipe) == f"{pipe} cannot be written: it is a pipe; expected the path of a file"
    assert stat.S_ISFIFO(pipe.lstat().st_mode)


def test_links_to_pipes_are_refused(pipe, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(pipe)
    (tmp_path / "second").symlink_to("link")
    for path in (link, tmp_path / "second"):
        assert "it is a pipe" in refusal(path)
    assert link.is_symlink() and stat.S_ISFIFO(pipe.lstat().st_mode)


def test_sockets_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # because the name of a socket has a length limit
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
        assert "it is a socket" in refusal(tmp_path / "socket")


@pytest.mark.parametrize("kind", [stat.S_IFCHR, stat.S_IFBLK])
def test_devices_are_refused(kind, tmp_path, monkeypatch):
    """As the system would describe one; none is touched."""
    path = tmp_path / "device"
    path.touch()
    real = Path.stat

    def described(self, **options):
        found = real(self, **options)
        return os.stat_result((kind | 0o666, *found[1:])) if self == path else found

    monkeypatch.setattr(module.Path, "stat", described)
    assert "it is a device" in refusal(path)


def test_folders_are_refused(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    for name in ("folder", "link", "folder/.", "folder/.."):
        assert "it is a directory" in refusal(tmp_path / name)
    assert "does not exist" in refusal(tmp_path / "none" / "file")
    write(tmp_path / "file")
    assert "is not a directory" in refusal(tmp_path / "file" / "inside")
    assert "null byte" in refusal(str(tmp_path / "a\0b"))


def test_links_to_files_stay_and_are_written_through(tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    write(inner / "file", b"old")
    (tmp_path / "link").symlink_to("inner/file")
    (tmp_path / "second").symlink_to(tmp_path / "link")
    for name in ("link", "second"):
        write(tmp_path / name, name.encode())
        assert (inner / "file").read_bytes() == name.encode()
    assert (tmp_path / "link").is_symlink() and not (inner / "file").is_symlink()
    assert [path.name for path in inner.iterdir()] == ["file"]


def test_links_to_nothing_make_the_file(tmp_path):
    (tmp_path / "link").symlink_to("later")
    write(tmp_path / "link")
    assert (tmp_path / "later").read_bytes() == b"new" and (tmp_path / "link").is_symlink()
    (tmp_path / "far").symlink_to("none/later")
    assert "does not exist" in refusal(tmp_path / "far")


def test_links_in_a_circle_are_refused(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert "its links form a cycle" in refusal(tmp_path / "a")


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="streams have names under /proc")
def test_streams_of_the_process_are_refused(tmp_path):
    """As /dev/stdout leads to /proc/self/fd/1: even if that is a regular file, replacing it would lose its rest."""
    with open(tmp_path / "open", "wb") as file:
        (tmp_path / "stream").symlink_to(f"/proc/self/fd/{file.fileno()}")
        with pytest.raises(OSError, match="it is a stream of a process"):
            write(tmp_path / "stream")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["open", "stream"]


def test_links_of_others_in_shared_folders_are_refused(tmp_path, monkeypatch):
    """As Linux refuses to follow them with protected_symlinks."""
    tmp_path.chmod(0o1777)
    (tmp_path / "link").symlink_to("file")
    write(tmp_path / "link")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    folder = tmp_path / "inside"
    folder.mkdir()
    real = Path.stat

    def described(self, **options):
        found = real(self, **options)
        return os.stat_result((*found[:4], 54321, *found[5:])) if self == tmp_path else found

    monkeypatch.setattr(module.Path, "stat", described)
    assert "a link created by another user" in refusal(tmp_path / "link")


def test_what_comes_in_the_meantime_is_not_replaced(tmp_path):
    path = tmp_path / "file"
    with pytest.raises(PermissionError, match="it is a pipe"), atomic_file(path) as file:
        file.write(b"new")
        os.mkfifo(path)
    assert stat.S_ISFIFO(path.lstat().st_mode) and [*tmp_path.iterdir()] == [path]


# ---- everything that writes ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def program():
    return tt.compile(tt.GemmWorkload(m=8, n=8, k=8, dtype="int8"), target="vsim/vta").program


def test_all_outputs_refuse_pipes(pipe, program):
    executable = tt.compile(Network((2, 3)).module(lambda net, x: relax.op.matmul(x, net.c(3, 4))), cache=False)
    with tt.ShapeDatabase(pipe.with_name("shapes.db")) as database:
        for put in (
            executable.save,
            program.save,
            lambda path: write_events([{"name": "x"}], path),
            lambda path: tt.save_report(executable.report(), path),
            database.export,
            lambda path: tt.TilingCostModel(tt.Hardware.load("vta")).save(str(path)),
        ):
            with pytest.raises((OSError, tt.TilingError)) as refused:
                put(pipe)
            assert "\n" not in str(refused.value) and str(pipe) in str(refused.value)
            assert stat.S_ISFIFO(pipe.lstat().st_mode), put
    with pytest.raises(tt.DatabaseError, match="it is a pipe"):
        tt.ShapeDatabase(pipe)
    assert sorted(path.name.split("-")[0] for path in pipe.parent.iterdir()) == ["pipe", "shapes.db"]


def test_programs_and_timelines_are_written_through_links(program, tmp_path):
    (tmp_path / "p").symlink_to("program.vsim")
    (tmp_path / "t").symlink_to("trace.json")
    program.save(tmp_path / "p")
    write_events([{"name": "é"}, {"name": "y"}], tmp_path / "t")
    assert len(tt.Program.load(tmp_path / "program.vsim")) == len(program)
    events = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    assert [event["name"] for event in events] == ["é", "y"] and (tmp_path / "t").is_symlink()


def test_commands_say_it_before_they_work(pipe, capsys):
    np.savez(pipe.with_name("x.npz"), x=np.ones(3, "float32"))
    for words in (
        ("compile", "none.onnx", "-o", str(pipe)),
        ("run", "none.onnx", "-o", str(pipe)),
        ("convert", "none.relay", "-o", str(pipe)),
        ("report", "none.onnx", "-o", str(pipe)),
    ):
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        said = capsys.readouterr().err
        assert (
            ended.value.code == 1
            and said == f"error: {pipe} cannot be written: it is a pipe; expected the path of a file\n"
        )
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
