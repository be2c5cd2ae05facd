"""Our kernel compared with MetaSchedule with N trials: python -m benchmarks.metaschedule --json
results/metaschedule.json

Each matrix multiplication takes minutes to search. Results are written after every one, and a restarted run continues
after the last.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tvm_tiling.errors import TilingError
from tvm_tiling.measure import Condition, Side, Status, StopRule, first_line, machine_record, paired
from tvm_tiling.runtime.threads import bind_workers, own_core
from tvm_tiling.workload import GemmWorkload

from .operands import GemmOperands, Operands
from .peers import Ours
from .peers.base import Prepared
from .peers.metaschedule import TRIALS, MetaSchedule
from .peers.tvm_operator import this_machine
from .result import earlier_entries, write_whole
from .run import SETTLE

FORMAT = "tvm-tiling-metaschedule"
VERSION = 1
# One GEMM [m, k, n] of each group of the suite: dense layer, cube, off by one, tall, flat, deep, decoding, prime.
SHAPES = (
    (384, 1024, 4096),
    (1024, 1024, 1024),
    (1025, 1025, 1025),
    (16384, 64, 64),
    (64, 64, 16384),
    (64, 16384, 64),
    (16, 1024, 1024),
    (127, 257, 509),
)


def compare(shape: Sequence[int], trials: int) -> dict[str, Any]:
    """Measure one GEMM [m, k, n]: how long each side took to build its kernel, and the latency of both kernels."""
    m, k, n = shape
    workload = GemmWorkload(m=m, k=k, n=n)
    operands = GemmOperands.random(workload)
    entry: dict[str, Any] = {"m": m, "k": k, "n": n, "trials": trials, "flops": workload.flops}
    try:
        ours, entry["our_seconds_to_make"] = _made(Ours(), operands)
        theirs, entry["their_seconds_to_make"] = _made(MetaSchedule(trials), operands)
    except Exception as error:
        return {**entry, "status": Status.FAILED.value, "reason": first_line(error)}
    for name, side in (("ours", ours), ("MetaSchedule", theirs)):
        if wrong := operands.difference(side.output()):
            return {**entry, "status": Status.WRONG.value, "reason": f"{name}: {wrong}"}
    pair = paired(
        Side(ours.run, own_core), Side(theirs.run, own_core), StopRule(most_seconds=3), Condition(settle=SETTLE)
    )
    return {**entry, **pair.to_dict(), "note": theirs.note}


def _made(peer: Ours | MetaSchedule, operands: Operands) -> tuple[Prepared, float]:
    start = time.perf_counter()
    prepared = peer.prepare(operands, packed=False)
    seconds = time.perf_counter() - start
    prepared.run()
    bind_workers()
    return prepared, seconds


def _earlier(path: Path, trials: int) -> list[dict[str, Any]]:
    """Return the finished entries of the file with this number of trials; failed ones are measured again."""
    products = earlier_entries(path, FORMAT, VERSION, "products")
    return [entry for entry in products if entry["trials"] == trials and entry["status"] == Status.OK.value]


def _line(entry: dict[str, Any]) -> str:
    name = f"{entry['m']}x{entry['k']}x{entry['n']}"
    if entry["status"] != Status.OK.value:
        return f"{name}: {entry['status']}: {entry['reason']}"
    ours, theirs = (entry["flops"] / entry[side]["seconds"] / 1e9 for side in ("ours", "peer"))
    return (
        f"{name}: ours {ours:.0f} GFLOP/s, built in {entry['our_seconds_to_make']:.1f} s, "
        f"MetaSchedule {theirs:.0f} GFLOP/s, built in {entry['their_seconds_to_make']:.0f} s ({entry['note']}), "
        f"ratio {entry['ratio']:.2f}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Search what the file does not contain yet and print one line per GEMM. Returns 1 after an error that the user can
    fix."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.metaschedule", description=__doc__)
    parser.add_argument("--json", type=Path, default=Path("results/metaschedule.json"), help="default: %(default)s")
    parser.add_argument("--trials", type=int, default=TRIALS, help="default: %(default)s")
    parser.add_argument(
        "--shape", type=int, nargs=3, action="append", metavar=("M", "K", "N"), help="GEMMs to search; default: all"
    )
    chosen = parser.parse_args(arguments)
    try:
        products = _earlier(chosen.json, chosen.trials)
    except TilingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    done = {(entry["m"], entry["k"], entry["n"]) for entry in products}
    for shape in chosen.shape or SHAPES:
        if tuple(shape) not in done:
            print(f"searching {'x'.join(map(str, shape))} with {chosen.trials} trials ...", file=sys.stderr)
            products.append(compare(shape, chosen.trials))
            result = {"format": FORMAT, "version": VERSION, "machine": machine_record(this_machine())}
            write_whole(chosen.json, json.dumps({**result, "products": products}, indent=1))
    for entry in products:
        print(_line(entry))
    return 0


if __name__ == "__main__":
    sys.exit(main())
