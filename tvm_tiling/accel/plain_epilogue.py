"""What is fused behind an operator, written plainly in TE, a block for each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from ..decide.epilogue import BIAS, CLIP, CLIPPED_AT, RELU, RESIDUAL


def behind(result: te.Tensor, steps: Sequence[str], column: int) -> tuple[list[te.Tensor], te.Tensor]:
    """What the steps add, and what they make of `result`; `column` is its axis that a bias has."""
    added: list[te.Tensor] = []
    for number, step in enumerate(steps):
        if step in (BIAS, RESIDUAL):
            shape = (result.shape[column],) if step == BIAS else result.shape
            added.append(te.placeholder(shape, result.dtype, name=f"{step}_{number}"))
        result = _stepped(result, step, column, added)
    return added, result


def _stepped(before: te.Tensor, step: str, column: int, added: Sequence[te.Tensor]) -> te.Tensor:
    def element(*at: Any) -> Any:
        value = before(*at)
        if step == RELU:
            return te.max(value, tirx.const(0, before.dtype))
        if step == CLIP:
            return te.min(value, tirx.const(CLIPPED_AT, before.dtype))
        return value + (added[-1](at[column]) if step == BIAS else added[-1](*at))

    return te.compute(before.shape, element, name=f"after_{step}")
