"""Arrays by name in an .npz file, written whole or not at all."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..atomic_file import atomic_file


def write_arrays(path: str | Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays of any names to an .npz file; np.savez has no "file" among its arrays."""
    import numpy as np

    with atomic_file(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
