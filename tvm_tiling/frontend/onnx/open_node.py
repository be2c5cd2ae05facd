"""What rules for nodes of open sizes work with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tvm import relax, tirx

from ..fitting import cast
from ..open_shapes import OpenShapes, Size, whole
from ..size_values import SizeValue
from .tensors import as_inputs


@dataclass(frozen=True)
class OpenNode:
    """A node being imported: the builder, its tensors (made when they are asked for), which are given, its inputs as
    sizes where they are known, its attributes, what is known of the open sizes, the version of the operators, and the
    converter for fixed sizes."""

    bb: relax.BlockBuilder
    tensors: Callable[[int], relax.Expr | None]
    given: tuple[bool, ...]
    values: tuple[SizeValue | None, ...]
    attr: dict[str, Any]
    shapes: OpenShapes
    opset: int
    converter: Any

    def converted(self, shapes: Mapping[int, Sequence[Size]], attr: dict[str, Any] | None = None) -> relax.Expr:
        """What the converter for fixed sizes makes of the inputs, those in `shapes` bound to these."""
        inputs = [self.tensor(place) if self.has(place) else None for place in range(len(self.given))]
        for place, shape in shapes.items():
            inputs[place] = cast(self.bb, inputs[place], [self.shapes.simplified(extent) for extent in shape])
        convert = self.converter.get_converter(self.opset)
        return convert(self.bb, as_inputs(*inputs), self.attr if attr is None else attr, [])

    def tensor(self, place: int = 0) -> relax.Expr:
        """An input as a tensor."""
        found = self.tensors(place)
        if found is None or not isinstance(found.ty, relax.TensorType) or found.ty.shape is None:
            raise ValueError(f"input {place} is no tensor whose shape is known")
        return found

    def extents(self, place: int = 0) -> list[Size]:
        """The shape of an input."""
        return [self.shapes.simplified(whole(extent)) for extent in self.tensor(place).ty.shape]

    def sizes(self, place: int) -> list[Size] | None:
        """An input as sizes, in order; None where it is left out or computed in the run."""
        value = self.values[place] if place < len(self.values) else None
        if value is None or value.dtype not in ("int32", "int64"):
            return None
        return list(value.values.flat)

    def has(self, place: int) -> bool:
        """Whether an input is given."""
        return place < len(self.given) and self.given[place]

    def numbers(self, place: int) -> list[int] | None:
        """The same of whole numbers alone."""
        found = self.sizes(place)
        return None if found is None or not all(isinstance(size, int) for size in found) else found


Rule: TypeAlias = Callable[[OpenNode], "relax.Expr | None"]


def is_open(value: relax.Expr | None) -> bool:
    """Whether a tensor has an extent that is no number, or no shape."""
    if value is None or not isinstance(value.ty, relax.TensorType):
        return False
    shape = value.ty.shape
    return not isinstance(shape, relax.ShapeExpr) or not all(isinstance(e, tirx.IntImm) for e in shape.values)


def axis_of(axis: int, rank: int) -> int:
    """An axis, counted from the start. ValueError for one that a tensor of this rank does not have."""
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} of a tensor of {rank} axes")
    return axis % rank


def word(value: Any) -> str:
    """An attribute that is text."""
    return value.decode() if isinstance(value, bytes) else str(value)
