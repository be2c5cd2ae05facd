"""Ranges of the tensors of a model over calibration data: it is run in floats and each tensor's extremes are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from ...errors import WorkloadError
from ...frontend import ImportedModel
from ...schedule import Options, this_cpu
from ..build import build
from ..kernels import kernels_for
from ..passes.constants import Collection
from ..passes.lift import lift_constants
from ..pipeline import lower
from ..report import Memory
from ..signature import Signature, chosen
from ..variant_base import VariantParts
from ..variants import variant_of


def ranges(
    imported: ImportedModel, mod: tvm.IRModule, variables: Sequence[relax.Var], calibration: Sequence[Any]
) -> list[tuple[float, float]]:
    """(least, greatest) of each variable of "main" in `mod`, which computes what `imported` does, over all calibration
    inputs: an array each, a tuple in graph order, or arrays by name. WorkloadError for data that is not an input."""
    runs = [_inputs(imported, given) for given in calibration]
    if not runs:
        raise WorkloadError("calibration is empty; accepted: one or more inputs of the model")
    cpu = this_cpu()
    with kernels_for(cpu) as kernels:
        scheduled, _ = lower(_with_extremes(mod, variables), cpu, Options(), kernels)
        lifted, constants = lift_constants(scheduled)  # which would have to be written to the library, and read again
        built = build(lifted, kernels)
    collection = Collection()
    numbers = [collection.add(constant.value) for constant in constants]
    variant = variant_of(
        VariantParts(
            library=built.library,
            signature=Signature.of(imported),
            operators=[],
            memory=Memory(activations=built.activations, weights=0, constants=0),
            constants=numbers,
            store=collection.together(),
            cores=cpu.cpu.cores if cpu.cpu else 1,
        )
    )
    found: list[np.ndarray] = []
    for inputs in runs:
        found.append(np.array([float(result) for result in variant.run(inputs)]).reshape(-1, 2))
    least, greatest = np.min([f[:, 0] for f in found], axis=0), np.max([f[:, 1] for f in found], axis=0)
    if not (np.isfinite(least).all() and np.isfinite(greatest).all()):
        place = int(np.argmin(np.isfinite(least) & np.isfinite(greatest)))
        raise WorkloadError(
            f"calibration: {variables[place].name} of the model is not finite for it; accepted: inputs for which "
            "every tensor is"
        )
    return list(zip(least.tolist(), greatest.tolist(), strict=True))


def _inputs(imported: ImportedModel, given: Any) -> list[np.ndarray]:
    signature = Signature.of(imported)
    named = dict(given) if isinstance(given, Mapping) else {}
    arrays: Sequence[Any] = () if named else given if isinstance(given, (tuple, list)) else (given,)
    values = signature.arrays(arrays, named)
    chosen([signature], values)
    return values


def _with_extremes(mod: tvm.IRModule, variables: Sequence[relax.Var]) -> tvm.IRModule:
    """`mod` whose "main" gives the least and the greatest element of each variable."""
    main = mod["main"]
    builder = relax.BlockBuilder()
    with builder.function("main", list(main.params), attrs=dict(main.attrs) if main.attrs else None):
        with builder.dataflow():
            for block in main.body.blocks:
                for binding in block.bindings:
                    builder.emit_normalized(binding)
            fields = [
                builder.emit(extreme(variable)) for variable in variables for extreme in (relax.op.min, relax.op.max)
            ]
            output = builder.emit_output(relax.Tuple(fields))
        builder.emit_func_output(output)
    updated = tvm.IRModule(dict(mod.functions), attrs=mod.attrs)
    updated.update_func(mod.get_global_var("main"), builder.finalize()["main"])
    return updated
