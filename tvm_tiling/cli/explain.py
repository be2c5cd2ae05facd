"""`tvm-tiling explain`: how an operator, or every operator of a model, is cut on a machine, and why.

Loads no TVM for an operator.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import typer

from ..decide.decide import decide
from ..errors import WorkloadError
from ..hardware import Hardware
from ..report.decisions import HEADINGS, decision_rows
from ..workload import GemmWorkload, RnnWorkload
from .model_options import BATCH, DIM, PRECISION, PREFER, SHAPE, ModelOptions, is_model, presets
from .operator_text import Workload, parse_operator
from .output import print_json
from .table import print_table

EXAMPLES = (
    "tvm-tiling explain gemm 64 16384 64",
    "tvm-tiling explain conv n=1 h=56 w=56 ci=64 co=64 kh=3 kw=3 padding=1 --hardware wfold16",
    "tvm-tiling explain lstm steps=100 input_size=256 hidden_size=512 --hardware rnn16k",
    "tvm-tiling explain model.onnx --json",
)


def command(
    operator: list[str] = typer.Argument(  # noqa: B008
        metavar="OPERATOR|MODEL",
        help="A model file, or what `tvm-tiling compile` wrote; or an operator: "
        '"gemm M K N", sizes in the order m k n: C (m x n) = A (m x k) * B (k x n); or with keys, as in '
        '"gemm m=64 k=16384 n=64 dtype=int8 trans_b=1 batch=4 lda=16400". '
        '"conv n=1 h=224 w=224 ci=3 co=64 kh=7 kw=7 stride=2,2 padding=3,3,3,3" (top, left, bottom, right). '
        '"lstm steps=100 input_size=256 hidden_size=512", gru and rnn likewise, also batch, layers, bidirectional. '
        "The quotation marks may be left out.",
    ),
    hardware: str = typer.Option(
        "", "--hardware", autocompletion=presets, help="A preset or a TOML file; left out: this CPU."
    ),
    mode: str = typer.Option("best", help="best, or seed: the formulas as printed (accelerators)."),
    prefer: str = PREFER,
    form: str = typer.Option(
        "", help="Force a kernel on a CPU: normal, nocopy, inline, pack or stream; wfold on a W-fold accelerator."
    ),
    weights: str = typer.Option(
        "plain", help="plain, or packed: prepacked when a model is compiled (an operator's, on a CPU)."
    ),
    batch: str = BATCH,
    dim: list[str] = DIM,
    shape: list[str] = SHAPE,
    precision: str = PRECISION,
    as_json: bool = typer.Option(False, "--json", help="Print workload, machine and decision as JSON."),
) -> None:
    """Show how an operator, or every operator of a model, is cut, and why. Sizes of a product are in the order m k n.

    Of a model nothing is compiled or run. On other machines than this one, name it by --hardware.
    """
    sizes = ModelOptions(batch, dim, shape, precision)
    if len(operator) == 1 and is_model(operator[0]):
        if (mode, prefer, form, weights) != ("best", "utilisation", "", "plain"):
            raise WorkloadError(
                "--mode, --prefer, --form and --weights are for an operator; a model's are all decided as best"
            )
        from .explain_model import explain

        explain(operator[0], hardware, sizes, as_json)
        return
    if sizes.given:
        raise WorkloadError("--batch, --dim, --shape and --precision are for models; an operator's text has its own")
    workload = parse_operator(" ".join(operator))
    machine = Hardware.load(hardware) if hardware else Hardware.detect()
    start = time.perf_counter()
    tiling = decide(workload, machine, mode=mode, prefer=prefer, form=form or None, weights=weights)  # type: ignore[arg-type]
    seconds = time.perf_counter() - start
    if as_json:
        print_json(
            {
                "workload": workload.to_dict(),
                "hardware": {"name": machine.name, "fingerprint": machine.fingerprint()},
                "decision": tiling.to_dict(),
                "decision_seconds": seconds,
            }
        )
        return
    print(f"{operator_line(workload)}\non {machine.name}, decided in {seconds * 1e3:.1f} ms\n")
    if sys.stdout.isatty():
        print(tiling.headline())
        print_table(HEADINGS, decision_rows(tiling))
    else:
        print(tiling.explain())


def operator_line(workload: Workload) -> str:
    """The workload in one line: sizes, what is not the default, and its work."""
    plain: dict[str, Any] = workload.to_dict()
    kind = plain.pop("op")
    if isinstance(workload, GemmWorkload):
        w, sizes = workload, f"{workload.m} x {workload.k} x {workload.n} (m x k x n)"
        usual = {
            "lda": w.m if w.trans_a else w.k,
            "ldb": w.k if w.trans_b else w.n,
            "ldc": w.n,
            "batch": 1,
            "trans_a": False,
            "trans_b": False,
            "memory_a": "external",
            "memory_b": "external",
        }
        further = {key: plain[key] for key, value in usual.items() if plain[key] != value}
    elif isinstance(workload, RnnWorkload):
        r = workload
        sizes = f"{r.cell} of {r.hidden_size} units on {r.input_size} inputs, {r.steps} steps of {r.batch}"
        standard = {"layers": 1, "bidirectional": False, "linear_before_reset": True, "activation": "tanh"}
        further = {key: plain[key] for key, value in standard.items() if plain[key] != value}
    else:
        c = workload
        sizes = f"{c.n} x {c.h} x {c.w} x {c.ci} by {c.co} kernels of {c.kh} x {c.kw} to {c.ho} x {c.wo}"
        further = {key: plain[key] for key in ("stride", "padding", "dilation", "groups")}
    further |= {key: plain[key] for key in ("out_dtype", "encoding") if key in plain}
    rest = "".join(f", {key} {_plain(value)}" for key, value in further.items())
    types = f"{workload.types.operands} summed in {workload.acc_dtype}"
    return f"{kind} {sizes}, {types}{rest}: {workload.flops / 1e9:.3g} Gop"


def _plain(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
