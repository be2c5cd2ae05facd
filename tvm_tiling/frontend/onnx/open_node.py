"""The context of rules for nodes with symbolic shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tvm import relax, tirx

from ...figures import quantity
from ..fitting import cast
from ..open_shapes import OpenShapes, Size, whole
from ..size_values import SizeValue
from .tensors import as_inputs


@dataclass(frozen=True)
class OpenNode:
    """A node being imported: the builder, its tensors (created on demand), which inputs are given, its inputs as sizes
    if known, its attributes, what is known about symbolic sizes, the operator set version, and the converter for fixed
    shapes."""

    bb: relax.BlockBuilder
    tensors: Callable[[int], relax.Expr | None]
    given: tuple[bool, ...]
    values: tuple[SizeValue | None, ...]
    attr: dict[str, Any]
    shapes: OpenShapes
    opset: int
    converter: Any

    def converted(self, shapes: Mapping[int, Sequence[Size]], attr: dict[str, Any] | None = None) -> relax.Expr:
        """Return the result of the converter for fixed shapes, with the inputs in `shapes` cast to these shapes."""
        inputs = [self.tensor(place) if self.has(place) else None for place in range(len(self.given))]
        for place, shape in shapes.items():
            inputs[place] = cast(self.bb, inputs[place], [self.shapes.simplified(extent) for extent in shape])
        convert = self.converter.get_converter(self.opset)
        return convert(self.bb, as_inputs(*inputs), self.attr if attr is None else attr, [])

    def tensor(self, place: int = 0) -> relax.Expr:
        """Return an input as a tensor."""
        found = self.tensors(place)
        if found is None or not isinstance(found.ty, relax.TensorType) or found.ty.shape is None:
            raise ValueError(f"input {place} is not a tensor of known shape")
        return found

    def extents(self, place: int = 0) -> list[Size]:
        """Return the shape of an input."""
        return [self.shapes.simplified(whole(extent)) for extent in self.tensor(place).ty.shape]

    def sizes(self, place: int) -> list[Size] | None:
        """Return an input as sizes, in order; None if it is omitted or computed at run time."""
        value = self.values[place] if place < len(self.values) else None
        if value is None or value.dtype not in ("int32", "int64"):
            return None
        return list(value.values.flat)

    def has(self, place: int) -> bool:
        """Return whether an input is given."""
        return place < len(self.given) and self.given[place]

    def numbers(self, place: int) -> list[int] | None:
        """Return an input as integers; None if it is not known as such."""
        found = self.sizes(place)
        return None if found is None or not all(isinstance(size, int) for size in found) else found


Rule: TypeAlias = Callable[[OpenNode], "relax.Expr | None"]


def is_open(value: relax.Expr | None) -> bool:
    """Return whether a tensor has an extent that is not a number, or no shape."""
    if value is None or not isinstance(value.ty, relax.TensorType):
        return False
    shape = value.ty.shape
    return not isinstance(shape, relax.ShapeExpr) or not all(isinstance(e, tirx.IntImm) for e in shape.values)


def axis_of(axis: int, rank: int) -> int:
    """Return an axis counted from the start. ValueError if it is out of range for this rank."""
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is out of range for a tensor of {quantity(rank, 'axis', 'axes')}")
    return axis % rank


def word(value: Any) -> str:
    """Return a string attribute."""
    return value.decode() if isinstance(value, bytes) else str(value)
