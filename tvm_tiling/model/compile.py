"""compile(): a model from the cache of compiled models, or compiled anew.

What is in the cache is found without TVM, which takes longer to load than most models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..decide.conv.winograd import TOLERANCE
from ..decide.options import Options
from ..limits import Limits
from ..operand_types import BLOCK
from ..target import Target, hardware_of
from .build_progress import Told
from .cache import CompileCache, model_digest, with_changes
from .open_sizes import Sizes, settings_of

_FILES = (str, Path, bytes)


def compile_model(
    model: Any,
    target: Target = "llvm",
    params: Mapping[str, Any] | str | Path | bytes | None = None,
    database: Any = None,
    *,
    batch: Sizes | None = None,
    dims: Mapping[str, Sizes] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    example_inputs: Sequence[Any] | None = None,
    winograd: bool = True,
    tolerance: float | None = None,
    cache: bool = True,
    precision: str = "float32",
    calibration: Sequence[Any] | None = None,
    weights: str | None = None,
    block: int = BLOCK,
    activations: str | None = None,
    logits: str = "all",
    threads: int | None = None,
    limits: Limits | None = None,
    progress: Told | bool = False,
) -> Any:
    """Compile a model with no trial runs.

    model: a path, bytes, onnx.ModelProto, torch.export.ExportedProgram, torch.nn.Module with `example_inputs` (the
    tuple of its arguments), or a Relax IRModule. `params` gives inputs by name a constant value: the weights of a Relax
    or Relay module (also as the path of a .params file), or of an ONNX model what decides shapes or axes, such as the
    second input of a Reshape where that is one.

    Dimensions that the model leaves open stay open: one executable takes every size. Sizes and ranges for them are
    given here. `batch`: the first dimension of the inputs. `dims`: any dimension by its name, as in dims={"seq": 128}.
    Either may be a range, as in dims={"seq": (1, 512)} or range(1, 513), and other sizes are refused; or a list of
    sizes, as in batch=[1, 4, 8]: then every combination is compiled for itself, and each run takes the one that its
    inputs have. `shapes`: whole shapes of inputs by name, for dimensions without a name. A simulated machine,
    int8 and "auto" need a size for every dimension.

    `precision`: what a CPU keeps and multiplies where the model has float32; inputs, outputs, and all but convolutions
    and products by weights stay in float32 whatever it is. "float32"; "bfloat16" or "float16", of which the operands
    are kept in 16 bits; "int8", of which the operands are quantised by calibration data; "auto", the fastest of these
    whose results are close enough to float32 on the calibration data. The executable's `precision` and its report say
    how far they are.

    `calibration`: inputs of a float32 model, each an array, a tuple of arrays in graph order, or arrays by name.
    Results are compared with float32 on them, and the model is quantised by their tensors, on a CPU for
    precision="int8", on an accelerator that multiplies nothing but int8.

    `weights`: "int4" or "int8" keeps the float32 weights of products and embeddings so, `block` of them with a scale in
    common (weight-only quantisation). The report says how far each is.

    `activations`: how far rows that weights in blocks are multiplied by may be rounded in these blocks, "int8", "int16"
    or "float32", which is not at all; left out, it is what the model says (accuracy_level of an ONNX model), else
    "int16". `logits`: "last" computes those of a GGUF model's last position alone, which is what generation takes,
    instead of those of all.

    `database`: a ShapeDatabase, whose measured configurations are taken where it knows an operator; formulas decide the
    others. `winograd` as in tiling_schedule, and `tolerance` too, but with precision="auto" that is the error that is
    accepted of the whole model, 0.01 if it is left out. `cache`: take the executable, or else those of its kernels
    that another model has too, from the cache of compiled models, and put them there.

    `threads`: on how many of the CPU's cores runs are computed; left out, as many as the environment variable
    TVM_NUM_THREADS says, else all. A run may take fewer, run(x, threads=1).

    `limits`: how large tensors, computed constants, work and graphs may be that the model asks for (see Limits); left
    out, the defaults with what the environment variable TVM_TILING_LIMITS changes. LimitError names what to raise.

    `progress`: a function that is told, as a BuildProgress, of every kernel that has been built, in threads but one
    call at a time; or whether to show a line on standard error, if that is a terminal.

    Gives an Executable. With an accelerator for target the operators that it serves run there, simulated, and the rest
    on this CPU: it gives an AcceleratedExecutable, whose `simulate` gives the result and the report of a run. Model may
    be a single operator then too (as tiling_schedule takes it, a schedule or a workload), for a SimulatedExecutable.

    ModelFormatError, UnsupportedOperator and HardwareError say what cannot be read, served or targeted, WorkloadError
    what is not a size.
    """
    hardware, settings = hardware_of(target, threads), settings_of(batch, dims)
    options = Options(winograd=winograd, tolerance=TOLERANCE if tolerance is None or precision == "auto" else tolerance)
    # What other options refuse is told by what compiles: nothing like it is in the cache.
    plain = precision == "float32" and calibration is None and (weights is not None or block == BLOCK)
    digest = None
    if cache and plain and params is database is None and hardware.cpu is not None and isinstance(model, _FILES):
        digest = model_digest(model, settings, shapes, None)
    if digest is not None:
        store, known = CompileCache(), with_changes(digest, weights, block, activations, logits)
        if (found := store.get(store.key(known, hardware, options))) is not None:
            return found
    from .compilation import compile_anew

    return compile_anew(
        model,
        hardware,
        settings,
        options,
        digest,
        params=params,
        database=database,
        shapes=shapes,
        example_inputs=example_inputs,
        tolerance=tolerance,
        cache=cache,
        precision=precision,
        calibration=calibration,
        weights=weights,
        block=block,
        activations=activations,
        logits=logits,
        limits=limits,
        progress=progress,
    )
