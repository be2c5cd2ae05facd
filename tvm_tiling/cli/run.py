"""`tvm-tiling run`: a model, or a compiled one, on inputs from a file."""

from __future__ import annotations

import math
from typing import Any

import typer

from ..atomic_file import atomic_file, refuse_unwritable
from .model_options import (
    BATCH,
    CALIBRATION,
    DIM,
    INPUT,
    MODEL,
    PRECISION,
    SHAPE,
    TOLERANCE,
    WEIGHT_BLOCK,
    WEIGHTS,
    ModelOptions,
    inputs_of,
    opened,
)
from .output import print_json
from .table import print_table

EXAMPLES = (
    "tvm-tiling run model.tar --input x.npz -o y.npz",
    "tvm-tiling run model.onnx --json",
)


def command(
    model: str = MODEL,
    input_file: str = INPUT,
    output: str = typer.Option("", "--output", "-o", help="Write the outputs to this .npz file."),
    batch: str = BATCH,
    dim: list[str] = DIM,
    shape: list[str] = SHAPE,
    precision: str = PRECISION,
    calibration: list[str] = CALIBRATION,
    tolerance: float | None = TOLERANCE,
    weights: str = WEIGHTS,
    block: int = WEIGHT_BLOCK,
    as_json: bool = typer.Option(False, "--json", help="Print shape, type, least and largest value of each output."),
) -> None:
    """Run a model once, on inputs from a file or on random numbers."""
    import numpy as np

    if output:
        refuse_unwritable(output)
    executable = opened(model, ModelOptions(batch, dim, shape, precision, calibration, tolerance, weights, block))
    result = executable.run(**inputs_of(executable, input_file))
    outputs = dict(
        zip(executable.signature.output_names, result if isinstance(result, tuple) else (result,), strict=True)
    )
    if output:
        with atomic_file(output) as file:
            np.savez(file, **outputs)
    rows = [
        {
            "name": name,
            "shape": list(value.shape),
            "dtype": str(value.dtype),
            "min": _plain(value.min()) if value.size else None,
            "max": _plain(value.max()) if value.size else None,
        }
        for name, value in outputs.items()
    ]
    if as_json:
        print_json({"outputs": rows})
    else:
        print_table(("output", "shape", "type", "least", "largest"), [list(row.values()) for row in rows])


def _plain(value: Any) -> float | str:
    """A number as JSON can hold it: what is not finite by its name."""
    number = float(value)
    return number if math.isfinite(number) else str(number)
