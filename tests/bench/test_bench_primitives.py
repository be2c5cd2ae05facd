"""The benchmark in docs/schedules.md: both kernels run, and a ratio is printed."""

from __future__ import annotations

from dataclasses import replace

import tvm_tiling as tt
from benchmarks.primitives import convolution, cost, product


def test_a_ratio_of_times():
    known = tt.Hardware.detect()
    one = replace(known, cpu=replace(known.cpu, cores=1, threads=1))
    assert cost(product(64, 64, 64), one, most_seconds=0.2) > 0
    assert cost(convolution(14, 16, 32, 3, 1), one, "direct", most_seconds=0.2) > 0
