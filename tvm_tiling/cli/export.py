"""`tvm-tiling export`: a model, or a compiled one, to a folder with a C library."""

from __future__ import annotations

from pathlib import Path

import typer

from .model_options import (
    ACTIVATIONS,
    BATCH,
    CALIBRATION,
    DIM,
    LOGITS,
    MODEL,
    PRECISION,
    SHAPE,
    TOLERANCE,
    WEIGHT_BLOCK,
    WEIGHTS,
    ModelOptions,
    opened,
)
from .output import print_json

EXAMPLES = (
    "tvm-tiling export model.tar library",
    "tvm-tiling export model.onnx net_library --name net",
)


def command(
    model: str = MODEL,
    folder: Path = typer.Argument(metavar="FOLDER", help="Where the library goes: a new or empty folder."),  # noqa: B008
    name: str = typer.Option("", "--name", help="Of the library and its functions; left out: the folder's."),
    batch: str = BATCH,
    dim: list[str] = DIM,
    shape: list[str] = SHAPE,
    precision: str = PRECISION,
    calibration: list[str] = CALIBRATION,
    tolerance: float | None = TOLERANCE,
    weights: str = WEIGHTS,
    block: int = WEIGHT_BLOCK,
    activations: str = ACTIVATIONS,
    logits: str = LOGITS,
    as_json: bool = typer.Option(False, "--json", help="Print what was written as JSON."),
) -> None:
    """Write a model as a C library that needs neither TVM nor Python: header, source, kernels, weights, files for CMake
    and pkg-config, and examples in C and C++."""
    typed = ModelOptions(batch, dim, shape, precision, calibration, tolerance, weights, block, activations, logits)
    executable = opened(model, typed, foreign=True)
    written = executable.export(folder, name=name or None)
    files = sorted(path.name for path in written.iterdir())
    if as_json:
        print_json({"folder": str(written), "files": files})
        return
    size = sum(path.stat().st_size for path in written.iterdir())
    print(f"{model}: written to {written}, {len(files)} files of {size / 1e6:.1f} MB")
    print(f"build it: cmake -S {folder} -B {folder}-build && cmake --build {folder}-build")
