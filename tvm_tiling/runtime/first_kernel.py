"""TVM's thread pool gets all cores when a thread loads its first kernel that was compiled for this CPU.

TVM tells nobody of a kernel's first call, and a look in every call would cost small kernels more than it is worth. What
tvm.compile returns makes its functions callable in Executable.jit, usually in the thread that then calls them: there
the cores are set. A library that was exported and is loaded by tvm.runtime.load_module gets what TVM gives it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tvm
from tvm.runtime import Executable

from .threads import pool_is_set, set_pool_once

_MARK = "tvm_tiling_sets_cores"
_TARGET = "_get_target_string"  # of modules that LLVM compiled


def register(is_meant: Callable[[tvm.target.Target], bool]) -> None:
    """Have the pool set before kernels are loaded whose target `is_meant`; once is enough."""
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
