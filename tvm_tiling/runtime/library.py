"""Kernels and what calls them: as bytes to keep, and ready to be called.

A C compiler links them to a shared library, which the system maps. Where there is none they stay objects of machine
code as LLVM writes them, and apache-tvm-ffi-orcjit, LLVM's linker for compilers that run what they make, lays them out
in memory: 30 ms for ResNet-50, whenever it is loaded.

A library with a plan (plan.py) is called without TVM. The others are modules of TVM, with a program for its virtual
machine in them.
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

SHARED, OBJECTS = ".so", ".objects"  # what a file of machine code is, as the end of its name


@dataclass(frozen=True)
class Library:
    """`content`: the file it is loaded from, of the `kind` SHARED or, for an archive, OBJECTS. `native`: the mapped
    library, None for objects. `plan`: how a model is run; None where `module`, TVM's module, has a program that runs
    it, and `no_plan` says which operator is why. `objects`: of a library with a plan what it was linked of, as a
    compressed archive. `instructions`: those that the kernels may use; None where a file of an older release does not
    tell. `lacking`: what this CPU lacks of these, in words; such a library is not loaded, and its `content` is empty
    where no compiler links for its architecture."""

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
    """A library of bytes that link.py made. OSError where the folder for temporary files has no room, another error of
    the loaders where the bytes are no such thing."""
    if kind == OBJECTS:
        return Library(content, kind, None, _from_objects(content), None, no_plan)
    with temporary_folder() as folder:
        path = folder / "model.so"
        path.write_bytes(content)
        return mapped(path, content, plan, no_plan, objects)  # the system keeps the mapping when the file is gone


def mapped(path: Path, content: bytes, plan: AnyPlan | None, no_plan: str, objects: bytes = b"") -> Library:
    """A shared library at `path`, where it need not stay. It is unmapped with the last that is made of it; TVM's own
    load_module keeps every library for good, so that a process that compiles model after model would grow."""
    module = None
    if plan is None:
        import tvm  # noqa: F401 - has what the library's program is made of, and comes before the library, which calls it
        import tvm_ffi

        module = tvm_ffi.load_module(path, keep_module_alive=False)
    return Library(content, SHARED, NativeLibrary(path), module, plan, no_plan, objects)


def load_linker() -> None:
    """Load what links objects without a C compiler. It adds types to TVM's table of them, which moves in memory, and
    nobody else may be looking at that: TVM's passes in other threads do, without a lock."""
    import tvm_ffi_orcjit  # noqa: F401


def _from_objects(content: bytes) -> Any:
    import tvm  # noqa: F401 - as above
    from tvm_ffi_orcjit import default_session  # 40 MB that only this asks for

    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
        members = [archive.extractfile(member) for member in archive]
        return default_session().load_module([member.read() for member in members if member is not None])
