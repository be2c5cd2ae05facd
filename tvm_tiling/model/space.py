"""Disk space for compilation: a lack of space is reported at once instead of after a minute of compilation."""

from __future__ import annotations

import contextlib
import resource
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

OTHER_FOLDER = "another folder by TMPDIR"
SPACE = 64 << 20  # bytes, about ten times the machine code of the largest networks


def require_space() -> None:
    """Raise OSError if the folder for temporary files may lack space for machine code."""
    folder = Path(tempfile.gettempdir())
    free, (largest, _) = shutil.disk_usage(folder).free, resource.getrlimit(resource.RLIMIT_FSIZE)
    if largest != resource.RLIM_INFINITY:
        free = min(free, largest)
    if free < SPACE:
        raise OSError(
            f"{folder} has {free >> 20} MiB of free space; expected {SPACE >> 20} MiB for compiled files, or "
            f"{OTHER_FOLDER}"
        )


@contextlib.contextmanager
def naming(folder: Path) -> Iterator[None]:
    """Rephrase an OSError raised meanwhile: `folder` has no space for compiled files."""
    try:
        yield
    except OSError as error:
        raise OSError(
            f"compiled files cannot be written to {folder}: {error.strerror}; expected {OTHER_FOLDER}"
        ) from None
