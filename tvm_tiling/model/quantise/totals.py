"""Quantised tensors while a graph is rewritten in integers: their 8-bit values, and sums of these in int32."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from tvm import relax
from tvm.relax import op

from ..passes.dataflow import Expr, Rewriter, constant
from .scale import Scale


@dataclass(frozen=True)
class Real:
    """A quantised tensor: its int8 values, its scale, and the same values in int32 if available.

    `number` increases with the position where it is computed.
    """

    value: Expr
    scale: Scale
    wide: Expr | None = None
    number: int = 0

    def integers(self, rewriter: Rewriter) -> Expr:
        """The values in int32."""
        return self.wide if self.wide is not None else rewriter.emit(op.astype(self.value, "int32"))

    def centred(self, rewriter: Rewriter) -> Expr:
        """The values minus their zero point, in int32."""
        found = self.integers(rewriter)
        return rewriter.emit(op.subtract(found, integer(self.scale.zero))) if self.scale.zero else found


@dataclass(frozen=True)
class Total:
    """int32 values x of at most `bound` that represent x * factor; `factor` broadcasts to their shape.

    x is `value`, plus `offset`, if given: integers that broadcast likewise.
    """

    value: Expr
    factor: np.ndarray
    bound: int
    offset: np.ndarray | None = None

    def number(self, rewriter: Rewriter) -> Expr:
        """x."""
        if self.offset is None:
            return self.value
        added = constant(self.offset.astype(np.int32))
        return rewriter.emit(op.add(self.value, scalar_if_one(added, self.offset)))

    def plus(self, rewriter: Rewriter, bias: np.ndarray) -> Total:
        """Add a real constant, rounded to a multiple of the factor."""
        whole = np.rint(bias / self.factor)
        bound = self.bound + int(np.abs(whole).max(initial=0))
        whole = np.clip(whole, -(1 << 30), 1 << 30)
        if self.offset is not None:
            return replace(self, offset=self.offset + whole, bound=bound)
        added = constant(whole.astype(np.int32))
        return replace(self, value=rewriter.emit(op.add(self.value, scalar_if_one(added, whole))), bound=bound)


def integer(value: int) -> Expr:
    return relax.const(int(value), "int32")


def scalar_if_one(expr: Expr, values: np.ndarray) -> Expr:
    """A constant tensor, or a scalar if it has only one element."""
    return integer(int(values.reshape(-1)[0])) if values.size == 1 else expr


def bounded(rewriter: Rewriter, value: Expr, low: int, high: int) -> Expr:
    """`value` clamped to low .. high, int32."""
    return rewriter.emit(op.minimum(rewriter.emit(op.maximum(value, integer(low))), integer(high)))
