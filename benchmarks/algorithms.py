"""Cost of each convolution algorithm compared with the chosen one: python -m benchmarks.algorithms --json found.json

For each layer of a suite, every algorithm that the decision considered and that applies is compiled, its output is
checked, and it runs in a paired benchmark with the chosen one. A layer counts if at least two algorithms were measured.
The decision is correct if no other algorithm is faster by more than the uncertainty of the ratio.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tvm_tiling.errors import TilingError
from tvm_tiling.measure import (
    Condition,
    Side,
    Status,
    StopRule,
    Timing,
    first_line,
    machine_record,
    paired,
    timed,
    uncertainty,
)
from tvm_tiling.runtime.threads import own_core
from tvm_tiling.workload import ConvWorkload

from .operands import Operands, random_operands
from .peers import Ours, Prepared
from .peers.ours import packed_kernel
from .peers.tvm_operator import this_machine
from .result import earlier_entries, write_whole
from .run import SETTLE, Settings, ready
from .suite import Case, SuiteError
from .summary import geometric_mean
from .table import PIPE_WIDTH, number, percent

FORMAT = "tvm-tiling-algorithms"
VERSION = 1
REFUSED = "refused"

Entry = dict[str, Any]


def compare_algorithms(case: Case, rule: StopRule, condition: Condition) -> Entry:
    """Compare the chosen algorithm of one layer with every other applicable one; times in seconds, `ratio` relative to
    the chosen algorithm.

    `loss` is the time of the chosen algorithm over that of the fastest, minus 1.
    """
    entry: Entry = {"case": case.name, "group": case.group, **case.workload.to_dict(), "times": dict(case.times)}
    entry["flops"] = case.workload.flops
    try:
        tiling = packed_kernel(case.workload).tiling
    except Exception as error:
        return {**entry, "status": Status.FAILED.value, "reason": first_line(error)}
    operands = random_operands(case.workload)
    chosen = ready(Ours(), operands, packed=True)
    if isinstance(chosen, Timing):
        return {**entry, "status": chosen.status.value, "reason": chosen.reason}
    alone = timed(Side(chosen.run, own_core), rule, condition)
    if alone.status is not Status.OK:
        return {**entry, "status": alone.status.value, "reason": alone.reason}
    algorithms = {
        algorithm: _measured(algorithm, operands, chosen, rule, condition)
        if seconds is not None and algorithm != tiling.form
        else {"status": REFUSED, "reason": why}
        for algorithm, seconds, why in tiling.candidates
    }
    algorithms[tiling.form] = {"status": Status.OK.value, "reason": "", "seconds": alone.median, "ratio": 1.0}
    for algorithm, seconds, _ in tiling.candidates:
        algorithms[algorithm]["predicted_seconds"] = seconds
    return {**entry, "status": Status.OK.value, "reason": "", **judged(tiling.form, algorithms)}


def _measured(algorithm: str, operands: Operands, chosen: Prepared, rule: StopRule, condition: Condition) -> Entry:
    """Measure one algorithm alternately with the chosen one."""
    other = ready(Ours(algorithm, form=algorithm), operands, packed=True)
    if isinstance(other, Timing):
        return {"status": other.status.value, "reason": other.reason}
    pair = paired(Side(chosen.run, own_core), Side(other.run, own_core), rule, condition)
    if pair.status is not Status.OK:
        return {"status": pair.status.value, "reason": pair.reason}
    return {
        "status": pair.status.value,
        "reason": "",
        "seconds": pair.peer.median,
        "ratio": pair.ratio,
        "uncertainty": uncertainty(pair.ratios),
        "doubtful": pair.doubtful,
    }


def judged(chosen: str, algorithms: dict[str, Entry]) -> Entry:
    """Return whether the chosen algorithm is the fastest of those measured, and the loss if it is not."""
    measured = {algorithm: found for algorithm, found in algorithms.items() if found["status"] == Status.OK.value}
    ratios = {algorithm: found["ratio"] for algorithm, found in measured.items()}
    fastest = min(ratios, key=lambda algorithm: ratios[algorithm], default=chosen)
    least = ratios.get(fastest, 1.0)
    right = fastest == chosen or least * (1 + measured[fastest]["uncertainty"]) >= 1
    return {
        "chosen": chosen,
        "algorithms": algorithms,
        "compared": len(measured) > 1,
        "fastest": chosen if right else fastest,
        "right": right,
        "loss": 0.0 if right else 1 / least - 1,
    }


def summarize(entries: Sequence[Entry]) -> Entry:
    """Return the share of correct decisions among the layers that count, the losses of the wrong ones, and the
    prediction errors.

    `measured_over_predicted`: for each algorithm its number of layers, the geometric mean of the ratio, and the
    standard deviation in percent of the mean, over all layers in which it was measured.
    """
    compared = [entry for entry in entries if entry.get("compared")]
    losses = [entry["loss"] for entry in compared if not entry["right"]]
    offs: dict[str, list[float]] = {}
    for entry in entries:
        for algorithm, found in entry.get("algorithms", {}).items():
            if found["status"] == Status.OK.value and found.get("predicted_seconds"):
                offs.setdefault(algorithm, []).append(found["seconds"] / found["predicted_seconds"])
    return {
        "layers": len(entries),
        "compared": len(compared),
        "right": len(compared) - len(losses),
        "share_right": 1 - len(losses) / len(compared) if compared else None,
        "mean_loss": statistics.fmean(losses) if losses else 0.0,
        "worst_loss": max(losses, default=0.0),
        "measured_over_predicted": {
            algorithm: {"layers": len(values), "mean": geometric_mean(values), "spread": _spread(values)}
            for algorithm, values in offs.items()
        },
    }


def _spread(values: Sequence[float]) -> float:
    return statistics.pstdev(values) / statistics.fmean(values)


def print_entries(entries: Sequence[Entry]) -> None:
    """Print one row per layer, with predicted and measured microseconds of each algorithm, then the summary."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False, markup=False)
    names = list(dict.fromkeys(algorithm for entry in entries for algorithm in entry.get("algorithms", {})))
    table = Table(
        box=box.SIMPLE_HEAD, title="microseconds, predicted / measured; loss: relative to the fastest algorithm"
    )
    for heading in ("layer", "chosen", *names, "fastest", "loss"):
        table.add_column(heading, justify="left" if heading in ("layer", "chosen", "fastest") else "right")
    for entry in entries:
        if "algorithms" not in entry:
            table.add_row(entry["case"], f"{entry['status']}: {entry['reason']}")
            continue
        cells = [_cell(entry["algorithms"].get(name)) for name in names]
        table.add_row(entry["case"], entry["chosen"], *cells, entry["fastest"], percent(entry["loss"]))
    console.print(table)
    found = summarize(entries)
    console.print(
        f"fastest chosen in {found['right']} of {found['compared']} layers ({percent(found['share_right'])}); loss"
        f" in the others: {percent(found['mean_loss'])} on average, {percent(found['worst_loss'])} at most"
    )
    for algorithm, off in found["measured_over_predicted"].items():
        line = f"measured / predicted {number(off['mean'])} on average, spread {percent(off['spread'])}"
        console.print(f"{algorithm}: {line}, {off['layers']} layers")


def _cell(found: Entry | None) -> str:
    if found is None:
        return ""
    if found["status"] != Status.OK.value:
        return str(found["status"])
    predicted = found.get("predicted_seconds")
    return f"{number(predicted * 1e6 if predicted else None, 0)} / {number(found['seconds'] * 1e6, 0)}"


def parse(arguments: Sequence[str] | None = None) -> Settings:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.algorithms", description=__doc__)
    parser.add_argument("--suite", default="conv", help="a suite or a TOML file; default: %(default)s")
    parser.add_argument("--short", action="store_true", help="measure the short set only")
    parser.add_argument("--dtype", help="measure this element type only")
    parser.add_argument("--filter", default="", dest="match", help="measure only layers whose name contains this text")
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="time limit per pair in seconds; default: %(default)s"
    )
    parser.add_argument("--json", type=Path, default=Path("results/algorithms.json"), help="default: %(default)s")
    parser.add_argument(
        "--resume", action="store_true", help="keep the layers in the file, except failed and doubtful ones"
    )
    return Settings(packed=True, **vars(parser.parse_args(arguments)))


def run(settings: Settings) -> list[Entry]:
    """Measure every requested layer, writing the file after each."""
    cases = [case for case in settings.cases() if isinstance(case.workload, ConvWorkload)]
    if not cases:
        raise SuiteError(f"the suite {settings.suite!r} has no convolutions")
    entries = earlier_entries(settings.json, FORMAT, VERSION, "layers") if settings.resume else []
    entries = [entry for entry in entries if entry["status"] == Status.OK.value and not _doubtful(entry)]
    done = {entry["case"] for entry in entries}
    rule, condition = StopRule(most_seconds=settings.seconds), Condition(settle=SETTLE)
    for place, case in enumerate(cases, start=1):
        if case.name in done:
            continue
        print(f"{place} of {len(cases)}: {case.name}", file=sys.stderr)
        entries.append(compare_algorithms(case, rule, condition))
        result = {"format": FORMAT, "version": VERSION, "machine": machine_record(this_machine())}
        assert settings.json is not None
        write_whole(settings.json, json.dumps({**result, "summary": summarize(entries), "layers": entries}, indent=1))
    return entries


def _doubtful(entry: Entry) -> bool:
    return any(found.get("doubtful") for found in entry["algorithms"].values())


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the results. Returns 1 after an error that the user can fix."""
    try:
        print_entries(run(parse(arguments)))
    except TilingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
