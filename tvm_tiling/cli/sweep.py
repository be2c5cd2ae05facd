"""`tvm-tiling sweep`: fields of an accelerator over ranges of values, and the machines that no other one beats."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import typer
from typer.core import TyperCommand

from ..accel.report.sweep import SweepPoint, check_objectives, pareto, sweep, sweep_table
from ..atomic_file import refuse_unwritable
from ..errors import HardwareError
from ..report.page import write_page
from ..report.sweep_page import sweep_page
from .model_options import BATCH, DIM, PREFER, SHAPE, ModelOptions, presets
from .output import print_json
from .simulated import subject_of
from .table import print_table

OPTION = "--values"
EXAMPLES = (
    "tvm-tiling sweep gemm 512 512 512 dtype=int8 --hardware vta --field near_tile.buf_a --values 4096..65536*2",
    "tvm-tiling sweep conv n=1 h=28 w=28 ci=64 co=64 kh=3 kw=3 dtype=int8 --field near_tile.bw_b --values 4 8",
    "tvm-tiling sweep gemm 256 256 256 dtype=int8 --hardware vta --pareto cycles,area --field near_tile.buf_b "
    "--values 8192..131072*4 --field near_tile.bandwidth.external --values 4 8 16",
)


class Parsing(TyperCommand):
    """Takes every word behind --values, up to the next option, for a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, gathered(args))


def gathered(words: Sequence[str]) -> list[str]:
    """The words with those behind each --values put together as one, with commas."""
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
        help="A model, recorded once; a program, which stays as it is; or an operator, decided anew for each machine.",
    ),
    field: list[str] = typer.Option(  # noqa: B008
        ..., "--field", help="A dotted path, as `hardware show` prints it: near_tile.bw_a. May be repeated."
    ),
    values: list[str] = typer.Option(  # noqa: B008
        ...,
        OPTION,
        help="Of each field its values, FIRST..LAST*FACTOR or FIRST..LAST+STEP; every combination is timed.",
    ),
    by: str = typer.Option(
        "",
        "--pareto",
        help="Mark the machines that no other one beats in all of these, of cycles, energy, edp (energy x delay) and "
        "area; where several fields vary, by cycles,energy,area if left out.",
    ),
    hardware: str = typer.Option(
        "",
        "--hardware",
        autocompletion=presets,
        help="A preset or a TOML file; left out: the program's own, else neartile.",
    ),
    batch: str = BATCH,
    dim: list[str] = DIM,
    shape: list[str] = SHAPE,
    calibration: list[str] = typer.Option(  # noqa: B008
        [], "--calibration", help="An .npz file of inputs to quantise a float model by; may be repeated."
    ),
    prefer: str = PREFER,
    output: str = typer.Option("", "--output", "-o", help="Write plots and table to this HTML file."),
    as_json: bool = typer.Option(False, "--json", help="Print every figure of every machine as JSON."),
) -> None:
    """Cycles, utilisation, energy and area against fields of the machine."""
    if output:
        refuse_unwritable(output)
    fields = _ranges(field, values)
    by = by or ("cycles,energy,area" if len(fields) > 1 else "")
    objectives = [word.strip() for word in by.split(",")] if by else []
    check_objectives(objectives)
    found = subject_of(subject, hardware, ModelOptions(batch, dim, shape, calibration=calibration), prefer)
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
            f"{found.hardware.name}: no value of {' and '.join(fields)} gives a machine that it runs on"
        )


def _ranges(fields: Sequence[str], values: Sequence[str]) -> dict[str, list[Any]]:
    """The values of each field, in their order."""
    if len(fields) != len(values):
        raise HardwareError(
            f"{len(fields)} --field and {len(values)} --values; accepted: one --values for each --field"
        )
    for name in fields:
        if fields.count(name) > 1:
            raise HardwareError(f"--field {name} is given twice; accepted: each field once, with all of its values")
    return {name: parse_values(text) for name, text in zip(fields, values, strict=True)}


def parse_values(text: str) -> list[Any]:
    """Numbers, truth values and words of "64,128,256", "8..64*2", "8..64+8" or "skipped,padded"; HardwareError quotes
    what is none."""
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
                f"--values {text}: {word!r} is not a value; accepted: 64,128,256 or 64..1024*2 or 64..1024+64"
            )
        else:
            values.append(_value(word))
    return values


def _range(word: str, first: Any, last: Any, how: str, step: Any) -> Iterator[Any]:
    numbers = all(isinstance(number, (int, float)) for number in (first, last, step))
    if not numbers or first > last or (how == "*" and (step <= 1 or first <= 0)) or (how == "+" and step <= 0):
        raise HardwareError(f"--values {word}: no range; accepted: FIRST..LAST*FACTOR or FIRST..LAST+STEP that rises")
    while first <= last:
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
    """The points, with a bar on standard error where it is a terminal."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    yield from track(points, "sweep", total=total, console=console, transient=True, disable=not sys.stderr.isatty())
