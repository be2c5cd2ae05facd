"""A random case: all of it is drawn before anything is compiled, so that it is known of one that ends the process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """`name` tells it from every other of its family; `check` raises if it is wrong."""

    name: str
    check: Callable[[], None]
