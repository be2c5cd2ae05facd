"""`tvm-tiling explain`: the tiling of an operator, or of every operator of a model, and the reason for every choice.

For an operator, TVM is not imported.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from ..decide.decide import decide
from ..errors import WorkloadError
from ..figures import quantity
from ..hardware import Hardware
from ..report.decisions import HEADINGS, decision_rows
from ..workload import GemmWorkload, RnnWorkload
from .model_options import (
    BATCH,
    DETERMINISTIC,
    DIM,
    GOALS,
    NARROW_PRECISION,
    PREFER,
    SHAPE,
    TARGET,
    THREADS,
    ModelOptions,
    choose,
    deprecated_text,
    is_model,
    machine_of,
)
from .operator_text import Workload, parse_operator
from .output import print_json
from .table import print_table

EXAMPLES = (
    "tvm-tiling explain gemm 64 16384 64",
    "tvm-tiling explain conv n=1 h=56 w=56 ci=64 co=64 kh=3 kw=3 padding=1 --target wfold16",
    "tvm-tiling explain lstm steps=100 input_size=256 hidden_size=512 --target rnn16k",
    "tvm-tiling explain gemm 512 512 512 --target zen4-server-8c --algorithm pack",
    "tvm-tiling explain model.onnx --json",
)


def command(
    operator: list[str] = typer.Argument(  # noqa: B008
        metavar="OPERATOR|MODEL",
        help="A model, a compiled file, or an operator. "
        '"gemm M K N" has its sizes in the order m k n: C (m x n) = A (m x k) * B (k x n); with keys: '
        '"gemm m=64 k=16384 n=64 dtype=int8 trans_b=1 batch=4 lda=16400". '
        '"conv n=1 h=224 w=224 ci=3 co=64 kh=7 kw=7 stride=2,2 padding=3,3,3,3" (top, left, bottom, right). '
        '"lstm steps=100 input_size=256 hidden_size=512", also gru and rnn, with batch, layers and bidirectional. '
        "The quotation marks are optional.",
    ),
    target: str = TARGET,
    mode: str = typer.Option(
        "best", metavar="MODE", help="best, or seed: the basic formulas without refinements (accelerators only)."
    ),
    prefer: str = PREFER,
    algorithm: str = typer.Option(
        "",
        "--algorithm",
        metavar="NAME",
        help="Force a kernel variant: normal, nocopy, inline, pack or stream for a gemm on a CPU; an algorithm for "
        "a convolution; wfold on a W-fold accelerator.",
    ),
    form: str = deprecated_text("--form", "--algorithm"),
    weights: str = typer.Option(
        "plain", metavar="KIND", help="Weights of an operator on a CPU: plain, or packed, as in compiled models."
    ),
    batch: str = BATCH,
    dim: list[str] = DIM,
    shape: list[str] = SHAPE,
    threads: int | None = THREADS,
    precision: str = NARROW_PRECISION,
    deterministic: bool = DETERMINISTIC,
    as_json: bool = typer.Option(False, "--json", help="Print workload, hardware and decision as JSON."),
) -> None:
    """Show the tiling of an operator, or of every operator of a model, with the reason for every choice.

    The sizes of a gemm are in the order m k n. Nothing is compiled or run.
    """
    sizes = ModelOptions(batch=batch, dim=dim, shape=shape, precision=precision)
    options = replace(sizes, target=target, threads=threads, deterministic=deterministic)
    algorithm = algorithm or form
    if len(operator) == 1 and (is_model(operator[0]) or Path(operator[0]).is_dir()):
        if (mode, prefer, algorithm, weights) != ("best", "utilisation", "", "plain"):
            raise WorkloadError("--mode, --prefer, --algorithm and --weights apply to operators, not to models")
        from .explain_model import explain

        explain(operator[0], options, as_json)
        return
    if sizes.given:
        raise WorkloadError("--batch, --dim, --shape and --precision apply to models; an operator states its sizes")
    choose("--mode", mode, ("best", "seed"))
    choose("--prefer", prefer, GOALS)
    choose("--weights", weights, ("plain", "packed"))
    workload = parse_operator(" ".join(operator))
    machine = machine_of(target) or Hardware.detect()
    if threads is not None:
        machine = machine.with_cores(threads)
    start = time.perf_counter()
    tiling = decide(
        workload,
        machine,
        mode=mode,  # type: ignore[arg-type]
        prefer=prefer,  # type: ignore[arg-type]
        algorithm=algorithm or None,
        weights=weights,
        deterministic=deterministic,
    )
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
    print(f"{operator_line(workload)}\non {machine.label}, decided in {seconds * 1e3:.1f} ms\n")
    if sys.stdout.isatty():
        print(tiling.headline())
        print_table(HEADINGS, decision_rows(tiling))
    else:
        print(tiling.explain())


def operator_line(workload: Workload) -> str:
    """The workload in one line: sizes, fields that differ from their defaults, and operations."""
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
        steps = quantity(r.steps, "step")
        sizes = f"{r.cell} of {r.hidden_size} units on {r.input_size} inputs, {steps}, batch {r.batch}"
        standard = {"layers": 1, "bidirectional": False, "linear_before_reset": True, "activation": "tanh"}
        further = {key: plain[key] for key, value in standard.items() if plain[key] != value}
    else:
        c = workload
        sizes = f"{c.n} x {c.h} x {c.w} x {c.ci} with {c.co} kernels of {c.kh} x {c.kw} to {c.ho} x {c.wo}"
        further = {key: plain[key] for key in ("stride", "padding", "dilation", "groups")}
    further |= {key: plain[key] for key in ("out_dtype", "encoding") if key in plain}
    rest = "".join(f", {_FLAGS.get(key, f'{key} {_plain(value)}')}" for key, value in further.items())
    types = f"{workload.types.operands} accumulated in {workload.acc_dtype}"
    return f"{kind} {sizes}, {types}{rest}: {_si(workload.flops)}op"


# Fields that are not at their default only if they are set, or in one case if they are not.
_FLAGS = {
    "trans_a": "A transposed",
    "trans_b": "B transposed",
    "bidirectional": "bidirectional",
    "linear_before_reset": "reset before the multiplication",
}


def _si(count: float) -> str:
    """A count with an SI prefix."""
    exponent = min(4, max(0, (len(str(int(count))) - 1) // 3))
    return f"{count / 1000**exponent:.3g} {('', 'k', 'M', 'G', 'T')[exponent]}"


def _plain(value: Any) -> str:
    if not isinstance(value, tuple):
        return str(value)
    return (" x " if len(value) == 2 else " ").join(map(str, value))  # padding has four sides
