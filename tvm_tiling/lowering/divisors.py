"""Checks integer divisors once, before any kernel divides by them.

An integer division by zero terminates the process. Constants that contain a zero are refused when the model is
compiled; computed divisors are checked by a separate kernel, which ends the run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..errors import ModelFormatError
from ..refusal import REFUSE_ZERO, zero_sentence
from .checked import Verdict, checked, constant_value, is_checked

CHECKED = "tvm_tiling.divisors"  # attribute of the kernel


def is_integer(dtype: str) -> bool:
    """Return whether `dtype` is an integer type; bool is not."""
    return dtype.startswith(("int", "uint"))


def checked_divisors(builder: relax.BlockBuilder, divisors: relax.Expr, operator: str) -> relax.Expr:
    """Return the tensor `divisors`, checked to contain no zero if its type is an integer.

    `operator` is named in the error: ModelFormatError at once for a constant, WorkloadError at run time for computed
    divisors.
    """
    if isinstance(divisors, tirx.IntImm) and int(divisors) == 0:
        raise ModelFormatError(zero_sentence(operator, ()))
    if not isinstance(divisors.ty, relax.TensorType) or not is_integer(str(divisors.ty.dtype)):
        return divisors
    value = constant_value(builder, divisors)
    if value is not None:
        zeros = np.argwhere(value == 0)
        if len(zeros):
            raise ModelFormatError(zero_sentence(operator, tuple(map(int, zeros[0]))))
        return divisors
    if is_checked(builder, divisors, CHECKED, "True"):
        return divisors

    def judge(divisor: Any, _: int) -> Verdict:
        is_zero = tirx.EQ(divisor, tirx.const(0, str(divisor.ty)))
        return Verdict(is_zero, divisor, lambda *at: T.call_packed(REFUSE_ZERO, operator, *at))

    def check(source: te.Tensor) -> te.Tensor:
        return checked(source, 1, judge, str(source.dtype), "divisors")

    call = builder.call_te(check, divisors, primfunc_name_hint="divisors", primfunc_attrs={CHECKED: "True"})
    return builder.emit(call)
