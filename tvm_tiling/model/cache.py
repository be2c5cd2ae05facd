"""Cache of compiled models by content: the same model for the same machine with the same options is compiled once.

The directory belongs to the user (cache_folder.py defines its path and size limit). A file that cannot be read, or that
others may have written, counts as missing, and a cache that cannot be written only costs the next compilation.
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

# The reference of an ONNX file to an external weight file: a protobuf field with its length and text.
_EXTERNAL = re.compile(rb"\n\x08location")
GGUF = b"GGUF"  # first bytes of files that contain the complete model


class CompileCache:
    """A directory of saved executables."""

    def __init__(self, folder: Path | None = None, limit: int | None = None) -> None:
        """`limit`: its maximum size in bytes, by default as set by the user."""
        self._place = CacheFolder(folder, limit)
        self.folder = self._place.path

    def key(self, model: bytes, hardware: Hardware, options: Options) -> str:
        """64 hexadecimal digits that change with anything the executable depends on.

        `model`: the result of model_digest(), or, if that is None, the imported_digest() of its variants.
        """
        digest = hashlib.sha256()
        known = {
            "fingerprint": hardware.fingerprint(),
            "mcpu": hardware.cpu.mcpu if hardware.cpu else "",
            # A clock that was measured; the system's reading varies, and would defeat the cache.
            "clock": hardware.cpu.mhz if hardware.cpu and hardware.calibration else None,
            "options": asdict(replace(options, configs=None)),
            "database": options.configs is not None,
            "versions": versions(),
            "sources": sources(),
        }
        digest.update(json.dumps(known, sort_keys=True).encode())
        digest.update(model)
        return digest.hexdigest()

    def kernels(self) -> KernelCache:
        """The kernel cache in the same directory, with the same limit."""
        return KernelCache(self._place)

    def get(self, key: str) -> Executable | None:
        """The executable for this key, or None."""
        path = self.folder / f"{key}{SUFFIX}"
        if self._place.refused() or not path.is_file():
            return None
        try:
            # Demand paging of gigabytes by small pages takes a tenth longer, so weights are copied.
            found = load(path, copy=True, foreign=True)
        except ModelFormatError:
            return None
        self._place.used(path)
        found.from_cache = True
        return found

    def key_with(self, key: str, configs: KnownConfigs, hardware: Hardware) -> str:
        """The key combined with the configurations of a database: different configurations give a different executable.

        The workloads requested by the compilation of such a model are stored next to it.
        """
        asked = sorted({*self._asked(key), *configs.asked})
        return hashlib.sha256(f"{key} {configs.digest(asked, hardware)}".encode()).hexdigest()

    def put_asked(self, key: str, configs: KnownConfigs) -> None:
        """Store which workloads a compilation requested; errors are ignored."""
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
        """Store an executable; errors are ignored."""
        if not self._place.limit or self._place.refused():
            return
        if not all(variant.library.content for variant in executable.variants):
            return  # not linked
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
    """A digest of a model that is contained in a single byte string, and of the settings of its dynamic dimensions.

    None for models that are not bytes, and for files with external weights: their digest is known after reading them.
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
    """The digest of a model that compile() modifies according to these arguments."""
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
    # An onnx.ModelProto, checked without importing a framework.
    if type(model).__name__ == "ModelProto" and hasattr(model, "SerializeToString"):
        try:
            written: bytes = model.SerializeToString()
        except ValueError:  # larger than the maximum message size
            return None
        return written
    return None
