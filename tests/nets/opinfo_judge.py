"""The outcome of a sample: what a compiled module gives beside what PyTorch gives.

Samples of one operator are judged in one module as long as all are right; those of a module that is not are judged one
by one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from opinfo_samples import Batch, Sample, as_array, as_tensor

import tvm_tiling
from tvm_tiling.errors import TilingError

OUTCOMES = ("right", "refused", "unexportable", "wrong", "raw error", "died")

# Relative and absolute error that is no mistake: of sums in another order, and of roundings between operators.
TOLERANCES = {
    torch.float64: (1e-7, 1e-9),
    torch.float32: (1e-4, 1e-5),
    torch.float16: (4e-3, 1e-3),
    torch.bfloat16: (3e-2, 1e-2),
}
_ROUNDED = (torch.float32, torch.float16, torch.bfloat16)
# Those without content, of which only shape and type are compared.
WITHOUT_CONTENT = ("empty", "new_empty", "_empty_affine")
# Those whose last output holds places in the order of the input's elements, and the names of their arguments.
ORDERS = {
    "sort": ("input", "dim", "descending", "stable"),
    "argsort": ("input", "dim", "descending", "stable"),
    "topk": ("input", "k", "dim", "largest", "sorted"),
}
# Those whose second output holds places of elements of which several may be equal, and the arguments' names.
PLACES = {
    **dict.fromkeys(("median", "nanmedian", "mode"), ("input", "dim", "keepdim")),
    "kthvalue": ("input", "k", "dim", "keepdim"),
}


class Unexportable(Exception):
    """torch.export cannot export the module."""


def judged(name: str, samples: Sequence[Sample]) -> list[tuple[str, str]]:
    """(outcome, what was said) of each sample, without those that PyTorch itself refuses."""
    known = [(sample, sample.expected()) for sample in samples]
    held = [(sample, expected) for sample, expected in known if expected is not None]
    return _judged(name, [sample for sample, _ in held], [expected for _, expected in held])


def _judged(name: str, samples: list[Sample], expected: list[list[torch.Tensor]]) -> list[tuple[str, str]]:
    if not samples:
        return []
    outcomes = _together(name, samples, expected)
    if len(samples) == 1 or all(outcome == "right" for outcome, _ in outcomes):
        return outcomes
    if outcomes[0][0] in ("right", "wrong"):  # it ran: what is right stays so
        singly = [
            outcome if outcome[0] == "right" else _together(name, [sample], [values])[0]
            for outcome, sample, values in zip(outcomes, samples, expected, strict=True)
        ]
        return singly
    half = len(samples) // 2
    return _judged(name, samples[:half], expected[:half]) + _judged(name, samples[half:], expected[half:])


def _together(name: str, samples: list[Sample], expected: list[list[torch.Tensor]]) -> list[tuple[str, str]]:
    try:
        results = _run(samples)
    except Unexportable as error:
        return [("unexportable", str(error))] * len(samples)
    except TilingError as error:
        return [("refused", str(error))] * len(samples)
    except Exception as error:
        return [("raw error", f"{type(error).__name__}: {error}")] * len(samples)
    outcomes, first = [], 0
    for sample, values in zip(samples, expected, strict=True):
        said = _difference(name, results[first : first + len(values)], values, sample)
        outcomes.append(("wrong", f"{said}; sample {sample.text}") if said else ("right", ""))
        first += len(values)
    return outcomes


def _run(samples: list[Sample]) -> list[torch.Tensor]:
    tensors = tuple(tensor.clone() for sample in samples for tensor in sample.tensors)
    try:
        with torch.no_grad():
            program = torch.export.export(Batch(samples).eval(), tensors)
    except Exception as error:
        raise Unexportable(f"{type(error).__name__}: {str(error).strip().splitlines()[:1]}") from None
    executable = tvm_tiling.compile(program)
    returned = executable.run(*(as_array(tensor) for tensor in tensors))
    return [as_tensor(value) for value in (returned if isinstance(returned, tuple | list) else (returned,))]


def _difference(name: str, results: list[torch.Tensor], expected: list[torch.Tensor], sample: Sample) -> str:
    """How results differ both from PyTorch's and, of floats, from PyTorch's of the same numbers in float64: where
    PyTorch rounds sums at every step, or a factorisation loses digits, the exact result is right too."""
    said = different(name, results, expected, sample)
    if not said or not any(value.dtype in _ROUNDED for value in expected):
        return said
    exact = sample.in_float64(expected)
    return said if exact is None or different(name, results, exact, sample) else ""


def different(
    name: str, results: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], sample: Sample | None = None
) -> str:
    """How results differ from PyTorch's; empty where they do not. `sample`: what they were computed from, without
    which places in an order are compared as numbers."""
    if len(results) != len(expected):
        return f"{len(results)} outputs, expected {len(expected)}"
    if sample is not None and name in ORDERS:
        results, expected = _elements_in_order(name, sample, results, expected)
    if sample is not None and name in PLACES and len(expected) == 2:
        results, expected = _elements_at_places(name, sample, results, expected)
    for place, (result, value) in enumerate(zip(results, expected, strict=True)):
        found, wanted = (f"{tensor.dtype}{tuple(tensor.shape)}" for tensor in (result, value))
        if found != wanted:
            return f"output {place}: {found}, expected {wanted}"
        if name.startswith(WITHOUT_CONTENT):
            continue
        relative, absolute = TOLERANCES.get(value.dtype, (0, 0))
        try:
            torch.testing.assert_close(result, value, rtol=relative, atol=absolute, equal_nan=True)
        except AssertionError as error:
            return f"output {place}: {' '.join(str(error).split())}"
    return ""


def _elements_at_places(
    name: str, sample: Sample, results: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]
) -> tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]:
    """Outputs with the elements at the places in place of the places: of equal elements PyTorch names any."""
    given = sample.arguments(PLACES[name])
    data, dim = given["input"], given.get("dim", -1)
    places, wanted = results[1], expected[1]
    if not data.ndim or not wanted.numel() or (places.dtype, places.shape) != (wanted.dtype, wanted.shape):
        return results, expected
    if (places < 0).any() or (places >= data.shape[dim]).any():
        return results, expected

    def read(places: torch.Tensor) -> torch.Tensor:
        return data.gather(dim, places if given.get("keepdim") else places.unsqueeze(dim))

    return [results[0], read(results[1])], [expected[0], read(expected[1])]


def _elements_in_order(
    name: str, sample: Sample, results: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]
) -> tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]:
    """Outputs with the elements that the places name in place of the places: PyTorch leaves the order of equal
    elements open, unless it is asked for a stable order, and that of all where topk is not asked to sort.

    As they are where the order is stable, or the places of the results are not such places at all.
    """
    given = sample.arguments(ORDERS[name])
    data, dim = given["input"], given.get("dim", -1)
    places, wanted = results[-1], expected[-1]
    if given.get("stable") or (places.dtype, places.shape) != (wanted.dtype, wanted.shape):
        return results, expected
    if data.ndim == 0 or not places.numel():
        return results, expected
    lines = places.sort(dim)[0]
    outside = (places < 0).any() or (places >= data.shape[dim]).any()
    if outside or (lines.diff(dim=dim) == 0).any():
        return results, expected
    both = [[*tensors[:-1], data.gather(dim, tensors[-1])] for tensors in (results, expected)]
    if not given.get("sorted", True):
        lined = [tensors[0].sort(dim)[1] for tensors in both]
        both = [[t.gather(dim, order) for t in tensors] for tensors, order in zip(both, lined, strict=True)]
    return both[0], both[1]
