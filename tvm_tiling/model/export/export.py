"""export(): a directory with a compiled model as a C library, its weights, and its build files.

The library consists of the kernels from LLVM, the plan as tables, plan.c and launch.c.
"""

from __future__ import annotations

import io
import json
import os
import platform
import re
import secrets
import shutil
import struct
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ...errors import TilingError, UnsupportedOperator, WorkloadError
from ...runtime.launcher import SOURCE as LAUNCH
from ...runtime.plan import ELEMENT, ExecutionPlan, TensorType
from ...runtime.plan_runner import SOURCE as PLAN
from ...sizes import Shape
from ..passes.constants import Constants
from ..signature import Signature
from ..variants import AnyVariant
from .own_symbols import objects_with_own_symbols, with_own_symbols
from .tables import instruction_table, tables

TEMPLATES = Path(__file__).with_name("templates")
MARK = ".tvm-tiling-export"  # marker file of a directory written here, with a list of the other files
FORMAT_VERSION = "1.0"  # of the written files
MAGIC, HEADER = b"TVMTILE1", 64  # of the weights file
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = {"main", "plan", "launch", "kernels"}  # names of files or functions of every export


def export_variant(variant: AnyVariant, constants: Constants, folder: str | os.PathLike[str], name: str | None) -> Path:
    """Write the directory atomically. `name`: prefix of the library and its functions, by default the directory's name.

    Raises UnsupportedOperator for an operator without a plan, TilingError for a name that is not a C identifier,
    FileExistsError for a directory with other contents, OSError if it cannot be written.
    """
    target = Path(os.path.abspath(folder))
    plan = variant.library.plan
    if plan is None:
        raise UnsupportedOperator(
            f"the model cannot be exported: {variant.library.no_plan}; expected only kernels of static shape"
        )
    if not isinstance(plan, ExecutionPlan):
        sizes = ", ".join(variant.signature.open_sizes.names)
        raise UnsupportedOperator(
            f"the model has dynamic dimensions ({sizes}), but a C library requires static shapes; expected a "
            "model compiled with a size for each, by batch, dims or shapes"
        )
    name = _named(target.name if name is None else name, given=name is not None)
    _refuse_other(target)
    offsets = [constants.places[number].offset for number in variant.constants]
    files = _files(variant, plan, offsets, constants.block, name)
    partial = target.parent / f".{target.name}.{secrets.token_hex(4)}"
    try:
        partial.mkdir()
        _write(partial, files, constants.block, name)
        _replace(target, partial)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, OSError):
            raise type(error)(f"{target} cannot be written: {error.strerror or error}") from None
        raise
    return target


def chosen_variant(variants: Sequence[AnyVariant], shapes: Mapping[str, Sequence[int]] | None) -> AnyVariant:
    """The variant whose inputs have these shapes; omitted inputs may have any shape. Raises WorkloadError unless
    exactly one matches."""
    wanted = {name: tuple(int(size) for size in shape) for name, shape in (shapes or {}).items()}
    names = variants[0].signature.input_names
    if unknown := [name for name in wanted if name not in names]:
        raise WorkloadError(f"the model has no input {unknown[0]!r}; expected {', '.join(map(repr, names))}")
    found = [each for each in variants if _shapes(each.signature).items() >= wanted.items()]
    if len(found) == 1:
        return found[0]
    known = "; ".join(str(_shapes(each.signature)) for each in variants)
    raise WorkloadError(
        f"{len(found)} of the model's {len(variants)} variants have the shapes {wanted}, but exactly one can "
        f"be exported; pass shapes= of {known}"
    )


def _shapes(signature: Signature) -> dict[str, Shape]:
    return dict(zip(signature.input_names, signature.input_shapes, strict=True))


def _named(name: str, given: bool) -> str:
    """A prefix for C functions and file names."""
    found = name if given else re.sub(r"\W", "_", name, flags=re.ASCII)
    if not given and (not _IDENTIFIER.match(found) or found in _RESERVED):
        found = f"model_{found}"
    if not _IDENTIFIER.fullmatch(found) or found in _RESERVED:
        raise TilingError(
            f"name = {name!r}; expected letters, digits and underscores, as in C, and not the name of an exported file"
        )
    return found


def _refuse_other(target: Path) -> None:
    """Raise FileExistsError if the directory contains anything that was not written here."""
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise FileExistsError(f"{target} is not a directory; expected a new or empty one, or one of a previous export")
    if not target.exists():
        if not target.parent.is_dir():
            raise FileNotFoundError(f"{target} cannot be written: directory {target.parent} does not exist")
        return
    found = {path.name for path in target.iterdir()}
    if not found:
        return
    try:
        known = json.loads((target / MARK).read_text())
        own = isinstance(known, list) and found <= {MARK, *known}
    except (OSError, ValueError):
        own = False
    if not own:
        other = sorted(found - {MARK})[:1]
        raise FileExistsError(
            f"{target} contains {', '.join(other) or 'files'}, which no export wrote; expected a new or "
            "empty directory, or one of a previous export"
        )


def _files(
    variant: AnyVariant, plan: ExecutionPlan, offsets: Sequence[int], block: np.ndarray, name: str
) -> dict[str, bytes]:
    """Contents of all files except the weights, by name."""
    kernels = _objects(variant.library.objects, name)
    values = {
        "name": name,
        "NAME": name.upper(),
        "version": FORMAT_VERSION,
        "cpu": variant.library.instructions.arch if variant.library.instructions else platform.machine(),
        "cores": str(variant.threads),
        "signature": _described(variant.signature, plan),
        "tables": tables(
            plan, offsets, name, variant.signature.input_names, variant.signature.names_of(len(plan.outputs))
        ),
        "instructions": instruction_table(variant.library.instructions),
        "kernels": " ".join(kernels),
        "weights_bytes": str(block.nbytes),
        "weights_checksum": str(zlib.crc32(block.data)),
        **{each: str(len(getattr(plan, each))) for each in ("inputs", "outputs", "tensors", "steps")},
        "arena": str(plan.arena),
        "parts": str(plan.parts),
        "unit": "its elements" if plan.alignment == ELEMENT else f"{plan.alignment} bytes",
        "arguments": str(sum(len(step.arguments) for step in plan.steps)),
    }
    sources = {
        LAUNCH.name: LAUNCH,
        PLAN.name: PLAN,
        "plan.h": PLAN.with_suffix(".h"),
        f"{name}.c": TEMPLATES / "model.c",
    }
    contents = {path: source.read_text() for path, source in sources.items()}
    if plan.alignment != ELEMENT:
        contents[PLAN.name] = f"#define TVM_TILING_BORROWED_ALIGNMENT {plan.alignment}\n{contents[PLAN.name]}"
    texts = with_own_symbols(name, contents)
    templates = {
        f"{name}.h": "model.h",
        f"{name}.map": "model.map",
        f"{name}.pc.in": "model.pc.in",
        "CMakeLists.txt": "CMakeLists.txt",
        "main.c": "main.c",
        "main.cpp": "main.cpp",
    }
    texts |= {path: (TEMPLATES / template).read_text() for path, template in templates.items()}
    return {**{path: _filled(text, values).encode() for path, text in texts.items()}, **kernels}


def _filled(text: str, values: Mapping[str, str]) -> str:
    """The text with @names@ substituted; other names belong to CMake and are kept."""
    return re.sub(r"@(\w+)@", lambda found: values.get(found[1], found[0]), text)


def _objects(archive: bytes, name: str) -> dict[str, bytes]:
    """The kernel object files by file name."""
    with tarfile.open(fileobj=io.BytesIO(zlib.decompress(archive)), mode="r:") as members:
        contents = [held.read() for held in map(members.extractfile, members) if held is not None]
    return {f"kernels_{number}.o": held for number, held in enumerate(objects_with_own_symbols(name, contents))}


def _described(signature: Signature, plan: ExecutionPlan) -> str:
    """Inputs and outputs for the comment in the header."""

    def lines(what: str, names: Sequence[str], types: Sequence[TensorType]) -> list[str]:
        return [
            f"   {what} {number}, {_plain(name)}: {' x '.join(map(str, each.shape)) or 'scalar'} {each.dtype}"
            for number, (name, each) in enumerate(zip(names, types, strict=True))
        ]

    outputs = signature.names_of(len(plan.outputs))
    return "\n".join([*lines("input", signature.input_names, plan.inputs), *lines("output", outputs, plan.outputs), ""])


def _plain(name: str) -> str:
    """A name that cannot end a comment or a line."""
    return re.sub(r"[^\w.:/+-]|/(?=\*)|(?<=\*)/", "_", name, flags=re.ASCII)


def _write(folder: Path, files: Mapping[str, bytes], block: np.ndarray, name: str) -> None:
    for path, content in files.items():
        (folder / path).write_bytes(content)
    weights = f"{name}.weights"
    with (folder / weights).open("wb") as file:
        header = MAGIC + struct.pack("<QI", block.nbytes, zlib.crc32(block.data))
        file.write(header.ljust(HEADER, b"\0"))
        file.write(block.data)
    (folder / MARK).write_text(json.dumps(sorted([*files, weights])))


def _replace(target: Path, partial: Path) -> None:
    """Move the directory to its destination, replacing a previous export."""
    if not target.exists():
        partial.rename(target)
        return
    before = partial.with_name(f"{partial.name}.before")
    target.rename(before)
    try:
        partial.rename(target)
    except BaseException:
        before.rename(target)
        raise
    shutil.rmtree(before)
