"""Saved executables and the compile cache with files that others may have modified: owners, modes, links, sizes."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import tarfile
import time
import tracemalloc

import numpy as np
import pytest
from networks import Network
from tvm import relax

import tvm_tiling as tt
from tvm_tiling.errors import ModelFormatError, TilingError
from tvm_tiling.model import cache_folder
from tvm_tiling.model.cache import CompileCache
from tvm_tiling.model.cache_folder import PARTIAL_SECONDS, CacheFolder, cache_limit
from tvm_tiling.runtime.native_file import foreign

X = np.ones((2, 3), "float32")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return a small executable, its file, and its result."""
    module = Network((2, 3)).module(lambda net, x: relax.op.matmul(x, net.c(3, 4)))
    exe = tt.compile(module, cache=False)
    path = tmp_path_factory.mktemp("saved") / "model.tar"
    exe.save(path)
    return exe, path, exe.run(X)


@pytest.fixture
def file(saved, tmp_path):
    path = tmp_path / "model.tar"
    path.write_bytes(saved[1].read_bytes())
    path.chmod(0o600)
    return path


def refusal(path, **options) -> str:
    with pytest.raises(ModelFormatError) as refused:
        tt.load(path, **options)
    assert "\n" not in str(refused.value) and str(path) in str(refused.value)
    return str(refused.value)


# ---- owners, modes and digests ---------------------------------------------------------------------------------------


def test_a_file_that_everybody_may_write_is_refused_until_its_digest_is_given(file, saved):
    file.chmod(0o666)
    assert "everybody may write to it" in refusal(file) and "digest" in refusal(file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    np.testing.assert_array_equal(tt.load(file, digest=digest.upper()).run(X), saved[2])
    assert "has digest" in refusal(file, digest="0" * 64)
    file.chmod(0o600)
    np.testing.assert_array_equal(tt.load(file).run(X), saved[2])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_refused(file, saved):
    os.chown(file, 12345, -1)
    assert "another user (number 12345)" in refusal(file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    np.testing.assert_array_equal(tt.load(file, digest=digest).run(X), saved[2])


def test_whose_files_are_trusted():
    own, group = os.geteuid(), os.getegid()

    def status(uid: int, gid: int, mode: int) -> os.stat_result:
        return os.stat_result((0o100000 | mode, 0, 0, 1, uid, gid, 0, 0, 0, 0))

    assert not foreign(status(own, group, 0o664)) and not foreign(status(0, 0, 0o644))
    assert "group 4242" in foreign(status(own, 4242, 0o664)) and not foreign(status(own, 4242, 0o644))
    assert "everybody" in foreign(status(own, group, 0o646))
    assert "another user" in foreign(status(own + 4242, group, 0o600))


def test_what_is_not_a_plain_file_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.tar")
    assert "not a regular file" in refusal(tmp_path / "pipe.tar")
    assert "cannot be read" in refusal(tmp_path / "none.tar")


# ---- what archives can hold ------------------------------------------------------------------------------------------


def with_entry(entry: tarfile.TarInfo, content: bytes = b"") -> bytes:
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode="w", format=tarfile.GNU_FORMAT) as archive:
        archive.addfile(entry, io.BytesIO(content))
    return memory.getvalue()


def entry(name: str = "model.json", **fields) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    for key, value in fields.items():
        setattr(found, key, value)
    return found


@pytest.mark.parametrize(
    ("member", "said"),
    [
        (entry(type=tarfile.SYMTYPE, linkname="/etc/passwd"), "is a link or not a regular file"),
        (entry(type=tarfile.LNKTYPE, linkname="../../secret"), "is a link or not a regular file"),
        (entry(type=tarfile.CHRTYPE), "is a link or not a regular file"),
        (entry("../../model.json"), "does not contain model.json"),
        (entry("/model.json"), "does not contain model.json"),
    ],
)
def test_links_and_paths_that_lead_elsewhere_are_never_followed(member, said, tmp_path):
    path = tmp_path / "bad.tar"
    path.write_bytes(with_entry(member))
    assert said in refusal(path)
    assert [found.name for found in tmp_path.iterdir()] == ["bad.tar"]


@pytest.mark.parametrize("size", [1 << 33, 1 << 62, 1 << 80])
@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_SPARSE])
def test_sizes_beyond_the_file_allocate_nothing(size, kind, tmp_path):
    header = entry(size=size, type=kind).tobuf(tarfile.GNU_FORMAT)
    path = tmp_path / "bad.tar"
    path.write_bytes(header + bytes(2048))
    tracemalloc.start()
    refusal(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_a_member_that_is_there_twice_is_refused(file):
    with tarfile.open(file, "a") as archive:
        archive.addfile(entry(size=2), io.BytesIO(b"{}"))
    assert "'model.json' twice" in refusal(file)


# ---- the cache -------------------------------------------------------------------------------------------------------


def kept(folder: CacheFolder, digit: str, size: int, age: float = 0.0) -> os.PathLike:
    path = folder.path / f"{digit * 64}.tar"
    path.write_bytes(bytes(size))
    os.utime(path, (time.time() - age,) * 2)
    return path


def test_what_was_used_least_recently_goes_first(tmp_path):
    folder = CacheFolder(tmp_path, limit=250)
    a, b, c = (kept(folder, digit, 100, age=300 - 100 * place) for place, digit in enumerate("abc"))
    (tmp_path / "other.txt").write_bytes(bytes(1000))
    folder.used(a)
    folder.make_space()
    assert a.exists() and c.exists() and not b.exists() and (tmp_path / "other.txt").exists()
    assert (folder.held().models, folder.held().bytes) == (2, 200)


def test_a_clock_that_was_set_back_does_not_make_the_latest_use_the_oldest(tmp_path):
    folder = CacheFolder(tmp_path, limit=150)
    a, b = kept(folder, "a", 100, age=-86400), kept(folder, "b", 100, age=-86300)  # dated in the future
    folder.used(a)
    folder.make_space()
    assert a.exists() and not b.exists()


def test_partial_files_of_killed_processes_are_removed_and_those_being_written_are_not(tmp_path):
    folder = CacheFolder(tmp_path, limit=1000)
    partial = [tmp_path / f".{digit * 64}.tar.abcdefgh" for digit in "abc"]
    for path in partial:
        path.write_bytes(b"x")
        os.utime(path, (time.time() - 2 * PARTIAL_SECONDS,) * 2)
    os.utime(partial[2])
    with open(partial[1], "rb") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        folder.make_space()
        assert [path.exists() for path in partial] == [False, True, True]


def test_a_process_reads_the_folder_once_a_minute_and_counts_what_it_writes_meanwhile(tmp_path, monkeypatch):
    """A compilation read all files of the cache six times."""
    scans, scandir = [], os.scandir
    monkeypatch.setattr(cache_folder.os, "scandir", lambda path: scans.append(path) or scandir(path))
    for number in range(5):
        folder = CacheFolder(tmp_path, limit=1000)
        folder.used(kept(folder, str(number), 100))
        folder.make_space()
    assert len(scans) == 2  # partial files, and the others
    monkeypatch.setattr(cache_folder, "SCAN_SECONDS", 0.0)
    folder.used()
    assert len(scans) == 4
    monkeypatch.setattr(cache_folder, "SCAN_SECONDS", 60.0)
    for number in range(5, 10):
        folder.used(kept(folder, str(number), 110))
        folder.make_space()
    assert folder.held().bytes <= 1000 and not (tmp_path / f"{'0' * 64}.tar").exists()


def test_a_cache_below_its_limit_and_without_room(tmp_path, saved):
    exe, _, want = saved
    size = saved[1].stat().st_size
    cache = CompileCache(tmp_path / "small", limit=3 * size // 2)
    for digit in "abc":
        cache.put(digit * 64, exe)
    assert [path.name[0] for path in (tmp_path / "small").iterdir()] == ["c"]
    np.testing.assert_array_equal(cache.get("c" * 64).run(X), want)
    assert cache.get("a" * 64) is None
    CompileCache(tmp_path / "none", limit=0).put("a" * 64, exe)
    assert not (tmp_path / "none").exists()


def test_a_cache_that_others_may_write_to_is_not_used(tmp_path, saved):
    cache = CompileCache(tmp_path)
    cache.put("a" * 64, saved[0])
    assert cache.get("a" * 64) is not None
    tmp_path.chmod(0o777)
    assert cache.get("a" * 64) is None
    cache.put("b" * 64, saved[0])
    assert len(list(tmp_path.iterdir())) == 1
    tmp_path.chmod(0o700)
    (tmp_path / f"{'a' * 64}.tar").chmod(0o666)
    assert cache.get("a" * 64) is None


@pytest.mark.parametrize(
    ("text", "size"), [("", 4 << 30), ("0", 0), ("1000", 1000), ("2k", 2048), ("500M", 500 << 20), ("3 GiB", 3 << 30)]
)
def test_the_limit_that_the_user_sets(text, size, monkeypatch):
    monkeypatch.setenv("TVM_TILING_CACHE_SIZE", text)
    assert cache_limit() == size


def test_a_limit_that_is_not_a_size(monkeypatch):
    monkeypatch.setenv("TVM_TILING_CACHE_SIZE", "much")
    with pytest.raises(TilingError, match=r"TVM_TILING_CACHE_SIZE = 'much'; expected bytes"):
        cache_limit()
