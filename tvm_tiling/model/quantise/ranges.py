"""Tensors of a model over calibration data: it is executed in floats to collect the range of each tensor, or complete
tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import relax

from ...errors import TilingError, WorkloadError
from ...frontend import ImportedModel
from ...schedule import Options, this_cpu
from ..build import build
from ..kernel_cache import KernelCache
from ..kernels import kernels_for
from ..passes.constants import Collection
from ..passes.dataflow import shape_of
from ..passes.lift import lift_constants
from ..pipeline import lower
from ..report import Memory
from ..signature import Signature, chosen
from ..variant_base import VariantParts
from ..variants import AnyVariant, variant_of

MOST_BYTES = 512 << 20  # of tensors that are evaluated together


def ranges(
    imported: ImportedModel, mod: tvm.IRModule, variables: Sequence[relax.Var], calibration: Sequence[Any]
) -> list[tuple[float, float]]:
    """(minimum, maximum) of each variable of "main" in `mod`, which computes the same as `imported`, over all
    calibration inputs: an array each, a tuple in graph order, or arrays by name. Raises WorkloadError for invalid
    inputs."""
    runs = inputs_of(imported, calibration)
    fields = [(variable, extreme) for variable in variables for extreme in (relax.op.min, relax.op.max)]
    variant = _compiled(imported, mod, lambda builder: [builder.emit(extreme(v)) for v, extreme in fields])
    found = [np.array([float(result) for result in _run(variant, inputs)]).reshape(-1, 2) for inputs in runs]
    for place, variable in enumerate(variables):
        _check_finite(variable, [extremes[place] for extremes in found])
    least, greatest = np.min([f[:, 0] for f in found], axis=0), np.max([f[:, 1] for f in found], axis=0)
    return list(zip(least.tolist(), greatest.tolist(), strict=True))


def tensors(
    imported: ImportedModel,
    mod: tvm.IRModule,
    variables: Sequence[relax.Var],
    calibration: Sequence[Any],
    cache: KernelCache | None = None,
) -> Iterator[tuple[relax.Var, list[np.ndarray]]]:
    """Each variable with its values for all calibration inputs; arguments and errors as in `ranges`. `cache`: compiled
    kernels."""
    runs = inputs_of(imported, calibration)
    for group in _groups(variables, len(runs)):
        variant = _compiled(imported, mod, lambda _, group=group: list(group), cache)  # type: ignore[misc]
        found = [_run(variant, inputs) for inputs in runs]
        for number, variable in enumerate(group):
            arrays = [results[number] for results in found]
            _check_finite(variable, arrays)
            yield variable, arrays


def _check_finite(variable: relax.Var, arrays: Sequence[np.ndarray]) -> None:
    """Raise WorkloadError for the first calibration input for which a variable is not finite; `arrays`: its values for
    each."""
    for number, array in enumerate(arrays):
        if not np.isfinite(array).all():
            raise WorkloadError(
                f"calibration[{number}]: tensor '{variable.name}' is not finite; expected inputs for which "
                "every tensor is finite"
            )


def _groups(variables: Sequence[relax.Var], runs: int) -> Iterator[list[relax.Var]]:
    """Groups of variables whose tensors are evaluated together."""
    group: list[relax.Var] = []
    size = 0
    for variable in variables:
        needed = 4 * runs * prod(shape_of(variable) or (1,))
        if group and size + needed > MOST_BYTES:
            yield group
            group, size = [], 0
        group.append(variable)
        size += needed
    if group:
        yield group


def check_calibration(calibration: Sequence[Any]) -> None:
    """Raise WorkloadError unless calibration is a nonempty list of inputs."""
    if isinstance(calibration, Mapping | str | bytes) or not isinstance(calibration, Sequence):
        raise WorkloadError(
            f"calibration has type {type(calibration).__name__}; expected a list of inputs, each an array, a "
            "tuple of arrays, or arrays by name"
        )
    if not calibration:
        raise WorkloadError("calibration is empty; expected one or more inputs of the model")


def inputs_of(imported: ImportedModel, calibration: Sequence[Any]) -> list[list[np.ndarray]]:
    """The inputs of each run in graph order. Raises WorkloadError unless calibration is a nonempty list of inputs of
    the model."""
    check_calibration(calibration)
    found = []
    for number, given in enumerate(calibration):
        with of_input(number):
            found.append(_inputs(imported, given))
    return found


@contextlib.contextmanager
def of_input(number: int) -> Iterator[None]:
    """Add the number of the calibration input to errors within the context."""
    try:
        yield
    except TilingError as error:
        raise type(error)(f"calibration[{number}]: {error}") from error


def arguments_of(given: Any) -> tuple[Sequence[Any], dict[str, Any]]:
    """One input as given: arrays in graph order, or arrays by name."""
    if isinstance(given, Mapping):
        return (), dict(given)
    return (given if isinstance(given, tuple | list) else (given,)), {}


def _inputs(imported: ImportedModel, given: Any) -> list[np.ndarray]:
    signature = Signature.of(imported)
    values = signature.arrays(*arguments_of(given))
    chosen([signature], values)
    return values


def _run(variant: AnyVariant, inputs: list[np.ndarray]) -> Sequence[Any]:
    results = variant.run(inputs)
    return results if isinstance(results, tuple) else (results,)


def _compiled(
    imported: ImportedModel,
    mod: tvm.IRModule,
    results: Callable[[relax.BlockBuilder], list[relax.Expr]],
    cache: KernelCache | None = None,
) -> AnyVariant:
    """`mod`, which computes the same as `imported`, with other results, compiled to run."""
    cpu = this_cpu()
    with kernels_for(cpu, cache) as kernels:
        scheduled, _ = lower(_with_results(mod, results), cpu, Options(), kernels)
        lifted, constants = lift_constants(scheduled)  # which would have to be written to the library, and read again
        built = build(lifted, kernels)
    collection = Collection()
    numbers = [collection.add(constant.value) for constant in constants]
    return variant_of(
        VariantParts(
            library=built.library,
            signature=Signature.of(imported),
            operators=[],
            memory=Memory(activations=built.activations, weights=0, constants=0),
            constants=numbers,
            store=collection.together(),
            threads=cpu.cpu.cores if cpu.cpu else 1,
        )
    )


def _with_results(mod: tvm.IRModule, results: Callable[[relax.BlockBuilder], list[relax.Expr]]) -> tvm.IRModule:
    """`mod` with the results that `results` derives from the variables of "main"."""
    main = mod["main"]
    builder = relax.BlockBuilder()
    with builder.function("main", list(main.params), attrs=dict(main.attrs) if main.attrs else None):
        with builder.dataflow():
            for block in main.body.blocks:
                for binding in block.bindings:
                    builder.emit_normalized(binding)
            output = builder.emit_output(relax.Tuple(results(builder)))
        builder.emit_func_output(output)
    updated = tvm.IRModule(dict(mod.functions), attrs=mod.attrs)
    updated.update_func(mod.get_global_var("main"), builder.finalize()["main"])
    return updated
