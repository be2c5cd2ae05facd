"""The outcome of a sample: its compiled result, by one of two ways, compared with PyTorch's.

Samples are checked in one program as long as all are right. A program that is not right is halved until it is, or
contains a single sample.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch._dynamo.utils import counters
from torch_samples import Exported, Results, Sample, Several, as_array, as_tensor, real_parts, returned_tensors, seeded

import tvm_tiling
from tvm_tiling.errors import TilingError

# Relative and absolute error that is not a fault: sums in another order, and rounding between operators.
TOLERANCES = {
    torch.float64: (1e-7, 1e-9),
    torch.float32: (1e-4, 1e-5),
    torch.float16: (4e-3, 1e-3),
    torch.bfloat16: (3e-2, 1e-2),
}
_ROUNDED = (torch.float32, torch.float16, torch.bfloat16)
# Those with undefined contents, of which only shape and type are compared.
WITHOUT_CONTENT = ("empty", "new_empty", "_empty_affine")
# Those whose last output contains positions in the order of the input's elements, and the names of their arguments.
ORDERS = {
    "sort": ("input", "dim", "descending", "stable"),
    "argsort": ("input", "dim", "descending", "stable"),
    "topk": ("input", "k", "dim", "largest", "sorted"),
}
# Those whose second output contains positions of elements of which several may be equal, and the arguments' names.
PLACES = {
    **dict.fromkeys(("median", "nanmedian", "mode"), ("input", "dim", "keepdim")),
    "kthvalue": ("input", "k", "dim", "keepdim"),
}


# How torch_report() reports errors other than TilingError.
_OTHER_ERROR = re.compile(r"[\w.]*(Error|Exception): ")


class Unexportable(Exception):
    """PyTorch cannot export the module, or trace it."""


class Outcome(NamedTuple):
    """kind: right; left (right, with operators that torch.compile left to PyTorch); traced (equal to PyTorch's own
    trace, not to eager PyTorch); refused (a TilingError); unexportable; wrong; internal error. said: the message.
    elements: the size of the sample."""

    kind: str
    said: str
    elements: int


# A sample and PyTorch's own results.
_Known = tuple[Sample, Results]
# The results of several samples concatenated, and what was left to PyTorch.
_Ran = tuple[Results, list[str]]


def judged(samples: Sequence[Sample], way: str = "export") -> list[Outcome | None]:
    """Return the outcome of each sample; None for those that PyTorch itself refuses."""
    expected = [sample.expected() for sample in samples]
    known = [(sample, value) for sample, value in zip(samples, expected, strict=True) if value is not None]
    outcomes = iter(_judged(known, way) if known else [])
    return [None if value is None else next(outcomes) for value in expected]


def _judged(known: list[_Known], way: str) -> list[Outcome]:
    outcomes = _together(known, way)
    kinds = {outcome.kind for outcome in outcomes}
    if len(known) == 1 or kinds == {"right"}:
        return outcomes
    if kinds == {"right", "wrong"}:  # right samples stay so
        return [
            outcome if outcome.kind == "right" else _together([each], way)[0]
            for outcome, each in zip(outcomes, known, strict=True)
        ]
    half = len(known) // 2
    return _judged(known[:half], way) + _judged(known[half:], way)


def _together(known: list[_Known], way: str) -> list[Outcome]:
    samples = [sample for sample, _ in known]
    try:
        (results, inputs), left = WAYS[way](samples)
    except Unexportable as error:
        return _alike("unexportable", str(error), samples)
    except TilingError as error:
        return _alike("refused", str(error), samples)
    except Exception as error:
        return _alike("internal error", f"{type(error).__name__}: {error}", samples)
    if faults := [text for text in left if _OTHER_ERROR.search(text)]:
        return _alike("internal error", "; ".join(faults), samples)
    counts = [len(expected.returned) for _, expected in known]
    if sum(counts) != len(results):
        return _alike("wrong", f"{len(results)} outputs, expected {sum(counts)}", samples)
    outcomes, left_results, left_inputs = [], iter(results), iter(inputs)
    for sample, expected in known:
        returned = list(itertools.islice(left_results, len(expected.returned)))
        afterwards = list(itertools.islice(left_inputs, len(expected.inputs)))
        said = _difference(returned, expected.returned, sample)
        is_traced = said and len(known) == 1 and _is_traced(results, sample, way)
        if not said and (changed := different(afterwards, expected.inputs)):
            said = f"of the inputs afterwards, {changed}"
        kind = "traced" if is_traced else "wrong" if said else "left" if left else "right"
        outcomes += _alike(kind, said or "; ".join(left), [sample])
    return outcomes


def _is_traced(results: list[torch.Tensor], sample: Sample, way: str) -> bool:
    """Return whether results are those of PyTorch's own trace, run by PyTorch: some modules check whether they are
    traced."""
    try:
        traced = (
            _by_backend("eager", [sample]).returned
            if way == "compile"
            else _program([sample]).module()(*sample.tensors)
        )
    except Exception:
        return False
    with torch.no_grad():
        return not _difference(results, [value.detach().contiguous() for value in traced], sample)


def _alike(kind: str, said: str, samples: Sequence[Sample]) -> list[Outcome]:
    def text(sample: Sample) -> str:
        return f"{said}; sample {sample.number}: {sample.text}" if kind != "right" else ""

    return [Outcome(kind, text(sample), sample.elements) for sample in samples]


def _exported(samples: Sequence[Sample]) -> _Ran:
    """Through tvm_tiling.compile of an exported program, whose last outputs are its changed inputs."""
    executable = tvm_tiling.compile(_program(samples))
    inputs = [tensor for sample in samples for tensor in sample.tensors]
    found = executable.run(*map(as_array, inputs))
    results = [as_tensor(value) for value in (found if isinstance(found, tuple | list) else (found,))]
    names, returned = executable.signature.input_names, []
    for name, value in zip(executable.signature.output_names, results, strict=True):
        if name.endswith(".updated"):
            inputs[names.index(name.removesuffix(".updated"))] = value
        else:
            returned.append(value)
    return Results(returned, real_parts(inputs)), []


def _program(samples: Sequence[Sample]) -> torch.export.ExportedProgram:
    tensors = tuple(tensor.clone() for sample in samples for tensor in sample.tensors)
    seeded(0)
    try:
        with torch.no_grad():
            return torch.export.export(Exported(samples).eval(), tensors)
    except Exception as error:
        raise Unexportable(f"{type(error).__name__}: {str(error).strip().splitlines()[:1]}") from None


def _compiled(samples: Sequence[Sample]) -> _Ran:
    """Through torch.compile."""
    try:
        tvm_tiling.torch_report(clear=True)
        counters.clear()
        results = _by_backend("tvm_tiling", samples)
    except Exception as error:
        try:
            _by_backend("eager", samples)
        except Exception:
            raise Unexportable(f"{type(error).__name__}: {str(error).strip().splitlines()[:1]}") from None
        raise
    reports = tvm_tiling.torch_report(clear=True)
    left = [f"{operator.name}: {operator.why}" for report in reports for operator in report.left]
    left += [report.why for report in reports if report.why]
    left += ["Dynamo breaks the graph"] if counters["graph_break"] else []
    return results, left if reports else ["Dynamo gives no graph to a backend"]


def _by_backend(backend: str, samples: Sequence[Sample]) -> Results:
    torch.compiler.reset()
    inputs = [[tensor.clone() for tensor in sample.tensors] for sample in samples]
    arguments = [sample.bound(tensors) for sample, tensors in zip(samples, inputs, strict=True)]
    seeded(0)
    with torch.no_grad():
        returned = torch.compile(Several(samples), backend=backend)(*arguments)
    return Results(returned_tensors(returned), real_parts([tensor for tensors in inputs for tensor in tensors]))


WAYS: dict[str, Callable[[Sequence[Sample]], _Ran]] = {"export": _exported, "compile": _compiled}


def _difference(results: list[torch.Tensor], expected: list[torch.Tensor], sample: Sample) -> str:
    """Return how results differ both from PyTorch's and, for floats, from PyTorch's for the same numbers in float64:
    where PyTorch rounds sums at every step, or a factorisation loses digits, the exact result is right, too."""
    said = different(results, expected, sample)
    if not said or not any(value.dtype in _ROUNDED for value in expected):
        return said
    exact = sample.in_float64(expected)
    return said if exact is None or different(results, exact, sample) else ""


def different(results: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], sample: Sample | None = None) -> str:
    """Return how results differ from PyTorch's; empty if they do not. `sample`: what they were computed from, without
    which positions in an order are compared as numbers."""
    name = sample.name if sample is not None else ""
    if len(results) != len(expected):
        return f"{len(results)} outputs, expected {len(expected)}"
    if sample is not None and name in ORDERS:
        results, expected = _elements_in_order(sample, results, expected)
    if sample is not None and name in PLACES and len(expected) == 2:
        results, expected = _elements_at_places(sample, results, expected)
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
    sample: Sample, results: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]
) -> tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]:
    """Return outputs with elements instead of positions: among equal elements PyTorch returns any."""
    given = sample.arguments(PLACES[sample.name])
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
    sample: Sample, results: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]
) -> tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]:
    """Return outputs with elements instead of positions: PyTorch leaves the order of equal elements open, unless a
    stable order is requested, and that of all if topk need not sort.

    Unchanged if the order is stable, or the results are not valid positions.
    """
    given = sample.arguments(ORDERS[sample.name])
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
