"""Models with dynamic shapes, compiled and run at given sizes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tvm_tiling import sizes
from tvm_tiling.frontend import ImportedModel
from tvm_tiling.model.compilation import _built
from tvm_tiling.schedule import Options, hardware_of

Sizes = Mapping[str, int]


def shapes_at(imported: ImportedModel, given: Sizes) -> list[tuple[int, ...]]:
    """Return the shapes of the inputs for the `given` dynamic sizes, which the model has to accept."""
    imported.open_sizes.require(given)
    return [tuple(sizes.evaluated(extent, given) for extent in shape) for shape in imported.input_shapes]


def random_inputs(imported: ImportedModel, given: Sizes, below: int = 2) -> list[np.ndarray]:
    """Return inputs of these sizes: normally distributed floats, integers from 0 to `below`."""
    random = np.random.default_rng(7)
    return [
        random.normal(size=shape).astype(dtype) if "float" in dtype else random.integers(0, below, shape).astype(dtype)
        for shape, dtype in zip(shapes_at(imported, given), imported.input_dtypes, strict=True)
    ]


def runner(imported: ImportedModel) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
    """Return a function that runs the model."""
    executable = _built(
        [imported],
        time.perf_counter(),
        None,
        hardware=hardware_of("llvm"),
        options=Options(),
        libraries=None,
        progress=None,
    )

    def run(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        result = executable.run(*arrays)
        return list(result) if isinstance(result, tuple) else [result]

    return run


def check(
    imported: ImportedModel,
    at: Iterable[Sizes],
    wanted: Callable[[Sequence[np.ndarray]], Sequence[Any]],
    below: int = 2,
) -> None:
    """At each of these sizes the model gives the results of `wanted`."""
    run = runner(imported)
    for given in at:
        arrays = random_inputs(imported, given, below)
        results, expected = run(arrays), [np.asarray(value) for value in wanted(arrays)]
        assert len(results) == len(expected)
        for result, value in zip(results, expected, strict=True):
            assert (result.dtype, result.shape) == (value.dtype, value.shape), given
            np.testing.assert_allclose(result, value, rtol=1e-4, atol=1e-5)


def guards(imported: ImportedModel) -> list[str]:
    """Return the conditions on the sizes, without their reasons."""
    return [f"{guard.left} {guard.relation} {guard.right}" for guard in imported.open_sizes.guards]
