"""`tvm-tiling explain MODEL`: every operator of a model with its decision, and why. Nothing is compiled or run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..errors import WorkloadError
from ..hardware import Hardware
from ..report.decisions import HEADINGS, kept_rows
from .model_options import ModelOptions, is_executable
from .output import print_json, working
from .table import print_decided, print_table

if TYPE_CHECKING:
    from ..model.explain import Explanation
    from ..model.report import OperatorRecord


def explain(model: str, machine: str, sizes: ModelOptions, as_json: bool) -> None:
    """Print the decisions on a model file, or those that a compiled one keeps; `machine` is a preset or a TOML file,
    empty for this CPU."""
    start = time.perf_counter()
    if is_executable(model):
        if machine or sizes.given:
            raise WorkloadError(
                f"{model} is compiled already; --hardware, --batch, --dim, --shape and --precision are for models"
            )
        explanations, where = _kept(model), "the machine it was compiled for"
    else:
        from ..model.explain import explain_model

        hardware = Hardware.load(machine) if machine else Hardware.detect()
        with working(f"deciding on {model}"):
            explanations, where = (
                explain_model(model, hardware, precision=sizes.precision, **sizes.sizes()),
                hardware.name,
            )
    seconds = time.perf_counter() - start
    if as_json:
        print_json(
            {
                "model": model,
                "hardware": where,
                "seconds": seconds,
                "variants": [explanation.to_dict() for explanation in explanations],
            }
        )
        return
    for explanation in explanations:
        _print(model, where, explanation, seconds)


def _kept(path: str) -> list[Explanation]:
    from ..model.explain import Explanation
    from ..model.load import load

    return [Explanation(variant.signature, variant.operators) for variant in load(path).variants]


def _print(model: str, where: str, explanation: Explanation, seconds: float) -> None:
    calls = sum(operator.calls for operator in explanation.operators)
    print(f"{model} on {where}: {calls} operators, decided in {seconds:.1f} s")
    for line in explanation.signature.lines():
        print(line)
    sample = ", ".join(f"{name}={size}" for name, size in explanation.signature.sample.items())
    at = f" at {sample}" if sample else ""
    print(f"predicted of convolutions and products together{at}: {explanation.predicted_seconds * 1e3:.3g} ms\n")
    print_decided(explanation.operators)
    for operator in explanation.operators:
        if operator.decision is not None:
            print(f"\n{_headline(operator)}")
            print_table(HEADINGS, list(kept_rows(operator.decision)))
    print()


def _headline(operator: OperatorRecord) -> str:
    predicted = operator.predicted_seconds or 0.0
    times = f", called {operator.calls} times" if operator.calls > 1 else ""
    each = f"{predicted / max(1, operator.calls) * 1e6:.0f} us predicted"
    nodes = f"\nnodes: {', '.join(operator.nodes)}" if operator.nodes else ""
    return f"{operator.name}: {operator.kind}{times}, {each}{nodes}"
