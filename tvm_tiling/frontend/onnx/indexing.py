"""ONNX operators that read or write elements at given indices.

Negative indices count from the end. Other indices out of range are errors at compile time or run time that name the
node.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import relax, te, tirx
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend as tvm_onnx

from ...figures import quantity
from ...lowering.positions import checked_positions
from ..open_shapes import whole
from .tensors import as_inputs, dtype_of

_REDUCTIONS = {"none": "update", "add": "add", "mul": "mul", "min": "min", "max": "max"}


def positions(
    bb: relax.BlockBuilder,
    indices: relax.Expr,
    extents: Any,
    attr: dict[str, Any],
    *,
    wraps: bool = True,
    called: str = "index",
) -> relax.Expr:
    """Return `indices` of the node with these attributes after a range check against axes of `extents`."""
    value = indices if isinstance(indices, tvm.ir.GenericConst) else bb.emit(indices)
    return checked_positions(bb, value, extents, attr["tvm_custom"]["where"], wraps=wraps, called=called)


def _tensor(bb: relax.BlockBuilder, value: relax.Expr) -> relax.Expr:
    """Return a shape as a tensor."""
    value = bb.normalize(value)
    return bb.emit(op.shape_to_tensor(value)) if isinstance(value.ty, relax.ShapeType) else value


class Gather(tvm_onnx.Gather):
    """Slices along one axis."""

    @classmethod
    def _impl_v13(cls, bb, inputs, attr, params):
        data, indices = inputs[0], inputs[1]
        known = isinstance(indices, tvm.ir.GenericConst)
        if isinstance(data, relax.ShapeExpr) and known and indices.value.numpy().ndim == 0:
            return super()._impl_v13(bb, inputs, attr, params)  # one extent of a shape
        data = _tensor(bb, data)
        axis = attr.get("axis", 0) % len(data.ty.shape)
        return op.take(data, positions(bb, _tensor(bb, indices), data.ty.shape[axis], attr), axis)


class GatherElements(tvm_onnx.OnnxOpConverter):
    """Elements along one axis."""

    @classmethod
    def _impl_v13(cls, bb, inputs, attr, params):
        axis = attr.get("axis", 0) % len(inputs[0].ty.shape)
        return op.gather_elements(inputs[0], positions(bb, inputs[1], inputs[0].ty.shape[axis], attr), axis)


class GatherND(tvm_onnx.OnnxOpConverter):
    """Slices at indices along several axes."""

    @classmethod
    def _impl_v13(cls, bb, inputs, attr, params):
        data, indices, outer = inputs[0], inputs[1], attr.get("batch_dims", 0)
        extents = list(data.ty.shape)[outer : outer + int(indices.ty.shape[-1])]
        return op.gather_nd(data, positions(bb, indices, extents, attr), outer)


def _reduction(attr: dict[str, Any]) -> str:
    """Return how updates are combined, by Relax's name."""
    how = attr.get("reduction", b"none")
    how = how.decode() if isinstance(how, bytes) else how
    if how not in _REDUCTIONS:
        raise ValueError(f"reduction is {how!r}; expected {', '.join(_REDUCTIONS)}")
    return _REDUCTIONS[how]


class ScatterElements(tvm_onnx.OnnxOpConverter):
    """Elements written or combined along one axis; also called Scatter."""

    @classmethod
    def _impl_v9(cls, bb, inputs, attr, params):
        data, axis = inputs[0], attr.get("axis", 0) % len(inputs[0].ty.shape)
        checked = positions(bb, inputs[1], data.ty.shape[axis], attr)
        return op.scatter_elements(data, checked, inputs[2], axis=axis, reduction=_reduction(attr))


class ScatterND(tvm_onnx.OnnxOpConverter):
    """Slices written or combined at indices along several axes."""

    @classmethod
    def _impl_v11(cls, bb, inputs, attr, params):
        data, indices, updates = inputs[:3]
        extents = list(data.ty.shape)[: int(indices.ty.shape[-1])]
        return op.scatter_nd(data, positions(bb, indices, extents, attr), updates, _reduction(attr))


class Compress(tvm_onnx.OnnxOpConverter):
    """The slices whose condition is true; their number is known only at run time."""

    @classmethod
    def _impl_v9(cls, bb, inputs, attr, params):
        data, condition, axis = inputs[0], inputs[1], attr.get("axis")
        count = tirx.Var("num_nonzero", "int64")
        found = bb.match_cast(bb.emit(op.nonzero(condition)), relax.TensorType([1, count], "int64"))
        if axis is None:
            data, axis = bb.emit(op.reshape(data, (-1,))), 0
        axis %= len(data.ty.shape)
        chosen = positions(bb, op.reshape(found, (count,)), data.ty.shape[axis], attr, wraps=False)
        return op.take(data, chosen, axis)


class ReverseSequence(tvm_onnx.OnnxOpConverter):
    """The first elements of each sequence reversed, up to its length."""

    @classmethod
    def _impl_v10(cls, bb, inputs, attr, params):
        batch, time = attr.get("batch_axis", 1), attr.get("time_axis", 0)
        lengths = positions(bb, inputs[1], inputs[0].ty.shape[time] + 1, attr, wraps=False, called="length")
        given, sequences = whole(inputs[1].ty.shape[0]), whole(inputs[0].ty.shape[batch])
        if isinstance(given, int) and isinstance(sequences, int):
            if given != sequences:
                raise ValueError(f"{given} lengths for {quantity(sequences, 'sequence')}; expected one per sequence")
        elif isinstance(given, int) or isinstance(sequences, int) or not tvm_ffi.structural_equal(given, sequences):
            raise ValueError("the number of lengths is not known at compile time to match the number of sequences")

        def reverse(data: te.Tensor, length: te.Tensor) -> te.Tensor:
            def element(*at: Any) -> Any:
                count, step = tirx.Cast("int64", length[at[batch]]), tirx.Cast("int64", at[time])
                source = tirx.Select(step < count, count - 1 - step, step)
                return data[tuple(source if axis == time else place for axis, place in enumerate(at))]

            return te.compute(data.shape, element, name="reverse_sequence")

        return bb.emit_te(reverse, inputs[0], lengths, primfunc_name_hint="reverse_sequence")


class MaxRoiPool(tvm_onnx.MaxRoiPool):
    """Each region starts with the index of its image."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        data, regions = inputs[0], inputs[1]
        dtype = dtype_of(regions)
        number = bb.emit(op.astype(op.strided_slice(regions, [1], [0], [1]), "int64"))
        checked = op.astype(positions(bb, number, data.ty.shape[0], attr, wraps=False), dtype)
        boxes = op.strided_slice(regions, [1], [1], [5])
        joined = bb.emit(op.concat([bb.emit(checked), bb.emit(boxes)], axis=1))
        return super()._impl_v1(bb, as_inputs(data, joined), attr, params)


CONVERTERS: dict[str, Any] = {
    "Compress": Compress,
    "Gather": Gather,
    "GatherElements": GatherElements,
    "GatherND": GatherND,
    "MaxRoiPool": MaxRoiPool,
    "ReverseSequence": ReverseSequence,
    "Scatter": ScatterElements,
    "ScatterElements": ScatterElements,
    "ScatterND": ScatterND,
}
