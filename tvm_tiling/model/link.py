"""From object files to a library: linked by a C compiler, or an archive of them without one.

Kernels with instructions that this CPU lacks are linked but not loaded; those for another architecture are linked by a
cross compiler. Without one they remain object files, which can be exported.
"""

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm.relax.vm_build import VMExecutable
from tvm.support import cc
from tvm.target.codegen import llvm_get_system_triple

from ..errors import TilingError
from ..hardware.instruction_sets import host_arch
from ..runtime.library import OBJECTS, SHARED, Library, load, mapped
from ..runtime.open_plan import AnyPlan
from .memory_files import MemoryFiles
from .native_objects import compiler_for, launch_object, plan_objects
from .toolchain import missing

BYTECODE = "devc.o"  # export_library's name for LLVM's output file
LEVEL = 1  # of compression: a third of the size, in a tenth of the time of the best level
# The libraries needed by kernels; linking all default libraries of a C++ compiler would take half of the linker's time.
_WITHOUT = ("-nodefaultlibs",)
_NEEDED = ("-lm", "-lgcc", "-lc")


@dataclass(frozen=True)
class Destination:
    """The destination of kernels: the architecture, None for this computer's; and the instructions that this CPU lacks
    to run them, in words."""

    arch: str | None = None
    lacking: str = ""

    @property
    def is_foreign(self) -> bool:
        """Return whether the architecture differs from this computer's."""
        return self.arch not in (None, host_arch())


HERE = Destination()


def link_plan(kernels: Sequence[bytes], plan: AnyPlan, folder: Path, destination: Destination = HERE) -> Library | None:
    """The library of `kernels`, object files called by a plan, created in `folder`; None without a C compiler that
    links it for the destination. Errors as in link()."""
    native = plan_objects(folder, destination.arch) if compiler_for(destination.arch) is not None else []
    if not native and not destination.is_foreign:
        return None
    objects = _written(kernels, folder)
    content = b""
    if native:
        path = _linked([*objects, *native], folder, destination)
        content = path.read_bytes()
    archive = zlib.compress(_archive(objects), LEVEL)
    if not destination.lacking:
        return mapped(path, content, plan, "", archive)
    return Library(content, SHARED, None, None, plan, "", archive, lacking=destination.lacking)


def link(
    executable: VMExecutable,
    kernels: Sequence[bytes],
    no_plan: str,
    folder: Path,
    files: MemoryFiles,
    destination: Destination = HERE,
) -> Library:
    """The library of an executable that calls `kernels`, object files, created in `folder`, which contains `files`.
    Raises OSError if the directory is full, TilingError if no C compiler can link it."""
    objects = [*_written(kernels, folder), *_bytecode(executable, folder, files, destination)]
    return _library(objects, folder, launch_object, no_plan, destination)


def link_objects(kernels: Sequence[bytes], folder: Path) -> Library:
    """A library with kernels only, for this computer. Raises the errors of link()."""
    return _library(_written(kernels, folder), folder, lambda *_: [])


def _written(kernels: Sequence[bytes], folder: Path) -> list[str]:
    paths = [folder / f"{number}.o" for number in range(len(kernels))]
    for path, content in zip(paths, kernels, strict=True):
        path.write_bytes(content)
    return list(map(str, paths))


def _library(
    objects: Sequence[str],
    folder: Path,
    more: Callable[[Path, str | None], list[str]],
    no_plan: str = "",
    destination: Destination = HERE,
) -> Library:
    """A TVM library; `more` returns further objects if a C compiler links it."""
    if compiler_for(destination.arch) is None:
        _refuse_full(folder)
        if destination.is_foreign:
            raise TilingError(f"the model requires TVM at run time ({no_plan}), and {missing(destination.arch)}")
        if destination.lacking:
            return Library(_archive(objects), OBJECTS, None, None, None, no_plan, lacking=destination.lacking)
        return load(_archive(objects), OBJECTS, no_plan=no_plan)
    path = _linked([*objects, *more(folder, destination.arch)], folder, destination)
    if destination.lacking:
        return Library(path.read_bytes(), SHARED, None, None, None, no_plan, lacking=destination.lacking)
    return mapped(path, path.read_bytes(), None, no_plan)


def _linked(objects: Sequence[str], folder: Path, destination: Destination = HERE) -> Path:
    path = folder / "model.so"
    compiler = compiler_for(destination.arch)
    assert compiler is not None
    command, *options = compiler
    if sys.platform.startswith("linux") or destination.is_foreign:
        # A compiler may have these libraries under other names; then it links its defaults.
        with contextlib.suppress(RuntimeError):
            cc.create_shared(str(path), [*objects, *_NEEDED], options=[*options, *_WITHOUT], cc=command)
            return path
    try:
        cc.create_shared(str(path), objects, options=options, cc=command)
    except RuntimeError as error:
        _refuse_full(folder)
        said = [line for line in str(error).splitlines() if line.strip()]
        why = said[1] if len(said) > 1 else "".join(said)
        raise TilingError(f"{command} cannot link the model in {folder}: {why}") from None
    return path


def _refuse_full(folder: Path) -> None:
    """Raise OSError for a full disk: TVM does not report a partially written object file."""
    if not shutil.disk_usage(folder).free:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _bytecode(executable: VMExecutable, folder: Path, files: MemoryFiles, destination: Destination) -> list[str]:
    """The file of bytecode and constants, written by LLVM if it is given the target triple."""
    found: list[str] = []

    def collect(_: str, files: Sequence[str], **__: Any) -> None:
        # There is also an empty C source: TVM's library for the host, used if only object files are given.
        found.extend(file for file in files if file.endswith(".o"))

    def triple() -> str:
        return f"{destination.arch}-linux-gnu" if destination.is_foreign else str(llvm_get_system_triple())

    collect.get_target_triple = triple  # type: ignore[attr-defined]
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
