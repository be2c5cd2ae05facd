"""Compilation of a model in any supported format to an executable."""

from __future__ import annotations

import contextlib
import functools
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tvm

from ..errors import HardwareError, UnsupportedOperator, WorkloadError, nearest
from ..frontend import ImportedModel, load_model
from ..frontend.relay.params import read_params
from ..hardware.description import Hardware
from ..limits import Limits
from ..operand_types import HALVES
from ..runtime.library import Library
from ..runtime.pages import trim
from ..runtime.threads import usable_core_count
from ..schedule import Options
from ..sizes import leading_of
from .accel.operator import WORKLOADS, compile_operator, is_operator
from .build import Libraries, build
from .build_progress import Told, shown
from .cache import CompileCache, model_digest, with_changes
from .executable import Executable
from .imported_digest import imported_digest
from .kernel_cache import KernelCache
from .kernels import Kernels, kernels_for
from .known_configs import KnownConfigs, known_configs
from .open_sizes import Setting
from .operators import Operator, record_of, schedule_operators
from .passes.constants import Collection
from .passes.lift import lift_constants
from .pipeline import fused_for_cpu, in_a_run, in_parts
from .precision.blocks import check_weights, in_blocks
from .precision.choice import Load, Subject, in_chosen_precision
from .precision.record import PRECISIONS, LayerError
from .precision.rows import check_activations, with_activations
from .quantise.ranges import check_calibration
from .report import MULTIPLYING, Memory, OperatorRecord
from .signature import Signature
from .variant_base import VariantParts
from .variants import variant_of

LOGITS = ("all", "last")
OPEN_PRECISIONS = ("float32", *HALVES)  # of models with dynamic shapes
# TVM's operator names, after which fused operators are named
_MULTIPLYING_NAMES = ("conv", "matmul", "einsum", "dense")


def compile_uncached(
    model: Any,
    hardware: Hardware,
    settings: Sequence[Setting],
    options: Options,
    digest: bytes | None,
    *,
    params: Mapping[str, Any] | str | Path | bytes | None,
    database: Any,
    shapes: Mapping[str, Sequence[int]] | None,
    example_inputs: Sequence[Any] | None,
    tolerance: float | None,
    cache: bool,
    precision: str,
    calibration: Sequence[Any] | None,
    weights: str | None,
    block: int,
    activations: str | None,
    logits: str,
    limits: Limits | None,
    progress: Told | bool,
) -> Any:
    """Compile a model that was not found in the cache, for the target machine and the sizes in `settings`; arguments
    and errors are those of compile(). `digest`: the result of model_digest(), if it was computed.
    """
    configs = known_configs(database)
    if hardware.cpu is None and (is_operator(model) or isinstance(model, WORKLOADS)):
        return compile_operator(model, hardware, configs)
    _check_precision(precision, calibration, hardware)
    check_weights(weights, block)
    check_activations(activations)
    if logits not in LOGITS:
        raise WorkloadError(f"logits = {logits!r}; {nearest(str(logits), LOGITS)}")
    for called, value in (("weights", weights), ("activations", activations)):
        if value is not None and (hardware.cpu is None or precision != "float32"):
            raise WorkloadError(
                f"{called} = {value!r} is not supported on {hardware.name} with precision = {precision!r}; "
                "expected a CPU and 'float32'"
            )
    errors: list[LayerError] = []
    options = replace(options, configs=configs)
    if hardware.cpu is None:
        from .accel.compile import compile_for_accelerator, single  # needed only for simulated machines

    def load() -> Iterator[ImportedModel]:
        for setting in settings:
            # Not in a variable here, which would keep the weights alive while they are packed.
            yield _in_blocks(
                _settled(
                    load_model(
                        model,
                        shapes=shapes,
                        batch=setting.batch,
                        dims=setting.dims,
                        params=params,
                        example_inputs=example_inputs,
                        limits=limits,
                        leave_open=hardware.cpu is not None,
                        may_be_empty=setting.may_be_empty,
                        last_logits=logits == "last",
                    ),
                    setting,
                    precision,
                ),
                weights,
                block,
                activations,
                errors,
            )

    if hardware.cpu is None:
        return compile_for_accelerator(single(list(load()), hardware), hardware, options, calibration)
    if digest is None and cache:
        digest = model_digest(model, settings, shapes, read_params(params))
    with shown(progress) as notify:

        def make(load: Load, digest: bytes | None, judge: Callable[[Executable], None]) -> Executable:
            return compile_imported(load, hardware, options, cache=cache, digest=digest, progress=notify, judge=judge)

        if digest is not None:
            digest = with_changes(digest, weights, block, activations, logits)
        if precision == "float32":

            def tell(executable: Executable) -> None:
                if weights is not None:
                    record = replace(executable.precision, weights=f"{weights}:{block}", layers=tuple(errors))
                    executable.precision = record

            return make(load, digest, tell)
        kernels = CompileCache().kernels() if cache else None
        subject = Subject(
            load=load,
            make=make,
            digest=digest,
            hardware=hardware,
            calibration=calibration,
            variants=len(settings),
            kernels=kernels,
        )
        return in_chosen_precision(subject, precision, tolerance)


def _in_blocks(
    imported: ImportedModel, weights: str | None, block: int, activations: str | None, errors: list[LayerError]
) -> ImportedModel:
    """A model with blocked weights and the requested row precision, if requested; `errors` receives the errors of the
    weights."""
    if weights is not None:
        imported, errors[:] = in_blocks(imported, weights, block)
    return imported if activations is None else with_activations(imported, activations)


def _settled(imported: ImportedModel, setting: Setting, precision: str) -> ImportedModel:
    """A model with its dynamic dimensions limited to the ranges of a setting. Raises WorkloadError if it is to be
    quantised, which requires static shapes."""
    if imported.open_sizes and precision not in OPEN_PRECISIONS:
        raise WorkloadError(
            f"precision = {precision!r} requires a size for every dimension, but "
            f"{', '.join(map(repr, imported.open_sizes.names))} are dynamic; expected sizes for them, by "
            f"batch, dims or shapes, or one of {', '.join(map(repr, OPEN_PRECISIONS))}"
        )
    return replace(imported, open_sizes=setting.within(imported.open_sizes, leading_of(imported.input_shapes)))


def _check_precision(precision: str, calibration: Sequence[Any] | None, hardware: Hardware) -> None:
    if precision not in PRECISIONS:
        raise WorkloadError(f"precision = {precision!r}; {nearest(str(precision), PRECISIONS)}")
    if calibration is not None:
        check_calibration(calibration)
    if hardware.cpu is None and precision != "float32":
        raise HardwareError(
            f"precision = {precision!r}: {hardware.name} multiplies in the types of its description; "
            "expected 'float32', and calibration=[inputs] if it multiplies only int8"
        )
    if hardware.cpu is not None and precision == "float32" and calibration is not None:
        raise HardwareError(
            ("calibration has no effect with precision = 'float32' on a CPU; expected None, or another precision: ")
            + ", ".join(PRECISIONS[1:])
        )


def compile_imported(
    load: Callable[[], Iterable[ImportedModel]],
    hardware: Hardware,
    options: Options,
    *,
    cache: bool = True,
    digest: bytes | None = None,
    libraries: Libraries | None = None,
    progress: Told | None = None,
    judge: Callable[[Executable], None] | None = None,
) -> Executable:
    """An executable for this CPU with one variant per model from `load`.

    `digest`: of the source of the models, so that they need not be loaded if the cache has the executable; None if
    unknown. `libraries`: those of models that differ from these only in their constants. `judge` is called with a new
    executable before it is stored in the cache.
    """
    start = time.perf_counter()
    make = functools.partial(_built, hardware=hardware, options=options, libraries=libraries, progress=progress)
    if not cache:
        executable = make(load(), start, None)
        if judge is not None:
            judge(executable)
        return executable
    known = options.configs if isinstance(options.configs, KnownConfigs) else None
    store = CompileCache()
    imported = list(load()) if digest is None else []
    key = store.key(imported_digest(imported) if digest is None else digest, hardware, options)
    if (found := store.get(key if known is None else store.key_with(key, known, hardware))) is not None:
        return found
    executable = make(_taken(imported) if imported else load(), start, store.kernels())
    if judge is not None:
        judge(executable)
    if known is not None:
        store.put_asked(key, known)
        key = store.key_with(key, known, hardware)
    store.put(key, executable)
    return executable


def _built(
    models: Iterable[ImportedModel],
    start: float,
    cache: KernelCache | None,
    *,
    hardware: Hardware,
    options: Options,
    libraries: Libraries | None,
    progress: Told | None,
) -> Executable:
    """An executable with one variant per model; `start` is the start time of the compilation."""
    cores = hardware.cpu.cores if hardware.cpu else 1
    collection = Collection()
    parts: list[tuple[Signature, Library, list[OperatorRecord], Memory, list[int]]] = []
    with kernels_for(hardware, cache, progress) as kernels:
        for imported in models:
            if not parts:  # not before a model has been loaded
                kernels.start_native()
            signature, held = Signature.of(imported), [imported.module]
            sample = imported.at_sample()
            del imported  # so that constants are freed as they are packed
            with sample:
                parts.append((signature, *_part(held, signature, hardware, options, collection, kernels, libraries)))
            trim()
    constants = collection.together()
    variants = [
        variant_of(
            VariantParts(
                library=library,
                signature=signature,
                operators=operators,
                memory=memory,
                constants=numbers,
                store=constants,
                threads=cores if library.lacking else min(cores, usable_core_count()),
            )
        )
        for signature, library, operators, memory, numbers in parts
    ]
    return Executable(
        variants,
        constants,
        fingerprint=hardware.fingerprint(),
        cores=cores,
        compile_seconds=time.perf_counter() - start,
        deterministic=options.deterministic,
    )


@contextlib.contextmanager
def _refusing_what_tvm_does_not_lower() -> Iterator[None]:
    """Convert TVM's own errors to one sentence, without its traceback."""
    try:
        yield
    except tvm.error.InternalError as error:
        # What follows is where TVM was, as a listing of the module.
        reason = str(error).partition("\n\nError in pass:")[0]
        said = [line.strip() for line in reason.splitlines() if line.strip()]
        why = said[-1] if said else "no reason is given"
        raise UnsupportedOperator(
            f"the model cannot be compiled: TVM does not support lowering of one of its operators: {why}"
        ) from error
    except ValueError as error:
        if "exceeds range of int" not in str(error):  # TVM's message for a number computed from a model's sizes
            raise
        raise UnsupportedOperator(
            "the model cannot be compiled: a computed size, or a product of sizes, does not fit in its integer type"
        ) from error


def _tell_slow(operators: Sequence[Operator], signature: Signature) -> None:
    """Warn if matrix multiplications or convolutions of dynamic shape run as plain loops."""
    slow = [o.name for o in operators if o.kind == "other" and any(word in o.name for word in _MULTIPLYING_NAMES)]
    if slow:
        sizes = ", ".join(signature.open_sizes.names)
        warnings.warn(
            f"{len(slow)} matrix multiplications or convolutions of dynamic shape run as slow plain loops: "
            f"{', '.join(slow[:3])}; they are fast if dims or batch give their sizes ({sizes})",
            RuntimeWarning,
            stacklevel=2,
        )


def _taken(models: list[ImportedModel]) -> Iterator[ImportedModel]:
    """The models, each released when it is returned."""
    models.reverse()
    while models:
        yield models.pop()


def _part(
    held: list[tvm.IRModule],
    signature: Signature,
    hardware: Hardware,
    options: Options,
    collection: Collection,
    kernels: Kernels,
    libraries: Libraries | None,
) -> tuple[Library, list[OperatorRecord], Memory, list[int]]:
    """Create the parts of a variant from the single module that is removed from `held`; its constants are added to the
    collection, and their indices are returned."""
    make = build if libraries is None else libraries.build
    with _refusing_what_tvm_does_not_lower():
        part, parts = in_parts(held.pop(), hardware)
        held.append(fused_for_cpu(part, hardware, options))
        del part  # so that constants are freed as they are packed
        scheduled, operators = schedule_operators(held, hardware, options, kernels, ahead=True)
        if signature.is_open:
            _tell_slow(operators, signature)
        lifted, constants = lift_constants(scheduled)
        trim()
        built = make(lifted, kernels, signature.input_shapes if signature.is_open else (), parts)
    numbers = [collection.add(constant.value) for constant in constants]
    multiplying = {operator.name for operator in operators if operator.kind in MULTIPLYING}
    weights = {
        number
        for number, constant in zip(numbers, constants, strict=True)
        if any(reader.removesuffix("_packed") in multiplying for reader in constant.readers)
    }
    memory = Memory(
        activations=built.activations,
        weights=sum(collection.size(number) for number in weights),
        constants=sum(collection.size(number) for number in set(numbers) - weights),
    )
    return (
        built.library,
        [record_of(operator) for operator in in_a_run(operators, parts)],
        memory,
        numbers,
    )
