"""The benchmark driver: python -m benchmarks.run --suite gemm --short --html report.html

For each case, outputs are compared first; then our kernel and each peer run alternately. Results are written after
every case, so that an interrupted run can be resumed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tvm_tiling.atomic_file import refuse_unwritable
from tvm_tiling.errors import TilingError
from tvm_tiling.measure import (
    Condition,
    Paired,
    Side,
    Status,
    StopRule,
    Timing,
    first_line,
    machine_record,
    paired,
    timed,
)
from tvm_tiling.peak import Peak, measure_peak
from tvm_tiling.report.comparison_page import comparison_page
from tvm_tiling.report.page import write_page
from tvm_tiling.report.suite_result import FORMAT, VERSION, Row
from tvm_tiling.runtime.threads import bind_workers, own_core

from . import isa, spinning
from .cache_flush import UNKNOWN_LAST_LEVEL, CacheFlush
from .operands import Operands, random_operands
from .peers import DEFAULT_PEERS, Ours, Peer, Prepared, get_peer
from .result import earlier_entries, write_whole
from .suite import Case, SuiteError, load_suite, suite_names
from .summary import summaries

SETTLE = 0.003  # seconds; longer than idle threads spin


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a run. `packed` None: both variants. `match`: only cases whose name contains it. `seconds` limits one
    pair. `isa`: the instruction set that everything is limited to, None for all of this CPU's."""

    suite: str
    short: bool = False
    peers: tuple[str, ...] = DEFAULT_PEERS
    packed: bool | None = None
    dtype: str | None = None
    match: str = ""
    cold: bool = False
    seconds: float = 1.0
    isa: str | None = None
    json: Path | None = None
    html: Path | None = None
    resume: bool = False

    def cases(self) -> list[Case]:
        """Return the selected cases of the suite. Raises SuiteError if there are none."""
        found = [
            case
            for case in load_suite(self.suite)
            if (case.short or not self.short)
            and self.packed in (None, case.packed)
            and self.dtype in (None, case.workload.dtype)
            and self.match in case.name
        ]
        if not found:
            given = {
                f"--filter {self.match}": self.match,
                f"--dtype {self.dtype}": self.dtype,
                "--short": self.short,
                "--packed": self.packed is True,
                "--unpacked": self.packed is False,
            }
            options = " ".join(option for option, is_set in given.items() if is_set)
            raise SuiteError(f"{self.suite} has no case for {options}")
        return found


def run(settings: Settings) -> dict[str, Any]:
    """Measure everything that `settings` select, with a progress bar on standard error, and return the whole result."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from .peers.tvm_operator import target, this_machine

    cases = settings.cases()
    for name in settings.peers:
        get_peer(name)  # report an unknown name now, not halfway
    hardware = this_machine()
    assert hardware.cpu is not None
    peak = measure_peak(hardware.cpu, target())
    rows = _earlier_rows(settings)
    done = {row["case"] for row in rows}
    result = {
        "format": FORMAT,
        "version": VERSION,
        "settings": {**asdict(settings), "json": None, "html": None, "spinning": spinning()},
        "machine": machine_record(hardware),
        "peak": peak.to_dict(),
        "rows": rows,
    }
    last_level = max((cache.size for cache in hardware.cpu.caches), default=UNKNOWN_LAST_LEVEL)
    condition = Condition(flush=CacheFlush(last_level)) if settings.cold else Condition(settle=SETTLE)
    rule = StopRule(most_seconds=settings.seconds)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(settings.suite, total=len(cases))
        for case in cases:
            progress.update(task, description=case.name)
            if case.name not in done:
                rows.append(measure_case(case, settings.peers, peak, rule, condition))
                _finish(result, settings)
            progress.advance(task)
    _finish(result, settings)
    return result


def measure_case(case: Case, peers: Sequence[str], peak: Peak, rule: StopRule, condition: Condition) -> Row:
    """Measure one case against every peer and return a row of the result."""
    operands = random_operands(case.workload)
    w = case.workload
    ours = ready(Ours(), operands, case.packed)
    comparisons = {
        name: _compare(get_peer(name), operands, case.packed, ours, rule, condition)
        for name in dict.fromkeys((*peers, *case.peers))
    }
    samples = [seconds for comparison in comparisons.values() for seconds in comparison["ours_seconds"]]
    if isinstance(ours, Prepared):
        timing = Timing(seconds=tuple(samples)) if samples else timed(Side(ours.run, own_core), rule, condition)
    else:
        timing = ours
    roofline = peak.roofline(w.flops, w.bytes, w.dtype)
    entry = _speed(timing, w.flops)
    return {
        "case": case.name,
        "group": case.group,
        **w.to_dict(),
        "packed": case.packed,
        "times": dict(case.times),
        "short": case.short,
        "flops": w.flops,
        "bytes": w.bytes,
        "tolerance": operands.tolerance,
        "roofline_gops": roofline,
        "ours": {**entry, "of_roofline": entry["gops"] / roofline if entry["gops"] else None},
        "peers": {name: comparison["entry"] for name, comparison in comparisons.items()},
    }


def ready(peer: Peer, operands: Operands, packed: bool) -> Prepared | Timing:
    """Return the prepared workload after verifying its output, or a timing without samples that has the reason."""
    reason = peer.cannot(operands.workload, packed)
    if reason:
        return Timing(status=Status.SKIPPED, reason=reason)
    try:
        prepared = peer.prepare(operands, packed)
        prepared.run()
        bind_workers()
        wrong = operands.difference(prepared.output(), prepared.rounding)
    except Exception as error:
        return Timing(status=Status.FAILED, reason=first_line(error))
    return Timing(status=Status.WRONG, reason=wrong) if wrong else prepared


def _compare(
    peer: Peer, operands: Operands, packed: bool, ours: Prepared | Timing, rule: StopRule, condition: Condition
) -> dict[str, Any]:
    """Return one peer's entry in a row, and our samples from the same pairs."""
    prepared = ready(peer, operands, packed)
    pair, note = Paired(), ""
    if isinstance(prepared, Timing):
        timing = prepared
    elif isinstance(ours, Timing):
        timing, note = timed(Side(prepared.run, own_core), rule, condition), prepared.note
    else:
        pair, note = paired(Side(ours.run, own_core), Side(prepared.run, own_core), rule, condition), prepared.note
        timing = pair.peer if pair.status is Status.OK else Timing(status=pair.status, reason=pair.reason)
    entry = _speed(timing, operands.workload.flops)
    return {
        "entry": {
            **entry,
            "note": note,
            "library": peer.library,
            "ratio": pair.ratio if pair.ratios else None,
            "spread": pair.spread if pair.ratios else None,
            "doubtful": pair.doubtful,
        },
        "ours_seconds": pair.ours.seconds,
    }


def _speed(timing: Timing, flops: int) -> dict[str, Any]:
    return {**timing.to_dict(), "gops": flops / timing.median / 1e9 if timing.seconds else None}


def _earlier_rows(settings: Settings) -> list[Row]:
    rows = earlier_entries(settings.json, FORMAT, VERSION, "rows") if settings.resume else []
    return [row for row in rows if not any(peer.get("doubtful") for peer in row.get("peers", {}).values())]


def _finish(result: dict[str, Any], settings: Settings) -> None:
    result["summary"] = [summary.to_dict() for summary in summaries(result["rows"])]
    if settings.json:
        write_whole(settings.json, json.dumps(result, indent=1))


def parse(arguments: Sequence[str] | None = None) -> Settings:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description="Compare speed on a suite of shapes.")
    parser.add_argument("--suite", required=True, help=f"{', '.join(suite_names())}, or a TOML file")
    parser.add_argument("--short", action="store_true", help="measure the short set only")
    parser.add_argument("--peers", default=",".join(DEFAULT_PEERS), help="comma-separated names; default: %(default)s")
    limit = f"limit this package and the peers to this instruction set; leaves out {', '.join(isa.WITHOUT_SWITCH)}, "
    limit += "which cannot be limited"
    parser.add_argument("--isa", choices=isa.SWITCHES, help=limit)
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--packed", action="store_true", default=None, help="measure only with a prepacked second operand"
    )
    form.add_argument("--unpacked", action="store_false", dest="packed", help="measure only without prepacking")
    parser.add_argument("--dtype", help="measure this element type only")
    parser.add_argument("--filter", default="", dest="match", help="measure only cases whose name contains this text")
    parser.add_argument("--cold", action="store_true", help="flush the caches before every call")
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="time limit per pair in seconds; default: %(default)s"
    )
    parser.add_argument("--json", type=Path, help="write the result to this file after every case")
    parser.add_argument("--html", type=Path, help="write an HTML report to this file")
    keep = "keep the rows in the --json file, except doubtful ones"
    parser.add_argument("--resume", action="store_true", help=keep)
    chosen = vars(parser.parse_args(arguments))
    left_out = isa.WITHOUT_SWITCH if chosen["isa"] else ()
    chosen["peers"] = tuple(name for name in chosen["peers"].split(",") if name and name not in left_out)
    return Settings(**chosen)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print the table and write the files. Returns 1 after an error that the user can fix."""
    from .table import print_result

    try:
        settings = parse(arguments)
        if settings.html:
            refuse_unwritable(settings.html)
        if settings.isa:
            status = isa.again(settings.isa, "benchmarks.run", sys.argv[1:] if arguments is None else arguments)
            if status is not None:
                return status
        result = run(settings)
    except (TilingError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print_result(result)
    if settings.html:
        write_page(settings.html, comparison_page(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
