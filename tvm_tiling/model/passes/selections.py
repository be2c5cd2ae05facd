"""The k largest elements along an axis, legalised to a kernel that keeps the best k instead of sorting all."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx

from ...lowering.largest import positions_of_largest
from ...lowering.positions import CHECKED
from .positions import INSIDE

_MOST = 4096  # elements kept; for more, a sort takes about as long


def _topk(builder: relax.BlockBuilder, call: Any) -> relax.Expr:
    data, k, shape = call.args[0], int(call.attrs.k), list(call.args[0].ty.shape)
    axis = int(call.attrs.axis) % len(shape)
    kept = str(call.attrs.ret_type) == "indices" and str(data.ty.dtype) == "int32" and 0 < k <= _MOST
    if not kept or not isinstance(shape[axis], tirx.IntImm) or 0 in shape:
        return call

    def places(tensor: te.Tensor) -> te.Tensor:
        return positions_of_largest(tensor, k, axis, bool(call.attrs.largest), str(call.attrs.dtype))

    attributes = {"op_pattern": 8, CHECKED: str(int(shape[axis])), **INSIDE}
    return builder.call_te(places, data, primfunc_name_hint="topk", primfunc_attrs=attributes)


LEGALISED = {"relax.topk": _topk}
