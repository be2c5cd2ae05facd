"""Options of the whole suite."""

from __future__ import annotations

import functools
import gc
import inspect
import os
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from pairs import beside_pairs
from skips import Skips

# NumPy's OpenBLAS starts a thread for every core in every worker, and these spin on each other during large products
# and for 26 ms behind them: a quarter of the processor time of such tests. Read when NumPy is first imported, which is
# later.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Workers of xdist get the width of the terminal that the suite was started in; tables are compared as a pipe has them.
os.environ.pop("COLUMNS", None)

# Frames of these are of no file, and of no module either. TVM's script decorators take the whole stack of Python, and
# inspect asks each of some 4,000 modules for each such frame, of which pytest and the import system have dozens: 0.1 s
# a function.
FRAMES = ("<string>", "<frozen runpy>", "<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")
inspect.modulesbyfile.update(dict.fromkeys(FRAMES, ""))

# What TVM says, on standard error, of a value that is stored to a buffer of fewer bits without having been cast.
LOSSY_STORE = "Casting in BufferStore may lose precision"

# The call by which a test, or a whole file, skips itself where PyTorch is not installed.
NEEDS_TORCH = 'pytest.importorskip("torch"'

settings.register_profile("suite", deadline=None)  # a busy machine is no error
settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the texts of tests/golden instead of comparing"
    )
    parser.addoption("--torch", action="store_true", help="only the tests that need PyTorch")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Skips())
    if preset := os.environ.get("TVM_TILING_EMULATED"):
        from emulator import emulate

        emulation = emulate(preset)
        emulation.__enter__()
        config.add_cleanup(lambda: emulation.__exit__(None, None, None))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of tests that are marked `pairs`, the cases beside those that have each pair of values are slow. With --torch, of
    files of which only some tests need PyTorch, the others are run elsewhere."""
    if config.getoption("--torch"):
        items[:] = [item for item in items if needs_torch(item)]
    for item in beside_pairs([item for item in items if isinstance(item, pytest.Function)]):
        item.add_marker("slow")


def needs_torch(item: pytest.Item) -> bool:
    """Whether a test, a fixture or function of its file that it names, or the whole file skips without PyTorch."""
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
    """Collecting makes no garbage that is worth a look, and a third of a million objects that stay."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport]:
    """A kernel that stores another type than its buffer's, of which TVM only warns, is a wrong one."""
    report = yield
    if report.passed and LOSSY_STORE in report.capstderr:
        report.outcome, report.longrepr = "failed", f"{item.nodeid}: TVM warned: {LOSSY_STORE}"
    return report


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With --torch: whether this file has nothing to do with PyTorch."""
    if config.getoption("--torch") and collection_path.suffix == ".py":
        return NEEDS_TORCH not in collection_path.read_text(encoding="utf-8") or None
    return None
