"""compile(): loads a model from the cache of compiled models, or compiles it.

Cached models are found without TVM, which takes longer to load than most models.
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
from .deterministic import check_deterministic
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
    deterministic: bool = False,
    limits: Limits | None = None,
    progress: Told | bool = False,
) -> Any:
    """Compile a model without trial runs.

    model: a path, bytes, onnx.ModelProto, torch.export.ExportedProgram, torch.nn.Module with `example_inputs` (the
    tuple of its arguments), or a Relax IRModule. `params` assigns constant values to inputs by name: the weights of a
    Relax or Relay module (also as the path of a .params file), or inputs of an ONNX model that determine shapes or
    axes, such as the second input of a Reshape.

    Dynamic dimensions of the model remain dynamic: one executable supports every size. Sizes and ranges can be given
    here. `batch`: the first dimension of the inputs. `dims`: any dimension by name, for example dims={"seq": 128}.
    Either may be a range, such as dims={"seq": (1, 512)} or range(1, 513), which limits the accepted sizes; or a list
    of sizes, such as batch=[1, 4, 8]: then every combination is compiled separately, and each run uses the one that
    matches its inputs. `shapes`: complete shapes of inputs by name, for dimensions without a name. A simulated machine,
    int8 and "auto" require static shapes.

    `precision`: the type in which a CPU stores and multiplies the float32 operands of convolutions and matrix
    multiplications by weights; inputs, outputs, and everything else stay in float32. "float32"; "bfloat16" or
    "float16", with 16-bit operands; "int8", with operands quantised by calibration data; "auto", the fastest of these
    whose results on the calibration data are close enough to float32. The executable's `precision` and its report give
    the error.

    `calibration`: inputs of a float32 model, each an array, a tuple of arrays in graph order, or arrays by name. They
    are used to compare results with float32 and to quantise the model: on a CPU for precision="int8", and on an
    accelerator that only multiplies int8.

    `weights`: "int4" or "int8" stores the float32 weights of matrix multiplications and embeddings in this type, with
    one scale per `block` of them (weight-only quantisation). The report gives the error of each.

    `activations`: the type to which rows multiplied by blocked weights may be rounded per block: "int8", "int16" or
    "float32", which does not round; by default as stated in the model (accuracy_level of an ONNX model), otherwise
    "int16". `logits`: "last" computes the logits of a GGUF model only for the last position, as generation needs them,
    instead of for all positions.

    `database`: a ShapeDatabase, whose measured configurations are used for the operators that it contains; the
    analytical model decides the others. `winograd` as in tiling_schedule, and so is `tolerance`, except that with
    precision="auto" it is the accepted error of the whole model, 0.01 by default. `cache`: load the executable, or at
    least those of its kernels that another model has too, from the cache of compiled models, and store them there.

    `threads`: number of CPU cores that runs use; by default, the value of the environment variable TVM_NUM_THREADS, or
    all cores. A single run may use fewer: run(x, threads=1).

    `deterministic`: the order in which numbers are added depends on neither the batch nor the number of cores, so that
    an image or a row gives the same bits in every batch, on every number of threads, and from every executable
    compiled with this option for CPUs of one kind; docs/deployment.md describes the conditions and the cost. Not
    supported with `database`, precision="auto" and simulated machines.

    `limits`: limits on tensors, computed constants, work and graphs that the model may request (see Limits); by
    default, the built-in limits with the changes in the environment variable TVM_TILING_LIMITS. LimitError names the
    limit to raise. An executable from the cache requires no such work and is not checked.

    `progress`: a function that is called with a BuildProgress for every kernel that has been built, from several
    threads but one call at a time; or whether to show a line on standard error, if that is a terminal.

    Returns an Executable. With an accelerator as target, supported operators run there, simulated, and the rest on this
    CPU: the result is an AcceleratedExecutable, whose `simulate` returns the result and the report of a run. The model
    may then also be a single operator (as in tiling_schedule, a schedule or a workload), which results in a
    SimulatedExecutable.

    Raises ModelFormatError for a model that cannot be read, UnsupportedOperator for unsupported operators,
    HardwareError for an unsupported target, WorkloadError for invalid sizes or `threads`.
    """
    hardware, settings = hardware_of(target, threads), settings_of(batch, dims)
    if deterministic:
        check_deterministic(hardware, precision, database)
    options = Options(
        winograd=winograd,
        tolerance=TOLERANCE if tolerance is None or precision == "auto" else tolerance,
        deterministic=deterministic,
    )
    # Conflicts with other options are reported by the compilation: such models are never in the cache.
    plain = precision == "float32" and calibration is None and (weights is not None or block == BLOCK)
    digest = None
    if cache and plain and params is database is None and hardware.cpu is not None and isinstance(model, _FILES):
        digest = model_digest(model, settings, shapes, None)
    if digest is not None:
        store, known = CompileCache(), with_changes(digest, weights, block, activations, logits)
        if (found := store.get(store.key(known, hardware, options))) is not None:
            return found
    from .compilation import compile_uncached

    return compile_uncached(
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
