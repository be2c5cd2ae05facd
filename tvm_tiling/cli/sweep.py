"""`tvm-tiling sweep`: sweep hardware parameters of an accelerator, and find the Pareto-optimal machines."""

from __future__ import annotations

import itertools
import math
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import typer
from typer.core import TyperCommand

from ..accel.report.sweep import SweepPoint, check_objectives, pareto, sweep, sweep_table
from ..errors import HardwareError
from ..report.page import write_page
from ..report.sweep_page import sweep_page
from .model_options import (
    ACCELERATOR,
    BATCH,
    CALIBRATION,
    DIM,
    GOALS,
    PREFER,
    SHAPE,
    THREADS,
    ModelOptions,
    choose,
    target_option,
)
from .output import check_outputs, print_json
from .simulated import subject_of
from .table import print_table

OPTION = "--values"
MOST_VALUES = 4096  # of one range
EXAMPLES = (
    "tvm-tiling sweep gemm 512 512 512 dtype=int8 --target vta --field near_tile.buf_a --values 4096..65536*2",
    "tvm-tiling sweep conv n=1 h=28 w=28 ci=64 co=64 kh=3 kw=3 dtype=int8 --field near_tile.bw_b --values 4 8",
    "tvm-tiling sweep gemm 256 256 256 dtype=int8 --target vta --pareto cycles,area --field near_tile.buf_b "
    "--values 8192..131072*4 --field near_tile.bandwidth.external --values 4 8 16",
)


class Parsing(TyperCommand):
    """Take all words after --values, up to the next option, as values."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, gathered(args))


def gathered(words: Sequence[str]) -> list[str]:
    """Join the words after each --values with commas."""
    found: list[str] = []
    rest = list(words)
    while OPTION in rest:
        first = rest.index(OPTION) + 1
        last = next((place for place in range(first, len(rest)) if rest[place].startswith("-")), len(rest))
        found += [*rest[:first], *([",".join(rest[first:last])] if last > first else [])]
        rest = rest[last:]
    return [*found, *rest]


def command(
    subject: list[str] = typer.Argument(  # noqa: B008
        metavar="MODEL|OPERATOR|PROGRAM",
        help="A model or a program, which is recorded once; or an operator, which is tiled again for each accelerator.",
    ),
    field: list[str] = typer.Option(  # noqa: B008
        ...,
        "--field",
        metavar="NAME",
        help="A parameter as `hardware show` prints it, such as near_tile.bw_a; repeatable.",
    ),
    values: list[str] = typer.Option(  # noqa: B008
        ...,
        OPTION,
        metavar="VALUES",
        help="Values, once for each --field, in the same order: 4 8 16, FIRST..LAST*FACTOR or FIRST..LAST+STEP. All "
        "combinations are simulated.",
    ),
    by: str = typer.Option(
        "",
        "--pareto",
        metavar="GOALS",
        help="Mark accelerators that are Pareto-optimal in these objectives: cycles, energy, edp (energy-delay "
        "product) or area, separated by commas; default with several fields: cycles,energy,area.",
    ),
    target: str = target_option("that of the program, else neartile", ACCELERATOR),
    batch: str = BATCH,
    dim: list[str] = DIM,
    shape: list[str] = SHAPE,
    threads: int | None = THREADS,
    calibration: list[str] = CALIBRATION,
    prefer: str = PREFER,
    output: str = typer.Option("", "--output", "-o", metavar="FILE", help="Write an HTML report with plots."),
    as_json: bool = typer.Option(False, "--json", help="Print the results of all machines as JSON."),
) -> None:
    """Sweep hardware parameters of an accelerator: cycles, utilisation, energy and area of every combination."""
    check_outputs([output], [" ".join(subject), target, *calibration])
    fields = _ranges(field, values)
    by = by or ("cycles,energy,area" if len(fields) > 1 else "")
    objectives = [word.strip() for word in by.split(",")] if by else []
    check_objectives(objectives)
    choose("--prefer", prefer, GOALS)
    model = ModelOptions(batch=batch, dim=dim, shape=shape, calibration=calibration)
    found = subject_of(subject, target, model, prefer)
    total = math.prod(map(len, fields.values()))
    points = list(_with_progress(sweep(found.program, found.hardware, fields, check=found.is_file), total))
    front = pareto(points, objectives) if objectives else []
    if output:
        write_page(output, sweep_page(points, found.name, found.hardware, objectives, front))
    if as_json:
        best = [dict(point.values) for point in front]
        head = {"hardware": found.hardware.name, "fields": list(fields), "pareto": objectives, "front": best}
        print_json({**head, "points": [point.to_dict() for point in points]})
    else:
        table = sweep_table(points, front)
        print(f"{found.name} on {found.hardware.name}\n")
        print_table(table.headings, table.rows)
    if all(point.report is None for point in points):
        raise HardwareError(
            f"{found.name} runs on no machine of the sweep; {found.hardware.name} with these values of "
            f"{' and '.join(fields)} is invalid or too small"
        )


def _ranges(fields: Sequence[str], values: Sequence[str]) -> dict[str, list[Any]]:
    """The values of each field, in the order given."""
    if len(fields) != len(values):
        raise HardwareError(
            f"{len(fields)} --field with {len(values)} --values; expected one --values for each --field"
        )
    for name in fields:
        if fields.count(name) > 1:
            raise HardwareError(f"--field {name} is given twice; expected once, with all of its values")
    return {name: parse_values(text) for name, text in zip(fields, values, strict=True)}


def parse_values(text: str) -> list[Any]:
    """The numbers, booleans and words of "64,128,256", "8..64*2", "8..64+8" or "skipped,padded". HardwareError quotes
    anything else."""
    values: list[Any] = []
    for word in text.split(","):
        word = word.strip()
        number = r"([0-9.]+?(?:e[0-9]+)?)"
        span = re.fullmatch(rf"{number}\.\.{number}([*+]){number}", word)
        if span:
            first, last, step = (_value(span[group]) for group in (1, 2, 4))
            values += _range(word, first, last, span[3], step)
        elif not word or ".." in word:
            raise HardwareError(
                f"--values {text}: {word!r} is not a value; expected 64,128,256, 64..1024*2 or 64..1024+64"
            )
        else:
            values.append(_value(word))
    return values


def _range(word: str, first: Any, last: Any, how: str, step: Any) -> Iterator[Any]:
    numbers = all(isinstance(number, (int, float)) and math.isfinite(number) for number in (first, last, step))
    if not numbers or first > last or (how == "*" and (step <= 1 or first <= 0)) or (how == "+" and step <= 0):
        raise HardwareError(
            f"--values {word} is not an increasing range; expected FIRST..LAST*FACTOR or FIRST..LAST+STEP"
        )
    for count in itertools.count():
        if first > last:
            return
        if count == MOST_VALUES:
            raise HardwareError(f"--values {word} has more than {MOST_VALUES} values; expected a larger step")
        yield first
        first = first * step if how == "*" else first + step


def _value(word: str) -> Any:
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(word.lower(), word)


def _with_progress(points: Iterable[SweepPoint], total: int) -> Iterator[SweepPoint]:
    """The points, with a progress bar on standard error if that is a terminal."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    yield from track(points, "sweep", total=total, console=console, transient=True, disable=not sys.stderr.isatty())
