"""Kernels that several tests of one run compile are compiled once.

Half of the suite's time is LLVM's, and most kernels of small models are those of other tests. As in the cache of
compiled models, a kernel is identified by its complete TIR and its target, on which alone its machine code depends
(tests/model/test_kernels.py, test_saved_bytes.py). Workers of xdist share them in a private folder of the run. What a
test starts in another process compiles everything itself.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

KERNELS = "tvm_tiling.model.kernels"
FOLDER = "tvm_tiling_objects"  # of workerinput


class CompileOnce:
    """A plugin that lets kernels remember their object files."""

    def __init__(self, config: pytest.Config) -> None:
        self._made: tempfile.TemporaryDirectory[str] | None = None
        self._folder: Path | None = None
        if (given := getattr(config, "workerinput", {}).get(FOLDER)) is not None:
            self._folder = Path(given)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """In the process that starts workers."""
        if self._made is None:
            self._made = tempfile.TemporaryDirectory(prefix="tvm-tiling-objects-")
        node.workerinput[FOLDER] = self._made.name

    def pytest_unconfigure(self) -> None:
        if self._made is not None:
            self._made.cleanup()

    def pytest_runtest_setup(self) -> None:
        """Modules of tests import what they test when they are collected, a few when they run."""
        module: Any = sys.modules.get(KERNELS)
        if module is not None and not isinstance(module.object_of, CompiledOnce):
            module.object_of = CompiledOnce(module.object_of, self._folder)


class CompiledOnce:
    """A function that returns object files, which calls another one once for equal TIR and target."""

    def __init__(self, compiled: Callable[[Any, Any], bytes], folder: Path | None) -> None:
        self._compiled, self._folder = compiled, folder
        self._objects: dict[str, bytes] = {}

    def __call__(self, func: Any, target: Any) -> bytes:
        from tvm.ir import save_json

        key = hashlib.sha256(f"{target} {save_json(func)}".encode()).hexdigest()
        if key not in self._objects:
            self._objects[key] = self._of_another_worker(key) or self._for_others(key, self._compiled(func, target))
        return self._objects[key]

    def _of_another_worker(self, key: str) -> bytes | None:
        try:
            return None if self._folder is None else (self._folder / key).read_bytes()
        except FileNotFoundError:
            return None

    def _for_others(self, key: str, content: bytes) -> bytes:
        if self._folder is not None:
            with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as file:
                file.write(content)
            os.replace(file.name, self._folder / key)
        return content
