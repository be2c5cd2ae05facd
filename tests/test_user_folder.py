"""Users without a home directory, or with one that they may not read, have neither calibration nor compile cache."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace

import pytest

from tvm_tiling.hardware.this_machine import calibration_file
from tvm_tiling.model.cache import CompileCache
from tvm_tiling.user_folder import is_unreadable, user_folder

VARIABLES = ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "TVM_TILING_CACHE", "TVM_TILING_CALIBRATION")
KEY = "a" * 64


@pytest.fixture(params=["unknown", "unreadable", "not a directory"])
def home(request, tmp_path, monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    if request.param == "unknown":
        monkeypatch.setattr(Path, "home", refuse_with(RuntimeError("Could not determine home directory.")))
    elif request.param == "unreadable":  # by a stand-in for the system's answer: root may read everything
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        monkeypatch.setattr(Path, "stat", refuse_with(PermissionError(errno.EACCES, "Permission denied")))
    else:
        monkeypatch.setenv("HOME", "/dev/null")
    return request.param


def refuse_with(error):
    def fail(*_, **__):
        raise error

    return fail


def test_a_user_without_a_home_has_no_calibration(home):
    assert calibration_file("0123456789abcdef") is None


def test_a_user_without_a_home_has_no_compile_cache(home):
    cache = CompileCache()
    cache.put(KEY, SimpleNamespace(variants=(), save=lambda path: path.write_bytes(b"")))
    assert cache.get(KEY) is None
    kernels = cache.kernels()
    kernels.put(KEY, b"object")
    assert kernels.get(KEY) is None
    kernels.make_space()


def test_a_directory_that_may_not_be_read(tmp_path, monkeypatch):
    assert not is_unreadable(tmp_path) and not is_unreadable(tmp_path / "missing")
    monkeypatch.setattr("os.access", lambda *_: False)
    assert is_unreadable(tmp_path) and not is_unreadable(tmp_path / "missing")


def test_the_variable_replaces_the_home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert user_folder("XDG_CACHE_HOME", ".cache") == tmp_path / ".cache" / "tvm-tiling"
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache")
    assert user_folder("XDG_CACHE_HOME", ".cache") == Path("/var/cache/tvm-tiling")
