"""An estimated cost with its uncertainty: plain data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ...decide.configs.config import Config

NINETY = 1.645  # standard deviations that contain 90 percent of a normal distribution
Basis = Literal["entry", "multiple", "neighbours"]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The estimated cost of a shape in seconds, or in cycles on an accelerator: `cost`, and the `interval` that
    contains it in nine cases out of ten. `config` is the configuration that computes it. `basis` is what the estimate
    is based on: the "entry" of the shape, an entry that it is a "multiple" of, or its "neighbours"; `known` is the
    number of costs used."""

    cost: float
    interval: tuple[float, float]
    config: Config
    basis: Basis
    known: int


def interval(cost: float, spread: float) -> tuple[float, float]:
    """Return the 90 percent interval of a cost whose logarithm has the given standard deviation."""
    factor = math.exp(NINETY * spread)
    return cost / factor, cost * factor
