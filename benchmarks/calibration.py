"""Whether the constants of a description decide rightly: python -m benchmarks.calibration -o results/calibration.json

For every shape of a suite, candidates are measured in turn, on all cores or on --cores of them, and compared round by
round: what each description chooses, what the default and the calibrated one rank first, and some of the others at
random. Descriptions are this machine's default by microarchitecture, its calibration if there is one, and this machine
with the constants of others on purpose: rates, multiply-add units, latency and kernel costs of a preset. The summary
says for each in how many shapes its choice is within WITHIN of the best measured candidate, what its choices lose, and
how well it ranks the candidates.

A file is continued; --judge reads it and measures nothing. Where other work runs on the machine, --cores 1 is far less
disturbed: a kernel on several cores waits for the slowest.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tvm_tiling.decide.configs.neighbourhood import Space, neighbourhood
from tvm_tiling.decide.configs.record import Config
from tvm_tiling.errors import TilingError
from tvm_tiling.hardware import Hardware
from tvm_tiling.hardware.file import from_dict
from tvm_tiling.measure import machine_record
from tvm_tiling.tuning.measuring.child import ChildFailed, ChildLost
from tvm_tiling.tuning.measuring.measurer import Job

from .cost_model import pairwise_accuracy
from .result import earlier_entries, write_whole
from .side_by_side import SideBySide
from .suite import Case, SuiteError, load_suite
from .summary import geometric_mean

FORMAT, VERSION = "tvm-tiling-calibration-study", 1
WITHIN = 0.03
APART = 0.02  # of a cost: nearer pairs have no order
FIRST = 6  # candidates that the default and the calibrated description rank first
RANDOM = 4
NEAREST = 160
PASSES, ROUNDS, PASS_SECONDS = 4, 15, 0.5
OTHERS = ("zen4-server-8c", "neoverse-v1")
CONSTANTS = (
    *("fma_units", "fma_latency", "l2_bytes_per_cycle", "l3_bytes_per_cycle", "memory_bytes_per_cycle"),
    *("handed_over_bytes_per_cycle", "costs"),
)

Entry = dict[str, Any]


def descriptions(cores: int | None = None, others: Sequence[str] = OTHERS) -> dict[str, Hardware]:
    """The descriptions to compare, by name; all of this machine's vectors and caches, and of `cores` of its cores."""
    default, calibrated = Hardware.detect(calibrated=False), Hardware.detect()
    if cores is not None:
        default, calibrated = default.with_cores(cores), calibrated.with_cores(cores)
    found = {"default": default}
    if calibrated.calibration is not None:
        found["calibrated"] = calibrated
    return {**found, **{f"as {name}": with_constants(default, Hardware.load(name)) for name in others}}


def with_constants(machine: Hardware, other: Hardware) -> Hardware:
    """The machine with the constants of another CPU, which are wrong for it."""
    assert machine.cpu is not None and other.cpu is not None
    wrong: dict[str, Any] = {name: getattr(other.cpu, name) for name in CONSTANTS}
    return replace(machine, name=f"{machine.name} as {other.name}", cpu=replace(machine.cpu, **wrong))


def candidates(spaces: Mapping[str, Space], seed: int) -> list[Config]:
    """The configurations to measure: every description's choice, the first of two, some others."""
    chosen = [space.start for space in spaces.values()]
    for name in ("default", "calibrated"):
        if name in spaces:
            chosen += spaces[name].configs(FIRST)
    rest = [config for config in spaces["default"].configs(NEAREST) if config not in chosen]
    return list(dict.fromkeys([*chosen, *random.Random(seed).sample(rest, min(RANDOM, len(rest)))]))


def measure(case: Case, machines: Mapping[str, Hardware], seed: int, bench: SideBySide) -> Entry:
    """The candidates of one shape with their seconds in every pass."""
    spaces = {name: neighbourhood(case.workload, machine, prepacked=case.packed) for name, machine in machines.items()}
    jobs = [
        Job(workload=case.workload, config=config, hardware=machines["default"], prepacked=case.packed)
        for config in candidates(spaces, seed)
    ]
    try:
        found = bench.measure(jobs, PASSES, ROUNDS, PASS_SECONDS, relative=True)
    except (ChildFailed, ChildLost):
        found = {}
    return {
        "case": case.name,
        "group": case.group,
        "workload": case.workload.to_dict(),
        "packed": case.packed,
        "trials": [[job.config.to_dict(), seconds] for job, seconds in found.items()],
    }


def judged(entry: Entry, case: Case, machines: Mapping[str, Hardware]) -> Entry:
    """For each description: the loss of its choice against the best candidate, and how it ranks all of them."""
    configs = [Config.from_dict(config) for config, _ in entry["trials"]]
    # Relative to the pass: the clock and other work change the level of a pass, not the order of its candidates.
    passes = np.array([seconds for _, seconds in entry["trials"]])
    costs = np.median(passes / np.median(passes, axis=0), axis=1) * np.median(passes)
    found: Entry = {}
    for name, machine in machines.items():
        space = neighbourhood(case.workload, machine, prepacked=case.packed)
        if space.start not in configs:
            continue  # its choice could not be built
        predicted = np.array([space.predicted(config) for config in configs])
        place = configs.index(space.start)
        best_of_forms = configs[int(np.argmin(costs))].form
        found[name] = {
            "loss": float(costs[place] / costs.min() - 1),
            "form": space.start.form == best_of_forms,
            "contested": len({config.form for config in configs}) > 1,
            "pairs": float(pairwise_accuracy(predicted, costs, APART)),
            "rank": rank_correlation(predicted, costs),
            "forms": form_accuracy(configs, predicted, costs),
            "seconds": float(costs[place]),
        }
    return found


def rank_correlation(scores: np.ndarray, costs: np.ndarray) -> float:
    """Spearman's; nan if all of one are equal."""
    ranks = [np.unique(values, return_inverse=True)[1].astype(float) for values in (scores, costs)]
    if len(costs) < 2 or any(np.ptp(rank) == 0 for rank in ranks):
        return float("nan")
    return float(np.corrcoef(*ranks)[0, 1])


def form_accuracy(configs: Sequence[Config], predicted: np.ndarray, costs: np.ndarray) -> float:
    """The share of pairs of algorithms, each with its best candidate, that predictions put in the measured order; nan
    with one."""
    forms = sorted({config.form for config in configs})
    own = [[place for place, config in enumerate(configs) if config.form == form] for form in forms]
    best = [np.array([values[places].min() for places in own]) for values in (predicted, costs)]
    return float(pairwise_accuracy(*best, APART)) if len(forms) > 1 else float("nan")


def summary(entries: Sequence[Entry]) -> dict[str, dict[str, float]]:
    """Over all shapes, for each description."""
    found = {}
    for name in dict.fromkeys(name for entry in entries for name in entry):
        own = [entry[name] for entry in entries if name in entry]
        losses = [each["loss"] for each in own]
        contested = [each["form"] for each in own if each["contested"]]
        found[name] = {
            "shapes": len(own),
            "within": sum(loss <= WITHIN for loss in losses) / len(own),
            "mean loss": geometric_mean([1 + loss for loss in losses]) - 1,
            "worst": max(losses),
            "algorithms": sum(contested) / len(contested) if contested else float("nan"),
            "rank": float(np.nanmean([each["rank"] for each in own])),
            "pairs": float(np.nanmean([each["pairs"] for each in own])),
        }
    return found


def printed(found: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """The summary as lines of a table."""
    columns = list(next(iter(found.values())))
    yield f"{'':<20}" + "".join(f"{name:>12}" for name in columns)
    for name, row in found.items():
        yield f"{name:<20}" + "".join(
            f"{value:12.3f}" if column != "shapes" else f"{value:12}" for column, value in row.items()
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the file lacks, then judge; 1 after an error that the user can fix."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("results/calibration.json"))
    parser.add_argument("--suite", default="calibration", help="a suite or a file.toml; default: %(default)s")
    parser.add_argument("--cores", type=int, help="default: all")
    parser.add_argument("--seconds", type=float, default=1500.0, help="begin with no further shape then; %(default)s")
    parser.add_argument("--judge", action="store_true", help="measure nothing")
    chosen = parser.parse_args(arguments)
    try:
        return _run(chosen)
    except TilingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _run(chosen: argparse.Namespace) -> int:
    cases = {case.name: case for case in load_suite(chosen.suite)}
    entries = earlier_entries(chosen.output, FORMAT, VERSION, "shapes") if chosen.output.is_file() else []
    machines = descriptions(chosen.cores)
    recorded = _recorded(chosen.output)["default"] if entries else machines["default"]
    if not chosen.judge and recorded.fingerprint() != machines["default"].fingerprint():
        raise SuiteError(f"{chosen.output} was measured on another CPU or number of cores; use another --output")
    if not chosen.judge:
        until, done = time.monotonic() + chosen.seconds, {entry["case"] for entry in entries}
        with contextlib.closing(SideBySide()) as bench:
            for number, case in enumerate(cases.values()):
                if case.name in done or time.monotonic() > until:
                    continue
                entries.append(measure(case, machines, number, bench))
                print(f"{len(entries)} of {len(cases)}: {case.name}", file=sys.stderr)
                result = {
                    "format": FORMAT,
                    "version": VERSION,
                    "machine": machine_record(machines["default"]),
                    "hardware": {name: machine.to_dict() for name, machine in machines.items()},
                    "shapes": entries,
                }
                write_whole(chosen.output, json.dumps(result, indent=1))
    elif entries:
        machines = _recorded(chosen.output)
    rows = [
        judged(entry, cases[entry["case"]], machines) for entry in entries if entry["trials"] and entry["case"] in cases
    ]
    if not rows:
        raise SuiteError(f"{chosen.output} has no measured shapes; run without --judge")
    for entry, row in zip(
        (entry for entry in entries if entry["trials"] and entry["case"] in cases), rows, strict=True
    ):
        losses = ", ".join(f"{name} {each['loss']:.1%}" for name, each in row.items())
        print(f"{entry['case']:<60} {len(entry['trials'])} candidates; loss {losses}")
    for line in printed(summary(rows)):
        print(line)
    return 0


def _recorded(path: Path) -> dict[str, Hardware]:
    """The descriptions that a file was measured with."""
    plain = json.loads(path.read_text(encoding="utf-8"))
    return {name: from_dict(Hardware, table, str(path)) for name, table in plain["hardware"].items()}


if __name__ == "__main__":
    sys.exit(main())
