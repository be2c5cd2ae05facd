"""Distance between shapes: coordinates from the logarithms of their lengths, and the other differences of their
keys."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .key import ShapeKey, Workload, extents_of, key_of

OTHER_FIELD = 1.0  # distance for a key field that is not a length; an axis twice as long counts 1
LENGTHS = ("kh", "kw", "kd", "stride", "dilation", "groups")
FOLLOWS = ("padding", "output_padding")  # determined by the kernel


def comparable(key: ShapeKey) -> tuple[object, ...]:
    """Return what keys must share for measured costs of one to be informative about the other."""
    return key.op, key.dtype, key.acc_dtype, key.prepacked, key.epilogue


def place(workload: Workload) -> list[float]:
    """Return the coordinates of a shape: the base-2 logarithms of its axes and of its kernel, strides and groups."""
    lengths = dict(zip(key_of(workload).axes, extents_of(workload), strict=True))
    lengths.setdefault("d", 1)
    for name in LENGTHS:
        value = getattr(workload, name, 1)
        lengths[name] = math.prod(value) if isinstance(value, tuple) else value
    return [math.log2(max(1, length)) for length in lengths.values()]


def distances(
    places: np.ndarray, keys: Sequence[ShapeKey], others: np.ndarray, other_keys: Sequence[ShapeKey]
) -> np.ndarray:
    """Return float64[places, others]: the distances between two sets of shapes of one operator."""
    squares = ((places[:, None] - others[None, :]) ** 2).sum(axis=-1)
    numbers = {key: number for number, key in enumerate(dict.fromkeys([*keys, *other_keys]))}
    unlike = np.array([[_unlike(one, two) for two in numbers] for one in numbers])
    fields = unlike[np.ix_([numbers[key] for key in keys], [numbers[key] for key in other_keys])]
    found: np.ndarray = np.sqrt(squares + (OTHER_FIELD * fields) ** 2)
    return found


def _unlike(one: ShapeKey, other: ShapeKey) -> int:
    """Return the number of fields in which two keys differ, except lengths and fields that follow from them."""
    if one.fixed == other.fixed and one.layout == other.layout:
        return 0
    mine, theirs = dict(one.fixed), dict(other.fixed)
    names = {name for name in {*mine, *theirs} if name not in LENGTHS and not name.startswith(FOLLOWS)}
    return sum(mine.get(name) != theirs.get(name) for name in names) + (one.layout != other.layout)
