"""`tvm-tiling compile`: a model file to one file that runs without the model and without a compiler."""

from __future__ import annotations

import contextlib
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..atomic_file import refuse_unwritable
from .model_options import (
    ACTIVATIONS,
    BATCH,
    CALIBRATION,
    DIM,
    LOGITS,
    PRECISION,
    SHAPE,
    TOLERANCE,
    WEIGHT_BLOCK,
    WEIGHTS,
    ModelOptions,
    targets,
)
from .output import print_json

if TYPE_CHECKING:
    from ..tuning.shapes.database import ShapeDatabase

EXAMPLES = (
    "tvm-tiling compile model.onnx -o model.tar",
    "tvm-tiling compile model.onnx --batch 1,8 -o batches.tar",
    "tvm-tiling compile model.onnx --precision int8 --calibration x.npz -o int8.tar",
    "tvm-tiling compile model.onnx --database shapes.db",
    "tvm-tiling compile model.onnx --target neoverse-v1 -o arm.tar",
    "tvm-tiling compile model.onnx --target vsim/vta --calibration x.npz -o accelerated.tar",
)


def command(
    model: str = typer.Argument(
        metavar="MODEL", help="A model file: ONNX, TFLite, GGUF or Relay, told by its content."
    ),
    output: Path = typer.Option(Path("model.tar"), "--output", "-o", help="Where the executable goes."),  # noqa: B008
    params: str = typer.Option("", "--params", help="The parameters of a Relay model, a .params file."),
    batch: str = BATCH,
    dim: list[str] = DIM,
    shape: list[str] = SHAPE,
    target: str = typer.Option(
        "llvm",
        "--target",
        autocompletion=targets,
        help="llvm: this CPU; a CPU preset or TOML file; or vsim/<preset>, vsim/<file.toml>.",
    ),
    database: str = typer.Option("", "--database", help="Measured shapes to take cuts from: a file or a URL."),
    precision: str = PRECISION,
    calibration: list[str] = CALIBRATION,
    tolerance: float | None = TOLERANCE,
    weights: str = WEIGHTS,
    block: int = WEIGHT_BLOCK,
    activations: str = ACTIVATIONS,
    logits: str = LOGITS,
    winograd: bool = typer.Option(True, help="Whether Winograd's form may be taken, with errors up to 1e-4."),
    cache: bool = typer.Option(True, help="Whether to use the cache of compiled models."),
    as_json: bool = typer.Option(False, "--json", help="Print what was compiled as JSON."),
) -> None:
    """Compile a model to one file that runs without it and without a compiler. Nothing is tried out: every
    configuration comes from formulas, or from --database where that knows better."""
    from ..model.compile import compile_model
    from ..model.precision.record import FLOAT32
    from ..model.report import mebibytes

    refuse_unwritable(output)
    typed = ModelOptions(batch, dim, shape, precision, calibration, tolerance, weights, block, activations, logits)
    options = typed.settled()
    start = time.perf_counter()
    with _shapes(database) as configs:
        executable = compile_model(
            model,
            target=target,
            params=params or None,
            database=configs,
            winograd=winograd,
            cache=cache,
            progress=not as_json,
            **options,
        )
    seconds = time.perf_counter() - start
    peak = _peak_memory()
    executable.save(output)
    if as_json:
        print_json({"output": str(output), "seconds": seconds, "peak_memory": peak, **executable.describe()})
        return
    operators = sum(operator.calls for variant in executable.variants for operator in variant.operators)
    from_cache = " from the cache" if executable.from_cache else ""
    at_most = "" if peak is None else f", {mebibytes(peak)} of memory at most"
    print(f"{model}: {operators} operators compiled in {seconds:.1f} s{from_cache}{at_most}, written to {output}")
    if executable.precision != FLOAT32:
        print(executable.precision)
    for variant in executable.variants:
        for line in variant.signature.lines():
            print(line)
        print(f"memory: {variant.memory}")


def _shapes(url: str) -> AbstractContextManager[ShapeDatabase | None]:
    """The database, which has to be there; nothing where none is named."""
    if not url:
        return contextlib.nullcontext()
    from ..tuning.shapes.database import ShapeDatabase  # which brings SQLAlchemy

    return ShapeDatabase(url, create=False)


def _peak_memory() -> int | None:
    """Bytes that this process has held at most; None where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    import sys

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
