"""One random function: this package's schedules compared with TVM's plain build of the same function."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import ml_dtypes
import numpy as np
import tvm
from choices import Choices
from magnitudes import holds, magnitude_of, magnitudes
from tir_functions import Function, draw_function, numbers
from tvm import te, tirx

import tvm_tiling as tt
from tvm_tiling.errors import TilingError
from tvm_tiling.schedule import this_cpu
from tvm_tiling.schedules.fallback import schedule_fallback

# What rounding may add to the error of the plain build, which is not the only correct one: relative to the magnitude of
# the summed values.
EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
TIMES, STEPS = 4.0, 8.0  # of the plain build's error; of rounding the magnitude


class NotJudged(Exception):
    """The plain build does not compile the function, so that there is nothing to compare with."""


def check(given: Sequence[int], seed: object = None) -> tuple[Counter[str], list[int]]:
    """Check the function for these choices (followed by those of a seed); return the outcome and all choices. Raises
    AssertionError."""
    draw = Choices(given, None if seed is None else random.Random(str(seed)))
    function = draw_function(draw)
    stop = len(draw.taken)
    func = te.create_prim_func([*function.inputs, *function.outputs]).with_attr("global_symbol", "main")
    arrays = numbers(function, draw)
    cores, eager = draw.one((1, 2, 3)), draw.often(50)
    exact = draw_function(Choices(draw.taken[:stop]), exact=True)
    results = Counter[str]()
    plain = _run(func, arrays, function, "llvm", "plain")
    whole = _exactly(exact, arrays) if function.floats else plain
    bounds = _bounds(function, arrays)
    cpu = this_cpu().cpu
    costs = replace(cpu.kernel_costs, parallel_start=1e-9) if eager else None  # tasks even for little work
    hardware = replace(this_cpu(), cpu=replace(cpu, cores=cores, threads=cores, costs=costs))
    try:
        product = tt.tiling_schedule(func, hardware).mod["main"]
        results["scheduled as a product"] += 1
    except TilingError as error:
        assert "\n" not in str(error), f"an error of several lines: {error}"
        product = None
        results["refused as a product"] += 1
    others = schedule_fallback(func, "main", hardware)
    for scheduled in (others, product):
        if scheduled is not None:
            found = _run(scheduled, arrays, function, tt.llvm_target(), "ours")
            _compare(function, found, plain, whole, bounds)
            results["right"] += 1
    return results, draw.taken


def drawn(given: Sequence[int], seed: object = None) -> tuple[Function, Choices]:
    """Return the function for these choices, including those that check() makes after it."""
    draw = Choices(given, None if seed is None else random.Random(str(seed)))
    function = draw_function(draw)
    numbers(function, draw)
    draw.one((1, 2, 3)), draw.often(50)
    return function, draw


def text_of(given: Sequence[int]) -> str:
    """Return the function for these choices, as TIR."""
    function = draw_function(Choices(given))
    return str(te.create_prim_func([*function.inputs, *function.outputs]).script())


def _run(
    func: tirx.PrimFunc, arrays: Sequence[np.ndarray], function: Function, target: object, whose: str
) -> list[np.ndarray]:
    outputs = [tvm.runtime.empty([int(s) for s in t.shape], str(t.dtype)) for t in function.outputs]
    try:
        built = tvm.compile(tvm.IRModule({"main": func}), target=target)
    except Exception as error:
        if whose == "plain":
            raise NotJudged(str(error)) from error
        raise
    inputs = [_tensor(a, kind) for a, kind in zip(arrays, function.kinds, strict=True)]
    built["main"](*inputs, *outputs)
    return [_array(out) for out in outputs]


def _tensor(array: np.ndarray, kind: str) -> tvm.runtime.Tensor:
    if kind != "bfloat16":
        return tvm.runtime.tensor(np.ascontiguousarray(array).reshape(array.shape))
    tensor = tvm.runtime.empty(array.shape, "uint16")
    tensor.copyfrom(np.asarray(array).view(np.uint16))
    return tensor._create_view(array.shape, "bfloat16")


def _array(tensor: tvm.runtime.Tensor) -> np.ndarray:
    if str(tensor.dtype) == "bfloat16":
        return tensor._create_view(tensor.shape, "uint16").numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def _exactly(exact: Function, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the results with all floats in 64 bits."""
    func = te.create_prim_func([*exact.inputs, *exact.outputs]).with_attr("global_symbol", "main")
    wide = [a.astype(np.float64) if k in EPSILON else a for a, k in zip(arrays, exact.kinds, strict=True)]
    kinds = tuple("float64" if k in EPSILON else k for k in exact.kinds)
    return _run(func, wide, replace(exact, kinds=kinds), "llvm", "plain")


def _bounds(function: Function, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return how large each element of the results may become on the way."""
    inputs, outputs = magnitudes(function.inputs, function.outputs)
    func = te.create_prim_func([*inputs, *outputs]).with_attr("global_symbol", "main")
    bounds = replace(function, outputs=tuple(outputs), kinds=("float64",) * len(inputs))
    return _run(func, [magnitude_of(a) for a in arrays], bounds, "llvm", "plain")


def _compare(
    function: Function,
    found: Sequence[np.ndarray],
    plain: Sequence[np.ndarray],
    exact: Sequence[np.ndarray],
    bounds: Sequence[np.ndarray],
) -> None:
    epsilon = max((EPSILON[kind] for kind in function.floats), default=0.0)
    for number, (got, want, true, bound) in enumerate(zip(found, plain, exact, bounds, strict=True)):
        defined = holds(bound)
        if want.dtype.kind in "iub":
            np.testing.assert_array_equal(got[defined], want[defined], err_msg=f"output {number}")
            continue
        got, want, true = (array.astype(np.float64) for array in (got, want, true))
        # Where only the plain build exceeds its type, another order of summation need not.
        meant = defined & (np.isnan(want) == np.isnan(true)) & (np.isinf(want) == np.isinf(true))
        known = meant & np.isfinite(true)
        assert (np.isnan(got) == np.isnan(want))[meant].all(), f"output {number}: NaN where none is, or the reverse"
        infinite = meant & np.isinf(want)
        np.testing.assert_array_equal(got[infinite], want[infinite], err_msg=f"output {number}")
        with np.errstate(invalid="ignore"):
            allowed = TIMES * np.abs(want - true)[known].max(initial=0) + STEPS * epsilon * bound
            beyond = (np.abs(got - true) / allowed)[known & (got != true)].max(initial=0)
        assert beyond <= 1, f"output {number}: {beyond:.3g} times the accepted error"
