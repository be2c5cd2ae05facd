"""`tvm-tiling run`: run a model once on inputs from a file."""

from __future__ import annotations

import math
from typing import Any

import typer

from .array_file import write_arrays
from .model_options import (
    INPUT,
    MODEL,
    ModelOptions,
    inputs_of,
    model_options,
    opened,
)
from .output import check_outputs, print_json
from .table import print_table

EXAMPLES = (
    "tvm-tiling run model.tar --input x.npz -o y.npz",
    "tvm-tiling run model.onnx --threads 1 --json",
)


@model_options("logits")
def command(
    model: str = MODEL,
    input_file: str = INPUT,
    output: str = typer.Option("", "--output", "-o", metavar="FILE", help="Write the outputs to this .npz file."),
    *,
    options: ModelOptions,
    as_json: bool = typer.Option(False, "--json", help="Print shape, type and range of each output as JSON."),
) -> None:
    """Run a model once, on inputs from a file or on random values.

    With an accelerator as --target, the operators that it supports are executed by the simulator.
    """
    check_outputs([output], [model, input_file, options.target, *options.calibration])
    executable = opened(model, options)
    result = executable.run(inputs_of(executable, input_file))
    outputs = dict(
        zip(executable.signature.output_names, result if isinstance(result, tuple) else (result,), strict=True)
    )
    if output:
        write_arrays(output, outputs)
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
        print_table(("output", "shape", "type", "min", "max"), [_cells(row) for row in rows])


def _cells(row: dict[str, Any]) -> list[str]:
    """An output for people: numbers with six digits, nothing for the range of an empty tensor."""
    extremes = ["" if (end := row[name]) is None else f"{float(end):.6g}" for name in ("min", "max")]
    return [row["name"], " x ".join(map(str, row["shape"])) or "scalar", row["dtype"], *extremes]


def _plain(value: Any) -> float | str:
    """A number that JSON can hold: NaN and infinities by name."""
    number = float(value)
    return number if math.isfinite(number) else str(number)
