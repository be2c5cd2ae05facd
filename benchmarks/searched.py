"""Record the results of long MetaSchedule searches for later comparisons: python -m benchmarks.searched --json
found.json

The best schedule of every search is written to the file as a trace, with the seconds that the search took. A restarted
run continues after the last search.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tvm_tiling.errors import TilingError
from tvm_tiling.measure import first_line, machine_record
from tvm_tiling.tuning.shapes.key import workload_from_dict
from tvm_tiling.workload import ConvWorkload, GemmWorkload

from .metaschedule import SHAPES
from .operands import Workload
from .peers.metaschedule import search
from .peers.tvm_operator import this_machine
from .result import earlier_entries, write_whole

FORMAT = "tvm-tiling-searched"
VERSION = 1
TRIALS = 256
MORE_TRIALS = 1000
PRODUCTS = tuple(GemmWorkload(m=m, k=k, n=n) for m, k, n in SHAPES)


def _conv(h: int, ci: int, co: int, k: int, s: int = 1, groups: int = 1) -> ConvWorkload:
    border = k // 2
    return ConvWorkload(n=1, h=h, w=h, ci=ci, co=co, kh=k, kw=k, stride=(s, s), padding=(border,) * 4, groups=groups)


# ResNet-50: stem, 3x3, wide and deep pointwise, strided; MobileNetV2: depthwise; VGG-16; SqueezeNet's 1x1; 5x5.
CONVOLUTIONS = (
    _conv(224, 3, 64, 7, 2),
    _conv(56, 64, 64, 3),
    _conv(56, 64, 256, 1),
    _conv(7, 2048, 512, 1),
    _conv(28, 256, 256, 3, 2),
    _conv(112, 32, 32, 3, groups=32),
    _conv(14, 512, 512, 3),
    _conv(28, 32, 96, 5),
)
# Also searched with MORE_TRIALS: a tall GEMM, a 1x1, a 3x3 and a cube.
LONGER = (PRODUCTS[3], CONVOLUTIONS[2], CONVOLUTIONS[1], PRODUCTS[1])


def searches(*, longer_only: bool = False) -> list[tuple[Workload, int]]:
    """Yield every workload with its number of trials, the long searches last; with `longer_only` these alone."""
    usual = [] if longer_only else [(workload, TRIALS) for workload in (*PRODUCTS, *CONVOLUTIONS)]
    return [*usual, *((workload, MORE_TRIALS) for workload in LONGER)]


def _entry(workload: Workload, trials: int) -> dict[str, Any]:
    entry = {"workload": workload.to_dict(), "trials": trials}
    try:
        return {**entry, **asdict(search(workload, trials, per_round=64)), "status": "ok"}
    except Exception as error:
        return {**entry, "status": "failed", "reason": first_line(error)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Search what the file does not contain yet. Returns 1 after an error that the user can fix."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.searched", description=__doc__)
    parser.add_argument("--json", type=Path, default=Path("results/searched.json"), help="default: %(default)s")
    parser.add_argument("--longer", action="store_true", help=f"run only the searches with {MORE_TRIALS} trials")
    chosen = parser.parse_args(arguments)
    try:
        found = [e for e in earlier_entries(chosen.json, FORMAT, VERSION, "searches") if e["status"] == "ok"]
    except TilingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    done = {(workload_from_dict(entry["workload"]), entry["trials"]) for entry in found}
    for workload, trials in searches(longer_only=chosen.longer):
        if (workload, trials) in done:
            continue
        entry = _entry(workload, trials)
        seconds = f"{entry['seconds']:.0f} s" if entry["status"] == "ok" else entry["reason"]
        print(f"{workload.to_dict()}: {trials} trials, {seconds}", file=sys.stderr)
        found.append(entry)
        result = {"format": FORMAT, "version": VERSION, "machine": machine_record(this_machine()), "searches": found}
        write_whole(chosen.json, json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
