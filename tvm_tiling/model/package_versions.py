"""Versions of packages, and this package's own files; they are part of cache keys, in addition to content."""

from __future__ import annotations

import functools
import importlib
from importlib import metadata
from pathlib import Path

PACKAGES = ("tvm-tiling", "apache-tvm", "apache-tvm-ffi", "onnx", "tflite")


@functools.lru_cache(maxsize=1)
def sources() -> list[tuple[str, int, int]]:
    """This package's own files: editing them changes the results of a compilation."""
    packages = (importlib.import_module(name) for name in ("tvm_tiling", "tvm_tiling.schedules"))
    folders = {Path(str(package.__file__)).parent for package in packages}
    files = sorted(path for folder in folders for path in folder.rglob("*.[cp]*") if path.suffix in (".py", ".c"))
    return [(path.name, status.st_size, status.st_mtime_ns) for path in files for status in (path.stat(),)]


@functools.lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Versions by package, "unknown" for one that is not installed."""
    return {name: _version(name) for name in PACKAGES}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"
