"""Directories of this package in a user's home: for calibrations and for the cache."""

from __future__ import annotations

import os
from pathlib import Path

NO_HOME = "this user has no home directory"


def user_folder(variable: str, default: str) -> Path | None:
    """Return `tvm-tiling` in the directory that the environment variable names, otherwise in `default` in the user's
    home directory; None if the user has none. The directory may not exist, or may not be readable."""
    if base := os.environ.get(variable):
        return Path(base) / "tvm-tiling"
    try:
        return Path.home() / default / "tvm-tiling"
    except RuntimeError:
        return None


def is_unreadable(path: Path) -> bool:
    """Return whether this user may not look into the directory, or into one that contains it."""
    try:
        path.stat()
    except PermissionError:
        return True
    except OSError:
        return False
    return path.is_dir() and not os.access(path, os.R_OK | os.X_OK)
