"""Measurement of callables: paired benchmarks, a stop rule, and a record of the machine.

Machines are shared and drift by tens of percent, so absolute times are not comparable. Two callables that alternate (A
B A B ...) drift together: their ratio, pair by pair, is reliable. All times are in seconds.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from importlib import metadata
from pathlib import Path
from typing import Any

from .hardware.description import Hardware
from .runtime.threads import default_thread_count

Run = Callable[[], object]


@dataclass(frozen=True)
class Side:
    """One callable of a pair. `around` makes a context for its calls, entered outside of the timing."""

    run: Run
    around: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext


LEAST_SAMPLE = 1e-3  # a shorter sample is dominated by the clock, the interpreter and the wake-up of threads
WARM_UP = 1e-3  # seconds of untimed calls before a warm sample: a core that slept is slower at first
ALWAYS_PAIRS = 3  # a median requires at least this many
RETAKEN_BELOW = 0.05  # seconds; in a longer sample a few lost time slices are negligible
MOST_RETAKES = 5
DOUBTFUL = 0.5  # share of disturbed samples above which a result is doubtful
RECORDED_PACKAGES = ("tvm-tiling", "apache-tvm", "apache-tvm-ffi", "numpy", "torch", "onnxruntime", "onnx")


class Status(str, Enum):
    """The outcome of one measurement."""

    OK = "ok"
    WRONG = "wrong result"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, kw_only=True)
class StopRule:
    """When to stop running pairs: the median has converged, or the time or the number of pairs is used up.

    `spread` is the half-width of the ratio's 95 percent interval, relative to its median. It is checked only after
    `least_pairs`; the time limit applies before that as well, but three pairs are always run.
    """

    least_pairs: int = 7
    most_pairs: int = 60
    most_seconds: float = 2.0
    spread: float = 0.01

    def reached(self, ratios: Sequence[float], elapsed: float) -> bool:
        """Return whether to stop after these ratios and this many seconds; another pair is assumed to take the mean
        time."""
        pairs = len(ratios)
        if pairs < ALWAYS_PAIRS:
            return pairs >= self.most_pairs
        if pairs >= self.most_pairs or elapsed * (1 + 1 / pairs) > self.most_seconds:
            return True
        return pairs >= self.least_pairs and uncertainty(ratios) <= self.spread


def interquartile_range(values: Sequence[float]) -> float:
    """Width of the middle half of `values`; 0 for fewer than two."""
    if len(values) < 2:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return high - low


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that `percent` percent of `values` do not exceed, linearly interpolated; NaN for no values. With fewer
    than 100 values the 99th percentile is close to the largest."""
    if len(values) < 2:
        return values[0] if values else math.nan
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def throughput(seconds: Sequence[float]) -> float:
    """Calls per second for sequential calls that take these numbers of seconds; 0 for none."""
    total = sum(seconds)
    return len(seconds) / total if total else 0.0


def uncertainty(values: Sequence[float]) -> float:
    """Half-width of the median's 95 percent interval, relative to the median; infinite for fewer than two values.

    1.57 * IQR / sqrt(n): the notch of McGill, Tukey and Larsen, which is independent of the distribution's tails.
    """
    if len(values) < 2:
        return math.inf
    return 1.57 * interquartile_range(values) / math.sqrt(len(values)) / abs(statistics.median(values))


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Samples of one callable, in seconds per call; `inner` calls make one sample.

    `disturbed` counts the short ones during which a thread was preempted even when they were repeated.
    """

    seconds: tuple[float, ...] = ()
    inner: int = 1
    disturbed: int = 0
    status: Status = Status.OK
    reason: str = ""

    @property
    def median(self) -> float:
        """Median seconds per call; NaN without samples."""
        return statistics.median(self.seconds) if self.seconds else math.nan

    @property
    def disturbed_share(self) -> float:
        """Share of the samples that were disturbed; 0 without samples."""
        return self.disturbed / len(self.seconds) if self.seconds else 0.0

    @property
    def iqr(self) -> float:
        """Interquartile range of the samples, seconds."""
        return interquartile_range(self.seconds)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; a value that does not exist is None. Percentiles are of samples, each the mean of
        `inner` calls; `throughput` is calls per second."""
        measured = bool(self.seconds)
        return {
            "status": self.status.value,
            "reason": self.reason,
            "seconds": self.median if measured else None,
            "iqr": self.iqr,
            "p50": self.median if measured else None,
            "p90": percentile(self.seconds, 90) if measured else None,
            "p99": percentile(self.seconds, 99) if measured else None,
            "throughput": throughput(self.seconds) if measured else None,
            "samples": len(self.seconds),
            "inner": self.inner,
            "disturbed": self.disturbed,
        }


@dataclass(frozen=True, kw_only=True)
class Paired:
    """Alternating samples of `ours` and of `peer`; ratios above 1 mean that `ours` is faster."""

    ours: Timing = field(default_factory=Timing)
    peer: Timing = field(default_factory=Timing)
    status: Status = Status.OK
    reason: str = ""

    @property
    def ratios(self) -> tuple[float, ...]:
        """Seconds of the peer divided by ours, for each pair."""
        return tuple(p / o for o, p in zip(self.ours.seconds, self.peer.seconds, strict=True))

    @property
    def ratio(self) -> float:
        """Median of the pairs' ratios; NaN without pairs."""
        return statistics.median(self.ratios) if self.ours.seconds else math.nan

    @property
    def doubtful(self) -> bool:
        """Return whether threads were preempted by other work in more than half of the samples of either side."""
        return self.disturbed > DOUBTFUL

    @property
    def disturbed(self) -> float:
        """Share of the samples in which threads were preempted by other work; the larger one of both sides."""
        return max(self.ours.disturbed_share, self.peer.disturbed_share)

    @property
    def spread(self) -> float:
        """Interquartile range of the ratios."""
        return interquartile_range(self.ratios)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; a value that does not exist is None."""
        return {
            "status": self.status.value,
            "reason": self.reason,
            "ratio": self.ratio if self.ours.seconds else None,
            "spread": self.spread,
            "doubtful": self.doubtful,
            "pairs": len(self.ours.seconds),
            "ours": self.ours.to_dict(),
            "peer": self.peer.to_dict(),
        }


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def switches() -> int:
    """Involuntary context switches of this process so far; 0 if the system does not count them."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _timed_calls(run: Run, inner: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(inner):
        run()
    return (clock() - start) / inner


def quickest_call(side: Side, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of the fastest of up to 20 calls; no further call is made after 50 ms."""
    start, quickest = clock(), math.inf
    with side.around():
        for _ in range(20):
            quickest = min(quickest, _timed_calls(side.run, 1, clock))
            if clock() - start > 0.05:
                break
    return quickest


def inner_repetitions(seconds: float) -> int:
    """The number of calls of `seconds` each that together take LEAST_SAMPLE."""
    return max(1, math.ceil(LEAST_SAMPLE / max(seconds, 1e-9)))


@dataclass(frozen=True, kw_only=True)
class Condition:
    """The conditions of each sample.

    Warm (`flush` is None): wait `settle` seconds, so that the other side's threads, which spin for a while after a
    call, go to sleep; then make untimed calls for WARM_UP, so that our own are awake and the data is in the caches.
    Cold: call `flush`, then take one call as the sample.

    Two threads of one kernel may wake up on the same core and stay there for some time slices of 4 ms: a kernel of 0.3
    ms then takes 16. This is an effect of the scheduler, not of the kernel. Therefore a short sample during which a
    thread was preempted is repeated, up to a few times; the last one counts.
    """

    settle: float = 0.0
    flush: Run | None = None
    clock: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep
    switches: Callable[[], int] = switches

    def sample(self, side: Side, inner: int) -> tuple[float, bool]:
        """Seconds per call of `side`, with `inner` calls in a warm sample; and whether it was disturbed despite
        repetitions."""
        with side.around():
            return self._sample(side.run, inner)

    def _sample(self, run: Run, inner: int) -> tuple[float, bool]:
        if self.flush is None and self.settle:
            self.sleep(self.settle)
            until = self.clock() + WARM_UP
            run()
            while self.clock() < until:
                run()
        for _ in range(1 + MOST_RETAKES):
            if self.flush is not None:
                self.flush()
            before = self.switches()
            seconds = _timed_calls(run, inner, self.clock)
            disturbed = self.switches() > before and seconds * inner < RETAKEN_BELOW
            if not disturbed:
                break
        return seconds, disturbed


class _Samples:
    """Samples of one callable while they are collected."""

    def __init__(self, side: Run | Side) -> None:
        self.side = side if isinstance(side, Side) else Side(side)
        self.seconds: list[float] = []
        self.disturbed = 0

    def take(self, inner: int, condition: Condition) -> float:
        seconds, disturbed = condition.sample(self.side, inner)
        self.seconds.append(seconds)
        self.disturbed += disturbed
        return seconds

    def timing(self, inner: int) -> Timing:
        return Timing(seconds=tuple(self.seconds), inner=inner, disturbed=self.disturbed)


def paired(
    ours: Run | Side, peer: Run | Side, rule: StopRule | None = None, condition: Condition | None = None
) -> Paired:
    """A paired benchmark: run `ours` and `peer` alternately until `rule` is reached.

    Both are repeated equally often within a sample. An exception of either becomes the result's status and reason.
    """
    rule, condition = rule or StopRule(), condition or Condition()
    our_samples, peer_samples = _Samples(ours), _Samples(peer)
    ratios: list[float] = []
    side = "ours"
    try:
        with _no_garbage_collection():
            inner = 1
            if condition.flush is None:
                quickest = quickest_call(our_samples.side, condition.clock)
                side = "the peer"
                inner = inner_repetitions(min(quickest, quickest_call(peer_samples.side, condition.clock)))
            start = condition.clock()
            while not rule.reached(ratios, condition.clock() - start):
                side = "ours"
                seconds = our_samples.take(inner, condition)
                side = "the peer"
                ratios.append(peer_samples.take(inner, condition) / max(seconds, 1e-12))
    except Exception as error:
        return Paired(status=Status.FAILED, reason=f"{side}: {first_line(error)}")
    return Paired(ours=our_samples.timing(inner), peer=peer_samples.timing(inner))


def timed(run: Run | Side, rule: StopRule | None = None, condition: Condition | None = None) -> Timing:
    """Run one callable alone until `rule` is reached by its own samples; for values that are not used in a ratio."""
    rule, condition = rule or StopRule(), condition or Condition()
    samples = _Samples(run)
    inner = 1
    try:
        with _no_garbage_collection():
            if condition.flush is None:
                inner = inner_repetitions(quickest_call(samples.side, condition.clock))
            start = condition.clock()
            while not rule.reached(samples.seconds, condition.clock() - start):
                samples.take(inner, condition)
    except Exception as error:
        return Timing(status=Status.FAILED, reason=first_line(error))
    return samples.timing(inner)


def first_line(error: BaseException) -> str:
    """An error in one line, for a result's reason."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _commit() -> str | None:
    """The checkout's commit, with "+" if files differ from it; None outside of a checkout."""
    where = Path(__file__).parent
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=where, capture_output=True, text=True, check=True)
        changed = subprocess.run(
            ["git", "status", "--porcelain", "--untracked-files=no"],
            cwd=where,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in RECORDED_PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def machine_record(hardware: Hardware | None = None) -> dict[str, Any]:
    """The context required to interpret a result later: processor, caches (bytes), cores, versions, date, commit, load.

    Caches and instruction sets are recorded only if `hardware` has a CPU.
    """
    cpu = hardware.cpu if hardware else None
    return {
        "cpu": _cpu_model(),
        "arch": platform.machine(),
        "system": platform.system(),
        "cores": default_thread_count(),
        "caches": [
            {"level": c.level, "size": c.size, "ways": c.ways, "line": c.line, "cores": c.cores} for c in cpu.caches
        ]
        if cpu
        else [],
        "mcpu": cpu.mcpu if cpu else "",
        "calibration": hardware.calibration.label if hardware and hardware.calibration else "",
        "vector_bits": cpu.vector_bits if cpu else None,
        "versions": _versions(),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": _commit(),
        "load": list(os.getloadavg()) if hasattr(os, "getloadavg") else [],
    }
