"""Relay expressions with dynamic input dimensions, compiled once and run at several sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
from relay_cases import Case, outputs, program

import tvm_tiling as tt
from tvm_tiling import sizes
from tvm_tiling.errors import TilingError
from tvm_tiling.frontend.relay.import_relay import read_relay
from tvm_tiling.sizes import Named


def open_text(case: Case, *, first_alone: bool = False) -> tuple[str, dict[str, np.ndarray]]:
    """Return a module of one case whose inputs, or only the first of them, have no sizes, and its constants.

    It does not state the type of the result.
    """
    text, constants = program([case])
    text = re.sub(r" /\* ty=.*? \*/", "", text)
    for name, array in list(case.inputs.items())[: 1 if first_alone else None]:
        head = f"%{name}_0: Tensor[("
        at = text.index(head) + len(head)
        text = text[:at] + ", ".join("?" * array.ndim) + text[text.index(")", at) :]
    return text, constants


def alike(found: np.ndarray, wanted: np.ndarray, tolerance: float) -> bool:
    """Return whether a result is the expected one."""
    if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
        return False
    if wanted.dtype.kind in "iub":
        return bool(np.array_equal(found, wanted))
    scale = max(1e-30, float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0))) if wanted.size else 1.0
    return bool(np.allclose(found, wanted, rtol=tolerance, atol=tolerance * scale, equal_nan=True))


def judged(case: Case, more: int = 4, *, first_alone: bool = False) -> str:
    """Return the outcome of a case: "right", "refused: why", "fixed" if the model fixes every size, or "wrong: where".

    Results at the case's own sizes must be NumPy's, at `more` others those of the fixed-size model.
    """
    text, constants = open_text(case, first_alone=first_alone)
    try:
        exe = tt.compile(text.encode(), params=constants, cache=False)
    except TilingError as error:
        return f"refused: {error}"
    shapes = exe.signature.input_shapes
    given = list(case.inputs.values())
    own = {
        extent.name: array.shape[axis]
        for shape, array in zip(shapes, given, strict=True)
        for axis, extent in enumerate(shape)
        if isinstance(extent, Named)
    }
    if not own:
        return "fixed"
    wanted = [case.results] if isinstance(case.results, np.ndarray) else list(case.results)
    said = _at(exe, given, wanted, max(case.tolerance, 1e-4))
    if said:
        return f"wrong: at {own}: {said}"
    for number in range(more):
        changed = {
            name: max(1, size + (number - 1) * (1 + place % 2)) for place, (name, size) in enumerate(own.items())
        }
        inputs = [
            np.resize(array, tuple(sizes.evaluated(extent, changed) for extent in shape))
            for shape, array in zip(shapes, given, strict=True)
        ]
        expected = _of_fixed_sizes(text, case.inputs, inputs, constants)
        said = _at(exe, inputs, expected, max(case.tolerance, 1e-4))
        if said:
            return f"wrong: at {changed}: {said}"
    return "right"


def _of_fixed_sizes(
    text: str, names: Mapping[str, np.ndarray], inputs: list[np.ndarray], constants: Mapping[str, np.ndarray]
) -> list[np.ndarray] | None:
    """Return the results of the model with the sizes of these inputs; None if it is refused."""
    shapes = {f"{name}_0": array.shape for name, array in zip(names, inputs, strict=True)}
    try:
        model = read_relay(text.encode(), shapes=shapes, batch=None, params=constants, where="fixed").imported
        return outputs(model.module, inputs)
    except Exception:
        return None


def _at(exe: tt.Executable, inputs: list[np.ndarray], wanted: list[np.ndarray] | None, tolerance: float) -> str:
    try:
        found = exe.run(*inputs)
    except TilingError:
        return ""
    results = list(found) if isinstance(found, tuple) else [found]
    if wanted is None:
        return ""
    if len(results) != len(wanted):
        return f"{len(results)} results instead of {len(wanted)}"
    for result, value in zip(results, wanted, strict=True):
        if not alike(result, value, tolerance):
            return f"{result.shape} {result.dtype} instead of {value.shape} {value.dtype}"
    return ""
