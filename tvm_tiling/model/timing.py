"""Measured times of a model's runs: number of runs, and statistics."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from ..measure import interquartile_range, percentile, throughput
from .report import Benchmark

LEAST_RUNS = 5
OPERATOR_RUNS = 50  # at most; each operator's time is their median


def timed(run: Callable[[], object], seconds: float) -> list[float]:
    """Seconds of runs that are repeated for about this time."""
    samples: list[float] = []
    until = time.perf_counter() + seconds
    while len(samples) < LEAST_RUNS or time.perf_counter() < until:
        start = time.perf_counter()
        run()
        samples.append(time.perf_counter() - start)
    return samples


def operator_runs(samples: Sequence[float]) -> int:
    """The number of runs that time the operators, after this many runs of the whole model."""
    return max(LEAST_RUNS, min(OPERATOR_RUNS, len(samples) // 4))


def benchmark_of(samples: Sequence[float], operators: dict[str, float]) -> Benchmark:
    """The statistics of the measurements."""
    return Benchmark(
        median=statistics.median(samples),
        spread=interquartile_range(samples),
        p90=percentile(samples, 90),
        p99=percentile(samples, 99),
        throughput=throughput(samples),
        runs=len(samples),
        operators=operators,
    )


def median_of_each(totals: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median over runs of the time of each name; a name missing in a run counts as 0."""
    names = dict.fromkeys(name for total in totals for name in total)
    return {name: statistics.median(total.get(name, 0.0) for total in totals) for name in names}
