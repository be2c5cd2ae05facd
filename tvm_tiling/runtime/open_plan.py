"""Execution plans of models with dynamic shapes: calls on tensors whose extents are expressions of sizes.

Plain data, without TVM. open_tables.py computes the extents for the sizes of a run and places the tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..sizes import Extent, Named, Shape, from_plain, names_of, to_plain
from .plan import ARENA, INPUT, OUTPUT, ExecutionPlan, Step, Writes, is_known, writes_of


@dataclass(frozen=True)
class OpenType:
    """`shape` in elements, and TVM's name of the type."""

    shape: Shape
    dtype: str


@dataclass(frozen=True)
class OpenTensor(OpenType):
    """`place`: ARENA, INPUT, OUTPUT or CONSTANT. `number`: index of the memory piece, input, output or constant."""

    place: int
    number: int


@dataclass(frozen=True)
class Piece:
    """Memory for tensors of `shape` and type `dtype`, used from step `first` to step `last`."""

    shape: Shape
    dtype: str
    first: int
    last: int


@dataclass(frozen=True)
class OpenPlan:
    """Like ExecutionPlan, with `pieces` of memory in the arena. `scalars`: integer arguments of kernels."""

    inputs: tuple[OpenType, ...]
    outputs: tuple[OpenType, ...]
    tensors: tuple[OpenTensor, ...]
    pieces: tuple[Piece, ...]
    steps: tuple[Step, ...]
    scalars: tuple[Extent, ...]
    results: tuple[int, ...]
    writes: Writes = ()

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the kernels, without duplicates."""
        return tuple(dict.fromkeys(step.kernel for step in self.steps))

    @property
    def kinds(self) -> tuple[OpenType | Piece, ...]:
        """Inputs, outputs, tensors and pieces."""
        return (*self.inputs, *self.outputs, *self.tensors, *self.pieces)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, to be read by from_dict()."""
        return {
            "inputs": [[_plain(each.shape), each.dtype] for each in self.inputs],
            "outputs": [[_plain(each.shape), each.dtype] for each in self.outputs],
            "tensors": [[each.place, each.number, _plain(each.shape), each.dtype] for each in self.tensors],
            "pieces": [[_plain(each.shape), each.dtype, each.first, each.last] for each in self.pieces],
            "steps": [[step.kernel, list(step.arguments)] for step in self.steps],
            "scalars": _plain(self.scalars),
            "results": list(self.results),
            "writes": [[kernel, list(places)] for kernel, places in self.writes],
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> OpenPlan:
        """The plan from a to_dict() result, as decoded from JSON. Raises ValueError, TypeError or KeyError for anything
        else."""
        found = cls(
            inputs=tuple(OpenType(_shape(shape), str(dtype)) for shape, dtype in plain["inputs"]),
            outputs=tuple(OpenType(_shape(shape), str(dtype)) for shape, dtype in plain["outputs"]),
            tensors=tuple(
                OpenTensor(_shape(shape), str(dtype), int(place), int(number))
                for place, number, shape, dtype in plain["tensors"]
            ),
            pieces=tuple(
                Piece(_shape(shape), str(dtype), int(first), int(last)) for shape, dtype, first, last in plain["pieces"]
            ),
            steps=tuple(Step(str(kernel), tuple(map(int, arguments))) for kernel, arguments in plain["steps"]),
            scalars=_shape(plain["scalars"]),
            results=tuple(map(int, plain["results"])),
            writes=writes_of(plain),
        )
        found._check()
        return found

    def _check(self) -> None:
        """Raise ValueError if the plan has invalid references. That tensors are within their memory is checked for the
        sizes of each run."""
        known = {extent.name for kind in self.inputs for extent in kind.shape if isinstance(extent, Named)}
        used = names_of((*(extent for kind in self.kinds for extent in kind.shape), *self.scalars))
        if not known.issuperset(used):
            raise ValueError("the plan uses a size that no input has")
        if not all(is_known(kind.dtype) for kind in self.kinds):
            raise ValueError("the plan has a tensor of an unknown type")
        places = {ARENA: len(self.pieces), INPUT: len(self.inputs), OUTPUT: len(self.outputs)}
        if any(not 0 <= each.number < places.get(each.place, each.number + 1) for each in self.tensors):
            raise ValueError("the plan has a tensor in memory that does not exist")
        numbers = [number for step in self.steps for number in step.arguments]
        if any(not -len(self.scalars) <= number < len(self.tensors) for number in numbers):
            raise ValueError("the plan uses a tensor that does not exist")
        if any(not 0 <= number < len(self.tensors) for number in self.results):
            raise ValueError("the plan uses a tensor that does not exist")
        if len(self.results) != len(self.outputs):
            raise ValueError(f"the plan has {len(self.results)} results for {len(self.outputs)} outputs")
        steps = len(self.steps)
        if any(not 0 <= piece.first <= piece.last <= steps for piece in self.pieces):
            raise ValueError("the plan uses memory in steps that do not exist")


def _plain(shape: Iterable[Extent]) -> list[Any]:
    return [to_plain(extent) for extent in shape]


def _shape(plain: Sequence[Any]) -> Shape:
    return tuple(from_plain(extent) for extent in plain)


AnyPlan: TypeAlias = ExecutionPlan | OpenPlan


def plan_of(plain: Mapping[str, Any]) -> AnyPlan:
    """The plan from a to_dict() result. Raises ValueError, TypeError or KeyError for anything else."""
    return OpenPlan.from_dict(plain) if "pieces" in plain else ExecutionPlan.from_dict(plain)
