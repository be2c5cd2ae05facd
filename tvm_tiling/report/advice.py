"""What may make a measured model faster, the largest gain first.

A gain is an upper limit, computed from measured times, peaks and bandwidths: what the operators take beyond the
roofline that they would have then. It is a prediction, and is called one.
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
MEMORY_BOUND = 0.5  # share of the measured time that moving each byte once explains
MANY_OTHERS = 0.15  # share of the time outside matrix multiplications
MANY_WEIGHTS = 0.5  # share of the bytes
BETWEEN = 0.1  # share of a run that no operator takes


class Advice(NamedTuple):
    """`gain`: seconds of a run that it saves at most, by prediction. `numbers`: of the operators that it is about."""

    gain: float
    what: str
    numbers: Sequence[int]


class Timed(NamedTuple):
    """A measured operator with the seconds that its work needs at least: of the multipliers at their peak, and of
    moving each byte once; `weights` is the share of these bytes that are weights."""

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
    """The advice that saves most, by prediction; none where nothing was measured."""
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
    """The advice with what it gains at most."""
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
    """Bytes per second of the innermost memory that holds the whole model, as a copy there was measured."""
    levels = (timed.peak or {})["bandwidths"]
    total = timed.report.memory.total
    fitting = (level for level in levels if level["capacity"] is None or level["capacity"] >= total)
    return 1e9 * float(next(fitting, levels[-1])["gbytes"])


def weight_bytes(workload: GemmWorkload | ConvWorkload | Any) -> float:
    """Bytes of the second operand, which batching reads once for several inputs; 0 where each batch has its own."""
    if isinstance(workload, GemmWorkload):
        return 0.0 if workload.batch > 1 else workload.n * workload.k * workload.b_bytes
    if isinstance(workload, ConvWorkload):
        taps = workload.kd * workload.kh * workload.kw
        return taps * workload.ci // workload.groups * workload.co * workload.b_bytes
    return 0.0


def _read_weights_less_often(operators: Sequence[Timed]) -> Iterator[Advice]:
    for kind, options in (
        ("product", "keep the weights in 8 bits (--weights int8)"),
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
    """A narrower type for operators that compute in float32 and are not memory-bound."""
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
    """Tuning for what is far from both roofs."""
    far = [o for o in operators if not o.memory_bound and o.compute < 0.6 * o.taken]
    if far:
        gain = sum(o.taken - max(o.compute, o.memory) for o in far)
        what = f"{_named(far)} below 60 % of the peak and not memory-bound. Search configurations (tvm-tiling tune)."
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
            f"Operators that multiply no matrices take {percent(report.outside, 0)} of the time (first {first}): see "
            "which nodes of the model they compute, and whether it needs them."
        )
        yield Advice(gain, what, [number for number, _ in others])


def _between(timed: TimedModel) -> Iterator[Advice]:
    report = timed.report
    if doubt(report.others):
        return  # the rest is the other processes' time
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
