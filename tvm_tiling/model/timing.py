"""Measured times of a model's runs: number of runs, and statistics."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from ..measure import interquartile_range, percentile, throughput
from ..other_work import OtherWork
from .report import Benchmark

LEAST_RUNS = 5
OPERATOR_RUNS = 50  # at most; each operator's time is their median


def timed(run: Callable[[], object], seconds: float, least: int = LEAST_RUNS) -> tuple[list[float], float | None]:
    """Seconds of each run, repeated for about `seconds`; and the fraction of the cores' time that other processes used
    meanwhile, None if unknown."""
    samples: list[float] = []
    with OtherWork() as others:
        until = time.perf_counter() + seconds
        while len(samples) < least or time.perf_counter() < until:
            start = time.perf_counter()
            run()
            samples.append(time.perf_counter() - start)
    return samples, others.share


def operator_runs(samples: Sequence[float]) -> int:
    """The number of runs that time the operators, after this many runs of the whole model."""
    return max(LEAST_RUNS, min(OPERATOR_RUNS, len(samples) // 4))


def benchmark_of(samples: Sequence[float], operators: dict[str, float], others: float | None) -> Benchmark:
    """The statistics of the measurements."""
    return Benchmark(
        median=statistics.median(samples),
        spread=interquartile_range(samples),
        p90=percentile(samples, 90),
        p99=percentile(samples, 99),
        throughput=throughput(samples),
        runs=len(samples),
        operators=operators,
        others=others,
    )


def median_of_each(totals: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median over runs of the time of each name; a name missing in a run counts as 0."""
    names = dict.fromkeys(name for total in totals for name in total)
    return {name: statistics.median(total.get(name, 0.0) for total in totals) for name in names}
