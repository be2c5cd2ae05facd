"""Faults during a compilation: full disk, missing permissions, Ctrl-C, another process with the same cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tvm_tiling as tt

# A model, its input and its result, for separate processes.
PRELUDE = """
import os, resource, signal, tempfile
from pathlib import Path
import numpy as np
import tvm_tiling as tt
from tvm import relax
from tvm_tiling.runtime.library import SHARED

def module(scale=1.0):
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((9, 24), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.matmul(x, relax.const(np.full((24, 31), scale, "float32"))))
            y = builder.emit_output(relax.op.nn.relu(y))
        builder.emit_func_output(y)
    return builder.finalize()

X = np.ones((9, 24), "float32")
def right(exe, scale=1.0):
    return np.array_equal(exe.run(X), np.full((9, 31), 24 * scale, "float32"))
CACHE, TEMPORARY = Path(os.environ["TVM_TILING_CACHE"]), Path(tempfile.gettempdir())
"""


def started(code: str, folder: Path, **environment: str) -> subprocess.Popen[str]:
    (folder / "tmp").mkdir(exist_ok=True)
    places = {"TMPDIR": str(folder / "tmp"), "TVM_TILING_CACHE": str(folder / "cache"), **environment}
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + code],
        env={**os.environ, **places},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> str:
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors[-3000:]
    return out.strip()


def test_no_room_where_files_are_written(tmp_path):
    """A limit on file sizes has the same effect on writers as a full disk."""
    code = """
exe = tt.compile(module(), cache=False)
exe.save("old.tar")
before = Path("old.tar").read_bytes()
resource.setrlimit(resource.RLIMIT_FSIZE, (9000, resource.RLIM_INFINITY))

def said(action):
    try:
        action()
    except OSError as error:
        return str(error)

assert "old.tar cannot be written: File too large" in said(lambda: exe.save("old.tar"))
assert Path("old.tar").read_bytes() == before
if exe.variants[0].library.kind == SHARED:  # objects are not put anywhere
    assert "old.tar: its library cannot be written to" in said(lambda: tt.load("old.tar"))
assert "has 0 MiB of free space; expected 64 MiB" in said(lambda: tt.compile(module(2.0)))
from tvm_tiling.model.cache import CompileCache
CompileCache().put("a" * 64, exe)  # does without
assert not list(CACHE.iterdir()) and not list(TEMPORARY.iterdir()) and os.listdir(".") == ["old.tar"]
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert right(tt.compile(module(2.0)), 2.0) and right(exe) and right(tt.load("old.tar"))
print("whole")
"""
    (tmp_path / "own").mkdir()
    code = f"os.chdir({str(tmp_path / 'own')!r})\n{code}"
    assert ended(started(code, tmp_path)) == "whole"


def test_a_disk_that_fills_up_during_a_compilation(tmp_path):
    """LLVM would end the process; it writes to memory instead."""
    code = """
import tvm_tiling.model.kernels as kernels
kernels.require_space = lambda: None  # others take what there is
try:
    tt.compile(module(), cache=False)
except OSError as error:
    print(error)
assert not list(TEMPORARY.iterdir())
"""
    small = tmp_path / "tmp"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k", "none", small]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a disk of its own")
    try:
        said = ended(started(code, tmp_path))
    finally:
        subprocess.run(["umount", small], check=True)
    assert said.startswith("compiled files cannot be written to ") and "No space left on device; expected " in said


@pytest.mark.parametrize("place", ["/proc/none/cache", "file"])
def test_a_cache_that_cannot_be_written_costs_nothing_but_compilations(place, tmp_path, monkeypatch):
    from networks import Network
    from tvm import relax

    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("TVM_TILING_CACHE", str(tmp_path / place))
    module = Network((2, 3)).module(lambda net, x: relax.op.matmul(x, net.c(3, 4)))
    x = np.ones((2, 3), "float32")
    first, second = tt.compile(module), tt.compile(module)
    np.testing.assert_array_equal(first.run(x), second.run(x))
    assert not second.from_cache and (tmp_path / "file").read_text() == "no folder"


def test_two_processes_compile_into_one_cache(tmp_path):
    """The same models, concurrently, with space for less than all of them."""
    code = """
for turn in range(2):
    for scale in (1.0, 2.0, 3.0):
        assert right(tt.compile(module(scale)), scale)
print("right")
"""
    processes = [started(code, tmp_path, TVM_TILING_CACHE_SIZE="100k") for _ in range(2)]
    assert [ended(process) for process in processes] == ["right", "right"]
    kept = list((tmp_path / "cache").iterdir())
    models = [path for path in kept if path.suffix == ".tar"]
    assert 0 < len(models) < 3 and sum(path.stat().st_size for path in kept) <= 100 << 10
    for path in models:
        tt.load(path)
    assert not list((tmp_path / "tmp").iterdir())


def test_a_kill_at_any_time_leaves_no_folder_to_the_next_compilation(tmp_path):
    """SIGKILL at increasing times of a compilation, including the C compiler's."""
    code = """
import time
left = 0
for number in range(5):
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        for scale in range(1, 1000):
            tt.compile(module(float(scale)), cache=False)
    until = time.monotonic() + 60
    while not list(TEMPORARY.glob(f"tvm-tiling-{child}-*")) and time.monotonic() < until:
        time.sleep(0.001)
    time.sleep(number * 0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    own = len(list(TEMPORARY.glob(f"tvm-tiling-{child}-*")))
    assert own == len(list(TEMPORARY.glob("tvm-tiling-*")))  # it removed those of the children before
    left += own > 0
assert right(tt.compile(module(), cache=False))
assert not list(TEMPORARY.glob("tvm-tiling-*"))
print(left)
"""
    assert int(ended(started(code, tmp_path))) >= 2


def test_an_interrupt_at_any_time_leaves_nothing_half_done(tmp_path):
    """Ctrl-C at increasing times, from the first pass to the last file; afterwards everything works."""
    code = """
import time
def timed(scale):
    start = time.perf_counter()
    assert right(tt.compile(module(scale)), scale)
    return time.perf_counter() - start

timed(0.5)
whole, interrupted = timed(0.75), 0
signal.signal(signal.SIGALRM, signal.default_int_handler)  # what Ctrl-C calls
for number in range(12):
    scale = 2.0 + number
    try:
        signal.setitimer(signal.ITIMER_REAL, 1e-4 + whole * number / 10)
        timed(scale)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        interrupted += 1
    patience = time.perf_counter() + 10  # the C compiler and LLVM's threads, which get no signal, end in their own time
    while list(TEMPORARY.glob("tvm-tiling-*")) and time.perf_counter() < patience:
        time.sleep(0.05)
    assert not list(TEMPORARY.glob("tvm-tiling-*"))
    for path in CACHE.iterdir():
        assert path.suffix in (".tar", ".kernel"), path
        if path.suffix == ".tar":
            tt.load(path)
    assert right(tt.compile(module(scale)), scale)
print(interrupted)
"""
    assert int(ended(started(code, tmp_path))) >= 5
