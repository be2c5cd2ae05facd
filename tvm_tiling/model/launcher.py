"""A model's parallel loops run by launch.c in the place of TVM's thread pool; its note says why.

It is compiled with a model, linked into its library and saved with it. A process runs the first one it loads, for all
models, so that they share their threads; that library stays loaded. Without a C compiler, and outside of Linux, models
run in TVM's pool.
"""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tvm_ffi
from tvm.support import cc

from ..lowering.threads import usable_processors

SOURCE = Path(__file__).with_name("launch.c")

_lock = threading.Lock()
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
    with tempfile.TemporaryDirectory(prefix="tvm-tiling-") as folder:
        target = Path(folder) / "launch.o"
        command = [compiler, "-x", "c", "-O2", "-fPIC", "-pthread", "-c", str(SOURCE), "-o", str(target)]
        made = subprocess.run(command, capture_output=True, check=False)
        return target.read_bytes() if made.returncode == 0 else None


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


@contextlib.contextmanager
def beside_others() -> Iterator[None]:
    """While inside, the calling thread does its parallel loops itself as long as such threads keep all cores busy."""
    with _lock:
        library = None if _first is None else _first[0]
    try:
        among = None if library is None else library.get_function("tvm_tiling_among", query_imports=True)
    except AttributeError:  # a model that an older version saved
        among = None
    if among is None:
        yield
        return
    among(1)
    try:
        yield
    finally:
        among(0)
