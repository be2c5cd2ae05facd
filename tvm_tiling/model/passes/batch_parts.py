"""Division of a model by its batch: the same graph for a part of the images.

A value is divided if it consists of one contiguous piece per image, each computed from that image's pieces of the
inputs: its first axis has as many elements as there are images, or a multiple. Every operator with such an operand has
to be known to keep the pieces apart; with a single other one, such as a softmax along the first axis, the model is not
divided. Values of constants alone are the same for every part; a constant with a piece per image is divided if all
pieces are equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import tvm
from tvm import relax

from ...decide.batch_parts import BatchWork
from ...errors import UnsupportedOperator
from ...operand_types import element_bytes
from .dataflow import Expr, Rewriter, array, constant, ints, numbers, replace_operands, rewrite, shape_of, static_shape
from .layout import ADAPTIVE_POOLS, BROADCASTING, CONVOLUTIONS, POOLS, REDUCTIONS

Shape: TypeAlias = tuple[int, ...]
# Of a tensor the shape for all images, None if it is not divided; of a tuple the list of its fields' states.
State: TypeAlias = Any

TRANSPOSED = ("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")
SOFTMAXES = ("nn.softmax", "nn.log_softmax")
# Of integers they refuse a divisor of 0, and tell its place among all images, as a selection tells that of an index.
QUOTIENTS = ("divide", "floor_divide", "mod")


class _Inseparable(Exception):
    """An operator that is not known to keep the images apart."""


@dataclass(frozen=True)
class Batch:
    """A model that can be divided, with the work of all images."""

    module: tvm.IRModule
    work: BatchWork

    def part(self, parts: int) -> tvm.IRModule | None:
        """The model for one of `parts` equal parts of the images; None if it cannot be divided into that many."""
        return _Division(self.module, self.work.images, parts).divided()


def batch_of(mod: tvm.IRModule, simplified: Callable[[tvm.IRModule], tvm.IRModule]) -> Batch | None:
    """The model `mod`, if all its inputs and outputs have a piece per image, and it can be divided; otherwise None.
    `simplified` folds the constants that are computed from the number of images."""
    images = _images(mod["main"])
    if images is None:
        return None
    mod = simplified(mod)
    division = _Division(mod, images, images)
    return None if division.divided() is None else Batch(mod, division.work())


def _images(func: relax.Function) -> int | None:
    """The extent of the first axis of all inputs; None if it is not the same, or 1."""
    shapes = [shape_of(parameter) for parameter in func.params]
    first = {shape[0] if shape else 0 for shape in shapes}
    images = first.pop() if len(first) == 1 else 0
    return images if images > 1 else None


class _Division:
    """Rebuilds "main" for one of `parts` equal parts of the images."""

    def __init__(self, mod: tvm.IRModule, images: int, parts: int) -> None:
        self.mod, self.images, self.parts = mod, images, parts
        self.states: dict[relax.Var, State] = {}
        self.renamed: dict[relax.Var, Expr] = {}  # variables of the whole batch -> values of a part
        self.multiplications, self.flops, self.weights = 0, 0.0, dict[int, int]()
        self.widest = self.loops = 0

    def work(self) -> BatchWork:
        return BatchWork(
            images=self.images,
            multiplications=self.multiplications,
            flops=self.flops,
            weight_bytes=sum(self.weights.values()),
            widest_bytes=self.widest,
            loops=self.loops,
        )

    def divided(self) -> tvm.IRModule | None:
        """The module of a part; None if the model cannot be divided."""
        try:
            return self._module()
        except (_Inseparable, UnsupportedOperator, tvm.error.InternalError, ValueError, TypeError):
            return None  # errors of TVM: shapes that an operator has from the whole batch

    def _module(self) -> tvm.IRModule:
        func = self.mod["main"]
        blocks = func.body.blocks if isinstance(func.body, relax.SeqExpr) else ()
        if any(isinstance(binding, relax.MatchCast) for block in blocks for binding in block.bindings):
            raise _Inseparable
        parameters = []
        for old in func.params:
            new = relax.Var(old.name, relax.TensorType(self._of_part(shape_of(old)), old.ty.dtype))
            self.states[new] = shape_of(old)
            parameters.append(new)
        made = rewrite(self.mod, self._rewritten, parameters)
        results = _flat([self._state(replace_operands(func.body.body, self.renamed))])
        if not all(isinstance(state, tuple) for state in results):
            raise _Inseparable
        return made

    def _rewritten(self, rewriter: Rewriter, before: relax.Var, value: Expr) -> Expr:
        self.renamed = rewriter.renamed
        made, state = self._value(value, before)
        bound = rewriter.emit(made)
        if not bound.same_as(made):
            self._check(bound.ty, before.ty, state)
            self.states[bound] = state
        return bound

    # ---- states -----------------------------------------------------------------------------------------------------

    def _state(self, expr: Expr) -> State:
        if isinstance(expr, relax.Tuple):
            return [self._state(field) for field in expr.fields]
        return self.states.get(expr) if isinstance(expr, relax.Var) else None

    def _of_part(self, shape: Shape | None) -> Shape:
        """The shape of a part of a divided value."""
        if not shape or shape[0] % self.images:
            raise _Inseparable
        return (shape[0] // self.parts, *shape[1:])

    def _check(self, kind: Any, whole: Any, state: State) -> None:
        """Raise _Inseparable unless a value has the shape that its state says."""
        if isinstance(state, list):
            for field, before, each in zip(kind.fields, whole.fields, state, strict=True):
                self._check(field, before, each)
        elif static_shape(kind) != (static_shape(whole) if state is None else self._of_part(state)):
            raise _Inseparable

    def _value(self, value: Expr, before: relax.Var) -> tuple[Expr, State]:
        """The value for a part, and its state; `before` is the variable of all images."""
        if isinstance(value, relax.TupleGetItem):
            states = self._state(value.tuple_value)
            return value, states[value.index] if isinstance(states, list) else None
        if not isinstance(value, relax.Call):
            return value, self._state(value)
        divided = [state for state in _flat(self._state(argument) for argument in value.args) if state is not None]
        if not divided:
            return value, None
        if not isinstance(value.op, tvm.ir.Op) or value.op.name[6:] not in _RULES:
            raise _Inseparable
        name, shapes = value.op.name[6:], _shapes(before.ty)
        made = _RULES[name](self, value, shapes)
        itemsize = element_bytes(str(_tensors(before.ty)[0].dtype))
        self.widest = max(self.widest, itemsize * sum(map(math.prod, (*divided, *shapes))))
        self.loops += name not in ("reshape", "expand_dims", "squeeze", "astype")
        return made, list(shapes) if isinstance(before.ty, relax.TupleType) else shapes[0]

    # ---- operands ---------------------------------------------------------------------------------------------------

    def _divided(self, expr: Expr) -> Shape:
        """The shape for all images of an operand that has to be divided."""
        state = self._state(expr)
        if not isinstance(state, tuple):
            raise _Inseparable
        return state

    def _same(self, *exprs: Expr) -> None:
        """Operands that have to be the same for all images."""
        if any(state is not None for state in _flat(map(self._state, exprs))):
            raise _Inseparable

    def _aligned(self, expr: Expr, rank: int, first: int) -> Expr:
        """An operand that is broadcast to `rank` axes, of which the first has `first` elements for all images."""
        state = self._state(expr)
        if state is not None:
            if len(state) != rank or state[0] != first:
                raise _Inseparable
            return expr
        shape = shape_of(expr)
        if shape is None or len(shape) > rank:
            raise _Inseparable
        if len(shape) < rank or shape[0] == 1:
            return expr
        value = array(expr)
        if value is None or shape[0] != first or first % self.images:
            raise _Inseparable
        pieces = value.reshape(self.images, -1).view("uint8")
        if (pieces != pieces[0]).any():
            raise _Inseparable
        return constant(value[: first // self.parts].copy())

    def _known(self, call: relax.Call, arguments: Sequence[Expr] | None = None) -> relax.Call:
        """The call with other operands."""
        return relax.Call(call.op, list(call.args if arguments is None else arguments), call.attrs, call.ty_args)

    def _multiplied(self, out: Shape, depth: int, *weights: Expr) -> None:
        """Count a convolution or matrix multiplication, whose results are sums of `depth` products."""
        self.multiplications += 1
        self.flops += 2.0 * math.prod(out) * depth
        for value in map(array, weights):
            if value is not None:
                self.weights[value.ctypes.data] = value.nbytes

    # ---- rules: the call for a part ---------------------------------------------------------------------------------

    def _element_wise(self, call: relax.Call, shapes: Sequence[Shape]) -> Expr:
        (out,) = shapes
        if call.op.name[6:] in QUOTIENTS and "int" in str(call.args[1].ty.dtype):
            raise _Inseparable
        return self._known(call, [self._aligned(a, len(out), out[0]) if _is_tensor(a) else a for a in call.args])

    def _convolution(self, call: relax.Call, shapes: Sequence[Shape]) -> Expr:
        self._image_first(call.attrs.data_layout, call.attrs.out_layout)
        data, kernels = call.args
        self._same(kernels)
        size = shape_of(kernels)
        if size is None:
            raise _Inseparable
        # Each result of a convolution, or each input of a transposed one, is multiplied with its channel's kernels.
        each = self._divided(data) if call.op.name[6:] in TRANSPOSED else shapes[0]
        self._multiplied(each, math.prod(size) // each[str(call.attrs.data_layout).index("C")], kernels)
        return self._known(call)

    def _pool(self, call: relax.Call, shapes: Sequence[Shape]) -> Expr:
        self._image_first(call.attrs.layout)
        self._same(*call.args[1:])
        return self._known(call)

    @staticmethod
    def _image_first(*layouts: Any) -> None:
        if any(str(layout or "N")[0] != "N" for layout in layouts):
            raise _Inseparable

    def _pad(self, call: relax.Call, shapes: Sequence[Shape]) -> Expr:
        if any(ints(call.attrs.pad_width)[:2]):
            raise _Inseparable
        return self._known(call)

    def _along(self, call: relax.Call, axes: Sequence[int] | None) -> Expr:
        """A call along these axes of its first operand, which must not be the first one; its other operands are the
        same for all images."""
        rank = len(self._divided(call.args[0]))
        if axes is None or 0 in {axis % rank for axis in axes}:
            raise _Inseparable
        self._same(*call.args[1:])
        return self._known(call)

    def _reduced(self, call: relax.Call, shapes: Sequence[Shape]) -> Expr:
        return self._along(call, None if call.attrs.axis is None else ints(call.attrs.axis))

    def _along_axis(self, call: relax.Call, shapes: Sequence[Shape]) -> Expr:
        return self._along(call, None if call.attrs.axis is None else [int(call.attrs.axis)])

    def _rescaled(self, call: relax.Call, shapes: Sequence[Shape]) -> Expr:
        by_axis = any(shape_of(parameter) != () for parameter in call.args[1:])
        return self._along(call, [int(call.attrs.axis)] if by_axis else [])

    def _normed(self, call: relax.Call, shapes: Sequence[Shape]) -> Expr:
        return self._along(call, ints(call.attrs.axes))

    def _group_normed(self, call: relax.Call, shapes: Sequence[Shape]) -> Expr:
        return self._along(call, [int(call.attrs.channel_axis), *ints(call.attrs.axes)])

    def _permuted(self, call: relax.Call, shapes: Sequence[Shape]) -> Expr:
        if call.attrs.axes is None or int(call.attrs.axes[0]) != 0:
            raise _Inseparable
        return self._known(call)

    def _reshaped(self, call: relax.Call, shapes: Sequence[Shape]) -> Expr:
        self._divided(call.args[0])
        return relax.op.reshape(call.args[0], self._of_part(shapes[0]))

    def _broadcast(self, call: relax.Call, shapes: Sequence[Shape]) -> Expr:
        (out,) = shapes
        return relax.op.broadcast_to(self._aligned(call.args[0], len(out), out[0]), self._of_part(out))

    def _expanded(self, call: relax.Call, shapes: Sequence[Shape]) -> Expr:
        if 0 in {axis % len(shapes[0]) for axis in ints(call.attrs.axis)}:
            raise _Inseparable
        return self._known(call)

    def _squeezed(self, call: relax.Call, shapes: Sequence[Shape]) -> Expr:
        whole = self._divided(call.args[0])
        axes = [axis for axis, extent in enumerate(whole) if extent == 1]
        if call.attrs.axis is not None:
            axes = sorted(axis % len(whole) for axis in ints(call.attrs.axis))
        if 0 in axes:
            raise _Inseparable
        return relax.op.squeeze(call.args[0], axes)

    def _joined(self, call: relax.Call, shapes: Sequence[Shape]) -> Expr:
        (out,), (fields,) = shapes, call.args
        if call.attrs.axis is None or int(call.attrs.axis) % len(out) == 0 or not isinstance(fields, relax.Tuple):
            raise _Inseparable
        parts = []
        for field in fields.fields:
            part = self._aligned(field, len(out), out[0])
            if self._state(field) is None and part.same_as(field):
                raise _Inseparable  # a concatenation does not broadcast
            parts.append(part)
        return self._known(call, [relax.Tuple(parts)])

    def _sliced(self, call: relax.Call, shapes: Sequence[Shape]) -> Expr:
        return self._along(call, numbers(call.args[1]))

    def _multiplication(self, call: relax.Call, shapes: Sequence[Shape]) -> Expr:
        (out,), (left, right) = shapes, call.args
        a, b = (self._state(each) or shape_of(each) for each in (left, right))
        if a is None or b is None or len(a) < 2 or len(b) < 2:
            raise _Inseparable
        if self._state(left) is None or len(b) > 2:
            # Matrices with an axis of images; the rows of one matrix are not divided by those of the other.
            if len(out) < 3 or len(b) < 3 or (self._state(left) is not None and len(a) < 3):
                raise _Inseparable
            right = self._aligned(right, len(out), out[0])
        if self._state(left) is not None or len(a) == len(out) > 2:
            left = self._aligned(left, len(out), out[0])
        self._multiplied(out, a[-1], left, right)
        return self._known(call, [left, right])

    def _attention(self, call: relax.Call, shapes: Sequence[Shape]) -> Expr:
        (out,) = shapes
        if any(self._divided(each)[0] != out[0] for each in call.args[:3]):
            raise _Inseparable
        query, key = self._divided(call.args[0]), self._divided(call.args[1])
        self._multiplied((*out[:-2], query[-2], 2 * key[1]), query[-1])
        return self._known(call, [*call.args[:3], *(self._aligned(bias, len(out), out[0]) for bias in call.args[3:])])


def _flat(states: Iterable[State]) -> Iterable[State]:
    for state in states:
        if isinstance(state, list):
            yield from _flat(state)
        else:
            yield state


def _is_tensor(expr: Expr) -> bool:
    return isinstance(expr.ty, relax.TensorType)


def _tensors(kind: Any) -> list[Any]:
    """The types of a tuple's fields, or that of a tensor."""
    return list(kind.fields) if isinstance(kind, relax.TupleType) else [kind]


def _shapes(kind: Any) -> list[Shape]:
    """The shapes of a tensor, or of a tuple's tensors. Raises _Inseparable if they are not static."""
    found = [static_shape(field) for field in _tensors(kind)]
    if any(not shape for shape in found):
        raise _Inseparable
    return [shape for shape in found if shape is not None]


_RULES: dict[str, Callable[[_Division, relax.Call, Sequence[Shape]], Expr]] = {
    **dict.fromkeys(BROADCASTING, _Division._element_wise),
    **dict.fromkeys((*CONVOLUTIONS, *TRANSPOSED), _Division._convolution),
    **dict.fromkeys((*POOLS, *ADAPTIVE_POOLS, "image.resize2d"), _Division._pool),
    **dict.fromkeys((*REDUCTIONS, "prod", "std"), _Division._reduced),
    **dict.fromkeys((*SOFTMAXES, "argmax", "argmin", "split", "take"), _Division._along_axis),
    **dict.fromkeys(("nn.layer_norm", "nn.rms_norm"), _Division._normed),
    **dict.fromkeys(("quantize", "dequantize"), _Division._rescaled),
    "nn.group_norm": _Division._group_normed,
    "nn.pad": _Division._pad,
    "permute_dims": _Division._permuted,
    "reshape": _Division._reshaped,
    "broadcast_to": _Division._broadcast,
    "expand_dims": _Division._expanded,
    "squeeze": _Division._squeezed,
    "concat": _Division._joined,
    "strided_slice": _Division._sliced,
    "matmul": _Division._multiplication,
    "nn.attention": _Division._attention,
}
