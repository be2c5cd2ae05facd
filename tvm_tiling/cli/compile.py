"""`tvm-tiling compile`: compile a model to one file, which runs without the model and without a compiler."""

from __future__ import annotations

import contextlib
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..figures import quantity, size
from .model_options import (
    ModelOptions,
    machine_of,
    model_options,
    require_model,
)
from .output import check_outputs, print_json

if TYPE_CHECKING:
    from ..tuning.shapes.database import ShapeDatabase

EXAMPLES = (
    "tvm-tiling compile model.onnx -o model.tar",
    "tvm-tiling compile model.onnx --batch 1,8 -o batches.tar",
    "tvm-tiling compile model.onnx --precision int8 --calibration x.npz -o int8.tar",
    "tvm-tiling compile model.onnx --database shapes.db",
    "tvm-tiling compile model.onnx --deterministic -o model.tar",
    "tvm-tiling compile model.onnx --target neoverse-v1 -o arm.tar",
    "tvm-tiling compile model.onnx --target vta --calibration x.npz -o accelerated.tar",
)


@model_options()
def command(
    model: str = typer.Argument(metavar="MODEL", help="An ONNX, TFLite, GGUF or Relay file, recognised by content."),
    output: Path = typer.Option(  # noqa: B008
        Path("model.tar"), "--output", "-o", metavar="FILE", help="Where to write the compiled model."
    ),
    params: str = typer.Option("", "--params", metavar="FILE", help="Parameters of a Relay model, a .params file."),
    *,
    options: ModelOptions,
    database: str = typer.Option(
        "", "--database", metavar="URL", help="Use measured tilings from this database: a file or a URL."
    ),
    winograd: bool = typer.Option(
        True, help="Allow Winograd convolutions, whose predicted error is at most 3.5e-6 of the largest output."
    ),
    cache: bool = typer.Option(True, help="Use the cache of compiled models."),
    as_json: bool = typer.Option(False, "--json", help="Print a description of the compiled model as JSON."),
) -> None:
    """Compile a model to one file, which runs without the model and without a compiler.

    Tilings are chosen analytically, without trial runs, or taken from --database where it has faster ones.
    """
    from ..model.compile import compile_model
    from ..model.precision.record import FLOAT32

    check_outputs([output], [model, params, database, options.target, *options.calibration])
    require_model(model)
    settled, machine = options.settled(), machine_of(options.target)
    start = time.perf_counter()
    with _shapes(database) as configs:
        executable = compile_model(
            model,
            target=machine or "llvm",
            params=params or None,
            database=configs,
            winograd=winograd,
            cache=cache,
            progress=not as_json,
            **settled,
        )
    seconds = time.perf_counter() - start
    peak = _peak_memory()
    executable.save(output)
    if as_json:
        print_json({"output": str(output), "seconds": seconds, "peak_memory": peak, **executable.describe()})
        return
    operators = sum(operator.calls for variant in executable.variants for operator in variant.operators)
    placement = executable.placement
    from_cache = " from the cache" if executable.from_cache else ""
    memory = "" if peak is None else f", peak memory {size(peak)}"
    kernels = "" if placement else f"{quantity(operators, 'operator')} "
    print(f"{model}: {kernels}compiled in {seconds:.1f} s{from_cache}{memory}, written to {output}")
    if placement:
        print(placement)
    if executable.precision != FLOAT32:
        print(executable.precision)
    for variant in executable.variants:
        for line in variant.signature.lines():
            print(line)
        print(f"memory: {variant.memory}")


def _shapes(url: str) -> AbstractContextManager[ShapeDatabase | None]:
    """The database at `url`, which must exist; None without a url."""
    if not url:
        return contextlib.nullcontext()
    from ..tuning.shapes.database import ShapeDatabase  # imports SQLAlchemy

    return ShapeDatabase(url, create=False)


def _peak_memory() -> int | None:
    """Peak resident memory of this process in bytes; None if the system does not report it."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    import sys

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
