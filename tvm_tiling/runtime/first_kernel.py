"""Assigns all cores to TVM's thread pool when a thread loads its first kernel compiled for this CPU.

TVM has no hook for a kernel's first call, and a check in every call would be too expensive for small kernels.
Executable.jit makes the functions of a tvm.compile result callable, usually in the thread that then calls them: the
cores are set there. An exported library loaded by tvm.runtime.load_module gets TVM's default.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tvm
from tvm.runtime import Executable

from .threads import pool_is_set, set_pool_once

_MARK = "tvm_tiling_sets_cores"
_TARGET = "_get_target_string"  # in modules compiled by LLVM


def register(is_meant: Callable[[tvm.target.Target], bool]) -> None:
    """Set the pool before kernels are loaded whose target satisfies `is_meant`; one call is enough."""
    original = Executable.jit
    if getattr(original, _MARK, False):
        return

    @functools.wraps(original)
    def jit(self: Executable, **options: Any) -> Any:
        if not pool_is_set() and any(map(is_meant, _targets(self.mod))):
            set_pool_once()
        return original(self, **options)

    setattr(jit, _MARK, True)
    Executable.jit = jit


def _targets(module: Any) -> list[tvm.target.Target]:
    """The targets of a module's machine code."""
    found = module._collect_from_import_tree(lambda each: each.kind == "llvm")
    return [tvm.target.Target(each.get_function(_TARGET)()) for each in found]
