"""Advice on making a measured model faster, largest gain first.

A gain is an upper limit, computed from measured times, peaks and bandwidths: the time of the operators beyond the
roofline that would apply. It is a prediction, and is called one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..figures import percent, seconds
from ..model.report import MULTIPLYING, OperatorRecord
from ..other_work import doubt
from ..workload import ConvWorkload, GemmWorkload
from .operator_work import peak_of, peak_seconds, type_of
from .timed_model import TimedModel, workload_of

MOST_ADVICE = 6
LEAST_GAIN = 0.02  # of the time of a run
MEMORY_BOUND = 0.5  # share of the measured time that is explained by moving each byte once
MANY_OTHERS = 0.15  # share of the time outside matrix multiplications
MANY_WEIGHTS = 0.5  # share of the bytes
BETWEEN = 0.1  # share of a run outside of operators


class Advice(NamedTuple):
    """`gain`: upper limit of the seconds saved per run, predicted. `numbers`: numbers of the operators concerned."""

    gain: float
    what: str
    numbers: Sequence[int]


class Timed(NamedTuple):
    """A measured operator with lower bounds of its time: its operations at the peak rate, and moving each byte once;
    `weights` is the share of these bytes that are weights."""

    number: int
    record: OperatorRecord
    taken: float
    compute: float
    memory: float
    weights: float

    @property
    def memory_bound(self) -> bool:
        """Whether moving its bytes explains the time better than its operations do."""
        return self.memory >= max(self.compute, MEMORY_BOUND * self.taken)


def advice(timed: TimedModel) -> list[Advice]:
    """Return the advice with the largest predicted gains; empty if nothing was measured."""
    report = timed.report
    if report.seconds is None or timed.peak is None:
        return []
    measured = list(_timed(timed))
    found = [
        *_read_weights_less_often(measured),
        *_multiply_faster(measured, timed.peak),
        *_search(measured),
        *_other_operators(timed),
        *_between(timed),
    ]
    found.sort(key=lambda each: -each.gain)
    return [each for each in found if each.gain >= LEAST_GAIN * report.seconds][:MOST_ADVICE]


def sentence(each: Advice, timed: TimedModel) -> str:
    """Return the advice with the upper limit of its gain."""
    run = timed.report.seconds or 1.0
    return f"{each.what} Predicted to save at most {seconds(each.gain)} of a run, {percent(each.gain / run, 0)}."


def _timed(timed: TimedModel) -> Iterator[Timed]:
    bandwidth = bandwidth_of(timed)
    for number, record in enumerate(timed.report.operators, start=1):
        workload, compute = workload_of(record), peak_seconds(record, timed.peak)
        if workload is None or compute is None or not record.measured_seconds:
            continue
        memory = record.calls * workload.bytes / bandwidth
        share = weight_bytes(workload) / workload.bytes
        yield Timed(number, record, record.measured_seconds, compute, memory, share)


def bandwidth_of(timed: TimedModel) -> float:
    """Return the copy bandwidth, in bytes per second, of the innermost memory that holds the whole model."""
    levels = (timed.peak or {})["bandwidths"]
    total = timed.report.memory.total
    fitting = (level for level in levels if level["capacity"] is None or level["capacity"] >= total)
    return 1e9 * float(next(fitting, levels[-1])["gbytes"])


def weight_bytes(workload: GemmWorkload | ConvWorkload | Any) -> float:
    """Return the bytes of the second operand, which batching reads once for several inputs; 0 if each batch has its
    own."""
    if isinstance(workload, GemmWorkload):
        return 0.0 if workload.batch > 1 else workload.n * workload.k * workload.b_bytes
    if isinstance(workload, ConvWorkload):
        taps = workload.kd * workload.kh * workload.kw
        return taps * workload.ci // workload.groups * workload.co * workload.b_bytes
    return 0.0


def _read_weights_less_often(operators: Sequence[Timed]) -> Iterator[Advice]:
    for kind, options in (
        ("gemm", "keep the weights in 8 bits (--weights int8)"),
        ("convolution", "compute in 8 or 16 bits (--precision int8 or bfloat16)"),
    ):
        bound = [o for o in operators if o.record.kind == kind and o.memory_bound and o.weights > MANY_WEIGHTS]
        if bound:
            gain = sum(o.taken - max(o.compute, (1 - o.weights) * o.taken) for o in bound)
            what = (
                f"{_named(bound)} memory-bound: most of the bytes are weights, read once per run. Run several inputs "
                f"at once (--batch), or {options}."
            )
            yield Advice(gain, what, [o.number for o in bound])


def _multiply_faster(operators: Sequence[Timed], peak: Mapping[str, Any]) -> Iterator[Advice]:
    """Suggest a narrower type for operators that compute in float32 and are not memory-bound."""
    bound = [o for o in operators if type_of(o.record) == "float32" and not o.memory_bound]
    float32 = peak_of(peak, "float32") or 1.0
    half = [(rate * 1e9, name) for name, rate in peak.get("gflops_half", {}).items()]
    rates = [*half, (peak_of(peak, "int8") or 0.0, "int8")]
    best, name = max(rates)
    if not bound or best <= float32:
        return
    gain = sum(o.taken for o in bound) * (1 - float32 / best)
    calibrated = " with --calibration" if name == "int8" else ""
    what = (
        f"{_named(bound)} compute-bound in float32. The peak of {name} on this machine is {best / float32:.1f} times "
        f"that of float32 (--precision {name}{calibrated})."
    )
    yield Advice(gain, what, [o.number for o in bound])


def _search(operators: Sequence[Timed]) -> Iterator[Advice]:
    """Suggest tuning for operators that are far from both roofs."""
    far = [o for o in operators if not o.memory_bound and o.compute < 0.6 * o.taken]
    if far:
        gain = sum(o.taken - max(o.compute, o.memory) for o in far)
        what = f"{_named(far)} below 60% of the peak and not memory-bound. Search configurations (tvm-tiling tune)."
        yield Advice(gain, what, [o.number for o in far])


def _other_operators(timed: TimedModel) -> Iterator[Advice]:
    report = timed.report
    others = [
        (number, o)
        for number, o in enumerate(report.operators, start=1)
        if o.kind not in MULTIPLYING and o.kind != "runtime" and o.measured_seconds
    ]
    if others and (report.outside or 0.0) > MANY_OTHERS:
        gain = sum(o.measured_seconds or 0.0 for _, o in others)
        first = ", ".join(str(number) for number, _ in others[:3])
        what = (
            f"Operators other than matrix multiplications and convolutions take {percent(report.outside, 0)} of the "
            f"time (first {first}): see which nodes of the model they compute, and whether it needs them."
        )
        yield Advice(gain, what, [number for number, _ in others])


def _between(timed: TimedModel) -> Iterator[Advice]:
    report = timed.report
    if doubt(report.others):
        return  # the rest is the time of other processes
    run, together = report.seconds or 0.0, sum(o.measured_seconds or 0.0 for o in report.operators)
    if together and run - together > BETWEEN * run:
        what = (
            f"A run takes {seconds(run)}, its operators one by one {seconds(together)}: the rest is spent between "
            "them: starting parallel loops, waiting for threads, copies of inputs."
        )
        yield Advice(run - together, what, [])


def _named(operators: Iterable[Timed]) -> str:
    numbers = [str(o.number) for o in sorted(operators, key=lambda o: -o.taken)]
    more = f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
    verb = "is" if len(numbers) == 1 else "are"
    return f"Operator{'s' if len(numbers) > 1 else ''} {', '.join(numbers[:5])}{more} {verb}"
