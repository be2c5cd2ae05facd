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
    """A workload ready to be run: `run` computes it once more into memory that exists, `output` gives that memory.

    `note` says which of several ways a peer took. `rounding`: how far the output may be from the right one, beyond the
    tolerance, because it is stored in fewer bits.
    """

    run: Callable[[], object]
    output: Callable[[], Any]
    note: str = ""
    rounding: float = 0.0


class Peer(ABC):
    """Something that computes workloads of the kinds it `serves`, on all usable cores."""

    name: str = ""
    library: ClassVar[bool] = True  # competes; False for our own kernel in a forced form
    needs: ClassVar[tuple[str, ...]] = ()  # packages to be installed
    supports: ClassVar[tuple[type[Workload], ...]] = (GemmWorkload,)

    def available(self) -> str | None:
        """None, or why this peer cannot be used on this machine."""
        missing = [package for package in self.needs if importlib.util.find_spec(package) is None]
        return f"not installed: {', '.join(missing)}" if missing else None

    def refuses(self, workload: Any, packed: bool) -> str | None:
        """None, or why this peer does not serve this workload of a kind that it serves otherwise."""
        return None

    def cannot(self, workload: Workload, packed: bool) -> str | None:
        """None, or why this workload is to be skipped: not installed, another kind, or refused."""
        if missing := self.available():
            return missing
        if not isinstance(workload, self.supports):
            return "serves matrix products only" if self.supports == (GemmWorkload,) else "serves convolutions only"
        return self.refuses(workload, packed)

    @abstractmethod
    def prepare(self, operands: Any, packed: bool) -> Prepared:
        """What may be done ahead of time: compile, allocate and, where `packed`, lay out the second operand."""


def quickest(ways: dict[str, Prepared]) -> Prepared:
    """The way whose best call is the quickest, with its name as the note: a peer is given its best."""

    def best(way: Prepared) -> float:
        way.run()
        return quickest_call(Side(way.run))

    name = min(ways, key=lambda key: best(ways[key])) if len(ways) > 1 else next(iter(ways))
    return replace(ways[name], note=name)
