"""An estimated cost and how far it may be off: plain data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ...decide.configs.config import Config

NINETY = 1.645  # standard deviations within which nine tenths of a normal distribution lie
Basis = Literal["entry", "multiple", "neighbours"]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What a shape is estimated to cost, in seconds or on an accelerator in cycles: `cost`, and `interval`, within
    which it lies in nine cases of ten. `config` is what computes it. `basis` is what the estimate is made from: the
    "entry" of the shape, an entry that it is a "multiple" of, or its "neighbours"; `known` costs were looked at."""

    cost: float
    interval: tuple[float, float]
    config: Config
    basis: Basis
    known: int


def interval(cost: float, spread: float) -> tuple[float, float]:
    """Where a cost lies in nine cases of ten whose logarithm has this standard deviation."""
    factor = math.exp(NINETY * spread)
    return cost / factor, cost * factor
