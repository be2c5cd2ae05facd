"""Convolutions of one to three axes, transposed or not."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax
from tvm.relax import op

from ..translation import Table, Translation, Unserved, Value, dtype_of, shape_of
from ..types import computed_in
from .padding import padded
from .views import reshaped

table = Table()

_FORWARD = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}
_TRANSPOSED = {1: op.nn.conv1d_transpose, 2: op.nn.conv2d_transpose, 3: op.nn.conv3d_transpose}


@table("convolution.default")
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
        raise Unserved(f"a convolution along {rank} axes; expected 1 to 3")
    single = len(shape_of(input)) == rank + 1
    if single:
        input = t.emit(op.expand_dims(input, 0))
    before, strides = _each(padding, rank), _each(stride, rank)
    given = {"strides": strides, "padding": before * 2, "dilation": _each(dilation, rank)}
    wide = computed_in(t.dtype)
    if 0 in (*shape_of(input), *shape_of(weight)):
        raise Unserved(f"input {shape_of(input)} and weight {shape_of(weight)}; expected elements")
    if transposed:
        # TVM's transposed convolutions are summed in the type of their operands.
        input, weight = t.cast(input, wide), t.cast(weight, wide)
        wanted = _each(output_padding, rank)
        # TVM's output padding is less than the stride. More of it is first less cut off at the end, then zeros.
        taken = [min(p, o) if o >= s else 0 for p, o, s in zip(before, wanted, strides, strict=True)]
        left = [o - cut for o, cut in zip(wanted, taken, strict=True)]
        zeros = [o if o >= s else 0 for o, s in zip(left, strides, strict=True)]
        given["padding"] = [*before, *(p - cut for p, cut in zip(before, taken, strict=True))]
        given["output_padding"] = [o - zero for o, zero in zip(left, zeros, strict=True)]
        result = t.emit(_TRANSPOSED[rank](input, weight, groups=groups, **given))
        if any(zeros):
            result = padded(t, result, [(0, 0), (0, 0), *((0, zero) for zero in zeros)])
    else:
        out = None if dtype_of(input) == wide else wide
        result = t.emit(_FORWARD[rank](input, weight, groups=groups, out_dtype=out, **given))
    if bias is not None:
        result = t.emit(op.add(result, reshaped(t, t.cast(bias, wide), [1, *shape_of(bias), *[1] * rank])))
    result = t.cast(result, t.dtype)
    return reshaped(t, result, t.shape) if single else result


def _each(numbers: Sequence[int], rank: int) -> list[int]:
    """A number for each axis; one stands for all."""
    return [int(number) for number in (list(numbers) * rank if len(numbers) == 1 else numbers)]
