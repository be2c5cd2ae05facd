"""`tvm-tiling bench`: compare speed with other libraries, of a model or on suites of shapes.

The suites and their driver are the folder benchmarks/ of a checkout; an installed package has none.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import typer

from ..errors import TilingError
from .model_options import (
    ACTIVATIONS,
    BATCH,
    CALIBRATION,
    DIM,
    INPUT,
    MODEL_OPTIONS,
    PRECISION,
    SHAPE,
    TOLERANCE,
    WEIGHT_BLOCK,
    WEIGHTS,
    ModelOptions,
    is_model,
)
from .output import print_json

CHECKOUT = Path(__file__).parents[2]
RESULTS = Path("results")


class BenchError(TilingError):
    """What was asked for cannot be measured here."""


EXAMPLES = (
    "tvm-tiling bench model.onnx",
    "tvm-tiling bench model.onnx --json > bench.json",
    "tvm-tiling bench gemm --short --peers numpy --html gemm.html",
)


def command(
    suite: str = typer.Argument(
        "",
        metavar="MODEL|SUITE",
        help="A model file, or what `tvm-tiling compile` wrote; or a suite, or a file.toml; left out: the short set "
        "of every suite, with reports in results/.",
    ),
    peers: str = typer.Option("", help="Names with commas; left out: all but the slow ones."),
    short: bool = typer.Option(False, "--short", help="Only the short set."),
    match: str = typer.Option("", "--filter", help="Only cases whose name contains this."),
    dtype: str = typer.Option("", help="Only this element type."),
    cold: bool = typer.Option(False, "--cold", help="Flush the caches before every call."),
    output: Path = typer.Option(None, "--output", "-o", help="Write the result here, after every case."),  # noqa: B008
    html: Path = typer.Option(None, "--html", help="Write a report here."),  # noqa: B008
    resume: bool = typer.Option(False, "--resume", help="Keep the cases that --output already has."),
    input_file: str = INPUT,
    batch: str = BATCH,
    dim: list[str] = DIM,
    shape: list[str] = SHAPE,
    precision: str = PRECISION,
    calibration: list[str] = CALIBRATION,
    tolerance: float | None = TOLERANCE,
    weights: str = WEIGHTS,
    block: int = WEIGHT_BLOCK,
    activations: str = ACTIVATIONS,
    seconds: float = typer.Option(2.0, min=0.01, help="A model: how long to measure, and again beside onnxruntime."),
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Time a model, beside onnxruntime where it is an ONNX file and that is installed; or compare speed on a suite.

    The suites are in the folder benchmarks/ of a checkout; an installed package has none.
    """
    sizes = ModelOptions(batch, dim, shape, precision, calibration, tolerance, weights, block, activations)
    if is_model(suite):
        if peers or short or match or dtype or cold or output or html or resume:
            raise BenchError("of a suite's options a model takes --json alone")
        from .bench_model import bench

        bench(suite, sizes, input_file, seconds, as_json)
        return
    if input_file or sizes.given:
        raise BenchError(f"--input, {MODEL_OPTIONS} are for models")
    run = _driver("run")
    known = _driver("suite").suite_names()
    chosen = {
        "peers": tuple(name for name in peers.split(",") if name) or run.DEFAULT_PEERS,
        "match": match,
        "dtype": dtype or None,
        "cold": cold,
        "resume": resume,
    }
    if suite:
        jobs = [run.Settings(suite=suite, short=short, json=output, html=html, **chosen)]
    else:
        if output or html:
            raise BenchError(f"--output and --html are for one suite; name one of: {', '.join(known)}")
        jobs = [
            run.Settings(suite=name, short=True, json=RESULTS / f"{name}.json", html=RESULTS / f"{name}.html", **chosen)
            for name in known
        ]
    results = [_measure(run, job, quiet=as_json) for job in jobs]
    if as_json:
        print_json(results[0] if suite else results)


def _measure(run: Any, settings: Any, quiet: bool) -> dict[str, Any]:
    result: dict[str, Any] = run.run(settings)
    if not quiet:
        _driver("table").print_result(result)
    if settings.html:
        from ..report.save import save_report

        save_report(result, settings.html)
        print(f"report: {settings.html}", file=sys.stderr)
    return result


def _driver(module: str) -> Any:
    """A module of the checkout's benchmarks/."""
    if not (CHECKOUT / "benchmarks" / "run.py").is_file():
        raise BenchError(
            "the suites are not part of the installed package: clone the repository and run `make bench` in it"
        )
    if str(CHECKOUT) not in sys.path:
        sys.path.insert(0, str(CHECKOUT))
    return importlib.import_module(f"benchmarks.{module}")
