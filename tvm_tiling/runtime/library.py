"""Kernels and the code that calls them: as bytes, and loaded for calling.

A C compiler links them to a shared library, which the system maps. Without one they stay object files from LLVM, and
apache-tvm-ffi-orcjit, LLVM's JIT linker, loads them into memory: 30 ms for ResNet-50, at every load.

A library with a plan (plan.py) is called without TVM. The others are TVM modules with a program for its virtual
machine.
"""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..hardware.instruction_sets import InstructionSet
from ..temporary import temporary_folder
from .native_library import NativeLibrary
from .open_plan import AnyPlan

SHARED, OBJECTS = ".so", ".objects"  # kind of a machine code file, as its suffix


@dataclass(frozen=True)
class Library:
    """A loaded library. `content`: the file it is loaded from, of the `kind` SHARED or, for an archive, OBJECTS.
    `native`: the mapped library, None for objects. `plan`: the execution plan of a model; None if the program in
    `module`, TVM's module, runs it, and `no_plan` names the operator that is the reason. `objects`: for a library with
    a plan, its object files as a compressed archive. `instructions`: those that the kernels may use; None if a file of
    an older release does not say. `lacking`: what this CPU lacks of these, in words; such a library is
    not loaded, and its `content` is empty if no compiler links for its architecture."""

    content: bytes
    kind: str
    native: NativeLibrary | None
    module: Any = None
    plan: AnyPlan | None = None
    no_plan: str = ""
    objects: bytes = b""
    instructions: InstructionSet | None = None
    lacking: str = ""


def load(content: bytes, kind: str, plan: AnyPlan | None = None, no_plan: str = "", objects: bytes = b"") -> Library:
    """Load a library from bytes created by link.py. Raises OSError if the directory for temporary files is full,
    another error of the loaders if the bytes are invalid."""
    if kind == OBJECTS:
        return Library(content, kind, None, _from_objects(content), None, no_plan)
    with temporary_folder() as folder:
        path = folder / "model.so"
        path.write_bytes(content)
        return mapped(path, content, plan, no_plan, objects)  # the system keeps the mapping after the file is deleted


def mapped(path: Path, content: bytes, plan: AnyPlan | None, no_plan: str, objects: bytes = b"") -> Library:
    """Load a shared library at `path`, which may be deleted afterwards. It is unmapped with the last object created
    from it; TVM's own load_module never unmaps a library, so that a process that compiles many models would grow."""
    module = None
    if plan is None:
        import tvm  # noqa: F401 - has what the library's program is made of, and comes before the library, which calls it
        import tvm_ffi

        module = tvm_ffi.load_module(path, keep_module_alive=False)
    return Library(content, SHARED, NativeLibrary(path), module, plan, no_plan, objects)


def load_linker() -> None:
    """Load the JIT linker for objects. It adds types to TVM's type table, which may be reallocated while TVM passes in
    other threads read it without a lock, so that none may be running."""
    import tvm_ffi_orcjit  # noqa: F401


def _from_objects(content: bytes) -> Any:
    import tvm  # noqa: F401 - as above
    from tvm_ffi_orcjit import default_session  # 40 MB that only this path needs

    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
        members = [archive.extractfile(member) for member in archive]
        return default_session().load_module([member.read() for member in members if member is not None])
