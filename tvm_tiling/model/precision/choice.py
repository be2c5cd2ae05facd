"""Compilation of a model in a requested precision, or in the fastest one whose results are close enough to float32.

The error is measured on the user's inputs, and so is the latency if there is a choice: the analytical model estimates
single operators, and does not account for the loss of accuracy in 16 or 8 bits.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from ...errors import HardwareError, TilingError, WorkloadError
from ...frontend import ImportedModel
from ...hardware import Hardware
from ...runtime.arrays import as_array
from ...runtime.threads import own_core
from ..executable import Executable
from ..kernel_cache import KernelCache
from ..quantise.ranges import arguments_of, of_input
from ..signature import Signature, chosen
from .graphs import in_precision
from .record import PRECISIONS, Compared, PrecisionRecord

TOLERANCE = 0.01
RUNS, MOST_SECONDS = 15, 2.0  # for each measured precision

Load = Callable[[], Iterable[ImportedModel]]
# (loader of the model's variants, digest of its source, callback for a new executable)
Compile = Callable[[Load, bytes | None, Callable[[Executable], None]], Executable]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model to compile: its loader and digest, the compiler, the target machine, the calibration inputs, if any, and
    the kernel cache. `variants`: the number of variants of the model, of which an input may match one."""

    load: Load
    make: Compile
    digest: bytes | None
    hardware: Hardware
    calibration: Sequence[Any] | None
    variants: int = 1
    kernels: KernelCache | None = None

    @property
    def plain(self) -> Executable:
        """The model compiled in float32."""
        return self.make(self.load, self.digest, lambda _: None)


def in_chosen_precision(subject: Subject, precision: str, tolerance: float | None) -> Executable:
    """The model compiled in `precision`, one of PRECISIONS except "float32".

    `tolerance`: the error accepted by "auto", None: TOLERANCE. Raises WorkloadError for "auto" or "int8" without
    calibration, and for inputs that do not match the model.
    """
    if precision == "auto":
        return _fastest(subject, TOLERANCE if tolerance is None else tolerance)
    return _compiled(subject, precision)


def _compiled(subject: Subject, precision: str) -> Executable:
    """The model in one precision, with its record."""
    calibration = subject.calibration
    left: dict[str, None] = {}

    def variants() -> Iterator[ImportedModel]:
        for imported in subject.load():
            fitting = _fitting(imported, calibration, every=subject.variants == 1)
            written = in_precision(imported, precision, subject.hardware, fitting, subject.kernels)
            left.update(dict.fromkeys(written.left))
            yield written.model

    def judge(executable: Executable) -> None:
        record = PrecisionRecord(precision=precision, left=tuple(left))
        if calibration is not None and not executable.lacking:
            plain = subject.plain
            errors = []
            for number, given in enumerate(calibration):
                with of_input(number):
                    errors.append(_error(plain, executable, given))
            worst = math.nan if any(map(math.isnan, errors)) else max(errors, default=0.0)
            record = replace(record, error=worst, inputs=len(errors))
        executable.precision = record

    return subject.make(variants, _digest(subject.digest, precision, calibration), judge)


def _fastest(subject: Subject, tolerance: float) -> Executable:
    calibration = subject.calibration
    if not calibration:
        raise WorkloadError(
            "precision = 'auto' compares results and latencies on calibration=[inputs]; expected one or more inputs"
        )
    if not (isinstance(tolerance, int | float) and tolerance >= 0):
        raise WorkloadError(f"tolerance = {tolerance!r}; expected a number of at least 0")
    made: dict[str, Executable] = {"float32": subject.plain}
    if lacking := made["float32"].lacking:
        raise HardwareError(
            (f"precision = 'auto' times runs, but this CPU lacks {lacking} of {subject.hardware.name}; expected ")
            + ", ".join(map(repr, PRECISIONS[:-1]))
        )
    for number, given in enumerate(calibration):
        with of_input(number):
            _check_finite(_run(made["float32"], given))
    found = {"float32": Compared(precision="float32")}
    for precision in PRECISIONS[1:-1]:
        try:
            made[precision] = _compiled(subject, precision)
        except TilingError as error:
            found[precision] = Compared(precision=precision, refused=str(error))
            continue
        far = made[precision].precision.error
        found[precision] = Compared(precision=precision, error=math.nan if far is None else far)
    close = [name for name in made if found[name].error <= tolerance]
    times = _times({name: made[name] for name in close}, calibration[0])
    found.update((name, replace(found[name], seconds=seconds)) for name, seconds in times.items())
    best = made[min(close, key=times.__getitem__)]
    best.precision = replace(
        best.precision,
        error=best.precision.error if best.precision.error is not None else 0.0,
        inputs=len(calibration),
        tolerance=float(tolerance),
        compared=tuple(found.values()),
    )
    return best


def _times(executables: Mapping[str, Executable], given: Any) -> dict[str, float]:
    """Median seconds of interleaved runs of the executables on one input."""
    taken: dict[str, list[float]] = {name: [] for name in executables}
    with own_core():
        for executable in executables.values():
            _run(executable, given)
        end = time.perf_counter() + MOST_SECONDS * len(executables)
        for _ in range(RUNS):
            for name, executable in executables.items():
                start = time.perf_counter()
                _run(executable, given)
                taken[name].append(time.perf_counter() - start)
            if time.perf_counter() > end:
                break
    return {name: median(seconds) for name, seconds in taken.items()}


def _run(executable: Executable, given: Any) -> tuple[Any, ...]:
    arrays, named = arguments_of(given)
    results = executable.run(*arrays, **named)
    return results if isinstance(results, tuple) else (results,)


def _error(plain: Executable, other: Executable, given: Any) -> float:
    """The largest error of an output of `other` relative to `plain`; NaN if one is finite and the other is not. Raises
    WorkloadError if no output of `plain` is finite."""
    expected = _run(plain, given)
    _check_finite(expected)
    found = [0.0]
    for right, ours in zip(map(np.asarray, expected), map(np.asarray, _run(other, given)), strict=True):
        if right.shape != ours.shape:
            return math.nan
        if right.dtype.kind in "biu":  # indices and selections: the share of differing elements
            found.append(float(np.mean(right != ours)) if right.size else 0.0)
            continue
        right, ours = right.astype(np.float64), ours.astype(np.float64)
        known = np.isfinite(right)
        if not np.array_equal(right[~known], ours[~known], equal_nan=True):
            return math.nan
        difference, size = np.linalg.norm(ours[known] - right[known]), np.linalg.norm(right[known])
        found.append(float(difference / size) if size else float(difference))
    return math.nan if any(map(math.isnan, found)) else max(found)


def _check_finite(results: Sequence[Any]) -> None:
    """Raise WorkloadError for float32 results without any finite element."""
    arrays = [np.asarray(result) for result in results]
    if any(array.size for array in arrays) and not any(np.isfinite(array).any() for array in arrays):
        raise WorkloadError(
            "no result of the model is finite for it in float32; expected inputs with some finite results"
        )


def _fitting(imported: ImportedModel, calibration: Sequence[Any] | None, every: bool) -> Sequence[Any] | None:
    """The inputs that have the shapes of a variant. Raises WorkloadError if there is none, or, with `every`, if one
    does not match; and for invalid inputs."""
    if calibration is None:
        return None
    signature = Signature.of(imported)
    arrays = []
    for number, given in enumerate(calibration):
        with of_input(number):
            arrays.append(signature.arrays(*arguments_of(given)))
    fits = [tuple(array.shape for array in one) == signature.input_shapes for one in arrays]
    if every or not any(fits):
        for number, one in enumerate(arrays):
            with of_input(number):
                chosen([signature], one)
    return [given for given, fit in zip(calibration, fits, strict=True) if fit]


def _digest(digest: bytes | None, precision: str, calibration: Sequence[Any] | None) -> bytes | None:
    """The digest of a model that is compiled in a precision with these inputs."""
    if digest is None:
        return None
    found = hashlib.sha256(digest + precision.encode())
    for given in calibration or ():
        arrays, named = arguments_of(given)
        found.update(repr(sorted(named)).encode())
        for array in (*arrays, *(named[name] for name in sorted(named))):
            known = np.ascontiguousarray(as_array(array, "calibration"))
            if known.dtype.hasobject:
                return None  # not an input of any model
            found.update(f"{known.dtype} {known.shape}".encode())
            found.update(known.reshape(-1).view(np.uint8).data)
    return found.digest()
