"""Space for what is compiled: that there is none is said at once and not behind a minute of compilation."""

from __future__ import annotations

import contextlib
import resource
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

OTHER_FOLDER = "another folder by TMPDIR"
SPACE = 64 << 20  # bytes, some ten times what the machine code of the largest networks takes


def require_space() -> None:
    """OSError where machine code may find no space in the folder for temporary files."""
    folder = Path(tempfile.gettempdir())
    free, (largest, _) = shutil.disk_usage(folder).free, resource.getrlimit(resource.RLIMIT_FSIZE)
    if largest != resource.RLIM_INFINITY:
        free = min(free, largest)
    if free < SPACE:
        raise OSError(
            f"{folder} has room for {free >> 20} MiB; accepted: {SPACE >> 20} MiB for what is compiled "
            f"there, or {OTHER_FOLDER}"
        )


@contextlib.contextmanager
def naming(folder: Path) -> Iterator[None]:
    """An OSError that is raised meanwhile says that `folder` cannot hold what is compiled."""
    try:
        yield
    except OSError as error:
        raise OSError(
            f"what is compiled cannot be put into {folder}: {error.strerror}; accepted: {OTHER_FOLDER}"
        ) from None
