"""`tvm-tiling report`: where a model's time goes, operator by operator."""

from __future__ import annotations

import typer

from .model_options import BATCH, DIM, INPUT, MODEL, SHAPE, OpenSizes, inputs_of, opened
from .operator_table import print_report
from .output import print_json


def command(
    model: str = MODEL,
    input_file: str = INPUT,
    batch: str = BATCH,
    dim: list[str] = DIM,
    shape: list[str] = SHAPE,
    seconds: float = typer.Option(2.0, min=0.01, help="How long to measure."),
    as_json: bool = typer.Option(False, "--json", help="Print every operator with its decision as JSON."),
) -> None:
    """Time a model and its operators, beside what was predicted, e.g. tvm-tiling report resnet50.tar"""
    executable = opened(model, OpenSizes(batch, dim, shape))
    measured = executable.benchmark(seconds=seconds, **inputs_of(executable, input_file))
    report = executable.report()
    if as_json:
        print_json(report.to_dict())
        return
    print(f"{model}: {measured.median * 1e3:.2f} ms a run, median of {measured.runs}\n")
    print_report(report)
