"""Extents that data decides (of NonZero, Compress, Unique), and operators that rely on what such extents are.

Where two extents have to agree and one of them is not known before the run, TVM's kernels take it that they do, and
read what lies behind a tensor where they do not. Such operators are refused unless the extents are proved to agree.
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
# Operators that decide the shape of their result in the run; what follows a match_cast has it.
_OPEN = frozenset(["dynamic_strided_slice", "nonzero", "tensor_to_shape", "unique"])
# Operators whose shapes need not agree, or that check it themselves.
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
    """UnsupportedOperator where the shape of a result is not known, or the shapes of operands may not fit."""
    for func in mod.functions.values():
        if isinstance(func, relax.Function) and _is_open(func):
            known = Known(sym.Analyzer(), frozenset(_given(func)))
            for call in _calls(func):
                _refuse(call, known)


def _is_open(func: relax.Function) -> bool:
    """Whether the shape of any tensor holds more than numbers."""
    return any(
        isinstance(variable.ty, relax.TensorType)
        and not (
            isinstance(variable.ty.shape, relax.ShapeExpr)
            and all(isinstance(extent, tirx.IntImm) for extent in variable.ty.shape.values)
        )
        for variable in relax.analysis.all_vars(func)
    )


def _calls(func: relax.Function) -> Iterator[relax.Call]:
    """The calls of operators, but for those whose result is given a shape at once."""
    for block in func.body.blocks:
        for binding in block.bindings:
            value = binding.value
            is_call = isinstance(binding, relax.VarBinding) and isinstance(value, relax.Call)
            if is_call and isinstance(value.op, tvm.ir.Op) and value.op.name.startswith("relax."):
                yield value


@dataclass(frozen=True)
class Known:
    """What extents are compared by; `given`: the variables of sizes that inputs bring, which a frontend has guarded."""

    analyzer: sym.Analyzer
    given: frozenset[tirx.Var]

    def same(self, a: Any, b: Any) -> bool:
        """Whether two extents are proved to agree."""
        return bool(self.analyzer.can_prove_equal(a, b))

    def is_given(self, extent: Any) -> bool:
        """Whether an extent follows from the shapes of inputs."""
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
            f"{name}: the shape of its result follows from sizes that are not known before the run"
        )
    known = [shape for shape in shapes if shape is not None]
    if name in _CHECKED or all(isinstance(extent, tirx.IntImm) for shape in known for extent in shape):
        return
    fits = _RULES.get(name, _broadcasts)
    if not fits(call, known, result, known_sizes):
        listed = " and ".join(map(_text, known)) + (f" to {_text(result)}" if len(known) == 1 and result else "")
        raise UnsupportedOperator(f"{name} of shape {listed}: whether it fits is not known before the run")


def _text(shape: Shape) -> str:
    return f"({', '.join(str(int(e) if isinstance(e, tirx.IntImm) else e) for e in shape)})"


def _tensors(call: relax.Call) -> list[relax.TensorType]:
    """The types of all tensors that an operator takes, those in tuples too."""
    kinds = [argument.ty for argument in call.args]
    for kind in kinds:
        if isinstance(kind, relax.TupleType):
            kinds += kind.fields
    return [kind for kind in kinds if isinstance(kind, relax.TensorType)]


def _extents(kind: relax.TensorType) -> Shape | None:
    return list(kind.shape.values) if isinstance(kind.shape, relax.ShapeExpr) else None


Rule = Callable[[relax.Call, list[Shape], "Shape | None", Known], bool]


def _broadcasts(call: relax.Call, shapes: list[Shape], result: Shape | None, sizes: Known) -> bool:
    """Of one tensor, or of several that broadcast to the shape of the result."""
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
    """The extents of one letter; without an ellipsis, whose axes have none."""
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
    """Weights for each channel, of which the number is fixed."""
    return isinstance(shapes[0][int(call.attrs.channel_axis)], tirx.IntImm)


def _prelu(call: relax.Call, shapes: list[Shape], result: Shape | None, sizes: Known) -> bool:
    """A slope for all, or one for each place along an axis."""
    data, slopes = shapes
    return sizes.same(slopes[0], 1) or sizes.same(slopes[0], data[int(call.attrs.axis)])


def _images(call: relax.Call, shapes: list[Shape], result: Shape | None, sizes: Known) -> bool:
    """Any number of images of fixed size, or of one that inputs bring, of a fixed number of channels."""
    layout = str(call.attrs.data_layout)
    open_axes = [extent for axis, extent in zip(layout, shapes[0], strict=True) if axis not in "NC"]
    fixed = [shapes[0][layout.index("C")], *(extent for shape in shapes[1:] for extent in shape)]
    return all(isinstance(extent, tirx.IntImm) for extent in fixed) and all(map(sizes.is_given, open_axes))


def _sampled(call: relax.Call, shapes: list[Shape], result: Shape | None, sizes: Known) -> bool:
    """As many grids as images, whose extents the kernel reads."""
    return sizes.same(shapes[0][0], shapes[1][0])


def _boxes(call: relax.Call, shapes: list[Shape], result: Shape | None, sizes: Known) -> bool:
    """As many scores of each class as boxes."""
    boxes, scores = shapes[:2]
    return sizes.same(boxes[0], scores[0]) and sizes.same(boxes[1], scores[2]) and sizes.same(boxes[2], 4)


def _regions(call: relax.Call, shapes: list[Shape], result: Shape | None, sizes: Known) -> bool:
    """Regions of the number of an image and four sides."""
    return sizes.same(shapes[1][1], 5)


def _lengths(call: relax.Call, shapes: list[Shape], result: Shape | None, sizes: Known) -> bool:
    """A length for each sequence."""
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
