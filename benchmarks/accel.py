"""Speed of the functional and timing simulators on one core: python -m benchmarks.accel

The target is 5 GMAC/s for int8. Every output is first compared with NumPy. `checked` also detects reads of bytes that
were never written; `unchecked` does not. Both detect out-of-bounds operands. The reported time is the minimum of
several runs. accel_timing.py describes how the timing simulator is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm_tiling.accel.checks.hazards import check
from tvm_tiling.accel.functional.run import run

from .accel_cases import CASES, Case
from .accel_timing import measure_timing, timing_table
from .least_time import least_seconds

AIM = 5.0  # GMAC/s
# Read at load time by the libraries that NumPy may use for matrix multiplication.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def measure_functional(case: Case, seconds: float) -> dict[str, Any]:
    """Return the speeds of a case in GMAC/s and the time per checked instruction in microseconds. Raises AssertionError
    if a result is wrong."""
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
    """Format the figures as a text table."""
    lines = [f"{'':44} {'instr.':>7} {'GMAC/s checked, un-':>20} {'us/instr. checked, un-, hazards':>32}"]
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
    """Measure in a process whose libraries use one thread, pinned to one core where the system allows it."""
    parser = argparse.ArgumentParser(description="Speed of the functional and timing simulators.")
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds to measure for each figure")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(given)
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        command = [sys.executable, "-m", "benchmarks.accel", *given]
        return subprocess.run(command, env=os.environ | ONE_THREAD, check=False).returncode
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rows = [measure_functional(case(), options.seconds) for case in CASES]
    timing = measure_timing(options.seconds)
    if options.json:
        print(json.dumps({"functional": rows, "timing": timing}, indent=2))
    else:
        print(table(rows), timing_table(timing), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
