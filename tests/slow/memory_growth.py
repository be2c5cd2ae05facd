"""Print how resident memory grows: python memory_growth.py runs|compiles COUNT. A separate program, so that nothing
else uses memory. Output: bytes after a tenth, bytes at the end, peak bytes."""

from __future__ import annotations

import gc
import resource
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "model"))

import numpy as np
import psutil
from networks import Network, residual_network

import tvm_tiling as tt

SHAPE = (1, 3, 33, 33)


def resident() -> int:
    gc.collect()
    return psutil.Process().memory_info().rss


def main(what: str, count: int) -> None:
    net = Network(SHAPE)
    x = net.arrays()[0]
    executable = tt.compile(net.module(residual_network), cache=False)
    want = executable.run(x)
    seen = []
    for number in range(count):
        if what == "runs":
            result = executable.run(x)
        else:
            # Other weights each time, because equal models may share memory.
            own = Network(SHAPE, seed=number)
            result = tt.compile(own.module(residual_network), cache=False).run(x)
        assert np.isfinite(result).all() and (what != "runs" or np.array_equal(result, want))
        if number == count // 10 or number == count - 1:
            seen.append(resident())
    print(*seen, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
