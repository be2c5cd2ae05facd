"""Compiled models kept by content: the same model for the same machine and the same options is compiled once.

The folder is the user's own (cache_folder.py says where, and how large it may be). A file that cannot be read, or that
others may have written, counts as absent, and a cache that cannot be written costs nothing but the next compilation.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..atomic_file import atomic_file
from ..decide.options import Options
from ..errors import ModelFormatError
from ..hardware.description import Hardware
from ..plain_text import plain_json
from ..runtime.pages import FileContents
from .cache_folder import ASKED, SUFFIX, CacheFolder
from .executable import Executable
from .kernel_cache import KernelCache
from .load import load
from .open_sizes import Setting
from .package_versions import sources, versions

if TYPE_CHECKING:
    from .known_configs import KnownConfigs

# How an ONNX file names the file of a weight that lies beside it: a protobuf field, its length and its text.
_EXTERNAL = re.compile(rb"\n\x08location")
GGUF = b"GGUF"  # how files begin that hold all of a model


class CompileCache:
    """A folder of saved executables."""

    def __init__(self, folder: Path | None = None, limit: int | None = None) -> None:
        """`limit`: the most bytes of it, by default what the user set."""
        self._place = CacheFolder(folder, limit)
        self.folder = self._place.path

    def key(self, model: bytes, hardware: Hardware, options: Options) -> str:
        """64 hexadecimal digits that change with anything the executable depends on.

        `model`: what model_digest() makes of it, or where that is nothing, imported_digest() of its variants.
        """
        digest = hashlib.sha256()
        known = {
            "fingerprint": hardware.fingerprint(),
            "mcpu": hardware.cpu.mcpu if hardware.cpu else "",
            "options": asdict(replace(options, configs=None)),
            "database": options.configs is not None,
            "versions": versions(),
            "sources": sources(),
        }
        digest.update(json.dumps(known, sort_keys=True).encode())
        digest.update(model)
        return digest.hexdigest()

    def kernels(self) -> KernelCache:
        """The kernels in the same folder, within the same limit."""
        return KernelCache(self._place)

    def get(self, key: str) -> Executable | None:
        """The executable of that key, or None."""
        path = self.folder / f"{key}{SUFFIX}"
        if not path.is_file() or self._place.refused():
            return None
        try:
            found = load(
                path, copy=True, foreign=True
            )  # pages of a file are small: reading gigabytes by them takes a tenth longer
        except ModelFormatError:
            return None
        self._place.used(path)
        found.from_cache = True
        return found

    def key_with(self, key: str, configs: KnownConfigs, hardware: Hardware) -> str:
        """The key of what `key` and the configurations of a database make: other configurations make another
        executable.

        What was asked for when such a model was compiled is kept beside it.
        """
        asked = sorted({*self._asked(key), *configs.asked})
        return hashlib.sha256(f"{key} {configs.digest(asked, hardware)}".encode()).hexdigest()

    def put_asked(self, key: str, configs: KnownConfigs) -> None:
        """Keep which workloads a compilation asked for; where that is not possible, do without."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with atomic_file(self.folder / f"{key}{ASKED}") as file:
                file.write(json.dumps(sorted({*self._asked(key), *configs.asked})).encode())

    def _asked(self, key: str) -> list[str]:
        try:
            return list(map(str, plain_json((self.folder / f"{key}{ASKED}").read_text())))
        except (OSError, ValueError):
            return []

    def put(self, key: str, executable: Executable) -> None:
        """Keep an executable; where that is not possible, do without."""
        if not self._place.limit or self._place.refused():
            return
        if not all(variant.library.content for variant in executable.variants):
            return  # it was not linked
        with contextlib.suppress(OSError, RuntimeError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self.folder / f"{key}{SUFFIX}"
            executable.save(path)
            self._place.used(path)
            self._place.make_space()


def model_digest(
    model: Any,
    settings: Sequence[Setting],
    shapes: Mapping[str, Sequence[int]] | None,
    params: Mapping[str, Any] | None,
) -> bytes | None:
    """A digest of a model that is all in one piece of bytes, and of how its open dimensions are settled.

    None for models that are not bytes, and for files whose weights lie beside them: those are known when they are read.
    """
    content = _bytes_of(model)
    if content is None or (content[:4] != GGUF and _EXTERNAL.search(content)):
        return None
    digest = hashlib.sha256(content)
    digest.update(json.dumps([asdict(setting) for setting in settings], sort_keys=True).encode())
    digest.update(repr(sorted((shapes or {}).items())).encode())
    for name, value in sorted((params or {}).items()):
        known = np.ascontiguousarray(value.numpy() if hasattr(value, "numpy") else value)
        digest.update(f"{name} {known.dtype} {known.shape}".encode())
        digest.update(known.reshape(-1).view(np.uint8).data)
    return digest.digest()


def with_changes(digest: bytes, weights: str | None, block: int, activations: str | None, logits: str) -> bytes:
    """The digest of a model that is changed before it is compiled, as these arguments of compile() say."""
    asked = {} if weights is None else {"weights": f"{weights}:{block}"}
    if activations is not None:
        asked["activations"] = activations
    if logits != "all":
        asked["logits"] = logits
    return hashlib.sha256(digest + json.dumps(asked, sort_keys=True).encode()).digest() if asked else digest


def _bytes_of(model: Any) -> bytes | memoryview | None:
    if isinstance(model, str | Path):
        path = Path(model)
        return FileContents(path).content if path.is_file() else None
    if isinstance(model, bytes | bytearray | memoryview):
        return memoryview(model)
    # An onnx.ModelProto; no framework is imported to find out.
    if type(model).__name__ == "ModelProto" and hasattr(model, "SerializeToString"):
        try:
            written: bytes = model.SerializeToString()
        except ValueError:  # larger than a message may be
            return None
        return written
    return None
