"""`tvm-tiling run`: a model, or a compiled one, on inputs from a file."""

from __future__ import annotations

from pathlib import Path

import typer

from .model_options import inputs_of, opened
from .output import print_json, print_table


def command(
    model: str = typer.Argument(metavar="MODEL", help="A model file, or what `tvm-tiling compile` wrote."),
    input_file: str = typer.Option("", "--input", help="Inputs by name in an .npz file; left out: random numbers."),
    output: str = typer.Option("", "--output", "-o", help="Write the outputs to this .npz file."),
    shape: list[str] = typer.Option([], "--shape", help="A shape that the model leaves open: name=1,3,224,224."),  # noqa: B008
    as_json: bool = typer.Option(False, "--json", help="Print shape, type, least and largest value of each output."),
) -> None:
    """Run a model once, e.g. tvm-tiling run resnet50.tar --input x.npz -o y.npz"""
    import numpy as np

    executable = opened(model, shape)
    result = executable.run(**inputs_of(executable, input_file))
    outputs = dict(
        zip(executable.signature.output_names, result if isinstance(result, tuple) else (result,), strict=True)
    )
    if output:
        partial = Path(f"{output}.partial")
        with partial.open("wb") as file:
            np.savez(file, **outputs)
        partial.replace(output)
    rows = [
        {
            "name": name,
            "shape": list(value.shape),
            "dtype": str(value.dtype),
            "min": float(value.min()) if value.size else None,
            "max": float(value.max()) if value.size else None,
        }
        for name, value in outputs.items()
    ]
    if as_json:
        print_json({"outputs": rows})
    else:
        print_table(("output", "shape", "type", "least", "largest"), [list(row.values()) for row in rows])
