"""From objects of machine code to a library: linked by a C compiler, or an archive of them where there is none.

Kernels with instructions that this CPU lacks are linked and not loaded, those for another architecture by a cross
compiler. Where there is none they are kept as objects, which an export takes.
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

BYTECODE = "devc.o"  # export_library's name for the file that LLVM writes there
LEVEL = 1  # of compression: a third of the size, in a tenth of the time that the best takes
# Of the libraries that a compiler of C++ links, those that kernels need: its own would take half of the linker's time.
_WITHOUT = ("-nodefaultlibs",)
_NEEDED = ("-lm", "-lgcc", "-lc")


@dataclass(frozen=True)
class Destination:
    """Where kernels run: the architecture, None: this computer's; and what this CPU lacks to run them, in words."""

    arch: str | None = None
    lacking: str = ""

    @property
    def is_foreign(self) -> bool:
        """Whether the architecture is another one than this computer's."""
        return self.arch not in (None, host_arch())


HERE = Destination()


def link_plan(kernels: Sequence[bytes], plan: AnyPlan, folder: Path, destination: Destination = HERE) -> Library | None:
    """The library of `kernels`, objects of machine code that a plan calls, made in `folder`; None where no C compiler
    links it for this architecture. Errors as link()."""
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
    """The library of an executable that calls `kernels`, objects of machine code, made in `folder`, in which `files`
    lie. OSError where the folder has no room, TilingError where no C compiler links it."""
    objects = [*_written(kernels, folder), *_bytecode(executable, folder, files, destination)]
    return _library(objects, folder, launch_object, no_plan, destination)


def link_objects(kernels: Sequence[bytes], folder: Path) -> Library:
    """A library of kernels alone, which run here. Errors as link()."""
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
    """A library of TVM's; `more`: what is linked with the objects by a C compiler."""
    if compiler_for(destination.arch) is None:
        _refuse_full(folder)
        if destination.is_foreign:
            raise TilingError(f"the model calls TVM when it runs ({no_plan}), and {missing(destination.arch)}")
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
        # A compiler may have these libraries under other names, and knows them.
        with contextlib.suppress(RuntimeError):
            cc.create_shared(str(path), [*objects, *_NEEDED], options=[*options, *_WITHOUT], cc=command)
            return path
    try:
        cc.create_shared(str(path), objects, options=options, cc=command)
    except RuntimeError as error:
        _refuse_full(folder)
        said = [line for line in str(error).splitlines() if line.strip()]
        why = said[1] if len(said) > 1 else "".join(said)
        raise TilingError(f"{command} does not link the model in {folder}: {why}") from None
    return path


def _refuse_full(folder: Path) -> None:
    """OSError for a full disk: TVM does not tell that it wrote part of an object."""
    if not shutil.disk_usage(folder).free:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _bytecode(executable: VMExecutable, folder: Path, files: MemoryFiles, destination: Destination) -> list[str]:
    """The file of bytecode and constants, which LLVM writes as well if it knows for what."""
    found: list[str] = []

    def collect(_: str, files: Sequence[str], **__: Any) -> None:
        # Beside them is an empty C source: TVM's library for the host where nothing but objects is given.
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
