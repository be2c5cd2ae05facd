"""The interface of a peer."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tvm_tiling.measure import Side, quickest_call
from tvm_tiling.workload import GemmWorkload

from ..operands import Workload


@dataclass(frozen=True)
class Prepared:
    """A prepared workload: `run` computes it into existing memory, `output` returns that memory.

    `note` names the variant that a peer chose. `rounding`: the error that the output may have, beyond the tolerance,
    because it is stored in fewer bits.
    """

    run: Callable[[], object]
    output: Callable[[], Any]
    note: str = ""
    rounding: float = 0.0


class Peer(ABC):
    """Computes workloads of the kinds that it `supports`, on all usable cores."""

    name: str = ""
    library: ClassVar[bool] = True  # counts as a peer; False for our own kernel in a forced variant
    needs: ClassVar[tuple[str, ...]] = ()  # required packages
    supports: ClassVar[tuple[type[Workload], ...]] = (GemmWorkload,)

    def available(self) -> str | None:
        """Return None, or why this peer cannot be used on this machine."""
        missing = [package for package in self.needs if importlib.util.find_spec(package) is None]
        return f"not installed: {', '.join(missing)}" if missing else None

    def refuses(self, workload: Any, packed: bool) -> str | None:
        """Return None, or why this peer does not support this workload."""
        return None

    def cannot(self, workload: Workload, packed: bool) -> str | None:
        """Return None, or why this workload is to be skipped: not installed, another kind, or unsupported."""
        if missing := self.available():
            return missing
        if not isinstance(workload, self.supports):
            return (
                "supports matrix multiplications only"
                if self.supports == (GemmWorkload,)
                else "supports convolutions only"
            )
        return self.refuses(workload, packed)

    @abstractmethod
    def prepare(self, operands: Any, packed: bool) -> Prepared:
        """Do everything that is allowed ahead of time: compile, allocate and, if `packed`, lay out the second
        operand."""


def quickest(ways: dict[str, Prepared]) -> Prepared:
    """Return the variant with the lowest minimum time, with its name as the note, so that each peer runs at its
    best."""

    def best(way: Prepared) -> float:
        way.run()
        return quickest_call(Side(way.run))

    name = min(ways, key=lambda key: best(ways[key])) if len(ways) > 1 else next(iter(ways))
    return replace(ways[name], note=name)
