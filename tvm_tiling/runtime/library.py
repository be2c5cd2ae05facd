"""Kernels and the program that calls them: as bytes to keep, and as a module to call.

A C compiler links them to a shared library, which the system maps. Where there is none they stay objects of machine
code as LLVM writes them, and apache-tvm-ffi-orcjit, LLVM's linker for compilers that run what they make, lays them out
in memory: 30 ms for ResNet-50, whenever it is loaded.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm_ffi

from ..temporary import temporary_folder

SHARED, OBJECTS = ".so", ".objects"  # what a file of machine code is, as the end of its name


@dataclass(frozen=True)
class Library:
    """`module`: what is called. `content`: the file it is loaded from. `kind`: SHARED, or for an archive, OBJECTS."""

    module: Any
    content: bytes
    kind: str


def load(content: bytes, kind: str) -> Library:
    """A library of bytes that link.py made. OSError where the folder for temporary files has no room, another error of
    the loaders where the bytes are no such thing."""
    return Library(_LOADERS[kind](content), content, kind)


def _from_shared(content: bytes) -> Any:
    with temporary_folder() as folder:
        path = folder / "model.so"
        path.write_bytes(content)
        return mapped(path)  # the system keeps the mapping when the file is gone


def mapped(path: Path) -> Any:
    """A shared library as TVM's module. It is unmapped with the last that is made of it; TVM's own load_module keeps
    every library for good, so that a process that compiles model after model would grow."""
    return tvm_ffi.load_module(path, keep_module_alive=False)


def _from_objects(content: bytes) -> Any:
    from tvm_ffi_orcjit import default_session  # 40 MB that only this asks for

    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
        members = [archive.extractfile(member) for member in archive]
        return default_session().load_module([member.read() for member in members if member is not None])


_LOADERS: dict[str, Callable[[bytes], Any]] = {SHARED: _from_shared, OBJECTS: _from_objects}
