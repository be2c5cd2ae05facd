"""`tvm-tiling bench MODEL`: the latency of a model, operator by operator, and beside onnxruntime."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import TilingError
from ..hardware import Hardware
from ..measure import Condition, Paired, Side, StopRule, machine_record, paired
from ..runtime.threads import own_core, usable_core_count
from .model_options import ModelOptions, inputs_of, is_executable, opened
from .output import print_json, working
from .table import print_report

if TYPE_CHECKING:
    from ..model.executable import Executable
    from ..model.profile import Profile
    from ..model.report import Benchmark, Report
    from ..report.timed_model import TimedModel


def timed_model(
    path: str,
    report: Report,
    measured: Benchmark,
    rival: Mapping[str, Any] | None = None,
    profile: Profile | None = None,
) -> TimedModel:
    """Measures this machine's peaks, in some two seconds. `rival`: what onnxruntime took beside it."""
    from ..peak import measure_peak
    from ..report.timed_model import TimedModel
    from ..schedule import llvm_target

    machine = Hardware.detect()
    assert machine.cpu is not None
    with working("measuring this machine's peaks"):
        peak = measure_peak(machine.cpu, llvm_target()).to_dict()
    return TimedModel(
        name=Path(path).name,
        report=report,
        machine=machine_record(machine),
        peak=peak,
        spread=measured.spread,
        runs=measured.runs,
        latency=measured.latency,
        rival=rival,
        profile=profile,
    )


SETTLE = 0.15  # seconds; onnxruntime's idle threads spin before they sleep
# Largest difference accepted, beside the largest output: room for Winograd's rounding through many layers.
TOLERANCE = 1e-3
# The same of a model in another precision than float32, whose report says how far it is: what is wrong, not rounded.
ROUNDED_TOLERANCE = 0.5


class WrongResult(TilingError):
    """Two ways to compute a model disagree."""


def bench(model: str, sizes: ModelOptions, input_file: str, seconds: float, as_json: bool) -> None:
    """Measure and print."""
    executable = opened(model, sizes)
    inputs = inputs_of(executable, input_file)
    with working("measuring"):
        measured = executable.benchmark(seconds=seconds, **inputs)
    report = executable.report()
    why_not = without_onnxruntime(model)
    with working("measuring beside onnxruntime"):
        pair = None if why_not else beside_onnxruntime(model, executable, inputs, seconds)
    if as_json:
        rival = pair.to_dict() if pair is not None else {"status": "skipped", "reason": why_not}
        print_json(timed_model(model, report, measured, rival).to_dict())
        return
    print(f"{model}: {latency_text(measured)}")
    print(f"onnxruntime: {_compared(pair) if pair is not None else f'skipped, {why_not}'}\n")
    print_report(report)


def latency_text(measured: Benchmark) -> str:
    """Latency and throughput for people."""
    p50, p90, p99 = (f"{seconds * 1e3:.3g}" for seconds in (measured.p50, measured.p90, measured.p99))
    return f"p50 {p50} ms, p90 {p90} ms, p99 {p99} ms, {measured.throughput:.3g} runs/s ({measured.runs} runs)"


def _compared(pair: Paired) -> str:
    if pair.reason:
        return f"failed, {pair.reason}"
    doubtful = "; doubtful, other work kept threads off their cores" if pair.doubtful else ""
    return (
        f"{pair.peer.median * 1e3:.3g} ms beside {pair.ours.median * 1e3:.3g} ms in {len(pair.ratios)} pairs, "
        f"speedup {pair.ratio:.2f} (spread {pair.spread:.2f}){doubtful}"
    )


def without_onnxruntime(model: str) -> str:
    """Why a model file cannot be run by onnxruntime here; empty where it can."""
    if is_executable(model):
        return "for it takes the ONNX file, and this one is compiled"
    with open(model, "rb") as file:
        if file.read(8)[4:] == b"TFL3":
            return "for this is no ONNX file"
    return "" if importlib.util.find_spec("onnxruntime") else "for it is not installed"


def beside_onnxruntime(model: str | bytes, executable: Executable, inputs: Mapping[str, Any], seconds: float) -> Paired:
    """Runs in turns, with as many threads each; outputs are compared first, and WrongResult says which differ."""
    run = onnxruntime_run(model, inputs)
    check(run(), executable, inputs, "onnxruntime")
    own = Side(lambda: executable.run(**inputs), own_core)
    return paired(own, Side(run), StopRule(most_seconds=seconds), Condition(settle=SETTLE))


def onnxruntime_run(model: str | bytes, inputs: Mapping[str, Any]) -> Any:
    """A callable that runs the model on all cores and returns its outputs in order."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = usable_core_count()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, dict(inputs))


def check(expected: Any, executable: Executable, inputs: Mapping[str, Any], whose: str) -> float:
    """The largest difference beside the largest output; WrongResult where it is more than rounding explains."""
    import numpy as np

    accepted = TOLERANCE if executable.precision.precision == "float32" else ROUNDED_TOLERANCE
    got = executable.run(**inputs)
    outputs = got if isinstance(got, tuple) else (got,)
    largest = 0.0
    for name, ours, theirs in zip(executable.signature.output_names, outputs, expected, strict=True):
        if not theirs.size:
            continue
        # Types such as bool have no difference.
        ours, theirs = ours.astype(np.float64), np.asarray(theirs).astype(np.float64)
        difference = float(np.abs(ours - theirs).max()) / max(float(np.abs(theirs).max()), 1e-30)
        if not difference <= accepted:
            raise WrongResult(
                f"output {name!r} differs from {whose}'s by {difference:.2g} of its largest value, accepted: "
                f"{accepted:.2g}"
            )
        largest = max(largest, difference)
    return largest
