"""The sizes that a function of dynamic shapes takes as numbers, in the order of their use.

TVM keeps them in a set, which lists variables by their addresses: the same model gave other functions in another
process, so that files differed and kernels were found in the cache by chance. Importing this module replaces that set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSet

from tvm import relax, tirx


class _InOrder(MutableSet[tirx.Var]):
    """A set that lists its elements as they were added."""

    def __init__(self, elements: Iterable[tirx.Var] = ()) -> None:
        self._elements = dict.fromkeys(elements)

    def __contains__(self, element: object) -> bool:
        return element in self._elements

    def __iter__(self) -> Iterator[tirx.Var]:
        return iter(self._elements)

    def __len__(self) -> int:
        return len(self._elements)

    def add(self, element: tirx.Var) -> None:
        self._elements[element] = None

    def discard(self, element: tirx.Var) -> None:
        self._elements.pop(element, None)

    def update(self, elements: Iterable[tirx.Var]) -> None:
        for element in elements:
            self.add(element)


relax.utils.set = _InOrder
