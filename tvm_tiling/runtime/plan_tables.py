"""Execution plans as the tables that plan.c reads: for static shapes, and for dynamic ones at the sizes of a run.

Only extents, tensor addresses and byte counts of inputs and outputs depend on the sizes; everything else is computed
once. Tensors keep their offsets as long as all of them fit, so that sizes below the maximum so far cost little more
than computing their extents.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import WorkloadError
from ..sizes import Extent, evaluated
from .arrays import numpy_type
from .open_plan import AnyPlan, OpenPlan
from .plan import ARENA, CONSTANT, INPUT, OUTPUT, ExecutionPlan, Lifetime, TensorType, packed, type_code

MOST_ELEMENTS = (1 << 31) - 1  # limit for a tensor: kernels use 32-bit indices


class _Tables(ctypes.Structure):
    """tvm_tiling_plan in plan.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("arena", "inputs", "outputs", "tensors", "steps", "arguments")),
        *((name, ctypes.c_void_p) for name in ("tensor", "shape", "step", "argument", "output", "bytes", "kernel")),
        ("scalar", ctypes.c_void_p),
        ("parts", ctypes.c_int64),
    )


class PlanTables:
    """A plan for one set of shapes. `address`: of the tables, which live as long as this object. `outputs`: their
    types, `kinds` the same as (shape, NumPy's type, bytes). `parts`: see ExecutionPlan. `input_pointers`,
    `output_pointers`: arrays of addresses as taken by plan.c."""

    def __init__(
        self, arena: int, inputs: int, outputs: Sequence[TensorType], columns: Mapping[str, np.ndarray], parts: int = 1
    ) -> None:
        """`columns`: the arrays of plan.h by name."""
        self.outputs, self.parts, self._kept = tuple(outputs), parts, dict(columns)
        self.kinds = [(each.shape, numpy_type(each.dtype), each.bytes) for each in self.outputs]
        self.input_pointers, self.output_pointers = (
            ctypes.c_void_p * max(1, count) for count in (inputs, len(self.outputs))
        )
        self._tables = _Tables(
            arena,
            inputs,
            len(self.outputs),
            len(columns["tensor"]) // 5,
            len(columns["step"]) - 1,
            len(columns["argument"]),
            **{name: array.ctypes.data for name, array in columns.items()},
            parts=parts,
        )
        self.address = ctypes.addressof(self._tables)


def fixed_tables(
    plan: ExecutionPlan, constants: Sequence[tuple[int, int]], addresses: Mapping[str, int | None]
) -> PlanTables:
    """The tables of a plan with static shapes. `constants`: offset and size of each; `addresses`: of the kernels."""
    shapes: list[int] = []
    tensors: list[int] = []
    for tensor in plan.tensors:
        offset = constants[tensor.offset][0] if tensor.place == CONSTANT else tensor.offset
        tensors += (tensor.place, offset, type_code(tensor.dtype), len(tensor.shape), len(shapes))
        shapes += tensor.shape
    sizes = [kind.bytes for kind in (*plan.inputs, *plan.outputs)]
    changing = {"tensor": _column(tensors), "shape": _column(shapes), "bytes": _column(sizes), "scalar": _column([])}
    return PlanTables(plan.arena, len(plan.inputs), plan.outputs, {**changing, **_calls(plan, addresses)}, plan.parts)


def _calls(plan: AnyPlan, addresses: Mapping[str, int | None]) -> dict[str, np.ndarray]:
    """The columns that do not depend on sizes."""
    starts = [0]
    for step in plan.steps:
        starts.append(starts[-1] + len(step.arguments))
    return {
        "step": _column(starts),
        "argument": _column([number for step in plan.steps for number in step.arguments]),
        "output": _column(plan.results),
        "kernel": _column([addresses[step.kernel] for step in plan.steps]),
    }


def _column(values: Sequence[Any]) -> np.ndarray:
    """An array that has an address even if it is empty."""
    return np.array([*values, 0], np.int64)[: len(values)]


class OpenTables:
    """The tables of a plan with dynamic shapes, for any sizes."""

    def __init__(
        self, plan: OpenPlan, constants: Sequence[tuple[int, int]], addresses: Mapping[str, int | None]
    ) -> None:
        """Like fixed_tables(). Raises ValueError if the plan uses a constant that does not exist."""
        self._plan, self._calls = plan, _calls(plan, addresses)
        kinds = plan.kinds
        numbers: dict[Extent, int] = {1: 0}
        for extent in (*(extent for kind in kinds for extent in kind.shape), *plan.scalars):
            numbers.setdefault(extent, len(numbers))
        self._extents = tuple(numbers)
        self._scalars = np.array([numbers[extent] for extent in plan.scalars], np.int64)
        # The extents of each kind followed by 1, so that the product of no extents is 1.
        self._padded = np.array([numbers[e] for kind in kinds for e in (*kind.shape, 1)], np.int64)
        lengths = np.array([len(kind.shape) + 1 for kind in kinds], np.int64)
        self._starts = np.concatenate(([0], np.cumsum(lengths)[:-1])).astype(np.int64) if kinds else lengths
        self._item_bytes = np.array([type_code(kind.dtype) >> 8 for kind in kinds], np.int64) // 8
        first, count = len(plan.inputs) + len(plan.outputs), len(plan.tensors)
        self._borders, self._tensors = first, slice(first, first + count)
        self._shapes = np.array([numbers[e] for tensor in plan.tensors for e in tensor.shape], np.int64)
        self._rows = np.zeros((count, 5), np.int64)
        at = 0
        for row, tensor in zip(self._rows, plan.tensors, strict=True):
            if tensor.place == CONSTANT and not 0 <= tensor.number < len(constants):
                raise ValueError("the plan uses a constant that does not exist")
            offset = constants[tensor.number][0] if tensor.place == CONSTANT else tensor.number
            row[:] = tensor.place, offset, type_code(tensor.dtype), len(tensor.shape), at
            at += len(tensor.shape)
        places = np.array([tensor.place for tensor in plan.tensors], np.int64)
        own = np.array([tensor.number for tensor in plan.tensors], np.int64)
        self._in_arena, self._piece = np.flatnonzero(places == ARENA), own[places == ARENA]
        # The container of each tensor: a previous kind, a later piece, or a constant.
        self._held = np.flatnonzero(places != CONSTANT)
        shift = {INPUT: 0, OUTPUT: len(plan.inputs), ARENA: first + count}
        self._holder = np.array([shift[p] + n for p, n in zip(places, own, strict=True) if p != CONSTANT], np.int64)
        self._constants = np.flatnonzero(places == CONSTANT)
        self._constant_bytes = np.array([constants[n][1] for n in own[places == CONSTANT]], np.int64)
        self._room = np.zeros(len(plan.pieces), np.int64)  # bytes available to each piece at its offset
        self._arena, self._offsets = 0, np.zeros(len(plan.pieces), np.int64)

    def at(self, sizes: Mapping[str, int]) -> PlanTables:
        """The tables for these sizes. Raises WorkloadError if a tensor would be too large for the kernels, ValueError
        if one would be outside its memory."""
        plan = self._plan
        found = [evaluated(extent, sizes) for extent in self._extents]
        if min(found) < 0 or max(found) > MOST_ELEMENTS:
            raise _too_large(found)
        values = np.array(found, np.int64)
        # In floats, to avoid overflow; exact within the limit of tensors.
        elements = np.multiply.reduceat(values[self._padded].astype(np.float64), self._starts)
        if elements.max(initial=0.0) > MOST_ELEMENTS:
            raise _too_large(self._shape(int(elements.argmax()), values))
        held = elements.astype(np.int64) * self._item_bytes
        tensors = held[self._tensors]
        if (tensors[self._held] > held[self._holder]).any() or (tensors[self._constants] > self._constant_bytes).any():
            raise ValueError("a tensor would be outside its memory")
        results = np.array(plan.results, np.int64)
        if (tensors[results] != held[len(plan.inputs) : self._borders]).any():
            raise ValueError("a result would have a different size than its output")
        self._make_room(held[self._tensors.stop :])
        rows = self._rows.copy()
        rows[self._in_arena, 1] = self._offsets[self._piece]
        columns = {
            "tensor": rows.reshape(-1),
            "shape": values[self._shapes],
            "bytes": held[: self._borders].copy(),
            "scalar": values[self._scalars],
        }
        columns = {name: column if column.size else _column([]) for name, column in columns.items()}
        outputs = [
            TensorType(self._shape(len(plan.inputs) + number, values), kind.dtype)
            for number, kind in enumerate(plan.outputs)
        ]
        return PlanTables(self._arena, len(plan.inputs), outputs, {**columns, **self._calls})

    def _make_room(self, needed: np.ndarray) -> None:
        """Place the pieces again if one has grown."""
        if (needed > self._room).any():
            self._room = np.maximum(needed, self._room)
            pieces = zip(self._room.tolist(), self._plan.pieces, strict=True)
            self._arena, offsets = packed([Lifetime(size, piece.first, piece.last) for size, piece in pieces])
            self._offsets = np.array(offsets, np.int64)

    def _shape(self, number: int, values: np.ndarray) -> tuple[int, ...]:
        """The shape of one of the plan's kinds."""
        start = int(self._starts[number])
        return tuple(values[self._padded[start : start + len(self._plan.kinds[number].shape)]].tolist())


def _too_large(shape: Sequence[int]) -> WorkloadError:
    return WorkloadError(
        f"the input sizes result in a tensor of shape {tuple(shape)}; expected from 0 to {MOST_ELEMENTS} elements"
    )
