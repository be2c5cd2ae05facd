"""`tvm-tiling compile`: a model file to one file that runs without the model and without a compiler."""

from __future__ import annotations

import time
from pathlib import Path

import typer

from .model_options import shapes_of
from .output import print_json


def command(
    model: str = typer.Argument(metavar="MODEL", help="A model file: .onnx or .tflite, told by its content."),
    output: Path = typer.Option(Path("model.tar"), "--output", "-o", help="Where the executable goes."),  # noqa: B008
    shape: list[str] = typer.Option([], "--shape", help="A shape that the model leaves open: name=1,3,224,224."),  # noqa: B008
    winograd: bool = typer.Option(True, help="Whether Winograd's form may be taken, with errors up to 1e-4."),
    cache: bool = typer.Option(True, help="Whether to use the cache of compiled models."),
    as_json: bool = typer.Option(False, "--json", help="Print what was compiled as JSON."),
) -> None:
    """Compile a model with no trial runs, e.g. tvm-tiling compile resnet50.onnx -o resnet50.tar"""
    from ..model.compile import compile_model

    start = time.perf_counter()
    executable = compile_model(model, shapes=shapes_of(shape), winograd=winograd, cache=cache)
    seconds = time.perf_counter() - start
    executable.save(output)
    operators = sum(operator.calls for operator in executable.operators)
    if as_json:
        print_json({"output": str(output), "seconds": seconds, **executable.describe()})
        return
    print(f"{model}: {operators} operators compiled in {seconds:.1f} s, written to {output}")
    for line in executable.signature_lines():
        print(line)
