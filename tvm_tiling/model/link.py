"""From objects of machine code to a library: linked by a C compiler, or an archive of them where there is none."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import sys
import tarfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tvm.relax.vm_build import VMExecutable
from tvm.support import cc
from tvm.target.codegen import llvm_get_system_triple

from ..errors import TilingError
from ..runtime.library import OBJECTS, Library, load, mapped
from ..runtime.open_plan import AnyPlan
from .memory_files import MemoryFiles
from .native_objects import launch_object, plan_objects

BYTECODE = "devc.o"  # export_library's name for the file that LLVM writes there
LEVEL = 1  # of compression: a third of the size, in a tenth of the time that the best takes
# Of the libraries that a compiler of C++ links, those that kernels need: its own would take half of the linker's time.
_WITHOUT = ("-nodefaultlibs",)
_NEEDED = ("-lm", "-lgcc", "-lc")


def link_plan(kernels: Sequence[bytes], plan: AnyPlan, folder: Path) -> Library | None:
    """The library of `kernels`, objects of machine code that a plan calls, made in `folder`; None where no C compiler
    links it. Errors as link()."""
    native = plan_objects(folder) if cc.get_cc() is not None else []
    if not native:
        return None
    objects = _written(kernels, folder)
    path = _linked([*objects, *native], folder)
    return mapped(path, path.read_bytes(), plan, "", zlib.compress(_archive(objects), LEVEL))


def link(executable: VMExecutable, kernels: Sequence[bytes], no_plan: str, folder: Path, files: MemoryFiles) -> Library:
    """The library of an executable that calls `kernels`, objects of machine code, made in `folder`, in which `files`
    lie. OSError where the folder has no room, TilingError where the C compiler does not link it."""
    return _library([*_written(kernels, folder), *_bytecode(executable, folder, files)], folder, launch_object, no_plan)


def link_objects(kernels: Sequence[bytes], folder: Path) -> Library:
    """A library of kernels alone. Errors as link()."""
    return _library(_written(kernels, folder), folder, lambda _: [])


def _written(kernels: Sequence[bytes], folder: Path) -> list[str]:
    paths = [folder / f"{number}.o" for number in range(len(kernels))]
    for path, content in zip(paths, kernels, strict=True):
        path.write_bytes(content)
    return list(map(str, paths))


def _library(objects: Sequence[str], folder: Path, more: Callable[[Path], list[str]], no_plan: str = "") -> Library:
    """A library of TVM's; `more`: what is linked with the objects by a C compiler."""
    if cc.get_cc() is None:
        _refuse_full(folder)
        return load(_archive(objects), OBJECTS, no_plan=no_plan)
    path = _linked([*objects, *more(folder)], folder)
    return mapped(path, path.read_bytes(), None, no_plan)


def _linked(objects: Sequence[str], folder: Path) -> Path:
    path = folder / "model.so"
    if sys.platform.startswith("linux"):
        # A compiler may have these libraries under other names, and knows them.
        with contextlib.suppress(RuntimeError):
            cc.create_shared(str(path), [*objects, *_NEEDED], options=list(_WITHOUT))
            return path
    try:
        cc.create_shared(str(path), objects)
    except RuntimeError as error:
        _refuse_full(folder)
        said = [line for line in str(error).splitlines() if line.strip()]
        why = said[1] if len(said) > 1 else "".join(said)
        raise TilingError(f"{cc.get_cc()} does not link the model in {folder}: {why}") from None
    return path


def _refuse_full(folder: Path) -> None:
    """OSError for a full disk: TVM does not tell that it wrote part of an object."""
    if not shutil.disk_usage(folder).free:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _bytecode(executable: VMExecutable, folder: Path, files: MemoryFiles) -> list[str]:
    """The file of bytecode and constants, which LLVM writes as well if it knows for what."""
    found: list[str] = []

    def collect(_: str, files: Sequence[str], **__: Any) -> None:
        # Beside them is an empty C source: TVM's library for the host where nothing but objects is given.
        found.extend(file for file in files if file.endswith(".o"))

    collect.get_target_triple = llvm_get_system_triple  # type: ignore[attr-defined]
    files.path(BYTECODE)
    executable.export_library(str(folder / "model.o"), fcompile=collect, workspace_dir=str(folder))
    return found


def _archive(objects: Sequence[str]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for number, path in enumerate(objects):
            machine_code = Path(path).read_bytes()
            entry = tarfile.TarInfo(f"{number}.o")
            entry.size = len(machine_code)
            archive.addfile(entry, io.BytesIO(machine_code))
    return content.getvalue()
