"""A saved model with a changed description, as if saved by a release that writes other records."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tvm_tiling.model import saved


def edited(path: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """Return the file with a changed description and a valid digest."""
    with tarfile.open(path) as archive:
        contents = {member.name: archive.extractfile(member).read() for member in archive}
    known = json.loads(contents[saved.DESCRIPTION])
    change(known)
    known["digest"] = saved._digest(known)
    contents[saved.DESCRIPTION] = json.dumps(known, sort_keys=True).encode()
    with tarfile.open(path, "w") as archive:
        for name, content in contents.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path
