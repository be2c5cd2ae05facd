"""The interface of a peer."""

from __future__ import annotations

import importlib.util
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from tvm_tiling.workload import GemmWorkload

from ..operands import Operands


@dataclass(frozen=True)
class Prepared:
    """A product ready to be run: `run` computes it once more into memory that exists, `output` gives that memory.

    `note` says which of several ways a peer took.
    """

    run: Callable[[], object]
    output: Callable[[], Any]
    note: str = ""


class Peer(ABC):
    """Something that multiplies matrices, on all usable cores."""

    name: str = ""
    library: ClassVar[bool] = True  # competes; False for our own kernel in a forced form
    needs: ClassVar[tuple[str, ...]] = ()  # packages to be installed

    def available(self) -> str | None:
        """None, or why this peer cannot be used on this machine."""
        missing = [package for package in self.needs if importlib.util.find_spec(package) is None]
        return f"not installed: {', '.join(missing)}" if missing else None

    def refuses(self, workload: GemmWorkload, packed: bool) -> str | None:
        """None, or why this peer does not serve this product."""
        return None

    @abstractmethod
    def prepare(self, operands: Operands, packed: bool) -> Prepared:
        """Everything that may be done ahead of time: compile, allocate and, where `packed`, lay B out anew."""


def quickest(ways: dict[str, Prepared], calls: int = 3) -> Prepared:
    """The way whose best of a few calls is the quickest, with its name as the note: a peer is given its best."""

    def best(way: Prepared) -> float:
        way.run()
        seconds = []
        for _ in range(calls):
            start = time.perf_counter()
            way.run()
            seconds.append(time.perf_counter() - start)
        return min(seconds)

    name = min(ways, key=lambda key: best(ways[key])) if len(ways) > 1 else next(iter(ways))
    return Prepared(ways[name].run, ways[name].output, name)
