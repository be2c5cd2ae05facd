"""`tvm-tiling bench`: benchmark a model, or suites of operators, against other libraries.

The suites and their driver are in the directory benchmarks/ of a checkout; an installed package has none.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import typer

from ..errors import TilingError, nearest
from .model_options import (
    INPUT,
    THREADS,
    ModelOptions,
    applying,
    is_model,
    model_options,
    seconds_option,
)
from .output import check_outputs, print_json

CHECKOUT = Path(__file__).parents[2]
RESULTS = Path("results")


class BenchError(TilingError):
    """The benchmark cannot be run here."""


EXAMPLES = (
    "tvm-tiling bench model.onnx",
    "tvm-tiling bench model.onnx --json > bench.json",
    "tvm-tiling bench gemm --short --peers numpy --html gemm.html",
)


@model_options("logits", "threads")
def command(
    suite: str = typer.Argument(
        "",
        metavar="[MODEL|SUITE]",
        help="A model file, a file written by `tvm-tiling compile`, the name of a suite, or a suite as a TOML file; "
        "default: the short set of every suite, with reports in results/.",
    ),
    peers: str = typer.Option(
        "", metavar="NAMES", help="Libraries to compare a suite with, separated by commas; default: all but slow ones."
    ),
    short: bool = typer.Option(False, "--short", help="Suite: run the short set."),
    match: str = typer.Option("", "--filter", metavar="TEXT", help="Suite: run cases whose name contains this text."),
    dtype: str = typer.Option("", metavar="TYPE", help="Suite: run cases of this element type."),
    cold: bool = typer.Option(False, "--cold", help="Suite: flush the caches before every call."),
    output: Path = typer.Option(  # noqa: B008
        None, "--output", "-o", metavar="FILE", help="Suite: write the result here after every case."
    ),
    html: Path = typer.Option(None, "--html", metavar="FILE", help="Suite: write an HTML report."),  # noqa: B008
    resume: bool = typer.Option(False, "--resume", help="Suite: skip the cases that --output already contains."),
    input_file: str = INPUT,
    threads: int | None = THREADS,
    *,
    options: ModelOptions,
    seconds: float = seconds_option(
        "Model: how long to measure it alone, and how long to compare it with onnxruntime."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Benchmark a model, compared with onnxruntime if it is an ONNX file and onnxruntime is installed; or a suite.

    Suites are in the directory benchmarks/ of a checkout; an installed package has none.
    """
    if is_model(suite):
        if peers or short or match or dtype or cold or output or html or resume:
            raise BenchError(f"{suite} is a model; --peers, --filter, --html and the like apply to suites")
        from .bench_model import bench

        bench(suite, options, input_file, seconds, as_json)
        return
    if foreign := ["--input"] * bool(input_file) + options.typed:
        raise BenchError(f"{applying(foreign)} to models; expected a model, not a suite")
    if resume and not output:
        raise BenchError("--resume needs --output, the file to continue")
    check_outputs([output, html], [suite])
    run = _driver("run")
    known = _driver("suite").suite_names()
    if suite and not suite.endswith(".toml") and suite not in known:
        raise BenchError(f"'{suite}' is neither a model nor a suite; {nearest(suite, known)}, or a file")
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
            raise BenchError(f"--output and --html apply to one suite; expected one of {', '.join(known)}")
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
    """Import a module from the benchmarks/ of the checkout."""
    if not (CHECKOUT / "benchmarks" / "run.py").is_file():
        raise BenchError(
            "suites are not part of the installed package; clone the repository and run `make bench` in it"
        )
    if str(CHECKOUT) not in sys.path:
        sys.path.insert(0, str(CHECKOUT))
    return importlib.import_module(f"benchmarks.{module}")
