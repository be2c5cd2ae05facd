"""Options of the whole suite."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings
from skips import Skips

settings.register_profile("suite", deadline=None)  # a busy machine is no error
settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the texts of tests/golden instead of comparing"
    )
    parser.addoption("--torch", action="store_true", help="only the files whose tests need PyTorch")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Skips())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With --torch: whether this file has nothing to do with PyTorch."""
    if config.getoption("--torch") and collection_path.suffix == ".py":
        return 'importorskip("torch"' not in collection_path.read_text(encoding="utf-8") or None
    return None
