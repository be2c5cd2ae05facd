"""Integer divisions, shifts and comparisons that are defined for all values, and multiplications and divisions by the
constant 0, as TIR; powers by constant exponents, without TVM's warning of negative bases.

Constant divisors are checked here, computed ones by a kernel at run time (lowering/divisors.py). Other undefined cases
get a result in every PrimFunc (lowering/integers.py). A float constant 0 becomes a tensor: TIR rejects a division by
the constant, and simplifies 0 * x and 0 / x to 0 even if x is infinite or NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from tvm import relax, te

from ...errors import ModelFormatError
from ...lowering.checked import constant_value
from ...lowering.divisors import checked_divisors, is_integer

_WARNED = 3  # TVM warns of negative bases for constant exponents from here on

Legalise: TypeAlias = Callable[[relax.BlockBuilder, Any], relax.Expr]


def _by_tvm(builder: relax.BlockBuilder, call: Any, left: relax.Expr, right: relax.Expr) -> relax.Expr:
    return call.op.get_attr("FLegalize")(builder, relax.Call(call.op, [left, right], call.attrs, call.ty_args))


def _without_zero(builder: relax.BlockBuilder, operand: relax.Expr) -> relax.Expr:
    """A constant 0 as a tensor; anything else unchanged."""
    value = constant_value(builder, operand)
    return builder.emit(operand) if value is not None and not value.ndim and value == 0 else operand


def _division(builder: relax.BlockBuilder, call: Any) -> relax.Expr:
    divisors = checked_divisors(builder, call.args[1], call.op.name.removeprefix("relax."))
    return _by_tvm(builder, call, _without_zero(builder, call.args[0]), _without_zero(builder, divisors))


def _product(builder: relax.BlockBuilder, call: Any) -> relax.Expr:
    if is_integer(str(call.args[0].ty.dtype)):
        return _by_tvm(builder, call, *call.args)
    return _by_tvm(builder, call, *(_without_zero(builder, operand) for operand in call.args))


def _shift(builder: relax.BlockBuilder, call: Any) -> relax.Expr:
    places = call.args[1]
    value = constant_value(builder, places)
    if value is not None and not value.ndim and not 0 <= int(value) < 8 * value.itemsize:
        places = builder.emit(places)  # TIR rejects a shift by that number; a shift by a tensor is made defined
    return _by_tvm(builder, call, call.args[0], places)


def _comparison(builder: relax.BlockBuilder, call: Any) -> relax.Expr:
    operands = [builder.emit(operand) if _is_lowest(builder, operand) else operand for operand in call.args]
    return _by_tvm(builder, call, *operands)


def _is_lowest(builder: relax.BlockBuilder, operand: relax.Expr) -> bool:
    """Return whether this is the smallest int32 number, for which TVM simplifies comparisons wrongly, so that it has to
    be a tensor."""
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
        raise ModelFormatError(f"power: operands have type {dtype}; expected floats, to which astype converts integers")
    exponent = constant_value(builder, call.args[1])
    if exponent is None or exponent.ndim or not exponent >= _WARNED:
        return _by_tvm(builder, call, *call.args)
    if exponent != _WARNED:  # a tensor, of which TVM does not warn
        return _by_tvm(builder, call, call.args[0], builder.emit(call.args[1]))

    def cube(x: te.Tensor) -> te.Tensor:
        wide = "float64" if dtype == "float64" else "float32"

        def element(*at: Any) -> Any:
            value = x[at].astype(wide)
            return (value * value * value).astype(dtype)

        return te.compute(x.shape, element, name="power")

    return builder.call_te(cube, call.args[0], primfunc_name_hint="power")


LEGALISED: dict[str, Legalise] = {
    **{f"relax.{name}": _division for name in ("divide", "floor_divide", "floor_mod", "mod")},
    **{f"relax.{name}": _shift for name in ("left_shift", "right_shift")},
    **{
        f"relax.{name}": _comparison
        for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
    },
    "relax.negative": _negative,
    "relax.multiply": _product,
    "relax.power": _power,
}
