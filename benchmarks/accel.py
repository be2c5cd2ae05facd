"""How fast programs of the simulated accelerator run for their results, on one core: python -m benchmarks.accel

The aim is 5 GMAC/s of int8 (page 06). Every output is compared with NumPy's first. `checked` looks for reads of bytes
that were never written, `unchecked` does not; both find operands that lie outside. The least time of several runs
counts, since what else the computer does can only add to it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tvm_tiling.accel.check import check
from tvm_tiling.accel.functional import run

from .accel_cases import CASES, Case

AIM = 5.0  # GMAC/s
# Read by the libraries that NumPy may multiply with when they are loaded.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def least_seconds(work: Callable[[], Any], seconds: float) -> float:
    """The least time that `work` takes, called at least twice and for `seconds` in all."""
    least, calls, end = float("inf"), 0, time.perf_counter() + seconds
    while calls < 2 or time.perf_counter() < end:
        start = time.perf_counter()
        work()
        least = min(least, time.perf_counter() - start)
        calls += 1
    return least


def measure_functional(case: Case, seconds: float) -> dict[str, Any]:
    """Speeds of a case in GMAC/s, and microseconds an instruction takes to check. AssertionError for a wrong result."""
    (result,) = run(case.program, case.inputs).values()
    np.testing.assert_array_equal(result, case.output)
    count = len(case.program)
    checked = least_seconds(lambda: run(case.program, case.inputs), seconds)
    unchecked = least_seconds(lambda: run(case.program, case.inputs, check=False), seconds)
    return {
        "case": case.name,
        "instructions": count,
        "macs": case.macs,
        "gmacs_checked": case.macs / checked / 1e9,
        "gmacs_unchecked": case.macs / unchecked / 1e9,
        "microseconds_checked": checked / count * 1e6,
        "microseconds_unchecked": unchecked / count * 1e6,
        "microseconds_hazards": least_seconds(lambda: check(case.program), 0) / count * 1e6,
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The figures as text."""
    lines = [f"{'':44} {'instr.':>7} {'GMAC/s checked, not':>20} {'us/instr. checked, not, hazards':>32}"]
    for row in rows:
        lines.append(
            f"{row['case']:44} {row['instructions']:>7} {row['gmacs_checked']:>10.1f} {row['gmacs_unchecked']:>9.1f} "
            f"{row['microseconds_checked']:>12.1f} {row['microseconds_unchecked']:>9.1f} "
            f"{row['microseconds_hazards']:>9.1f}"
        )
    reached = sum(row["gmacs_unchecked"] >= AIM for row in rows)
    lines.append(f"{reached} of {len(rows)} reach {AIM:g} GMAC/s on one core")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure in a process whose libraries were told to take one thread, on one core where that can be asked for."""
    parser = argparse.ArgumentParser(description="Speed of functional runs (page 06).")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each figure")
    parser.add_argument("--json", action="store_true", help="figures as JSON on standard output")
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(given)
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        command = [sys.executable, "-m", "benchmarks.accel", *given]
        return subprocess.run(command, env=os.environ | ONE_THREAD, check=False).returncode
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rows = [measure_functional(case(), options.seconds) for case in CASES]
    print(json.dumps(rows, indent=2) if options.json else table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
