"""How a program's file begins, which tells it from other files before anything of the simulator is imported."""

from __future__ import annotations

import os
from pathlib import Path

MAGIC = b"VSIMPROG"


def is_program(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins as the file of a program does; a pipe, which may never begin, does not."""
    if not Path(path).is_file():
        return False
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False
