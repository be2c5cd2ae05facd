"""A random case: all of it is drawn before anything is compiled, so that it is known even if it ends the process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """`name` identifies it within its family; `check` raises if it is wrong."""

    name: str
    check: Callable[[], None]
