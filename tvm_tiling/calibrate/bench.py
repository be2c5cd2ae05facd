"""Timing of measurement kernels, in seconds and in cycles.

Clocks change with the load and with the other cores: the clock is read right after every sample, by a kernel whose
cycles are known.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm

from ..hardware.calibration import RANGES, Measured
from ..hardware.cpu import Cpu
from ..peak import compiled
from ..runtime.threads import own_core
from . import kernels

SAMPLE_SECONDS = 2e-3
ASSUMED_HZ = 3e9  # determines only the length of samples
PROBE_STEPS = int(1.5e-4 * ASSUMED_HZ / kernels.PROBE_CYCLES)
LEAST_SAMPLES = 7
DIGITS = 4  # significant digits of stored values


@dataclass(frozen=True)
class Time:
    """The duration of one call: the minimum of the samples in seconds, and their median in cycles. `spread` is the
    interquartile range of the cycles, relative to their median.
    """

    seconds: float
    cycles: float
    spread: float
    samples: int
    hertz: float = 0.0  # the median clock, and the interquartile range relative to it
    hertz_spread: float = 0.0

    def per(self, count: float) -> Time:
        """Return the time of one of `count` equal parts."""
        return Time(self.seconds / count, self.cycles / count, self.spread, self.samples, self.hertz, self.hertz_spread)

    def less(self, other: Time) -> Time:
        """Return the difference of two times, at least 0; its relative spread grows as the difference shrinks."""
        cycles = max(self.cycles - other.cycles, 0.0)
        spread = (self.spread * self.cycles + other.spread * other.cycles) / cycles if cycles else 0.0
        seconds = max(self.seconds - other.seconds, 0.0)
        return Time(seconds, cycles, spread, min(self.samples, other.samples), self.hertz)


@dataclass
class Bench:
    """Measures one CPU, and collects values. `scale` multiplies the time of every series of samples."""

    cpu: Cpu
    target: Any
    scale: float = 1.0
    found: dict[str, Measured] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        main = self.main(kernels.probe())
        given = tensor(np.array([0x5555, 12345], "int64")), tensor(np.zeros(1, "int64"))
        self._probe = lambda: main(*given, PROBE_STEPS)

    def main(self, function: Any) -> Callable[..., object]:
        """Return the compiled kernel."""
        entry: Callable[..., object] = compiled(function, self.target)["main"]
        return entry

    def time(self, run: Callable[[], object], seconds: float = 0.15) -> Time:
        """Time calls for this many seconds, but at least LEAST_SAMPLES calls."""
        clock = time.perf_counter
        samples: list[tuple[float, float]] = []
        with own_core():
            run()
            self._probe()
            until = clock() + seconds * self.scale
            while len(samples) < LEAST_SAMPLES or clock() < until:
                begin = clock()
                run()
                between = clock()
                self._probe()
                samples.append((between - begin, kernels.PROBE_CYCLES * PROBE_STEPS / (clock() - between)))
        cycles, spread = _median(taken * hertz for taken, hertz in samples)
        return Time(
            min(taken for taken, _ in samples), cycles, spread, len(samples), *_median(hertz for _, hertz in samples)
        )

    def add(self, name: str, value: float, unit: str, measured: Time, how: str, field: str = "") -> None:
        """Record a value, or list it in `skipped` if no CPU can have it."""
        least, most = RANGES[unit]
        if not least <= value <= most:
            self.skipped[name] = f"{value:.3g} {unit} is outside of {least:g} to {most:g}"
            return
        self.found[name] = Measured(
            value=_rounded(value),
            unit=unit,
            spread=_rounded(measured.spread),
            samples=measured.samples,
            how=how,
            field=field,
        )


def tensor(array: Any) -> Any:
    """Return the array as a tensor in memory that TVM allocates, aligned to cache lines."""
    return tvm.runtime.tensor(array)


def _median(values: Iterable[float]) -> tuple[float, float]:
    """Return the median, and the interquartile range relative to it."""
    first, median, third = statistics.quantiles(values, n=4)
    return median, (third - first) / median


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
