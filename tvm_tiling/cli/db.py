"""`tvm-tiling db`: look into databases of measured shapes, fill them, move and check them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

import typer

from ..errors import DatabaseError
from ..hardware import Hardware
from ..target import hardware_of
from ..tuning.shapes.boundary import FACTOR, LIMIT, TOLERANCE
from ..tuning.shapes.candidates import MOST
from ..tuning.shapes.database import ShapeDatabase
from ..tuning.shapes.entries import Entry
from ..tuning.shapes.fingerprint import Fingerprint, fingerprint_of
from ..tuning.shapes.generate import THRESHOLD, shape_text
from ..tuning.shapes.random_shapes import RandomShapes
from .model_options import AHEAD, PREPACKED, ModelOptions, presets
from .output import JSON, examples, print_json
from .table import print_table

command = typer.Typer(no_args_is_help=True)

URL = typer.Argument(help="A file, sqlite:///file or postgresql+psycopg://user@host/name.")
HARDWARE = typer.Option("", "--hardware", autocompletion=presets, help="A preset or a TOML file; left out: this CPU.")


@command.command("list", epilog=examples("tvm-tiling db list shapes.db"))
def list_machines(url: str = URL, as_json: bool = JSON) -> None:
    """List the machines that entries are of."""
    with _opened(url) as db:
        held = db.holdings()
    if as_json:
        rows = [{**h.fingerprint.to_dict(), "digest": h.fingerprint.digest} for h in held]
        counts = [{"initial": h.initial, "boundary": h.boundary, "ranges": h.ranges} for h in held]
        print_json([{**row, **count} for row, count in zip(rows, counts, strict=True)])
    else:
        print_table(
            ("digest", "machine", "initial", "boundary", "ranges"),
            [(h.fingerprint.digest, h.fingerprint, h.initial, h.boundary, h.ranges) for h in held],
        )


@command.command(epilog=examples("tvm-tiling db show shapes.db --hardware vta --limit 10"))
def show(
    url: str = URL,
    hardware: str = typer.Option(
        "", "--hardware", autocompletion=presets, help="Only entries of this preset, TOML file, or llvm: this CPU."
    ),
    kind: str = typer.Option("", "--kind", help="Only initial, boundary or range entries."),
    limit: int = typer.Option(50, "--limit", min=1, help="How many entries at most."),
    as_json: bool = JSON,
) -> None:
    """Show entries: shape, cut and cost."""
    target = hardware_of("llvm") if hardware == "llvm" else Hardware.load(hardware) if hardware else None
    with _opened(url) as db:
        found: list[tuple[Fingerprint, Entry]] = []
        for entry in db.entries(target=target, kind=kind or None):
            if len(found) == limit:
                break
            found.append(entry)
    if as_json:
        print_json([{"fingerprint": machine.to_dict(), **_record(entry)} for machine, entry in found])
    else:
        print_table(
            ("machine", "kind", "shape", "cost", "cut"),
            [(machine.machine, e.kind, _shape(e), _kept_cost(e, machine), e.config) for machine, e in found],
        )


@command.command(epilog=examples("tvm-tiling db match shapes.db gemm 512 512 512 dtype=int8 --hardware vta"))
def match(
    url: str = URL,
    operator: list[str] = typer.Argument(help='An operator as in explain: "gemm M K N", "conv h=56 ...".'),  # noqa: B008
    hardware: str = HARDWARE,
    order: str = typer.Option("steps", "--order", help="steps, or estimate: the lowest estimate of all steps."),
    epilogue: str = typer.Option("", "--epilogue", help="What is fused behind, as entries name it."),
    dim: list[str] = typer.Option([], "--dim", help="A product of a range of rows: m=1..512."),  # noqa: B008
    prepacked: bool = PREPACKED,
    ahead: bool = AHEAD,
    as_json: bool = JSON,
) -> None:
    """Find the entry that serves a shape: the step that found it, the estimated cost with its configuration, within
    which interval it lies in nine cases of ten, and whether it is taken or the formulas' own decision. With --dim the
    one that serves a product of all numbers of rows of a range."""
    from .operator_text import parse_product

    workload, machine = parse_product(" ".join(operator)), _machine(hardware)
    own = fingerprint_of(machine)
    asked: dict[str, Any] = {"target": machine, "epilogue": epilogue, "prepacked": prepacked or ahead}
    if dim:
        _match_rows(url, workload, ModelOptions("", dim).sizes()["dims"], asked, as_json)
        return
    with _opened(url) as db:
        hit = db.match(workload, order=order, **asked)
        interval = hit.interval if hit else None
        estimate = None if hit is not None and hit.chosen == "entry" else db.estimate(workload, **asked)
        held = [] if hit or estimate else db.holdings()
    if held and own.digest not in {h.fingerprint.digest for h in held}:
        raise DatabaseError(
            f"{url} holds nothing of {own}; accepted: one of {'; '.join(str(h.fingerprint) for h in held)}"
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
        print(f"{shape_text(workload)}: no entry serves it; the formulas decide")
    else:
        print(f"{shape_text(workload)}: step {hit.step}, estimated {_cost(hit.estimate, own)}{_between(interval, own)}")
        if hit.choice is not None:
            print(hit.choice.why)
    if estimate is not None:
        print(
            f"the formulas' decision: estimated {_cost(estimate.cost, own)}{_between(estimate.interval, own)}, from "
            f"{estimate.known} costs that were measured"
        )
    if hit is not None:
        print()
        print_table(
            ("kind", "shape", "cost", "cut"),
            [(hit.entry.kind, _shape(hit.entry), _kept_cost(hit.entry, own), hit.entry.config)],
        )


def _match_rows(url: str, workload: Any, dims: dict[str, Any], asked: dict[str, Any], as_json: bool) -> None:
    """The entry that serves a product of a range of rows."""
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
        print(f"rows {rows}: no entry serves them; the formulas decide")
        return
    print(f"rows {rows}: {measured}, {measured.spread:.1%} either way")
    print("the entry's configuration is taken\n" if taken else "the formulas' configuration is taken\n")
    machine = fingerprint_of(asked["target"])
    print_table(
        ("kind", "shape", "cost", "cut"), [(entry.kind, _shape(entry), _kept_cost(entry, machine), entry.config)]
    )


@command.command(
    epilog=examples(
        'tvm-tiling db generate shapes.db --shape "gemm 256 256 256 dtype=int8" --limit 1 --hardware vta',
        "tvm-tiling db generate shapes.db --model model.onnx --random 10",
        "tvm-tiling db generate shapes.db --model model.onnx --random 200 --budget 40 --limit 0",
    )
)
def generate(
    url: str = URL,
    operator: list[str] = typer.Option(  # noqa: B008
        [], "--shape", help='An operator as in explain, in quotation marks: "gemm 512 512 512"; may be repeated.'
    ),
    model: list[str] = typer.Option([], "--model", help="The products and convolutions of a model; may be repeated."),  # noqa: B008
    random: int = typer.Option(0, "--random", min=0, help="So many random products and as many convolutions."),
    seed: int = typer.Option(0, "--seed", help="Of the random shapes."),
    budget: int = typer.Option(
        0,
        "--budget",
        min=0,
        help="Measure at most this many shapes, those that serve most of the given ones; 0: all.",
    ),
    seconds: float = typer.Option(
        0.0, "--seconds", min=0.0, help="Start no new shape after this many seconds; 0: no limit."
    ),
    hardware: str = HARDWARE,
    limit: int = typer.Option(LIMIT, "--limit", min=0, help="Boundary shapes of each shape at most."),
    factor: int = typer.Option(FACTOR, "--factor", help="What an axis is divided by at each step of the reduction."),
    tolerance: float = typer.Option(
        TOLERANCE, "--tolerance", help="How far costs may be from their proportion to sizes."
    ),
    threshold: float = typer.Option(THRESHOLD, "--threshold", help="Most of the roofline's least cost; 0: any."),
    candidates: int = typer.Option(MOST, "--candidates", help="Cuts of each shape that are measured."),
    prepacked: bool = PREPACKED,
    ahead: bool = AHEAD,
    as_json: bool = JSON,
) -> None:
    """Measure shapes and reduce them to boundary shapes; started again, it goes on where it was ended."""
    from ..tuning.progress import GenerationBar
    from .operator_text import parse_product

    machine = _machine(hardware)
    shapes = [parse_product(text) for text in operator]
    shapes += [workload for path in model for workload in _of_model(path, machine)]
    drawn = [RandomShapes(op=op, count=random, seed=seed) for op in ("gemm", "conv")] if random else []
    if not shapes and not drawn:
        raise DatabaseError("no shapes to measure; accepted: --shape, --model or --random")
    with ShapeDatabase(url) as db, GenerationBar() as bar:
        if budget:
            plan = db.plan(budget, target=machine, shapes=shapes, random=drawn)
            shapes, drawn = list(plan.shapes), []
            told = f"{len(plan.shapes)} shapes are to serve {plan.served} of {plan.wanted}"
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
        f"{report.shapes} shapes on {machine.name}: {report.initial} kept with {report.boundary} boundary shapes, "
        f"{report.dear} above the threshold, {len(report.failed)} failed; {report.measured} measurements"
        + (f", {report.earlier} shapes done earlier" if report.earlier else "")
        + (f", {report.left} left: the same command goes on" if report.left else "")
    )
    for reason, count in Counter(reason for _, reason in report.failed).most_common(5):
        print(f"  {count} failed: {reason}", file=sys.stderr)


@command.command(epilog=examples("tvm-tiling db export shapes.db shapes.jsonl"))
def export(
    url: str = URL, path: str = typer.Argument(help="A file that is not there yet."), as_json: bool = JSON
) -> None:
    """Write all entries as JSON lines."""
    with _opened(url) as db:
        _count("entries written to", path, db.export(path), as_json)


@command.command("import", epilog=examples("tvm-tiling db import other.db shapes.jsonl"))
def import_(
    url: str = URL, path: str = typer.Argument(help="A file that `db export` wrote."), as_json: bool = JSON
) -> None:
    """Add what `db export` wrote, all of it or nothing."""
    with ShapeDatabase(url) as db:
        _count("entries read from", path, db.import_(path), as_json)


@command.command(epilog=examples("tvm-tiling db check shapes.db"))
def check(url: str = URL, as_json: bool = JSON) -> None:
    """Look at every row; exit with 1 if something is wrong."""
    with _opened(url) as db:
        report = db.check()
    if as_json:
        print_json(report.to_dict())
    else:
        for problem in report.problems:
            print(f"error: {problem}", file=sys.stderr)
        if report.ok:
            print(
                f"{url}: ok, {report.entries} entries of {report.keys} keys on {report.fingerprints} machines, schema "
                f"{report.schema}"
            )
    if not report.ok:
        raise typer.Exit(1)


def _opened(url: str) -> ShapeDatabase:
    """A database that is there."""
    return ShapeDatabase(url, create=False)


def _machine(hardware: str) -> Hardware:
    return Hardware.load(hardware) if hardware else hardware_of("llvm")


def _of_model(path: str, machine: Hardware) -> Iterable[Any]:
    """The workloads of a model's operators."""
    from ..tuning.shapes.model_shapes import model_workloads  # brings TVM

    return model_workloads(path, machine)


def _record(entry: Entry) -> dict[str, Any]:
    return {
        "kind": entry.kind,
        "workload": entry.workload.to_dict(),
        "epilogue": entry.epilogue,
        "ahead": entry.prepacked,
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
    """An entry's cost, of a range its gain, and whether the machine was too busy for it."""
    gain = "" if entry.rows is None else f", gain {entry.rows.gain:.3f}"
    return _cost(entry.cost, machine) + gain + ", doubtful" * entry.doubtful


def _cost(cost: float, machine: Fingerprint) -> str:
    return f"{cost:.0f} cycles" if machine.unit == "cycles" else f"{cost * 1e6:.4g} us"


def _between(interval: tuple[float, float] | None, machine: Fingerprint) -> str:
    return "" if interval is None else f" ({_cost(interval[0], machine)} to {_cost(interval[1], machine)})"


def _count(what: str, path: str, count: int, as_json: bool) -> None:
    if as_json:
        print_json({"path": path, "entries": count})
    else:
        print(f"{count} {what} {path}")
