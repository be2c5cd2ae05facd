"""How far apart shapes are: where each lies, by the logarithms of its lengths, and in what else their keys differ."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .key import ShapeKey, Workload, extents_of, key_of

OTHER_FIELD = 1.0  # how far apart a field of the key puts two shapes that is no length; an axis twice as long: 1
LENGTHS = ("kh", "kw", "kd", "stride", "dilation", "groups")
FOLLOWS = ("padding", "output_padding")  # the kernel


def comparable(key: ShapeKey) -> tuple[object, ...]:
    """What keys must have in common for measured costs of one to say something of the other's."""
    return key.op, key.dtype, key.acc_dtype, key.prepacked, key.epilogue


def place(workload: Workload) -> list[float]:
    """Where a shape lies: the logarithms of its axes and of its kernel, strides and groups to the base of 2."""
    lengths = dict(zip(key_of(workload).axes, extents_of(workload), strict=True))
    lengths.setdefault("d", 1)
    for name in LENGTHS:
        value = getattr(workload, name, 1)
        lengths[name] = math.prod(value) if isinstance(value, tuple) else value
    return [math.log2(max(1, length)) for length in lengths.values()]


def distances(
    places: np.ndarray, keys: Sequence[ShapeKey], others: np.ndarray, other_keys: Sequence[ShapeKey]
) -> np.ndarray:
    """float64[places, others]: from each of some shapes of one operator to each of others."""
    squares = ((places[:, None] - others[None, :]) ** 2).sum(axis=-1)
    numbers = {key: number for number, key in enumerate(dict.fromkeys([*keys, *other_keys]))}
    unlike = np.array([[_unlike(one, two) for two in numbers] for one in numbers])
    fields = unlike[np.ix_([numbers[key] for key in keys], [numbers[key] for key in other_keys])]
    found: np.ndarray = np.sqrt(squares + (OTHER_FIELD * fields) ** 2)
    return found


def _unlike(one: ShapeKey, other: ShapeKey) -> int:
    """In how many fields two keys differ that are neither lengths nor follow from them."""
    if one.fixed == other.fixed and one.layout == other.layout:
        return 0
    mine, theirs = dict(one.fixed), dict(other.fixed)
    names = {name for name in {*mine, *theirs} if name not in LENGTHS and not name.startswith(FOLLOWS)}
    return sum(mine.get(name) != theirs.get(name) for name in names) + (one.layout != other.layout)
