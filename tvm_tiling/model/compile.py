"""compile(): a model in any form that a frontend reads, to an executable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..decide.winograd import TOLERANCE
from ..errors import HardwareError
from ..frontend import ImportedModel, load_model
from ..schedule import Options, Target, hardware_of, llvm_target
from .build import build
from .cache import CompileCache
from .executable import Executable, OperatorRecord, Signature
from .pipeline import lower


def compile_model(
    model: Any,
    target: Target = "llvm",
    params: Mapping[str, Any] | None = None,
    database: Any = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    winograd: bool = True,
    tolerance: float = TOLERANCE,
    cache: bool = True,
) -> Executable:
    """Compile a model with no trial runs.

    model: a path, bytes, onnx.ModelProto, torch.export.ExportedProgram, (torch.nn.Module, example inputs), or a Relax
    IRModule; `shapes` fixes dimensions that it leaves open, `params` binds weights of a Relax module. `winograd` and
    `tolerance` as in tiling_schedule. `cache`: take the executable from the cache of compiled models, or put it there.
    ModelFormatError, UnsupportedOperator and HardwareError say what cannot be read, served or targeted.
    """
    hardware = hardware_of(target)
    if database is not None:
        raise HardwareError("database: tuned cuts are not served yet; accepted: None")
    if hardware.cpu is None:
        raise HardwareError(f"{hardware.name} has no cpu; models are compiled for CPUs")
    imported = load_model(model, shapes=shapes, params=params)
    options = Options(winograd=winograd, tolerance=tolerance)
    store = CompileCache() if cache else None
    key = store.key(imported, hardware, options) if store else ""
    if store is not None and (found := store.get(key)) is not None:
        return found
    executable = _built(imported, hardware, options)
    if store is not None:
        store.put(key, executable)
    return executable


def _built(imported: ImportedModel, hardware: Any, options: Options) -> Executable:
    scheduled, operators = lower(imported.module, hardware, options)
    library = build(scheduled, llvm_target(hardware), workers=hardware.cpu.cores)
    return Executable(
        library,
        Signature(
            input_names=imported.input_names,
            input_shapes=imported.input_shapes,
            input_dtypes=imported.input_dtypes,
            output_names=imported.output_names,
        ),
        [OperatorRecord.of(operator) for operator in operators],
        fingerprint=hardware.fingerprint(),
        cores=hardware.cpu.cores,
    )
