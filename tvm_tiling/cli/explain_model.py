"""`tvm-tiling explain MODEL`: the tiling of every operator of a model, with reasons. Nothing is compiled or run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..errors import HardwareError, WorkloadError
from ..figures import seconds
from ..hardware import Hardware
from ..report.decisions import HEADINGS, kept_rows
from .model_options import ModelOptions, applying, is_executable, machine_of
from .output import print_json, working
from .table import print_decided, print_table

if TYPE_CHECKING:
    from ..model.explain import Explanation
    from ..model.report import OperatorRecord


DECIDED = ("float32", "bfloat16", "float16")  # precisions whose tilings are known without running the model


def explain(model: str, options: ModelOptions, as_json: bool) -> None:
    """Print the decisions for a model file, or those that a compiled file contains."""
    start = time.perf_counter()
    if is_executable(model):
        if options.target or options.threads or options.given:
            typed = [*options.typed, *(["--threads"] if options.threads else [])]
            raise WorkloadError(f"{model} is compiled already; {applying(typed)} to models")
        explanations, where = _kept(model), "the machine it was compiled for"
        steps = {"reading the file": time.perf_counter() - start}
    else:
        machine = machine_of(options.target) or Hardware.detect()
        if options.threads is not None:
            machine = machine.with_cores(options.threads)
        options.check_precision()
        if options.precision not in DECIDED:
            raise WorkloadError(
                f"--precision {options.precision} depends on calibration inputs, which explain does not use; expected "
                f"{', '.join(DECIDED)}, or a file compiled with it"
            )
        if machine.cpu is None:
            raise HardwareError(
                f"--target {options.target} is an accelerator; use tvm-tiling simulate for models on accelerators"
            )
        with working(f"deciding on {model}"):
            from ..model.explain import explain_model  # imports TVM

            loaded = time.perf_counter()
            explanations = explain_model(
                model,
                machine,
                precision=options.precision,
                deterministic=options.deterministic,
                **options.sizes(),
            )
        where = machine.label
        steps = {
            "loading TVM": loaded - start,
            "reading the model": sum(explanation.read_seconds for explanation in explanations),
            "choosing tilings": sum(explanation.decide_seconds for explanation in explanations),
        }
    seconds = time.perf_counter() - start
    if as_json:
        print_json(
            {
                "model": model,
                "hardware": where,
                "seconds": seconds,
                "steps": steps,
                "variants": [explanation.to_dict() for explanation in explanations],
            }
        )
        return
    told = ", ".join(f"{step} {spent:.1f} s" for step, spent in steps.items())
    for explanation in explanations:
        _print(model, where, explanation, f"{seconds:.1f} s ({told})")


def _kept(path: str) -> list[Explanation]:
    from ..model.explain import Explanation
    from ..model.load import load

    return [Explanation(variant.signature, variant.operators, variant.parts) for variant in load(path).variants]


def _print(model: str, where: str, explanation: Explanation, took: str) -> None:
    calls = sum(operator.calls for operator in explanation.operators)
    print(f"{model} on {where}: {calls} operators in {took}")
    for line in explanation.signature.lines():
        print(line)
    if explanation.parts > 1:
        print(f"the batch is computed in {explanation.parts} parts")
    sample = ", ".join(f"{name}={size}" for name, size in explanation.signature.sample.items())
    at = f" at {sample}" if sample else ""
    print(f"predicted time of convolutions and matrix multiplications{at}: {seconds(explanation.predicted_seconds)}\n")
    print_decided(explanation.operators)
    for operator in explanation.operators:
        if operator.decision is not None:
            print(f"\n{_headline(operator)}")
            print_table(HEADINGS, list(kept_rows(operator.decision)))
    print()


def _headline(operator: OperatorRecord) -> str:
    """The nodes of an operator with its kernel, calls and predicted time."""
    predicted = operator.predicted_seconds or 0.0
    times = f", {operator.calls} calls" if operator.calls > 1 else ""
    each = f"{seconds(predicted / max(1, operator.calls))} predicted"
    named = ", ".join(operator.nodes)
    return (
        f"{named}\nkernel {operator.name}: {operator.kind}{times}, {each}"
        if named
        else (f"{operator.name}: {operator.kind}{times}, {each}")
    )
