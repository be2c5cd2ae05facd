"""ONNX operators in the forms of older versions: what are attributes there are inputs in the forms that TVM knows."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend as tvm_onnx

from .resize import resized


def constant(values: Any, dtype: str = "int64") -> relax.Expr:
    """A constant tensor."""
    return relax.const(np.asarray(values, dtype), dtype)


def as_inputs(*values: relax.Expr | None) -> list:
    """A converter's inputs: those left out at the end read as None."""
    return tvm_onnx.onnx_input(values)


class Resize(tvm_onnx.Resize):
    """Resize 10: scales are the second input, and a pixel's place is its index times the scale.

    Later forms name the axes that are meant, and may keep the ratio of the sides.
    """

    @classmethod
    def _impl_v10(cls, bb, inputs, attr, params):
        older = {"coordinate_transformation_mode": b"asymmetric", "nearest_mode": b"floor", **attr}
        return resized(bb, as_inputs(inputs[0], None, inputs[1]), older)

    @classmethod
    def _impl_v11(cls, bb, inputs, attr, params):
        return resized(bb, inputs, attr)

    @classmethod
    def _impl_v18(cls, bb, inputs, attr, params):
        return resized(bb, inputs, attr)


class Upsample(tvm_onnx.OnnxOpConverter):
    """Upsample 7 and 9: a Resize whose scales are an attribute, then an input."""

    @classmethod
    def _impl_v7(cls, bb, inputs, attr, params):
        return Resize._impl_v10(bb, as_inputs(inputs[0], constant(attr["scales"], "float32")), attr, params)

    @classmethod
    def _impl_v9(cls, bb, inputs, attr, params):
        return Resize._impl_v10(bb, inputs, attr, params)
