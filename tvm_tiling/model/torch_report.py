"""Reports on the graphs of torch.compile: how many parts run here, which operators run in PyTorch, and why."""

from __future__ import annotations

import threading
import warnings
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import LeftToTorch

if TYPE_CHECKING:
    from ..frontend.torch.refusals import Refusal

MOST = 1000  # graphs in the history
_NAMED = 5  # operators named in a warning


@dataclass(frozen=True)
class LeftOperator:
    """An operator run by PyTorch.

    name: as in aten::add.Tensor. why: the reason. nodes: number of nodes of the graph. lines: the lines of the user's
    source that they come from, as in net.py:12.
    """

    name: str
    why: str
    nodes: int
    lines: tuple[str, ...]

    def __str__(self) -> str:
        places = f" at {', '.join(self.lines)}" if self.lines else ""
        return f"{self.name} ({self.nodes} node{'s' if self.nodes > 1 else ''}{places}): {self.why}"


@dataclass(frozen=True)
class GraphReport:
    """The report on one graph, compiled for one set of shapes.

    served: nodes computed by executables of this package. parts: number of executables. left: the operators run by
    PyTorch. why: the reason if PyTorch runs the whole graph; otherwise empty.
    """

    served: int
    parts: int
    left: tuple[LeftOperator, ...]
    why: str

    @property
    def here(self) -> str:
        """The number of the graph's nodes that run here, and of their parts, as a phrase."""
        nodes, parts = ("s" if number != 1 else "" for number in (self.served, self.parts))
        return f"{self.served} node{nodes} run here, in {self.parts} part{parts}"

    def __str__(self) -> str:
        if self.why:
            return f"PyTorch runs the graph: {self.why}"
        return "\n  ".join([self.here, *(f"left to PyTorch: {operator}" for operator in self.left)])


_lock = threading.Lock()
_graphs: deque[GraphReport] = deque(maxlen=MOST)


def torch_report(*, clear: bool = False) -> tuple[GraphReport, ...]:
    """Reports on the last 1000 graphs that torch.compile passed to the backend "tvm_tiling" in this process, in order.

    clear: discard them afterwards.
    """
    with _lock:
        found = tuple(_graphs)
        if clear:
            _graphs.clear()
    return found


def record(report: GraphReport) -> None:
    """Add the report of a graph."""
    with _lock:
        _graphs.append(report)


def left_operators(refusals: Iterable[Refusal]) -> tuple[LeftOperator, ...]:
    """Refused nodes by operator and reason, those refused for a reason of their own first."""
    nodes: dict[tuple[bool, str, str], list[Refusal]] = {}
    for found in refusals:
        if found.operator == "getitem":  # an element of an operator's result
            continue
        why = found.why or "tvm_tiling does not support it"
        nodes.setdefault((found.follows, found.operator, why), []).append(found)
    return tuple(
        LeftOperator(operator, why, len(group), tuple(dict.fromkeys(found.line for found in group if found.line)))
        for (_, operator, why), group in sorted(nodes.items())
    )


def warn_of_part(where: str, report: GraphReport, stacklevel: int) -> None:
    """Issue one LeftToTorch warning with the first operators of a divided graph that PyTorch runs."""
    named = "; ".join(map(str, report.left[:_NAMED]))
    more = f"; and {len(report.left) - _NAMED} more" if len(report.left) > _NAMED else ""
    warnings.warn(
        f"{where}: operators of a graph are left to PyTorch: {named}{more}; {report.here}",
        LeftToTorch,
        stacklevel=stacklevel + 1,
    )
