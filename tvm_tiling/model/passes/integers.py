"""Divisions, shifts and comparisons of integers, as TIR for which no value ends a process or is mistaken.

Divisors that are constants are checked here, computed ones by a kernel in the run (lowering/divisors.py). What else has
no defined result gets one in every PrimFunc (lowering/integers.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from tvm import relax

from ...errors import ModelFormatError
from ...lowering.checked import constant_value
from ...lowering.divisors import checked_divisors, is_integer

Legalise: TypeAlias = Callable[[relax.BlockBuilder, Any], relax.Expr]


def _by_tvm(builder: relax.BlockBuilder, call: Any, right: relax.Expr) -> relax.Expr:
    return call.op.get_attr("FLegalize")(builder, relax.Call(call.op, [call.args[0], right], call.attrs, call.ty_args))


def _division(builder: relax.BlockBuilder, call: Any) -> relax.Expr:
    divisors = checked_divisors(builder, call.args[1], call.op.name.removeprefix("relax."))
    value = constant_value(builder, divisors)
    if value is not None and not value.ndim and value == 0:
        divisors = builder.emit(divisors)  # of floats: TIR refuses that number, and divides by a tensor that holds it
    return _by_tvm(builder, call, divisors)


def _shift(builder: relax.BlockBuilder, call: Any) -> relax.Expr:
    places = call.args[1]
    value = constant_value(builder, places)
    if value is not None and not value.ndim and not 0 <= int(value) < 8 * value.itemsize:
        places = builder.emit(places)  # TIR has no shift by that number; one by a tensor is made defined
    return _by_tvm(builder, call, places)


def _comparison(builder: relax.BlockBuilder, call: Any) -> relax.Expr:
    operands = [builder.emit(operand) if _is_lowest(builder, operand) else operand for operand in call.args]
    return call.op.get_attr("FLegalize")(builder, relax.Call(call.op, operands, call.attrs, call.ty_args))


def _is_lowest(builder: relax.BlockBuilder, operand: relax.Expr) -> bool:
    """Whether this is the lowest number of int32: TVM holds that no number equals it, and compares with a tensor."""
    value = constant_value(builder, operand)
    return value is not None and not value.ndim and value.dtype == "int32" and value == np.iinfo("int32").min


def _negative(builder: relax.BlockBuilder, call: Any) -> relax.Expr:
    dtype = str(call.args[0].ty.dtype)
    if not dtype.startswith("uint"):
        return call.op.get_attr("FLegalize")(builder, call)
    difference = builder.normalize(relax.op.subtract(relax.const(0, dtype), call.args[0]))  # TVM multiplies by -1
    return difference.op.get_attr("FLegalize")(builder, difference)


def _power(builder: relax.BlockBuilder, call: Any) -> relax.Expr:
    dtype = str(call.args[0].ty.dtype)
    if is_integer(dtype):
        raise ModelFormatError(f"power: operands are {dtype}; expected floats, which astype makes of integers")
    return _by_tvm(builder, call, call.args[1])


LEGALISED: dict[str, Legalise] = {
    **{f"relax.{name}": _division for name in ("divide", "floor_divide", "floor_mod", "mod")},
    **{f"relax.{name}": _shift for name in ("left_shift", "right_shift")},
    **{
        f"relax.{name}": _comparison
        for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
    },
    "relax.negative": _negative,
    "relax.power": _power,
}
