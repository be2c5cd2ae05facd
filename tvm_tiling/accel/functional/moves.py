"""LOAD, STORE and FILL: strided copies with a border (page 06)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..program.elements import narrowed, widened


def copy(a: np.ndarray, c: np.ndarray, kinds: tuple[int, int], pad: Sequence[int] | None, border: float) -> None:
    """c = a, where `pad` = (before d1, after d1, before d2, after d2) is given inside a border of the value `border`.

    a[d0, d1, d2, d3] and c, larger by the border, are views of stored elements of the two `kinds`. All of `a` is read
    before anything is written.
    """
    kind, result = kinds
    values = a if kind == result else narrowed(widened(a, kind), result)
    if pad is not None:
        if values is a:
            values = a.copy()
        fill(c, result, border)
        top, bottom, left, right = pad
        c = c[:, top : c.shape[1] - bottom, left : c.shape[2] - right]
    c[...] = values


def fill(c: np.ndarray, kind: int, value: float) -> None:
    """Every element of the view c = `value`, as an element of `kind`."""
    c[...] = narrowed(np.float64(value).reshape(()), kind)
