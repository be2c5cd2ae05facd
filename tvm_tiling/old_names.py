"""Names of the previous version, accepted with a DeprecationWarning until the next one."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def old_arguments(**renamed: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Accept keyword arguments by their old names: `old_arguments(cut="config")`. Raises TypeError if both are
    given."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for old, new in renamed.items():
                if old in kwargs:
                    if new in kwargs:
                        raise TypeError(f"{function.__name__}() got {new!r} twice, once by its old name {old!r}")
                    deprecated(f"{function.__name__}({old}=...)", f"{new}=")
                    kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call

    return decorate


def deprecated(old: str, new: str) -> None:
    """Warn the caller's caller that `old` is now called `new`."""
    warnings.warn(f"{old} is deprecated; use {new}", DeprecationWarning, stacklevel=3)
