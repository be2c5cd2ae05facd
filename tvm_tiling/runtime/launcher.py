"""A model's parallel loops run by launch.c in the place of TVM's thread pool; its note says why.

It is compiled with a model, linked into its library and saved with it. A process runs the first one it loads, for all
models, so that they share their threads; that library stays loaded. Without a C compiler, and outside of Linux, models
run in TVM's pool.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tvm_ffi
from tvm.support import cc

from ..temporary import temporary_folder
from .locks import ForkSafeLock
from .threads import usable_processors

SOURCE = Path(__file__).with_name("launch.c")

_lock = ForkSafeLock()  # of what follows
_first: tuple[Any, int] | None = None  # a library and the address of its launch


def compiled(folder: Path) -> list[str]:
    """The object to be linked into a model's library, in `folder`; none where it cannot be made."""
    content = _object()
    if content is None:
        return []
    target = folder / "launch.o"
    target.write_bytes(content)
    return [str(target)]


@functools.lru_cache(maxsize=1)
def _object() -> bytes | None:
    compiler = cc.get_cc()
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    with temporary_folder() as folder:
        target = folder / "launch.o"
        command = [compiler, "-x", "c", "-O2", "-fPIC", "-pthread", "-c", str(SOURCE), "-o", str(target)]
        made = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if made.returncode == 0:
            return target.read_bytes()
    said = next((line for line in made.stderr.splitlines() if "error" in line), f"it ended with {made.returncode}")
    warnings.warn(
        f"{compiler} does not compile {SOURCE.name}, models run in TVM's thread pool: {said}",
        RuntimeWarning,
        stacklevel=2,
    )
    return None


def take_over(library: Any, cores: int) -> bool:
    """Have `library`, a loaded module, run its parallel loops on `cores` cores, shared with other models.

    False where none was linked into it.
    """
    global _first
    try:
        share = library.get_function("tvm_tiling_share", query_imports=True)
    except AttributeError:
        return False
    with _lock:
        if _first is None:
            _first = library, share(0, cores - 1, *usable_processors())
            tvm_ffi.get_global_func("ffi.ModuleGlobalsAdd")(library)  # its code is that of running threads
        first, address = _first
        first.get_function("tvm_tiling_share", query_imports=True)(address, cores - 1, *usable_processors())
        if first is not library:
            share(address, 0)
    return True


class Beside:
    """Runs of models beside each other, each on one core, which begin when they are added. One caller at a time."""

    def __init__(self, functions: Sequence[Sequence[Any]], most: int) -> None:
        """For `most` runs. `functions`: of every model one for each thread, the caller's first. RuntimeError where the
        threads are not to be had."""
        with _lock:
            library = None if _first is None else _first[0]
        if library is None:
            raise RuntimeError("no model has threads of its own")
        names = (f"tvm_tiling_beside_{step}" for step in ("begin", "add", "end"))
        try:
            begin, self._add, self._end = (library.get_function(name, query_imports=True) for name in names)
        except AttributeError:
            raise RuntimeError("the first model was saved by an older version") from None
        flat = [function for model in functions for function in model]
        if not begin(len(functions[0]), most, len(functions), *flat):
            raise RuntimeError("the threads are taken")
        self._kept: list[Sequence[Any]] = []

    def add(self, model: int, arguments: Sequence[Any]) -> None:
        """A run: which of the models, and what its function takes."""
        self._kept.append(arguments)
        if not self._add(model, *arguments):
            raise MemoryError("run_many: no memory for a run")

    def end(self) -> list[Any]:
        """What each run gave, None for one that failed. The caller takes part."""
        given = self._end(tvm_ffi.get_global_func("ffi.Array"))
        return [None if type(result) is int else result for result in given]
