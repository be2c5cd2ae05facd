"""Base of the configuration rules whose decision is the candidate with the lowest predicted cost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from ..conv.conv_tiling import ConvTiling
from ..conv.cpu_conv import ConvAlgorithms
from ..tiling import Decision
from .record import Config
from .rule import Undivided

C = TypeVar("C")


class Choice(Protocol[C]):
    """The candidates of one convolution, their cost, and their decisions."""

    def configs(self) -> Iterator[C]:
        """Yield every candidate."""

    def cycles(self, config: C, /) -> float:
        """Return the predicted cycles of a candidate."""

    def tiling(self, config: C, cycles: float, /) -> ConvTiling:
        """Return the decision of a candidate."""


class ChoiceConfigs(Undivided, ABC, Generic[C]):
    """The rule of one algorithm of a convolution, which selects among the candidates of `choice`; `all` has every
    algorithm.
    """

    all: ConvAlgorithms
    choice: Choice[C]

    @abstractmethod
    def config_of(self, tiling: Decision) -> Config:
        """Return the configuration of a decision."""

    @abstractmethod
    def _candidate(self, config: Config) -> C:
        """Return the candidate of a configuration, clipped to the shape. Raises HardwareError if it is impossible."""

    def tiling_of(self, config: Config) -> ConvTiling:
        """Return the decision of a configuration for this shape."""
        candidate = self._candidate(config)
        return self.choice.tiling(candidate, self.choice.cycles(candidate))

    def cost(self, config: Config) -> float:
        """Return the predicted seconds."""
        return self.all.seconds(self.choice.cycles(self._candidate(config)))

    def decided(self) -> Config | None:
        """Return None: the decision is the candidate with the lowest cost."""
        return None

    def candidates(self) -> Iterator[Config]:
        """Yield every candidate of the decision."""
        for candidate in self.choice.configs():
            yield self.config_of(self.choice.tiling(candidate, 1.0))
