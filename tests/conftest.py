"""Options of the whole suite."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

AVX512 = re.compile(r"\bavx512\w*|\bavx10\w*|\bamx\w*")


settings.register_profile("suite", deadline=None)  # a busy machine is no error
settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the texts of tests/golden instead of comparing"
    )
    parser.addoption("--avx2", action="store_true", help="take this CPU for one without AVX-512")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--avx2"):
        _without_avx512(config)


def _without_avx512(config: pytest.Config) -> None:
    """What detect_cpu() reads of this system is a copy from which those extensions are gone."""
    from tvm_tiling.hardware import detect

    folder = tempfile.TemporaryDirectory(prefix="tvm-tiling-avx2-")
    config.add_cleanup(folder.cleanup)
    copy, read = Path(folder.name), detect.detect_cpu
    (copy / "proc").mkdir()
    for name in ("sys", "proc/self"):
        (copy / name).symlink_to(f"/{name}")
    (copy / "proc/cpuinfo").write_text(AVX512.sub("", Path("/proc/cpuinfo").read_text()))

    def detect_cpu(root: Path = Path("/"), **given: Any) -> Any:
        return read(copy if root == Path("/") else root, **given)

    detect.detect_cpu = detect_cpu
