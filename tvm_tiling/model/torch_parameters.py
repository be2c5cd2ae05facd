"""Executables with the packed weights of a module, kept as long as the module's tensors live.

torch.compile passes one graph to all instances of a class, with their parameters and buffers as inputs. Packed weights
belong to one set of these tensors. A set is identified by the identity of its tensors, their versions, which PyTorch
increments with every in-place change, and their addresses, which change if another tensor's data is assigned. Contents
are not compared. (A change through `tensor.data` or through memory shared with NumPy does not increment the version and
is not detected.)
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter, methodcaller
from typing import Any, Generic, TypeAlias, TypeVar

T = TypeVar("T")
State: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]

# Packing again after a change costs as much as many runs without packed weights: the first changes are followed
# immediately, later ones only if the previous weights served this many calls.
CHANGES_AT_ONCE = 3
CALLS_PER_CHANGE = 10

_version, _address = attrgetter("_version"), methodcaller("data_ptr")


@dataclass
class _Set(Generic[T]):
    """`made`: the executable for the tensors in this state; None if they changed too often. `calls`: in this state."""

    state: State
    made: T | None
    references: tuple[weakref.ref[Any], ...]
    calls: int = 0
    changes: int = 0


class ParameterSets(Generic[T]):
    """Results of `make` for sets of tensors. May be called from several threads."""

    def __init__(self, make: Callable[[Sequence[Any]], T]) -> None:
        self._make = make
        self._sets: dict[tuple[int, ...], _Set[T]] = {}
        self._lock = threading.Lock()

    def of(self, tensors: Sequence[Any]) -> T | None:
        """The result for these tensors in their current state. None if they change so often that making it again is not
        worthwhile, and for tensors made in torch.inference_mode(), which have no versions."""
        key = tuple(map(id, tensors))
        try:
            state = tuple(map(_version, tensors)), tuple(map(_address, tensors))
        except RuntimeError:
            return None
        known = self._sets.get(key)
        if known is not None and known.state == state:
            known.calls += 1
            if known.made is not None or known.calls < CALLS_PER_CHANGE:
                return known.made
        with self._lock:
            return self._made_again(key, state, tensors)

    def _made_again(self, key: tuple[int, ...], state: State, tensors: Sequence[Any]) -> T | None:
        known = self._sets.get(key)
        if known is None:
            references = tuple(weakref.ref(tensor, _Forget(self, key)) for tensor in tensors)
            made = self._make(tensors)
            self._sets[key] = _Set(state, made, references)
            return made
        if known.state == state and known.made is not None:  # by another thread in the meantime
            return known.made
        if known.state != state:
            known.changes += 1
            pays = known.changes <= CHANGES_AT_ONCE or known.calls >= CALLS_PER_CHANGE
            known.state, known.calls, known.made = state, 0, None
            if not pays:
                return None
        known.made = self._make(tensors)
        return known.made

    def __len__(self) -> int:
        return len(self._sets)

    def forget(self, key: tuple[int, ...]) -> None:
        """Drop the result for a set, one of whose tensors no longer exists."""
        self._sets.pop(key, None)


class _Forget:
    """Called when a tensor is deleted; keeps nothing alive."""

    def __init__(self, sets: ParameterSets[Any], key: tuple[int, ...]) -> None:
        self._sets, self._key = weakref.ref(sets), key

    def __call__(self, _: Any) -> None:
        if (sets := self._sets()) is not None:
            sets.forget(self._key)
