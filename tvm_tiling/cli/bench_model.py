"""`tvm-tiling bench MODEL`: the latency of a model, of its operators, and of onnxruntime for comparison."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import TilingError, WorkloadError
from ..figures import count, scaled
from ..hardware import Hardware
from ..measure import Condition, Paired, Side, StopRule, machine_record, paired
from ..runtime.threads import default_thread_count, own_core
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
    """A report with the measured peaks of this machine, which takes two seconds. `rival`: onnxruntime's result."""
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
# Largest accepted difference relative to the largest output. It allows for Winograd's rounding in deep networks.
TOLERANCE = 1e-3
# The same for precisions other than float32: it finds wrong results, not rounding, which the report states.
ROUNDED_TOLERANCE = 0.5


class WrongResult(TilingError):
    """Two implementations of a model disagree."""


class CannotRun(TilingError):
    """onnxruntime does not run a model."""


def bench(model: str, sizes: ModelOptions, input_file: str, seconds: float, as_json: bool) -> None:
    """Measure and print."""
    executable = on_cpu(opened(model, sizes), model)
    inputs = inputs_of(executable, input_file)
    with working("measuring"):
        measured = executable.benchmark(seconds=seconds, **inputs)
    report = executable.report()
    why_not = without_onnxruntime(model)
    pair = None
    if not why_not:
        try:
            with working("measuring onnxruntime"):
                pair = beside_onnxruntime(model, executable, inputs, seconds)
        except CannotRun as error:
            why_not = str(error)
    if as_json:
        rival = pair.to_dict() if pair is not None else {"status": "skipped", "reason": why_not}
        print_json(timed_model(model, report, measured, rival).to_dict())
        return
    print(f"{model}: {latency_text(measured)}")
    print(f"onnxruntime: {_compared(pair) if pair is not None else f'skipped, {why_not}'}\n")
    print_report(report)


def on_cpu(executable: Executable, model: str) -> Executable:
    """The executable. WorkloadError if part of it runs on a simulated accelerator, whose time is not measured."""
    if hasattr(executable, "simulate"):
        raise WorkloadError(f"{model} runs on a simulated accelerator; use tvm-tiling simulate for its cycles")
    return executable


def latency_text(measured: Benchmark) -> str:
    """Latency percentiles and throughput as text."""
    p50, p90, p99 = (scaled(time, "s") for time in (measured.p50, measured.p90, measured.p99))
    rate = count(round(measured.throughput)) if measured.throughput >= 1000 else f"{measured.throughput:.3g}"
    return f"latency p50 {p50}, p90 {p90}, p99 {p99}; {rate} runs/s ({count(measured.runs)} timed)"


def _compared(pair: Paired) -> str:
    if pair.reason:
        return f"failed, {pair.reason}"
    doubtful = "; unreliable: other processes used the cores" if pair.doubtful else ""
    return (
        f"median {scaled(pair.peer.median, 's')}, tvm-tiling {scaled(pair.ours.median, 's')} in {len(pair.ratios)} "
        f"paired runs, speedup {pair.ratio:.2f} (spread {pair.spread:.2f}){doubtful}"
    )


def without_onnxruntime(model: str) -> str:
    """Why onnxruntime cannot run a model file here; empty if it can."""
    if is_executable(model):
        return "the file is compiled; onnxruntime needs the ONNX file"
    with open(model, "rb") as file:
        start = file.read(8)
    if start[4:] == b"TFL3" or start[:4] == b"GGUF":
        return "the file is not in ONNX format"
    return "" if importlib.util.find_spec("onnxruntime") else "it is not installed"


def beside_onnxruntime(model: str | bytes, executable: Executable, inputs: Mapping[str, Any], seconds: float) -> Paired:
    """Paired runs with the same number of threads. Outputs are compared first; WrongResult names one that differs."""
    run = onnxruntime_run(model, inputs)
    check(run(), executable, inputs, "onnxruntime")
    own = Side(lambda: executable.run(inputs), own_core)
    return paired(own, Side(run), StopRule(most_seconds=seconds), Condition(settle=SETTLE))


def onnxruntime_run(model: str | bytes, inputs: Mapping[str, Any]) -> Any:
    """A function that runs the model on as many threads as this package uses, and returns its outputs in order."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = default_thread_count()
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise CannotRun(f"it refuses the model: {next(iter(str(error).splitlines()), type(error).__name__)}") from None
    return lambda: session.run(None, dict(inputs))


def check(expected: Any, executable: Executable, inputs: Mapping[str, Any], whose: str) -> float:
    """The largest difference relative to the largest output. WrongResult if rounding cannot explain it."""
    import numpy as np

    accepted = TOLERANCE if executable.precision.precision == "float32" else ROUNDED_TOLERANCE
    got = executable.run(inputs)
    outputs = got if isinstance(got, tuple) else (got,)
    largest = 0.0
    for name, ours, theirs in zip(executable.signature.output_names, outputs, expected, strict=True):
        if not theirs.size:
            continue
        # Types such as bool have no subtraction.
        ours, theirs = ours.astype(np.float64), np.asarray(theirs).astype(np.float64)
        difference = float(np.abs(ours - theirs).max()) / max(float(np.abs(theirs).max()), 1e-30)
        if not difference <= accepted:
            raise WrongResult(
                f"output {name!r} differs from {whose}'s by {difference:.2g} of its largest value; expected at most "
                f"{accepted:.2g}"
            )
        largest = max(largest, difference)
    return largest
