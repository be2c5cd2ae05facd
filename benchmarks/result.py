"""Files of results: written whole, and read again only by the version of the driver that wrote them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from .suite import SuiteError


def write_whole(path: Path, text: str) -> None:
    """Replace a file at once: a run that is stopped leaves the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".part")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)


def earlier_entries(path: Path | None, kind: str, version: int, entries: str) -> list[dict[str, Any]]:
    """The list `entries` of a result that was written before; empty without a file, SuiteError if it is another's."""
    if path is None or not path.is_file():
        return []
    earlier = json.loads(path.read_text(encoding="utf-8"))
    if (earlier.get("format"), earlier.get("version")) != (kind, version):
        raise SuiteError(f"{path} is no result of this driver's version {version}; give another --json file")
    found: list[dict[str, Any]] = earlier[entries]
    return found
