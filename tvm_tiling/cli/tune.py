"""`tvm-tiling tune`: search for faster tilings of an operator or a model by measuring, and store them in a database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from ..errors import ModelFormatError, WorkloadError
from .model_options import (
    AHEAD,
    BATCH,
    CALIBRATION,
    DIM,
    NARROW_PRECISION,
    PREPACKED,
    SHAPE,
    THREADS,
    ModelOptions,
    applying,
    arrays_of,
    deprecated_flag,
    machine_of,
    require_model,
    target_option,
    unknown_subject,
)
from .operator_text import OPERATORS, parse_product
from .output import check_outputs, print_json

DATABASE = "shapes.db"
TUNED = ("float32", "bfloat16", "float16")  # precisions of models on CPUs

EXAMPLES = (
    "tvm-tiling tune gemm 256 256 256 dtype=int8 --target vta --trials 4",
    "tvm-tiling tune gemm 1024 1024 1024 --trials 32 --database shapes.db",
    "tvm-tiling tune gemm 64 256 64 --trials 8 --log trials.jsonl --html tuning.html",
    "tvm-tiling tune gemm 1 256 256 --dim m=1..64 --prepacked --trials 4 --no-resume --no-seeds",
    "tvm-tiling tune model.onnx --trials 16 --runner rpc://127.0.0.1:9190/cpu",
)


def command(
    subject: list[str] = typer.Argument(  # noqa: B008
        metavar="MODEL|OPERATOR",
        help='A model, or an operator as in explain: "gemm M K N", "conv n=1 h=56 ...". The quotation marks are '
        "optional.",
    ),
    trials: int = typer.Option(
        64,
        "--trials",
        metavar="N",
        min=1,
        help="Maximum number of tilings to measure, including those of earlier sessions.",
    ),
    database: str = typer.Option(
        DATABASE,
        "--database",
        metavar="URL",
        help="Database for the results: a file, or postgresql+psycopg://user@host/name.",
    ),
    runner: str = typer.Option(
        "local", "--runner", metavar="RUNNER", help="local, or rpc://host:port/key: the workers of a TVM tracker."
    ),
    target: str = target_option(),
    prepacked: bool = PREPACKED,
    ahead: bool = AHEAD,
    no_resume: bool = typer.Option(False, "--no-resume", help="Measure again what earlier sessions measured."),
    anew: bool = deprecated_flag("--anew", "--no-resume"),
    no_seeds: bool = typer.Option(
        False, "--no-seeds", help="Start without the tilings of equal and similar shapes in the database."
    ),
    unseeded: bool = deprecated_flag("--unseeded", "--no-seeds"),
    batch: str = BATCH,
    dim: list[str] = DIM,
    shape: list[str] = SHAPE,
    threads: int | None = THREADS,
    precision: str = NARROW_PRECISION,
    calibration: list[str] = CALIBRATION,
    log: str = typer.Option("", "--log", metavar="FILE", help="Append every trial to this file as a line of JSON."),
    html: str = typer.Option("", "--html", metavar="FILE", help="Write an HTML report."),
    as_json: bool = typer.Option(False, "--json", help="Print the report as JSON."),
) -> None:
    """Search for faster tilings by measuring, starting from the analytical ones, and store them in a database.

    A range of rows of a gemm, --dim m=1..512, is tuned as a whole. Ctrl-C ends the search early; all measurements are
    kept, and the next session continues from them.
    """
    from ..tuning.tune import tune

    check_outputs([log, html], [" ".join(subject), database.removeprefix("sqlite:///"), target, *calibration])
    found, sizes = (
        _subject(subject),
        ModelOptions(batch=batch, dim=dim, shape=shape, precision=precision, calibration=calibration),
    )
    if not isinstance(found, str) and (of_models := [option for option in sizes.typed if option in _OF_MODELS]):
        raise WorkloadError(f"{applying(of_models)} to models; an operator states its sizes")
    machine = machine_of(target)
    sizes.check_precision()
    options = sizes.sizes() if sizes.given else {}
    if precision != "float32":
        if not isinstance(found, str) or precision not in TUNED or (machine is not None and machine.cpu is None):
            raise WorkloadError(
                f"--precision {precision} is not supported here; models on CPUs are tuned in {', '.join(TUNED)}, "
                "operators in their dtype"
            )
        options["precision"] = precision
    if calibration:
        if machine is None or machine.cpu is not None:
            raise WorkloadError("--calibration applies to accelerators; models on CPUs are tuned without it")
        options["calibration"] = [arrays_of(file) for file in calibration]
    report = tune(
        found,
        target=machine or "llvm",
        database=database,
        trials=trials,
        runner=runner,
        prepacked=prepacked or ahead,
        resume=not (no_resume or anew),
        seeded=not (no_seeds or unseeded),
        log=log or None,
        **options,
    )
    if as_json:
        print_json(report.to_dict())
    else:
        print(report)
    if html:
        from ..report.save import save_report

        save_report(report, html, title=f"Tuning of {' '.join(subject)}")
        typer.echo(f"report: {html}", err=True)
    if report.stopped == "interrupted":
        raise typer.Exit(130)


_OF_MODELS = ("--batch", "--shape")


def _subject(words: list[str]) -> Any:
    """The path of a model, or the workload that the words describe."""
    name = " ".join(words)
    if Path(name).is_file():
        require_model(name)
        return name
    if name.split()[:1] and name.split()[0] in OPERATORS:
        return parse_product(name)
    raise ModelFormatError(unknown_subject(name, "a model, or an operator that begins with gemm or conv"))
