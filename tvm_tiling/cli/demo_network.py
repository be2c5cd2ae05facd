"""The network of the demo: compile, check, and compare with TVM's default pipeline and onnxruntime."""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..measure import Paired, Side, StopRule, paired
from ..runtime.threads import own_core
from .bench_model import beside_onnxruntime, check, onnxruntime_run
from .demo_files import DemoFiles
from .demo_rival import SLOW, Progress, few_pairs, middle_half
from .model_options import inputs_of
from .table import print_slowest, print_table

if TYPE_CHECKING:
    from ..model.executable import Executable
    from ..model.report import Report

MEASURED = 1.0  # seconds, for the report and for each rival
SHOWN = 12  # operators


@dataclass(frozen=True)
class NetworkDemonstration:
    """Results for one network: compile times, the check against a reference, and paired runs with each library."""

    title: str
    compile_seconds: float
    default_compile_seconds: float
    checked_by: str
    largest_difference: float  # relative to the largest output
    report: Report
    runs: dict[str, Paired]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "title": self.title,
            "compile_seconds": self.compile_seconds,
            "default_compile_seconds": self.default_compile_seconds,
            "checked_by": self.checked_by,
            "largest_difference": self.largest_difference,
            "report": self.report.to_dict(),
            "runs": {name: run.to_dict() for name, run in self.runs.items()},
        }


def network_steps() -> int:
    """The number of steps that demonstrate_network() reports."""
    return 5 + _has_onnxruntime()


def demonstrate_network(title: str, files: DemoFiles, step: Progress) -> NetworkDemonstration:
    """Compile the model, compare outputs, measure, and write the files."""
    from ..model.compile import compile_model

    model = str(files.model)
    step(f"{title}: compiling")
    start = time.perf_counter()
    executable = compile_model(model, cache=False)
    compiled = time.perf_counter() - start
    inputs = inputs_of(executable, "")
    step(f"{title}: compiling with TVM's default pipeline")
    start = time.perf_counter()
    default = _tvm_default(model, inputs)
    default_compiled = time.perf_counter() - start
    step(f"{title}: comparing outputs")
    checked_by = "onnxruntime" if _has_onnxruntime() else "TVM default"
    reference = onnxruntime_run(model, inputs) if _has_onnxruntime() else default
    difference = check(reference(), executable, inputs, checked_by)
    measured = executable.benchmark(seconds=MEASURED, **inputs)
    runs = {}
    if _has_onnxruntime():
        step(f"{title}: measuring onnxruntime")
        runs["onnxruntime"] = beside_onnxruntime(model, executable, inputs, MEASURED)
    step(f"{title}: measuring TVM default")
    runs["TVM default"] = _beside(executable, inputs, default)
    step(f"{title}: writing the executable and the report")
    files.save(title, executable, inputs, measured)
    return NetworkDemonstration(title, compiled, default_compiled, checked_by, difference, executable.report(), runs)


def _has_onnxruntime() -> bool:
    return importlib.util.find_spec("onnxruntime") is not None


def _tvm_default(model: str, inputs: Mapping[str, Any]) -> Callable[[], list[Any]]:
    """The model compiled by TVM without tuning: a function that runs it and returns its outputs."""
    import numpy as np
    import tvm

    from ..frontend import load_model
    from ..schedule import llvm_target

    imported = load_model(model)
    machine = tvm.runtime.vm.VirtualMachine(tvm.compile(imported.module, target=llvm_target()), tvm.cpu())
    arguments = [tvm.runtime.tensor(np.ascontiguousarray(inputs[name])) for name in imported.input_names]

    def run() -> list[Any]:
        result = machine["main"](*arguments)
        outputs = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
        return [output.numpy() for output in outputs]

    return run


def _beside(executable: Executable, inputs: Mapping[str, Any], rival: Callable[[], Any]) -> Paired:
    ours, theirs = Side(lambda: executable.run(inputs), own_core), Side(rival, own_core)
    start = time.perf_counter()
    rival()
    first = time.perf_counter() - start
    return few_pairs(ours, theirs, first) if first > SLOW else paired(ours, theirs, StopRule(most_seconds=MEASURED))


def print_network(result: NetworkDemonstration) -> None:
    """Print latencies, and the slowest operators with their algorithms."""
    report = result.report
    forms = Counter(operator.form or operator.kind for operator in report.operators for _ in range(operator.calls))
    print(f"{result.title}: {', '.join(f'{count} {form}' for form, count in forms.most_common())}")
    print(
        f"compiled in {result.compile_seconds:.1f} s without trial runs (TVM default: "
        f"{result.default_compile_seconds:.1f} s); largest difference from {result.checked_by}: "
        f"{result.largest_difference:.1g} of the largest output"
    )
    print_slowest(report, SHOWN)
    ours = statistics.median(seconds for run in result.runs.values() for seconds in run.ours.seconds)
    rows = [("tvm-tiling", f"{ours * 1e3:.3g}", "", "")]
    rows += [
        (name, f"{run.peer.median * 1e3:.3g}", f"{run.ratio:.2f}", middle_half(run) + ", unreliable" * run.doubtful)
        for name, run in result.runs.items()
    ]
    print_table(("", "latency ms", "our speedup", "middle half"), rows)
