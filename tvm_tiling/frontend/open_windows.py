"""Checks that windows fit images of dynamic shape."""

from __future__ import annotations

import tvm
from tvm import relax, tirx

from ..errors import ModelFormatError
from .open_shapes import OpenShapes


def guard_windows(module: tvm.IRModule, shapes: OpenShapes, where: str) -> None:
    """Add guards that windows do not exceed images of dynamic shape. Raises ModelFormatError if they always do."""
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            call, kind = binding.value, binding.var.ty
            if not (isinstance(call, relax.Call) and isinstance(call.op, tvm.ir.Op)):
                continue
            name = call.op.name.removeprefix("relax.")
            if (not name.startswith("nn.conv") and "_pool" not in name) or not isinstance(kind, relax.TensorType):
                continue
            shapes.why = f"{binding.var.name!r} ({name})"
            for extent in kind.shape.values if isinstance(kind.shape, relax.ShapeExpr) else ():
                if not isinstance(extent, tirx.IntImm) and shapes.extent(extent) is not None:
                    try:
                        shapes.require_at_least(extent, 1)
                    except ValueError as error:
                        raise ModelFormatError(f"{where}: {shapes.why}: {error}") from None
