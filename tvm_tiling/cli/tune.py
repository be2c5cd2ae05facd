"""`tvm-tiling tune`: search for measured configurations of an operator or a model, and keep them in a database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from ..atomic_file import refuse_unwritable
from ..errors import ModelFormatError
from .model_options import AHEAD, BATCH, PREPACKED, SHAPE, ModelOptions, arrays_of, targets
from .operator_text import OPERATORS, parse_product
from .output import print_json

DATABASE = "shapes.db"


EXAMPLES = (
    "tvm-tiling tune gemm 256 256 256 dtype=int8 --target vsim/vta --trials 4",
    "tvm-tiling tune gemm 1024 1024 1024 --trials 32 --database shapes.db",
    "tvm-tiling tune gemm 64 256 64 --trials 8 --log trials.jsonl --html tuning.html",
    "tvm-tiling tune gemm 1 256 256 --dim m=1..64 --prepacked --trials 4",
    "tvm-tiling tune model.onnx --trials 16 --runner rpc://127.0.0.1:9190/cpu",
)


def command(
    subject: list[str] = typer.Argument(  # noqa: B008
        metavar="MODEL|OPERATOR",
        help='A model file, or an operator as in explain: "gemm M K N", "conv n=1 h=56 ...". The quotation marks may '
        "be left out.",
    ),
    trials: int = typer.Option(64, "--trials", min=1, help="Cuts to measure at most, those of earlier calls included."),
    database: str = typer.Option(
        DATABASE, "--database", help="Where results go: a file, or postgresql+psycopg://user@host/name."
    ),
    runner: str = typer.Option("local", "--runner", help="local, or rpc://host:port/key: workers of a TVM tracker."),
    target: str = typer.Option(
        "llvm", "--target", autocompletion=targets, help="llvm: this CPU; or vsim/<preset>, vsim/<file.toml>."
    ),
    prepacked: bool = PREPACKED,
    ahead: bool = AHEAD,
    anew: bool = typer.Option(False, "--anew", help="Measure again what earlier calls measured."),
    unseeded: bool = typer.Option(
        False, "--unseeded", help="Begin without the configurations of entries that match or are near."
    ),
    batch: str = BATCH,
    dim: list[str] = typer.Option(  # noqa: B008
        [],
        "--dim",
        help="Size of an open dimension by its name, seq=128, or its range, seq=1..512; m=1..512 of a gemm.",
    ),
    shape: list[str] = SHAPE,
    calibration: list[str] = typer.Option(  # noqa: B008
        [], "--calibration", help="An .npz file of inputs to quantise a float model by, for an accelerator; may repeat."
    ),
    log: str = typer.Option(
        "", "--log", help="Add every trial to this file as it comes, a line of JSON: predicted, measured, best so far."
    ),
    html: str = typer.Option("", "--html", help="Write the report, with the best cost so far as a plot, to this file."),
    as_json: bool = typer.Option(False, "--json", help="Print the report as JSON."),
) -> None:
    """Search for faster cuts near the formulas' by measuring, and keep them in a database.

    Ctrl-C ends the search early; everything that was measured is kept, and the next call goes on from there.
    """
    from ..tuning.tune import tune

    if html:
        refuse_unwritable(html)
    found, sizes = _subject(subject), ModelOptions(batch, dim, shape)
    options = sizes.sizes() if sizes.given else {}
    if calibration:
        options["calibration"] = [arrays_of(file) for file in calibration]
    report = tune(
        found,
        target=target,
        database=database,
        trials=trials,
        runner=runner,
        prepacked=prepacked or ahead,
        resume=not anew,
        seeded=not unseeded,
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


def _subject(words: list[str]) -> Any:
    """A model's path, or the workload that the words say."""
    name = " ".join(words)
    if Path(name).is_file():
        return name
    if name.split()[:1] and name.split()[0] in OPERATORS:
        return parse_product(name)
    raise ModelFormatError(
        f"{name!r} is neither a file nor an operator; accepted: a model, or an operator that begins with one of "
        f"{', '.join(OPERATORS)}"
    )
