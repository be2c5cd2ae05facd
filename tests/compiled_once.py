"""Kernels that several tests of one process compile are compiled once.

Half of the suite's time is LLVM's, and most kernels of small models are those of other tests. As in the cache of
compiled models, a kernel is identified by its complete TIR and its target, on which alone its machine code depends
(tests/model/test_kernels.py, test_saved_bytes.py). What a test starts in another process compiles everything itself.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from typing import Any

KERNELS = "tvm_tiling.model.kernels"


def compile_once() -> None:
    """Make kernels remember their object files, if their module has been imported; idempotent."""
    module: Any = sys.modules.get(KERNELS)
    if module is not None and not isinstance(module.object_of, CompiledOnce):
        module.object_of = CompiledOnce(module.object_of)


class CompiledOnce:
    """A function that returns object files, which calls another one once for equal TIR and target."""

    def __init__(self, compiled: Callable[[Any, Any], bytes]) -> None:
        self._compiled = compiled
        self._objects: dict[bytes, bytes] = {}

    def __call__(self, func: Any, target: Any) -> bytes:
        from tvm.ir import save_json

        key = hashlib.sha256(f"{target} {save_json(func)}".encode()).digest()
        content = self._objects.get(key)
        if content is None:
            content = self._objects[key] = self._compiled(func, target)
        return content
