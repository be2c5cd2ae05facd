"""ONNX operators on sequences of tensors, as Relax tuples with lengths and positions known at compile time."""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend as tvm_onnx

from .tensors import constant, shape_of


def _tensors(bb: relax.BlockBuilder, sequence: relax.Expr) -> list[relax.Expr]:
    """The tensors of a sequence."""
    if isinstance(sequence, relax.Tuple):
        return list(sequence.fields)
    if not isinstance(sequence.ty, relax.TupleType):
        raise ValueError("its first input is not a sequence of tensors")
    return [bb.emit(relax.TupleGetItem(sequence, place)) for place in range(len(sequence.ty.fields))]


def _position(value: relax.Expr, length: int, ends: int = 0) -> int:
    """A position in a sequence, counted from its start; `ends` is 1 if the position after the last tensor is valid."""
    if not isinstance(value, tvm.ir.GenericConst):
        raise ValueError("the position has to be known at compile time")
    at = int(value.value.numpy().reshape(-1)[0])
    if not -length <= at < length + ends:
        raise ValueError(f"position {at} is outside a sequence of length {length}")
    return at + length if at < 0 else at


class SequenceConstruct(tvm_onnx.OnnxOpConverter):
    """A sequence of the inputs."""

    @classmethod
    def _impl_v11(cls, bb, inputs, attr, params):
        return relax.Tuple(list(inputs))


class SplitToSequence(tvm_onnx.OnnxOpConverter):
    """Parts of a tensor along an axis: of given sizes, or of one size with a smaller last part."""

    @classmethod
    def _impl_v11(cls, bb, inputs, attr, params):
        data, split = inputs[0], inputs[1] if len(inputs) > 1 else None
        if split is not None and not isinstance(split, tvm.ir.GenericConst):
            raise ValueError("split has to be known at compile time")
        shape = shape_of(data)
        axis = attr.get("axis", 0) % len(shape)
        given = None if split is None else split.value.numpy()
        if given is not None and given.ndim:
            sizes = [int(size) for size in given]
        else:
            size = 1 if given is None else int(given)
            if size < 1:
                raise ValueError(f"parts have {size} elements; expected 1 or more")
            sizes = [min(size, shape[axis] - start) for start in range(0, shape[axis], size)]
        if sum(sizes) != shape[axis] or min(sizes, default=0) < 0:
            raise ValueError(f"parts of sizes {sizes} do not add up to an axis of {shape[axis]}")
        parts, start = [], 0
        for size in sizes:
            parts.append(bb.emit(op.strided_slice(data, [axis], [start], [start + size])))
            start += size
        if given is None and not attr.get("keepdims", 1):
            parts = [bb.emit(op.squeeze(part, [axis])) for part in parts]
        return relax.Tuple(parts)


class SequenceAt(tvm_onnx.OnnxOpConverter):
    """One tensor of a sequence."""

    @classmethod
    def _impl_v11(cls, bb, inputs, attr, params):
        tensors = _tensors(bb, inputs[0])
        return tensors[_position(inputs[1], len(tensors))]


class OptionalHasElement(tvm_onnx.OptionalHasElement):
    """Whether an optional has an element; an omitted input has none."""

    @classmethod
    def _impl_v18(cls, bb, inputs, attr, params):
        return super()._impl_v18(bb, inputs if len(inputs) else [None], attr, params)


class SequenceLength(tvm_onnx.OnnxOpConverter):
    """The number of tensors in a sequence."""

    @classmethod
    def _impl_v11(cls, bb, inputs, attr, params):
        return constant(len(_tensors(bb, inputs[0])))


class SequenceErase(tvm_onnx.OnnxOpConverter):
    """A sequence without one of its tensors; without the last one if no position is given."""

    @classmethod
    def _impl_v11(cls, bb, inputs, attr, params):
        tensors = _tensors(bb, inputs[0])
        at = _position(inputs[1] if len(inputs) > 1 else constant(-1), len(tensors))
        return relax.Tuple(tensors[:at] + tensors[at + 1 :])


class SequenceInsert(tvm_onnx.OnnxOpConverter):
    """A sequence with one more tensor; at its end if no position is given."""

    @classmethod
    def _impl_v11(cls, bb, inputs, attr, params):
        tensors = _tensors(bb, inputs[0])
        at = _position(inputs[2], len(tensors), ends=1) if len(inputs) > 2 else len(tensors)
        return relax.Tuple([*tensors[:at], inputs[1], *tensors[at:]])


class ConcatFromSequence(tvm_onnx.OnnxOpConverter):
    """The tensors of a sequence concatenated along an existing axis, or stacked along a new one."""

    @classmethod
    def _impl_v11(cls, bb, inputs, attr, params):
        tensors, axis = _tensors(bb, inputs[0]), attr["axis"]
        if not tensors:
            raise ValueError("the sequence is empty")
        if attr.get("new_axis", 0):
            tensors = [bb.emit(op.expand_dims(tensor, axis)) for tensor in tensors]
        return tensors[0] if len(tensors) == 1 else op.concat(tensors, axis)


CONVERTERS = {
    "ConcatFromSequence": ConcatFromSequence,
    "OptionalHasElement": OptionalHasElement,
    "SequenceAt": SequenceAt,
    "SequenceConstruct": SequenceConstruct,
    "SequenceErase": SequenceErase,
    "SequenceInsert": SequenceInsert,
    "SequenceLength": SequenceLength,
    "SplitToSequence": SplitToSequence,
}
