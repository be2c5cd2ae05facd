"""The magic number of program files, kept apart so that they can be recognised without importing the simulator."""

from __future__ import annotations

import os
from pathlib import Path

MAGIC = b"VSIMPROG"


def is_program(path: str | os.PathLike[str]) -> bool:
    """Return whether a file starts with the magic number of a program. A pipe, which could block, never does."""
    if not Path(path).is_file():
        return False
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False
