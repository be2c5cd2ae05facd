"""Quantised tensors while a graph is written in integers: their 8-bit numbers, and sums of these in int32."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from tvm import relax
from tvm.relax import op

from ..passes.dataflow import Expr, Rewriter, constant
from .scale import Scale


@dataclass(frozen=True)
class Real:
    """A quantised tensor: its int8 numbers, what they stand for, and the same numbers in int32 if they are at hand.
    `number` grows with the place where those come about."""

    value: Expr
    scale: Scale
    wide: Expr | None = None
    number: int = 0

    def integers(self, rewriter: Rewriter) -> Expr:
        """The numbers in int32."""
        return self.wide if self.wide is not None else rewriter.emit(op.astype(self.value, "int32"))

    def centred(self, rewriter: Rewriter) -> Expr:
        """The numbers less their zero point, in int32."""
        found = self.integers(rewriter)
        return rewriter.emit(op.subtract(found, integer(self.scale.zero))) if self.scale.zero else found


@dataclass(frozen=True)
class Total:
    """int32 numbers x of at most `bound` that stand for x * factor, which broadcasts to their shape. x is `value`, or
    that and `offset`, whole numbers that broadcast likewise."""

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
        """With a real constant added, rounded to a whole number of factors."""
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
    """A constant tensor, or the number where it holds but one."""
    return integer(int(values.reshape(-1)[0])) if values.size == 1 else expr


def bounded(rewriter: Rewriter, value: Expr, low: int, high: int) -> Expr:
    """`value` within low .. high, int32."""
    return rewriter.emit(op.minimum(rewriter.emit(op.maximum(value, integer(low))), integer(high)))
