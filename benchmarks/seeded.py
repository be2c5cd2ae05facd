"""Our tuning with a few trials compared with MetaSchedule's results after many: python -m benchmarks.seeded

MetaSchedule's results are read from a file of benchmarks.searched. The default, recorded/searched.json, comes from an
hour of searching on the machine named in the file; recorded/searched_1000.json has four searches of 1,000 trials on one
core of another machine. On other machines these schedules are valid but not the best possible: run benchmarks.searched
first and pass its file by --searched. The benchmark generates a database from similar shapes of other sizes, tunes each
workload once seeded from it and once without, and runs the best configurations in paired benchmarks with MetaSchedule's
best schedule. Results are written after every workload, and a restarted run continues.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tvm_tiling as tt
from tvm_tiling.decide.configs.config import Config
from tvm_tiling.errors import TilingError
from tvm_tiling.measure import Condition, Side, Status, StopRule, first_line, machine_record, paired
from tvm_tiling.runtime.threads import bind_workers, own_core
from tvm_tiling.tuning.outcome import TuneReport
from tvm_tiling.tuning.shapes.key import workload_from_dict
from tvm_tiling.workload import ConvWorkload, GemmWorkload

from .operands import Operands, Workload, random_operands
from .peers.base import Prepared
from .peers.metaschedule import Found, prepared
from .peers.tvm_operator import bind, this_machine, tir
from .result import earlier_entries, write_whole
from .run import SETTLE
from .searched import FORMAT as SEARCHED
from .searched import VERSION as SEARCHED_VERSION
from .suite import SuiteError

FORMAT = "tvm-tiling-seeded"
VERSION = 1
RECORDED = Path(__file__).parent / "recorded" / "searched.json"
RECORDED_LONGER = RECORDED.with_name("searched_1000.json")
TRIALS = 16
SEEDING_TRIALS = 24


def neighbours(workload: Workload) -> list[Workload]:
    """Return similar shapes of other sizes to generate the database from; no workload of the suite is among them."""
    if isinstance(workload, ConvWorkload):
        w = workload
        wide = w.ci if w.groups == 1 else w.groups
        channels = max(wide // 2, 1) if wide > 3 else wide
        if w.groups > 1:
            return [replace(w, ci=channels, co=channels, groups=channels)]
        return [replace(w, co=w.co // 2), replace(w, ci=channels, h=max(w.h // 2, w.kh), w=max(w.w // 2, w.kw))]
    halves = [replace(workload, **_dense(workload, {axis: getattr(workload, axis) // 2})) for axis in ("m", "n", "k")]
    return [half for half in halves if min(half.m, half.n, half.k) >= 1]


def _dense(workload: GemmWorkload, sizes: dict[str, int]) -> dict[str, Any]:
    return {**sizes, "lda": None, "ldb": None, "ldc": None}


def compare(record: dict[str, Any], database: str) -> dict[str, Any]:
    """Tune one workload with and without seeds, and compare both results with MetaSchedule's best."""
    workload = workload_from_dict(record["workload"])
    entry: dict[str, Any] = {"workload": record["workload"], "searched": record["trials"], "trials": TRIALS}
    entry["their_seconds"] = record["seconds"]
    operands = random_operands(workload)
    try:
        found = Found(record["trace"], record["best_seconds"], record["ran"], record["seconds"])
        theirs = _ready(prepared(found, operands, ""), operands)
        for name, options in (("seeded", {"database": database}), ("unseeded", {})):
            start = time.perf_counter()
            report = tt.tune(workload, trials=TRIALS, progress=False, resume=False, **options)
            seconds = time.perf_counter() - start
            assert isinstance(report, TuneReport) and report.best is not None
            ours = _ready(_prepared(workload, report.best, operands), operands)
            pair = paired(
                Side(ours.run, own_core), Side(theirs.run, own_core), StopRule(most_seconds=3), Condition(settle=SETTLE)
            )
            entry[name] = {**pair.to_dict(), "tuned_in": seconds, "measured": report.trials, "gain": report.gain}
    except Exception as error:
        return {**entry, "status": Status.FAILED.value, "reason": first_line(error)}
    return {**entry, "status": Status.OK.value}


def _prepared(workload: Workload, config: Config, operands: Operands) -> Prepared:
    import tvm

    schedule = tt.tiling_schedule(tir(workload), config=config)
    return bind(tvm.compile(schedule.mod, target=tt.llvm_target())["main"], operands)


def _ready(side: Prepared, operands: Operands) -> Prepared:
    side.run()
    bind_workers()
    if wrong := operands.difference(side.output()):
        raise RuntimeError(wrong)
    return side


def _line(entry: dict[str, Any]) -> str:
    name = " ".join(f"{k}={v}" for k, v in entry["workload"].items() if k in ("m", "k", "n", "h", "ci", "co", "kh"))
    name = f"{entry['workload']['op']} {name}, {entry['searched']} MetaSchedule trials"
    if entry["status"] != Status.OK.value:
        return f"{name}: {entry['reason']}"
    sides = ", ".join(
        f"{side}: speedup {entry[side]['ratio']:.2f}, tuned in {entry[side]['tuned_in']:.1f} s"
        for side in ("seeded", "unseeded")
    )
    return f"{name}: {sides}; MetaSchedule {entry['their_seconds']:.0f} s"


def _processor(machine: dict[str, Any]) -> str:
    return f"{machine['cpu']} ({machine['mcpu'] or machine['arch']}), {machine['cores']} cores"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare what the file does not contain yet. Returns 1 after an error that the user can fix."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.seeded", description=__doc__)
    parser.add_argument(
        "--searched",
        type=Path,
        default=RECORDED,
        help="results of benchmarks.searched; default: the file in the repository",
    )
    parser.add_argument("--json", type=Path, default=Path("results/seeded.json"), help="default: %(default)s")
    chosen = parser.parse_args(arguments)
    try:
        if not chosen.searched.is_file():
            raise SuiteError(f"{chosen.searched}: no such file; expected one that benchmarks.searched wrote")
        searched = earlier_entries(chosen.searched, SEARCHED, SEARCHED_VERSION, "searches")
        done = [e for e in earlier_entries(chosen.json, FORMAT, VERSION, "searches") if e["status"] == Status.OK.value]
    except TilingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    searched_on = json.loads(chosen.searched.read_text(encoding="utf-8"))["machine"]
    here = machine_record(this_machine())
    if _processor(searched_on) != _processor(here):
        print(
            f"searched on another machine: {_processor(searched_on)}; this machine is {_processor(here)}",
            file=sys.stderr,
        )
    known = {(json.dumps(entry["workload"]), entry["searched"]) for entry in done}
    left = [r for r in searched if r["status"] == "ok" and (json.dumps(r["workload"]), r["trials"]) not in known]
    with tempfile.TemporaryDirectory(prefix="tvm-tiling-seeded-") as folder:
        url = f"sqlite:///{folder}/shapes.db"
        for shape in dict.fromkeys(
            shape for record in left for shape in neighbours(workload_from_dict(record["workload"]))
        ):
            tt.tune(shape, database=url, trials=SEEDING_TRIALS, progress=False)
            print(f"seeding: {shape}", file=sys.stderr)
        for record in left:
            done.append(compare(record, url))
            print(_line(done[-1]), file=sys.stderr)
            result = {"format": FORMAT, "version": VERSION, "machine": here}
            write_whole(chosen.json, json.dumps({**result, "searches": done}, indent=1))
    for entry in done:
        print(_line(entry))
    ok = [entry for entry in done if entry["status"] == Status.OK.value]
    for side in ("seeded", "unseeded"):
        mean = math.exp(sum(math.log(entry[side]["ratio"]) for entry in ok) / max(1, len(ok)))
        print(f"{side}: speedup {mean:.2f}, geometric mean of {len(ok)} searches")
    return 0


if __name__ == "__main__":
    sys.exit(main())
