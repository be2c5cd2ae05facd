"""Counts of operators after inlining all function calls, computed without inlining."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


class NestedTooDeeply(ValueError):
    """A function calls itself, or the call depth is too large."""


def count_written_out(
    root: K, parts: Callable[[K], tuple[int, Iterable[K]]], counts: dict[K, int], deepest: int
) -> int:
    """The number of operators of function `root`, including those of the functions that it calls.

    `parts` returns the number of a function's own operators that are not calls, and the functions that it calls, each
    as often as it does. `counts` caches the results. Raises NestedTooDeeply for recursion or more than `deepest` nested
    calls.
    """
    if root in counts:
        return counts[root]
    path: dict[K, tuple[Iterator[K], int, list[K]]] = {}

    def enter(function: K) -> None:
        own, called = parts(function)
        kept = list(called)
        path[function] = iter(dict.fromkeys(kept)), own, kept

    enter(root)
    while path:
        function, (left, own, called) = next(reversed(path.items()))
        inner = next((other for other in left if other not in counts), None)
        if inner is None:
            counts[function] = own + sum(counts[other] for other in called)
            del path[function]
        elif inner in path:
            raise NestedTooDeeply("a function calls itself; recursion is not supported")
        elif len(path) >= deepest:
            raise NestedTooDeeply(f"function calls are nested more than {deepest} deep; recursion is not supported")
        else:
            enter(inner)
    return counts[root]
