"""`tvm-tiling report`: where a model's time goes, operator by operator."""

from __future__ import annotations

import typer

from .model_options import inputs_of, opened
from .output import print_json, print_table


def command(
    model: str = typer.Argument(metavar="MODEL", help="A model file, or what `tvm-tiling compile` wrote."),
    input_file: str = typer.Option("", "--input", help="Inputs by name in an .npz file; left out: random numbers."),
    shape: list[str] = typer.Option([], "--shape", help="A shape that the model leaves open: name=1,3,224,224."),  # noqa: B008
    seconds: float = typer.Option(2.0, min=0.01, help="How long to measure."),
    as_json: bool = typer.Option(False, "--json", help="Print every operator with its decision as JSON."),
) -> None:
    """Time a model and its operators, beside what was predicted, e.g. tvm-tiling report resnet50.tar"""
    executable = opened(model, shape)
    measured = executable.benchmark(seconds=seconds, **inputs_of(executable, input_file))
    report = executable.report()
    if as_json:
        print_json(report.to_dict())
        return
    print(f"{model}: {measured.median * 1e3:.2f} ms a run, median of {measured.runs}\n")
    rows = []
    for record in report.operators:
        share = report.share(record)
        rows.append(
            (
                record.name,
                record.form or record.kind,
                record.calls,
                "" if record.predicted_seconds is None else f"{record.predicted_seconds * 1e6:.0f}",
                "" if record.measured_seconds is None else f"{record.measured_seconds * 1e6:.0f}",
                "" if share is None else f"{share:.1%}",
                record.why,
            )
        )
    print_table(("operator", "form", "calls", "predicted us", "measured us", "share", "why"), rows)
