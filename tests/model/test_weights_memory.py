"""Memory-mapped constants: equal results, shared by processes, valid after the file is removed. And the memory of a
compilation."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from networks import Network
from tvm import relax

import tvm_tiling as tt
from benchmarks.memory import compile_use, run_use, write_matmuls
from tvm_tiling.runtime import pages

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="files are mapped on Linux alone")

PROGRAM = Path(__file__).with_name("left_when_packed.py")
MIB = 1 << 20
WEIGHTS = 64 * MIB
# In addition to weights: LLVM's memory and pages, which no import has touched.
BESIDE = 90 * MIB
ROWS, INNER, COLUMNS = 3, 600, 512
SIZE = 4 * INNER * COLUMNS


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    """Return a model with 64 MiB of weights, its saved file, and the memory that its compilation took."""
    folder = tmp_path_factory.mktemp("big")
    write_matmuls(folder / "model.onnx", WEIGHTS // 4)
    return folder, compile_use(folder / "model.onnx", folder / "model.tar")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return a saved model, an input and the result."""
    path = tmp_path_factory.mktemp("saved") / "model.tar"
    executable, x = compiled(cache=False)
    executable.save(path)
    return path, x, executable.run(x)


def compiled(**options):
    net = Network((ROWS, INNER))
    module = net.module(lambda net, x: relax.op.matmul(x, net.c(INNER, COLUMNS)))
    return tt.compile(module, **options), net.arrays()[0]


# ---- how much -------------------------------------------------------------------------------------------------------


def test_a_compilation_holds_each_weight_once(big):
    """From a mapped file to packed form, one by one."""
    used = big[1]
    assert used["planned"]["weights"] == WEIGHTS
    assert used["most"] <= WEIGHTS + BESIDE
    assert used["resident"] <= WEIGHTS + BESIDE


def test_a_compilation_holds_weights_within_the_model_file_twice_at_most(tmp_path):
    """They are seldom aligned, so that they are copied once before they are packed."""
    onnx = pytest.importorskip("onnx")
    found = []
    for parameters in (1, WEIGHTS // 2):
        write_matmuls(tmp_path / "beside.onnx", parameters)
        onnx.save(onnx.load(tmp_path / "beside.onnx"), tmp_path / "model.onnx")
        found.append(compile_use(tmp_path / "model.onnx", tmp_path / "model.tar"))
    small, used = found
    packed = used["planned"]["weights"] + used["planned"]["constants"]
    assert packed == 2 * WEIGHTS < (tmp_path / "model.onnx").stat().st_size
    assert used["most"] - small["most"] <= 2 * packed


def test_two_processes_share_weights(big):
    folder = big[0]
    [(base, alone)] = run_use("run", folder / "model.tar")
    assert alone.own - base.own <= WEIGHTS / 4
    assert alone.resident - base.resident >= WEIGHTS
    for _, beside in run_use("run", folder / "model.tar", 2):
        assert beside.resident >= alone.resident - WEIGHTS / 4
        assert beside.proportional <= alone.proportional - 0.4 * WEIGHTS


# ---- right ----------------------------------------------------------------------------------------------------------


def test_constants_that_are_mapped_give_equal_results(saved):
    path, x, want = saved
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    # Panels are as wide as the register tile of this CPU; the last one may be padded.
    size = tt.load(path, copy=True).report().memory.weights
    assert SIZE <= size < SIZE * 1.1
    for options, mapped in (({}, size), ({"copy": True}, 0), ({"digest": digest}, 0)):
        loaded = tt.load(path, **options)
        np.testing.assert_array_equal(loaded.run(x), want)
        memory = loaded.report().memory
        assert (memory.mapped, memory.weights) == (mapped, size)
        assert ("mapped from a file" in str(memory)) is bool(mapped)


def test_a_file_that_is_replaced_or_removed_stays_loaded(saved, tmp_path):
    source, x, want = saved
    path = tmp_path / "model.tar"
    path.write_bytes(source.read_bytes())
    path.chmod(0o600)
    loaded = tt.load(path)
    loaded.save(path)  # over itself
    again = tt.load(path)
    np.testing.assert_array_equal(again.run(x), want)
    path.unlink()
    np.testing.assert_array_equal(loaded.run(x), want)
    again.save(path)
    assert path.read_bytes() == source.read_bytes()


def test_a_file_that_shrinks_does_not_end_a_process_that_copied_it(saved, tmp_path):
    path = tmp_path / "model.tar"
    path.write_bytes(saved[0].read_bytes())
    path.chmod(0o600)
    code = (
        "import os, numpy as np, tvm_tiling as tt\n"
        "loaded = tt.load('model.tar', copy=True)\n"
        "os.truncate('model.tar', 1000)\n"
        f"loaded.run(np.zeros(({ROWS}, {INNER}), 'float32'))\n"
        "print('whole')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout == "whole\n", done.stderr


def test_without_a_file_of_its_own_a_model_runs_from_memory(tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_TILING_CACHE", str(tmp_path))
    monkeypatch.setenv("TVM_TILING_CACHE_SIZE", "0")
    executable, x = compiled()
    assert executable.report().memory.mapped == 0
    executable.run(x)


@pytest.mark.parametrize("name", ["foreign", "_file_system"])
def test_files_that_others_may_truncate_are_read(name, saved, tmp_path, monkeypatch):
    path, x, want = saved
    (tmp_path / "numbers").write_bytes(bytes(range(256)) * 4096)
    values = {"foreign": "is another's", "_file_system": 0x6969}  # NFS
    monkeypatch.setattr(pages, name, lambda _: values[name])
    loaded = tt.load(path)
    assert loaded.report().memory.mapped == 0
    np.testing.assert_array_equal(loaded.run(x), want)
    contents = pages.FileContents(tmp_path / "numbers")
    assert contents._pages is None and contents.content[257] == 1
    np.testing.assert_array_equal(contents.part(255, 3), [255, 0, 1])


# ---- weights let go of ----------------------------------------------------------------------------------------------


def test_pages_of_a_file_go_with_the_last_array_on_them(tmp_path):
    path = tmp_path / "numbers"
    path.write_bytes(os.urandom(32 * MIB))
    contents = pages.FileContents(path)
    before = resident()
    whole = contents.part(4096 + 64, 30 * MIB)
    view = whole.view("int32").reshape(-1, 64)[:, 1:]
    total = int(view.sum(dtype="int64"))
    assert resident() - before >= 24 * MIB
    del whole
    assert resident() - before >= 24 * MIB
    del view
    assert resident() - before <= 8 * MIB
    assert int(contents.part(4160, 30 * MIB).view("int32").reshape(-1, 64)[:, 1:].sum(dtype="int64")) == total


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("size", [1, pages.LARGE - 1, pages.LARGE, 3 * pages.LARGE + 5])
def test_memory_for_constants_is_aligned_zeros(size):
    made = pages.zeros(size)
    assert made.nbytes == size and made.ctypes.data % 64 == 0 and not made.any()
    made[:] = 1


def test_a_callers_module_keeps_its_constants():
    """Those that the compilation releases are its own."""
    net = Network((ROWS, INNER))
    module, x = net.module(lambda net, x: relax.op.matmul(x, net.c(INNER, COLUMNS))), net.arrays()[0]
    [first, second] = [tt.compile(module, cache=False) for _ in range(2)]
    np.testing.assert_array_equal(first.run(x), second.run(x))


def test_no_model_is_left_when_its_weights_are_packed(big):
    """Any remaining reference to the module would keep all of its weights in addition to the packed ones."""
    command = [sys.executable, str(PROGRAM), str(big[0] / "model.onnx")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    left, growth = map(int, done.stdout.split())
    assert left == 0 and growth <= 1.5 * WEIGHTS
