"""Operators on boxes and regions, legalised to TIR with range checks of image indices and box counts.

The column layout of a box is an attribute, which Relax has checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from tvm import relax, te, tirx

from ...lowering.positions import checked_positions

Builder: TypeAlias = relax.BlockBuilder
Legalise: TypeAlias = Callable[[Builder, Any], relax.Expr]


def _with(builder: Builder, call: Any, *arguments: relax.Expr) -> relax.Expr:
    """TVM's legalisation of the call with these arguments."""
    changed = builder.normalize(relax.Call(call.op, list(arguments), call.attrs, call.ty_args))
    return call.op.get_attr("FLegalize")(builder, changed)


def _of_image(name: str) -> Legalise:
    """Legalise operators on regions whose first column is the image index."""

    def legalise(builder: Builder, call: Any) -> relax.Expr:
        data, regions = call.args
        images = data.ty.shape[str(call.attrs.layout).index("N")]

        def number(box: te.Tensor) -> te.Tensor:
            return te.compute(box.shape[:1], lambda i: tirx.Cast("int64", box[i, 0]), name="image")

        def joined(box: te.Tensor, image: te.Tensor) -> te.Tensor:
            def element(i: Any, j: Any) -> Any:
                return tirx.Select(j == 0, tirx.Cast(box.dtype, image[i]), box[i, j])

            return te.compute(box.shape, element, name="regions")

        numbers = builder.emit(builder.call_te(number, regions))
        checked = checked_positions(builder, numbers, images, name, wraps=False)
        return _with(builder, call, data, builder.emit(builder.call_te(joined, regions, checked)))

    return legalise


def _non_max_suppression(builder: Builder, call: Any) -> relax.Expr:
    data, counts, indices = call.args
    most = data.ty.shape[1] + 1
    checked = checked_positions(builder, counts, most, "non_max_suppression", wraps=False, called="count of boxes")
    return _with(builder, call, data, checked, indices)


LEGALISED: dict[str, Legalise] = {
    "relax.vision.non_max_suppression": _non_max_suppression,
    "relax.vision.roi_align": _of_image("roi_align"),
    "relax.vision.roi_pool": _of_image("roi_pool"),
}
