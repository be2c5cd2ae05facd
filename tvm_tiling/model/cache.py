"""Compiled models kept by content: the same model for the same machine and the same options is compiled once.

The folder is the user's own: TVM_TILING_CACHE, or tvm-tiling in the system's place for caches. A file that cannot be
read counts as absent, and a cache that cannot be written costs nothing but the next compilation.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

import tvm
from tvm import relax, tirx

from ..errors import ModelFormatError
from ..frontend import ImportedModel
from ..hardware.description import Hardware
from ..schedule import Options
from .executable import Executable, load

SUFFIX = ".tar"


def cache_folder() -> Path:
    """Where compiled models are kept."""
    if given := os.environ.get("TVM_TILING_CACHE"):
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tvm-tiling"


class CompileCache:
    """A folder of saved executables."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_folder()

    def key(self, imported: ImportedModel, hardware: Hardware, options: Options) -> str:
        """64 hexadecimal digits that change with anything the executable depends on."""
        digest = hashlib.sha256()
        known = {
            "names": [imported.input_names, imported.output_names],
            "fingerprint": hardware.fingerprint(),
            "mcpu": hardware.cpu.mcpu if hardware.cpu else "",
            "options": asdict(options),
            "versions": {name: _version(name) for name in ("tvm-tiling", "apache-tvm", "apache-tvm-ffi")},
        }
        digest.update(json.dumps(known, sort_keys=True).encode())
        for variable, func in sorted(imported.module.functions.items(), key=lambda item: str(item[0].name_hint)):
            digest.update(variable.name_hint.encode())
            _hash_function(digest, func)
        return digest.hexdigest()

    def get(self, key: str) -> Executable | None:
        """The executable of that key, or None."""
        path = self.folder / f"{key}{SUFFIX}"
        if not path.is_file():
            return None
        try:
            return load(path)
        except ModelFormatError:
            return None

    def put(self, key: str, executable: Executable) -> None:
        """Keep an executable; where that is not possible, do without."""
        with contextlib.suppress(OSError, RuntimeError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            executable.save(self.folder / f"{key}{SUFFIX}")


def _hash_function(digest: hashlib._Hash, func: relax.Function | tirx.PrimFunc) -> None:
    """The structure of a function, and of a Relax function the content of its constants."""
    digest.update(func.script(show_meta=False).encode())
    if not isinstance(func, relax.Function):
        return

    def constant(expr: object) -> None:
        if isinstance(expr, tvm.ir.GenericConst) and isinstance(expr.value, tvm.runtime.Tensor):
            array = expr.value.numpy()
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(memoryview(array).cast("B") if array.size else b"")

    relax.analysis.post_order_visit(func, constant)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"
