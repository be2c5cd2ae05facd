"""`tvm-tiling db`: manage databases of measured shapes."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

import typer

from ..errors import DatabaseError
from ..figures import quantity
from ..hardware import Hardware
from ..target import hardware_of
from ..tuning.outcome import cost_text
from ..tuning.shapes.boundary import FACTOR, LIMIT, TOLERANCE
from ..tuning.shapes.candidates import MOST
from ..tuning.shapes.database import ShapeDatabase
from ..tuning.shapes.entries import Entry
from ..tuning.shapes.fingerprint import Fingerprint, fingerprint_of
from ..tuning.shapes.generate import THRESHOLD, shape_text
from ..tuning.shapes.random_shapes import RandomShapes
from ..tuning.shapes.schema import KINDS
from .model_options import (
    AHEAD,
    PREPACKED,
    THREADS,
    ModelOptions,
    choose,
    machine_of,
    require_model,
    seconds_option,
    target_option,
)
from .output import JSON, examples, print_json
from .table import print_table

command = typer.Typer(no_args_is_help=True)

URL = typer.Argument(metavar="DATABASE", help="A file, sqlite:///file or postgresql+psycopg://user@host/name.")
TARGET = target_option()
HEADINGS = ("kind", "shape", "cost", "tiling")


@command.command("list", epilog=examples("tvm-tiling db list shapes.db"))
def list_machines(url: str = URL, as_json: bool = JSON) -> None:
    """List the machines in a database with their numbers of entries."""
    with _opened(url) as db:
        held = db.holdings()
    if as_json:
        rows = [{**h.fingerprint.to_dict(), "digest": h.fingerprint.digest} for h in held]
        counts = [{"initial": h.initial, "boundary": h.boundary, "ranges": h.ranges} for h in held]
        print_json([{**row, **count} for row, count in zip(rows, counts, strict=True)])
    else:
        print_table(
            ("fingerprint", "machine", "initial entries", "boundary entries", "ranges"),
            [(h.fingerprint.digest, h.fingerprint, h.initial, h.boundary, h.ranges) for h in held],
        )


@command.command(epilog=examples("tvm-tiling db show shapes.db --target vta --limit 10"))
def show(
    url: str = URL,
    target: str = target_option("all machines"),
    kind: str = typer.Option("", "--kind", metavar="KIND", help="Only entries of this kind: initial, boundary, range."),
    limit: int = typer.Option(50, "--limit", metavar="N", min=1, help="Maximum number of entries to show."),
    as_json: bool = JSON,
) -> None:
    """Show entries: shape, cost and tiling."""
    choose("--kind", kind, KINDS)
    machine = _machine(target) if target else None
    with _opened(url) as db:
        found: list[tuple[Fingerprint, Entry]] = []
        for entry in db.entries(target=machine, kind=kind or None):
            if len(found) == limit:
                break
            found.append(entry)
    if as_json:
        print_json([{"fingerprint": own.to_dict(), **_record(entry)} for own, entry in found])
    else:
        print_table(
            ("machine", *HEADINGS),
            [(own.machine, e.kind, _shape(e), _kept_cost(e, own), e.config.description) for own, e in found],
        )


@command.command(epilog=examples("tvm-tiling db match shapes.db gemm 512 512 512 dtype=int8 --target vta"))
def match(
    url: str = URL,
    operator: list[str] = typer.Argument(  # noqa: B008
        metavar="OPERATOR", help='An operator as in explain: "gemm M K N", "conv h=56 ...".'
    ),
    target: str = TARGET,
    order: str = typer.Option(
        "steps", "--order", metavar="ORDER", help="steps: the first matching step; estimate: the lowest estimate."
    ),
    epilogue: str = typer.Option(
        "", "--epilogue", metavar="TEXT", help="Fused element-wise operators, as `db show` prints them."
    ),
    dim: list[str] = typer.Option(  # noqa: B008
        [], "--dim", metavar="m=FIRST..LAST", help="Range of rows of a gemm: m=1..512."
    ),
    prepacked: bool = PREPACKED,
    ahead: bool = AHEAD,
    as_json: bool = JSON,
) -> None:
    """Find the entry that compile uses for a shape.

    The output has the matching step, the estimated cost with its 90 percent interval, and whether the entry or the
    analytical tiling is predicted to be faster. With --dim, the entry is one for a gemm with any number of rows in the
    range.
    """
    from .operator_text import parse_product

    choose("--order", order, ("steps", "estimate"))
    workload, machine = parse_product(" ".join(operator)), _machine(target)
    own = fingerprint_of(machine)
    asked: dict[str, Any] = {"target": machine, "epilogue": epilogue, "prepacked": prepacked or ahead}
    if dim:
        _match_rows(url, workload, ModelOptions(dim=dim).sizes()["dims"], asked, as_json)
        return
    with _opened(url) as db:
        hit = db.match(workload, order=order, **asked)
        interval = hit.interval if hit else None
        estimate = None if hit is not None and hit.chosen == "entry" else db.estimate(workload, **asked)
        held = [] if hit or estimate else db.holdings()
    if held and own.digest not in {h.fingerprint.digest for h in held}:
        raise DatabaseError(
            f"{url} has no entries of {own}; expected one of {'; '.join(str(h.fingerprint) for h in held)}"
        )
    if as_json:
        found: dict[str, Any] | None = None
        if hit is not None:
            found = {"step": hit.step, "estimate": hit.estimate, "interval": interval, "chosen": hit.chosen}
            found |= {"entry": _record(hit.entry)}
            if hit.choice is not None:
                found |= {"decided": hit.choice.decided, "why": hit.choice.why}
        formulas = (
            {"estimate": estimate.cost, "interval": estimate.interval, "known": estimate.known} if estimate else None
        )
        print_json({"workload": workload.to_dict(), "fingerprint": own.to_dict(), "hit": found, "formulas": formulas})
        return
    if hit is None:
        print(f"{shape_text(workload)}: no matching entry; the tiling is chosen analytically")
    else:
        cost = f"{cost_text(hit.estimate, own.unit)}{_between(interval, own)}"
        print(f"{shape_text(workload)}: matching step {hit.step}, estimated {cost}")
        if hit.choice is not None:
            print(hit.choice.why)
    if estimate is not None:
        print(
            f"analytical tiling: estimated {cost_text(estimate.cost, own.unit)}{_between(estimate.interval, own)} from "
            f"{estimate.known} measured costs"
        )
    if hit is not None:
        print()
        print_table(
            HEADINGS, [(hit.entry.kind, _shape(hit.entry), _kept_cost(hit.entry, own), hit.entry.config.description)]
        )


def _match_rows(url: str, workload: Any, dims: dict[str, Any], asked: dict[str, Any], as_json: bool) -> None:
    """Print the entry of a gemm with a range of rows."""
    from ..tuning.operator import rows_of

    rows = rows_of(workload, dims, asked["target"])
    with _opened(url) as db:
        entry = db.match_rows(workload, rows, **asked)
    measured = None if entry is None or entry.rows is None else entry.rows.within(rows)
    taken = measured is not None and measured.won
    if as_json:
        hit = None if entry is None else {"chosen": "entry" if taken else "formulas", "entry": _record(entry)}
        print_json({"workload": workload.to_dict(), "rows": [rows.first, rows.last], "hit": hit})
        return
    if entry is None or measured is None:
        print(f"rows {rows}: no matching entry; the tiling is chosen analytically")
        return
    print(f"rows {rows}: {measured}, +/- {measured.spread:.1%}")
    print("the tiling of the entry is used\n" if taken else "the analytical tiling is used\n")
    machine = fingerprint_of(asked["target"])
    print_table(HEADINGS, [(entry.kind, _shape(entry), _kept_cost(entry, machine), entry.config.description)])


@command.command(
    epilog=examples(
        'tvm-tiling db generate shapes.db --shape "gemm 256 256 256 dtype=int8" --limit 1 --target vta',
        "tvm-tiling db generate shapes.db --model model.onnx --random 10",
        "tvm-tiling db generate shapes.db --model model.onnx --random 200 --budget 40 --limit 0",
    )
)
def generate(
    url: str = URL,
    operator: list[str] = typer.Option(  # noqa: B008
        [],
        "--shape",
        metavar="OPERATOR",
        help='An operator as in explain, in quotation marks: "gemm 512 512 512"; repeatable.',
    ),
    model: list[str] = typer.Option(  # noqa: B008
        [],
        "--model",
        metavar="MODEL",
        help="Measure the matrix multiplications and convolutions of a model; repeatable.",
    ),
    random: int = typer.Option(
        0, "--random", metavar="N", min=0, help="Measure N random gemms and N random convolutions."
    ),
    seed: int = typer.Option(0, "--seed", metavar="N", help="Seed of the random shapes."),
    budget: int = typer.Option(
        0, "--budget", metavar="N", min=0, help="Measure at most N shapes, those that cover most of the others; 0: all."
    ),
    seconds: float = seconds_option("Start no further shape after this many seconds; 0: no limit.", 0.0, 0.0),
    target: str = TARGET,
    threads: int | None = THREADS,
    limit: int = typer.Option(
        LIMIT, "--limit", metavar="N", min=0, help="Maximum number of boundary shapes per shape."
    ),
    factor: int = typer.Option(
        FACTOR,
        "--factor",
        metavar="N",
        min=2,
        help="Factor by which a step towards boundary shapes divides an axis.",
    ),
    tolerance: float = typer.Option(
        TOLERANCE,
        "--tolerance",
        metavar="X",
        min=0.0,
        help="Largest relative deviation from a cost that is proportional to size.",
    ),
    threshold: float = typer.Option(
        THRESHOLD, "--threshold", metavar="X", min=0.0, help="Largest cost relative to the roofline; 0: any."
    ),
    candidates: int = typer.Option(
        MOST, "--candidates", metavar="N", min=1, help="Number of tilings to measure per shape."
    ),
    prepacked: bool = PREPACKED,
    ahead: bool = AHEAD,
    as_json: bool = JSON,
) -> None:
    """Measure shapes and reduce them to boundary shapes. An interrupted generation resumes when it is started again."""
    from ..tuning.progress import GenerationBar
    from .operator_text import parse_product

    machine = _machine(target)
    shapes = [parse_product(text) for text in operator]
    shapes += [workload for path in model for workload in _of_model(path, machine)]
    drawn = [RandomShapes(op=op, count=random, seed=seed) for op in ("gemm", "conv")] if random else []
    if not shapes and not drawn:
        raise DatabaseError("there are no shapes to measure; use --shape, --model or --random")
    with ShapeDatabase(url) as db, GenerationBar() as bar:
        if budget:
            plan = db.plan(budget, target=machine, shapes=shapes, random=drawn)
            shapes, drawn = list(plan.shapes), []
            told = f"measuring {len(plan.shapes)} shapes, which cover {plan.served} of {plan.wanted}"
            print(f"{told}: {plan.multiples} as multiples, the others as neighbours", file=sys.stderr)
        report = db.generate(
            target=machine,
            shapes=shapes,
            random=drawn,
            seconds=seconds or None,
            limit=limit,
            factor=factor,
            tolerance=tolerance,
            threshold=threshold or None,
            candidates=candidates,
            prepacked=prepacked or ahead,
            progress=bar,
        )
    if as_json:
        print_json(report.to_dict())
        return
    print(
        f"{report.shapes} shapes on {machine.name}: {report.initial} stored with {report.boundary} boundary shapes, "
        f"{report.dear} above the threshold, {len(report.failed)} failed; {report.measured} measurements"
        + (f", {report.earlier} shapes from earlier sessions" if report.earlier else "")
        + (f", {report.left} remaining: repeat the command to continue" if report.left else "")
    )
    for reason, count in Counter(reason for _, reason in report.failed).most_common(5):
        print(f"  {count} failed: {reason}", file=sys.stderr)


@command.command(epilog=examples("tvm-tiling db export shapes.db shapes.jsonl"))
def export(
    url: str = URL, path: str = typer.Argument(metavar="FILE", help="A new file."), as_json: bool = JSON
) -> None:
    """Write all entries to a file, one line of JSON each."""
    with _opened(url) as db:
        _count("written to", path, db.export(path), as_json)


@command.command("import", epilog=examples("tvm-tiling db import other.db shapes.jsonl"))
def import_(
    url: str = URL,
    path: str = typer.Argument(metavar="FILE", help="A file written by `db export`."),
    as_json: bool = JSON,
) -> None:
    """Add the entries of an exported file, all or none. Of equal shapes the faster entry stays."""
    with ShapeDatabase(url) as db:
        _count("read from", path, db.import_(path), as_json)


@command.command(epilog=examples("tvm-tiling db check shapes.db"))
def check(url: str = URL, as_json: bool = JSON) -> None:
    """Check every row; exit with code 1 if any is invalid."""
    with _opened(url) as db:
        report = db.check()
    if as_json:
        print_json(report.to_dict())
    else:
        for problem in report.problems:
            print(f"error: {problem}", file=sys.stderr)
        if report.ok:
            print(
                f"{url}: ok, {quantity(report.entries, 'entry', 'entries')} of "
                f"{quantity(report.keys, 'key', 'keys')} on "
                f"{quantity(report.fingerprints, 'machine', 'machines')}, schema {report.schema}"
            )
    if not report.ok:
        raise typer.Exit(1)


def _opened(url: str) -> ShapeDatabase:
    """An existing database."""
    return ShapeDatabase(url, create=False)


def _machine(target: str) -> Hardware:
    return machine_of(target) or hardware_of("llvm")


def _of_model(path: str, machine: Hardware) -> Iterable[Any]:
    """The workloads of a model's operators."""
    require_model(path)
    from ..tuning.shapes.model_shapes import model_workloads  # imports TVM

    return model_workloads(path, machine)


def _record(entry: Entry) -> dict[str, Any]:
    return {
        "kind": entry.kind,
        "workload": entry.workload.to_dict(),
        "epilogue": entry.epilogue,
        "prepacked": entry.prepacked,
        "tiling": entry.config.to_dict(),
        "ahead": entry.prepacked,  # former names, until the next version
        "cut": entry.config.to_dict(),
        "cost": entry.cost,
        "energy_pj": entry.energy_pj,
        "decided_cost": entry.decided_cost,
        "disturbed": entry.disturbed,
        "rows": None if entry.rows is None else entry.rows.to_dict(),
    }


def _shape(entry: Entry) -> str:
    rows = [] if entry.rows is None else [f"rows={entry.rows.rows}"]
    more = [*(["packed"] if entry.prepacked else []), *([entry.epilogue] if entry.epilogue else [])]
    return " ".join([shape_text(entry.workload), *rows, *more])


def _kept_cost(entry: Entry, machine: Fingerprint) -> str:
    """An entry's cost, the speedup of a range, and whether the machine was too busy for a reliable measurement."""
    gain = "" if entry.rows is None else f", speedup {entry.rows.gain:.3f}"
    return cost_text(entry.cost, machine.unit) + gain + ", unreliable" * entry.doubtful


def _between(interval: tuple[float, float] | None, machine: Fingerprint) -> str:
    return (
        ""
        if interval is None
        else f" ({cost_text(interval[0], machine.unit)} to {cost_text(interval[1], machine.unit)})"
    )


def _count(what: str, path: str, count: int, as_json: bool) -> None:
    if as_json:
        print_json({"path": path, "entries": count})
    else:
        print(f"{quantity(count, 'entry', 'entries')} {what} {path}")
