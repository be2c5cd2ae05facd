"""What the commands that take a model have in common: shapes as text, inputs from files, a model or an executable."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ModelFormatError, WorkloadError

if TYPE_CHECKING:
    from ..model.executable import Executable


def shapes_of(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """{"data": (1, 3, 224, 224)} of ["data=1,3,224,224"]; WorkloadError quotes what is no shape."""
    shapes = {}
    for text in texts:
        name, equals, sizes = text.rpartition("=")
        parts = sizes.split(",")
        if not equals or not name or not all(part.strip().isdigit() and int(part) for part in parts):
            raise WorkloadError(f"--shape {text}: no shape, accepted: name=1,3,224,224")
        shapes[name] = tuple(int(part) for part in parts)
    return shapes


def opened(path: str, shapes: Sequence[str] = ()) -> Executable:
    """A saved executable, or a model, which is compiled."""
    from ..model.compile import compile_model
    from ..model.executable import load

    if not Path(path).is_file():
        raise ModelFormatError(f"{path} is no file; accepted: a model, or what `tvm-tiling compile` wrote")
    return load(path) if tarfile.is_tarfile(path) else compile_model(path, shapes=shapes_of(shapes))


def inputs_of(executable: Executable, file: str) -> dict[str, Any]:
    """Inputs from an .npz file by name; without a file, random numbers from 0 to 1, the same each time."""
    import numpy as np

    signature = executable.signature
    if file:
        try:
            with np.load(file, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
        except (OSError, ValueError) as error:
            raise ModelFormatError(
                f"{file} cannot be read as arrays ({error}); accepted: what numpy.savez wrote"
            ) from None
    rng = np.random.default_rng(0)
    return {
        name: rng.random(shape).astype(dtype)
        for name, shape, dtype in zip(
            signature.input_names, signature.input_shapes, signature.input_dtypes, strict=True
        )
    }
