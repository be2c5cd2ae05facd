"""The vector engine of an accelerator: element-wise operations, and the sums of split-K."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..errors import HardwareError, nearest
from . import checks
from .vector_functions import Function


@dataclass(frozen=True, kw_only=True)
class Vector:
    """`lanes` elements per cycle, whatever their type; a result is available `latency` cycles after its last element.
    `functions` are the supported ones, `dtypes` the supported types of operands and results; empty: all.

    An instruction starts at least `interval` cycles after the previous one. One that reads the result of an earlier one
    waits for it, unless the engine `forwards` results to its next instruction.
    """

    lanes: int
    latency: int = 0
    functions: tuple[str, ...] = field(default_factory=lambda: Function.names)
    dtypes: tuple[str, ...] = checks.added(())
    interval: int = checks.added(1)
    forwards: bool = checks.added(False)

    def __post_init__(self) -> None:
        checks.whole("vector", "lanes", self.lanes)
        checks.whole("vector", "latency", self.latency, least=0)
        checks.whole("vector", "interval", self.interval)
        checks.truth("vector", "forwards", self.forwards)
        for name in checks.words("vector", "functions", self.functions):
            if name not in Function.names:
                raise HardwareError(f"vector: unknown function {name!r}; {nearest(name, Function.names)}")
        checks.put(self, "functions", tuple(name for name in Function.names if name in self.functions))
        checks.put(self, "dtypes", checks.element_types("vector", self.dtypes, checks.COMPUTED))
