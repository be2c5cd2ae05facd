"""Convolutions and transposed convolutions over one to three spatial axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax
from tvm.relax import op

from ....figures import quantity
from ..translation import Translation, Unsupported, Value, converter, dtype_of, shape_of
from ..types import computed_in
from .padding import padded
from .views import each, reshaped

_FORWARD = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}
_TRANSPOSED = {1: op.nn.conv1d_transpose, 2: op.nn.conv2d_transpose, 3: op.nn.conv3d_transpose}


@converter("convolution.default")
def _convolution(
    t: Translation,
    input: relax.Expr,
    weight: relax.Expr,
    bias: Value,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> relax.Expr:
    rank = len(shape_of(weight)) - 2
    if rank not in _FORWARD:
        raise Unsupported(f"a convolution over {quantity(rank, 'axis', 'axes')} is not supported; expected 1 to 3")
    single = len(shape_of(input)) == rank + 1
    if single:
        input = t.emit(op.expand_dims(input, 0))
    before, strides = each(padding, rank), each(stride, rank)
    given = {"strides": strides, "padding": before * 2, "dilation": each(dilation, rank)}
    wide = computed_in(t.dtype)
    if 0 in (*shape_of(input), *shape_of(weight)):
        raise Unsupported(
            f"input {shape_of(input)} and weight {shape_of(weight)} are not supported; expected nonempty tensors"
        )
    if transposed:
        # TVM accumulates transposed convolutions in the type of their operands.
        input, weight = t.cast(input, wide), t.cast(weight, wide)
        result = _transposed(t, input, weight, groups, each(output_padding, rank), given)
    else:
        out = None if dtype_of(input) == wide else wide
        result = t.emit(_FORWARD[rank](input, weight, groups=groups, out_dtype=out, **given))
    if bias is not None:
        result = t.emit(op.add(result, reshaped(t, t.cast(bias, wide), [1, *shape_of(bias), *[1] * rank])))
    result = t.cast(result, t.dtype)
    return reshaped(t, result, t.shape) if single else result


@converter("conv1d.default", "conv2d.default", "conv3d.default")
def _forward(
    t: Translation,
    input: relax.Expr,
    weight: relax.Expr,
    bias: Value,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> relax.Expr:
    return _convolution(t, input, weight, bias, stride, padding, dilation, False, [0], groups)


def _transposed(
    t: Translation,
    input: relax.Expr,
    weight: relax.Expr,
    groups: int,
    output_padding: Sequence[int],
    given: dict[str, Any],
) -> relax.Expr:
    """A transposed convolution; `given` are its strides, padding and dilation."""
    rank = len(output_padding)
    function = _TRANSPOSED[rank]
    if all(more < stride for more, stride in zip(output_padding, given["strides"], strict=True)):
        return t.emit(function(input, weight, groups=groups, output_padding=output_padding, **given))
    # TVM does not support larger output padding: crop less at the end, and append zeros past the last element.
    before = given["padding"][:rank]
    behind = [pad - more for pad, more in zip(before, output_padding, strict=True)]
    given = {**given, "padding": [*before, *(max(pad, 0) for pad in behind)]}
    result = t.emit(function(input, weight, groups=groups, **given))
    return padded(t, result, [(0, 0), (0, 0), *((0, max(-pad, 0)) for pad in behind)])
