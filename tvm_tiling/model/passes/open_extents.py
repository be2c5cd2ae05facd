"""Data-dependent extents (of NonZero, Compress, Unique), and operators that make assumptions about them.

If two extents have to agree and one of them is not known at compile time, TVM's kernels assume that they do, and read
past the end of a tensor if they do not. Such operators are rejected unless the extents are proved to agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import tvm
from tvm import relax, sym, tirx

from ...errors import UnsupportedOperator
from ...match.access import variables

Shape = list[Any]
# Operators with a data-dependent result shape; the value after a match_cast has it.
_OPEN = frozenset(["dynamic_strided_slice", "nonzero", "tensor_to_shape", "unique"])
# Operators whose shapes need not agree, or that check them.
_CHECKED = frozenset(
    [
        "concat",
        "dynamic_strided_slice",
        "gather_elements",
        "gather_nd",
        "index_put",
        "index_tensor",
        "scatter_elements",
        "scatter_nd",
        "stack",
        "take",
    ]
)


def refuse_unproved(mod: tvm.IRModule) -> None:
    """Raise UnsupportedOperator if the shape of a result is unknown, or the shapes of operands may not match."""
    for func in mod.functions.values():
        if isinstance(func, relax.Function) and _is_open(func):
            known = Known(sym.Analyzer(), frozenset(_given(func)))
            for call in _calls(func):
                _refuse(call, known)


def _is_open(func: relax.Function) -> bool:
    """Return whether the shape of any tensor contains more than constants."""
    return any(
        isinstance(variable.ty, relax.TensorType)
        and not (
            isinstance(variable.ty.shape, relax.ShapeExpr)
            and all(isinstance(extent, tirx.IntImm) for extent in variable.ty.shape.values)
        )
        for variable in relax.analysis.all_vars(func)
    )


def _calls(func: relax.Function) -> Iterator[relax.Call]:
    """The calls of operators, except those whose result is immediately given a shape."""
    for block in func.body.blocks:
        for binding in block.bindings:
            value = binding.value
            is_call = isinstance(binding, relax.VarBinding) and isinstance(value, relax.Call)
            if is_call and isinstance(value.op, tvm.ir.Op) and value.op.name.startswith("relax."):
                yield value


@dataclass(frozen=True)
class Known:
    """Comparison of extents; `given`: the variables of input sizes, which a frontend has guarded."""

    analyzer: sym.Analyzer
    given: frozenset[tirx.Var]

    def same(self, a: Any, b: Any) -> bool:
        """Return whether two extents are proved to be equal."""
        return bool(self.analyzer.can_prove_equal(a, b))

    def is_given(self, extent: Any) -> bool:
        """Return whether an extent is determined by the input shapes."""
        return set(variables(extent)) <= self.given


def _given(func: relax.Function) -> Iterator[tirx.Var]:
    for parameter in func.params:
        for extent in (_extents(parameter.ty) if isinstance(parameter.ty, relax.TensorType) else None) or ():
            if isinstance(extent, tirx.Var):
                yield extent


def _refuse(call: relax.Call, known_sizes: Known) -> None:
    name = call.op.name.removeprefix("relax.")
    if name in _OPEN or name.startswith("call_"):
        return
    shapes = [_extents(kind) for kind in _tensors(call)]
    result = _extents(call.ty) if isinstance(call.ty, relax.TensorType) else None
    if (isinstance(call.ty, relax.TensorType) and result is None) or None in shapes:
        raise UnsupportedOperator(
            f"{name}: the shape of its result depends on sizes that are not known at compile time"
        )
    known = [shape for shape in shapes if shape is not None]
    if name in _CHECKED or all(isinstance(extent, tirx.IntImm) for shape in known for extent in shape):
        return
    fits = _RULES.get(name, _broadcasts)
    if not fits(call, known, result, known_sizes):
        listed = " and ".join(map(_text, known)) + (f" to {_text(result)}" if len(known) == 1 and result else "")
        raise UnsupportedOperator(f"{name} of shape {listed}: whether the shapes match is not known at compile time")


def _text(shape: Shape) -> str:
    return f"({', '.join(str(int(e) if isinstance(e, tirx.IntImm) else e) for e in shape)})"


def _tensors(call: relax.Call) -> list[relax.TensorType]:
    """The types of all tensors that an operator takes, including those in tuples."""
    kinds = [argument.ty for argument in call.args]
    for kind in kinds:
        if isinstance(kind, relax.TupleType):
            kinds += kind.fields
    return [kind for kind in kinds if isinstance(kind, relax.TensorType)]


def _extents(kind: relax.TensorType) -> Shape | None:
    return list(kind.shape.values) if isinstance(kind.shape, relax.ShapeExpr) else None


Rule = Callable[[relax.Call, list[Shape], "Shape | None", Known], bool]


def _broadcasts(call: relax.Call, shapes: list[Shape], result: Shape | None, sizes: Known) -> bool:
    """A single tensor, or several that broadcast to the shape of the result."""
    if len(shapes) == 1:
        return True
    if result is None:
        return False
    return all(
        extent is not None and (sizes.same(extent, 1) or sizes.same(extent, whole))
        for shape in shapes
        for extent, whole in zip_longest(reversed(shape), reversed(result[len(result) - len(shape) :]))
    )


def _reshape(call: relax.Call, shapes: list[Shape], result: Shape | None, sizes: Known) -> bool:
    return sizes.same(math.prod(shapes[0]), math.prod(result or []))


def _matmul(call: relax.Call, shapes: list[Shape], result: Shape | None, sizes: Known) -> bool:
    left, right = shapes
    return sizes.same(left[-1], right[-2] if len(right) > 1 else right[-1])


def _einsum(call: relax.Call, shapes: list[Shape], result: Shape | None, sizes: Known) -> bool:
    """Equal extents for each letter; ellipses are not supported, because their axes have no letter."""
    equation = str(call.attrs.subscripts).replace(" ", "")
    if "." in equation:
        return False
    extents: dict[str, Any] = {}
    for letters, shape in zip(equation.split("->")[0].split(","), shapes, strict=True):
        for letter, extent in zip(letters, shape, strict=True):
            if not sizes.same(extents.setdefault(letter, extent), extent):
                return False
    return True


def _channels(call: relax.Call, shapes: list[Shape], result: Shape | None, sizes: Known) -> bool:
    """Weights per channel, with a static number of channels."""
    return isinstance(shapes[0][int(call.attrs.channel_axis)], tirx.IntImm)


def _prelu(call: relax.Call, shapes: list[Shape], result: Shape | None, sizes: Known) -> bool:
    """A single slope, or one for each index along an axis."""
    data, slopes = shapes
    return sizes.same(slopes[0], 1) or sizes.same(slopes[0], data[int(call.attrs.axis)])


def _images(call: relax.Call, shapes: list[Shape], result: Shape | None, sizes: Known) -> bool:
    """Any number of images of static size, or of a size given by inputs, with a static number of channels."""
    layout = str(call.attrs.data_layout)
    open_axes = [extent for axis, extent in zip(layout, shapes[0], strict=True) if axis not in "NC"]
    fixed = [shapes[0][layout.index("C")], *(extent for shape in shapes[1:] for extent in shape)]
    return all(isinstance(extent, tirx.IntImm) for extent in fixed) and all(map(sizes.is_given, open_axes))


def _sampled(call: relax.Call, shapes: list[Shape], result: Shape | None, sizes: Known) -> bool:
    """Equal numbers of grids and images, whose extents the kernel reads."""
    return sizes.same(shapes[0][0], shapes[1][0])


def _boxes(call: relax.Call, shapes: list[Shape], result: Shape | None, sizes: Known) -> bool:
    """Equal numbers of scores per class and boxes."""
    boxes, scores = shapes[:2]
    return sizes.same(boxes[0], scores[0]) and sizes.same(boxes[1], scores[2]) and sizes.same(boxes[2], 4)


def _regions(call: relax.Call, shapes: list[Shape], result: Shape | None, sizes: Known) -> bool:
    """Regions with an image index and four sides."""
    return sizes.same(shapes[1][1], 5)


def _lengths(call: relax.Call, shapes: list[Shape], result: Shape | None, sizes: Known) -> bool:
    """One length per sequence."""
    return sizes.same(shapes[0][int(call.attrs.batch_axis)], shapes[1][0])


_RULES: dict[str, Rule] = {
    "einsum": _einsum,
    "image.grid_sample": _sampled,
    "matmul": _matmul,
    "nn.conv1d": _images,
    "nn.conv2d": _images,
    "nn.conv3d": _images,
    "nn.group_norm": _channels,
    "nn.instance_norm": _channels,
    "nn.prelu": _prelu,
    "reshape": _reshape,
    "reverse_sequence": _lengths,
    "vision.all_class_non_max_suppression": _boxes,
    "vision.roi_pool": _regions,
}
