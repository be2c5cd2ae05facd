"""Options of the whole suite."""

from __future__ import annotations

import functools
import gc
import inspect
import os
import re
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from compiled_once import CompileOnce
from hypothesis import settings
from pairs import beside_covering
from skips import Skips

# NumPy's OpenBLAS starts a thread per core in every worker, and these spin against each other during large matrix
# multiplications and for 26 ms after them: a quarter of the processor time of such tests. NumPy, which reads this
# variable, is imported later.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Where the environment forbids bytecode files, every process that a test starts compiles the whole package, 0.6 s, and
# every worker all modules of tests, 6 s. Pytest writes its own caches into the tree as well.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Tests compare decisions, which a calibration of the machine that runs them would change.
os.environ["TVM_TILING_CALIBRATION"] = "off"

# Workers of xdist inherit the terminal's width; tables are compared as printed to a pipe.
os.environ.pop("COLUMNS", None)

# Frames of these belong to no file and no module. TVM's script decorators take the whole Python stack, and inspect
# searches some 4,000 modules for each such frame, of which pytest and the import system have dozens: 0.1 s per
# function.
FRAMES = ("<string>", "<frozen runpy>", "<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")
inspect.modulesbyfile.update(dict.fromkeys(FRAMES, ""))

# TVM's warning on standard error if a value is stored to a buffer with fewer bits without a cast.
LOSSY_STORE = "Casting in BufferStore may lose precision"

# The call by which a test, or a whole file, skips itself if PyTorch is not installed.
NEEDS_TORCH = 'pytest.importorskip("torch"'

settings.register_profile("suite", deadline=None)  # a busy machine is not an error
settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the texts of tests/golden instead of comparing"
    )
    parser.addoption("--torch", action="store_true", help="only the tests that need PyTorch")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Skips())
    config.pluginmanager.register(CompileOnce(config))
    if preset := os.environ.get("TVM_TILING_EMULATED"):
        from emulator import emulate

        emulation = emulate(preset)
        emulation.__enter__()
        config.add_cleanup(lambda: emulation.__exit__(None, None, None))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """For tests marked `pairs` or `values`, the cases beyond those that cover each pair of values, or each value, are
    slow. With --torch, tests that do not need PyTorch are run elsewhere, also those in files of which only some tests
    need it."""
    if config.getoption("--torch"):
        items[:] = [item for item in items if needs_torch(item)]
    for item in beside_covering([item for item in items if isinstance(item, pytest.Function)]):
        item.add_marker("slow")


def needs_torch(item: pytest.Item) -> bool:
    """Return whether a test, one of the fixtures or functions that it names, or the whole file skips without
    PyTorch."""
    if not isinstance(item, pytest.Function):
        return True
    text = source_of(item.module)
    if re.search(rf"^(?:\w+ = )?{re.escape(NEEDS_TORCH)}", text, flags=re.MULTILINE):
        return True
    names = set(re.findall(r"\w+", source_of(item.function)))
    beside = [inspect.unwrap(value) for name, value in vars(item.module).items() if name in names and callable(value)]
    functions = [function for function in beside if inspect.isfunction(function)]
    return any(NEEDS_TORCH in source_of(function) for function in (item.function, *functions))


@functools.cache
def source_of(thing: Any) -> str:
    return inspect.getsource(thing)


def pytest_sessionstart() -> None:
    """Collection creates almost no garbage and a third of a million objects that stay."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Cycles are collected a tenth as often as by default, which takes 1 to 2 percent of the time."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def short_measurements() -> Iterator[None]:
    """Every report of a model measures this machine's peaks, in 2 s of processor time, and comparisons with other
    libraries wait for their threads to sleep, 0.15 s for each sample. Here the figures need not be accurate."""
    from tvm_tiling import peak
    from tvm_tiling.cli import bench_model, demo_products

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peak, "SECONDS_PER_FIGURE", 0.0)
        patch.setattr(peak, "LEAST_CALLS", 3)
        patch.setattr(bench_model, "SETTLE", 0.01)
        patch.setattr(demo_products, "SETTLE", 0.01)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport]:
    """A kernel that stores a type other than its buffer's, for which TVM only warns, fails the test."""
    report = yield
    if report.passed and LOSSY_STORE in report.capstderr:
        report.outcome, report.longrepr = "failed", f"{item.nodeid}: TVM warned: {LOSSY_STORE}"
    return report


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Return whether, with --torch, this file is unrelated to PyTorch."""
    if config.getoption("--torch") and collection_path.suffix == ".py":
        return NEEDS_TORCH not in collection_path.read_text(encoding="utf-8") or None
    return None
