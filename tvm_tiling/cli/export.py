"""`tvm-tiling export`: export a model as a C library."""

from __future__ import annotations

from pathlib import Path

import typer

from .model_options import (
    ACTIVATIONS,
    BATCH,
    CALIBRATION,
    DETERMINISTIC,
    DIM,
    LOGITS,
    MODEL,
    PRECISION,
    SHAPE,
    TARGET,
    THREADS,
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
    folder: Path = typer.Argument(metavar="DIRECTORY", help="A new or empty directory for the library."),  # noqa: B008
    name: str = typer.Option(
        "", "--name", metavar="NAME", help="Name of the library and prefix of its functions; default: the directory's."
    ),
    target: str = TARGET,
    batch: str = BATCH,
    dim: list[str] = DIM,
    shape: list[str] = SHAPE,
    threads: int | None = THREADS,
    precision: str = PRECISION,
    calibration: list[str] = CALIBRATION,
    tolerance: float | None = TOLERANCE,
    weights: str = WEIGHTS,
    block: int = WEIGHT_BLOCK,
    activations: str = ACTIVATIONS,
    logits: str = LOGITS,
    deterministic: bool = DETERMINISTIC,
    as_json: bool = typer.Option(False, "--json", help="Print the list of files as JSON."),
) -> None:
    """Export a model as a C library that needs neither TVM nor Python.

    The directory contains header, source, kernels, weights, files for CMake and pkg-config, and examples in C and C++.
    """
    typed = ModelOptions(
        batch,
        dim,
        shape,
        precision,
        calibration,
        tolerance,
        weights,
        block,
        activations,
        logits,
        target,
        threads,
        deterministic,
    )
    executable = opened(model, typed, foreign=True)
    written = executable.export(folder, name=name or None)
    files = sorted(path.name for path in written.iterdir())
    if as_json:
        print_json({"folder": str(written), "files": files})
        return
    size = sum(path.stat().st_size for path in written.iterdir())
    print(f"{model}: written to {written}, {len(files)} files, {size / 1e6:.1f} MB")
    print(f"to build it: cmake -S {folder} -B {folder}-build && cmake --build {folder}-build")
