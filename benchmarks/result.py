"""Result files: written atomically, and read only by the driver version that wrote them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tvm_tiling.atomic_file import atomic_file
from tvm_tiling.plain_text import plain_json

from .suite import SuiteError


def write_whole(path: Path, text: str) -> None:
    """Replace a file atomically: an interrupted run leaves the old or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        file.write(text.encode())


def earlier_entries(path: Path | None, kind: str, version: int, entries: str) -> list[dict[str, Any]]:
    """Return the list `entries` of an earlier result; empty without a file. Raises SuiteError if the file has another
    format."""
    if path is None or not path.is_file():
        return []
    try:
        earlier = plain_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SuiteError(f"{path} cannot be read: {error}; pass another --json file") from None
    if (earlier.get("format"), earlier.get("version")) != (kind, version):
        raise SuiteError(f"{path} is not a result of this driver's version {version}; pass another --json file")
    found: list[dict[str, Any]] = earlier[entries]
    return found
