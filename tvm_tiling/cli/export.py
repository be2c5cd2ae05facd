"""`tvm-tiling export`: export a model as a C library."""

from __future__ import annotations

from pathlib import Path

import typer

from ..figures import quantity
from .model_options import (
    MODEL,
    ModelOptions,
    model_options,
    opened,
)
from .output import print_json

EXAMPLES = (
    "tvm-tiling export model.tar library",
    "tvm-tiling export model.onnx net_library --name net",
)


@model_options()
def command(
    model: str = MODEL,
    folder: Path = typer.Argument(metavar="DIRECTORY", help="A new or empty directory for the library."),  # noqa: B008
    name: str = typer.Option(
        "", "--name", metavar="NAME", help="Name of the library and prefix of its functions; default: the directory's."
    ),
    *,
    options: ModelOptions,
    as_json: bool = typer.Option(False, "--json", help="Print the list of files as JSON."),
) -> None:
    """Export a model as a C library that needs neither TVM nor Python.

    The directory contains header, source, kernels, weights, files for CMake and pkg-config, and examples in C and C++.
    """
    executable = opened(model, options, foreign=True)
    written = executable.export(folder, name=name or None)
    files = sorted(path.name for path in written.iterdir())
    if as_json:
        print_json({"folder": str(written), "files": files})
        return
    size = sum(path.stat().st_size for path in written.iterdir())
    print(f"{model}: written to {written}, {quantity(len(files), 'file')}, {size / 1e6:.1f} MB")
    print(f"to build it: cmake -S {folder} -B {folder}-build && cmake --build {folder}-build")
