"""Convolutions as products that are cut through storage levels (pages 01 and 02), the halo of every block counted.

Page 01's product has m = output channels, k = input channels times taps and n = output points. Blocks of points are
rectangles on the chip: strips of the output's width, and in a strip lines from the top to the bottom. So a column of
the product is a line of a strip, a step of k one input channel with all its taps, and images, planes and strips are
ranges of columns that no block spans. Groups are products of their own; where one is small, several are there at once.
Of the widths of a strip and the numbers of groups a few are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from ...workload import ConvWorkload
from ..conv.shape import Axis, shapes_of
from .level_model import LevelProduct
from .level_time import Choice

MOST_GROUPS = 5  # numbers of groups that are tried
PATIENCE = 2  # narrower strips that are tried beyond the best


@dataclass(frozen=True)
class Lines:
    """What lines of `points` output points read of the image of a convolution: of `images` with these axes, `size`
    bytes of every point and step of k."""

    images: int
    deep: Axis
    high: Axis
    wide: Axis
    points: int
    size: int
    # What was counted before: a decision asks for the same few thousands of times, and the hash of all fields takes
    # longer than the look-up.
    _known: dict[tuple[bool, int, int], int] = field(default_factory=dict, init=False, repr=False, compare=False)

    def read(self, bordered: bool, lines: int, parts: int) -> int:
        """Bytes of all blocks of so many lines for each step of k. Each of so many parts of a block holds the lines of
        the image that it shares with its neighbour; those that no tap reads are not left out within a block."""
        key = bordered, lines, parts
        if key not in self._known:
            self._known[key] = self._counted(*key)
        return self._known[key]

    def _counted(self, bordered: bool, lines: int, parts: int) -> int:
        if self.high.span >= self.high.stride:
            lines //= parts
        sizes = (
            _read(axis, step, bordered) for axis, step in ((self.deep, 1), (self.high, lines), (self.wide, self.points))
        )
        total = self.images * self.size
        for size in sizes:
            total *= size
        return total


def _read(axis: Axis, step: int, bordered: bool) -> int:
    """Points of the input under all blocks of `step` output points: with the border, or those inside."""
    total = 0
    for start in range(0, axis.points, step):
        first = start * axis.stride + axis.start
        last = first + axis.reach(min(step, axis.points - start))
        total += last - first if bordered else max(0, min(last, axis.size) - max(first, 0))
    return total


def level_convolutions(p: LevelProduct, conv: ConvWorkload) -> list[list[LevelProduct]]:
    """The products that a convolution may be, `p` being the one of a group: for each number of groups that are there at
    once the strips, the widest first."""
    return [
        [strip_product(p, conv, groups, strips) for strips in _doubled(conv.wo)]
        for groups in _numbers_of_groups(conv.groups)
    ]


def best_of(
    products: list[list[LevelProduct]], found: Callable[[LevelProduct], Choice | None]
) -> tuple[LevelProduct, Choice] | None:
    """The product with the best configuration; None if none fits. Strips are made narrower with the number of groups
    that is best for the widest that fit, as long as two such steps may help."""
    best: tuple[LevelProduct, Choice] | None = None
    rest: list[LevelProduct] = []
    for strips in products:
        for place, p in enumerate(strips):
            choice = found(p)
            if choice is not None:
                if best is None or choice.rank < best[1].rank:
                    best, rest = (p, choice), strips[place + 1 :]
                break
    if best is None:
        return None
    late = 0
    for p in rest:
        choice, late = found(p), late + 1
        if choice is not None and choice.rank < best[1].rank:
            best, late = (p, choice), 0
        if late == PATIENCE:
            break
    return best


def least_convolution(p: LevelProduct, conv: ConvWorkload) -> LevelProduct:
    """The product with the smallest blocks."""
    return strip_product(p, conv, 1, conv.wo)


def _doubled(most: int) -> Iterator[int]:
    """1, 2, 4, ... and `most`."""
    count = 1
    while count < most:
        yield count
        count *= 2
    yield most


def _numbers_of_groups(groups: int) -> list[int]:
    """Some of the divisors."""
    divisors = [count for count in range(1, groups + 1) if groups % count == 0]
    last = len(divisors) - 1
    return sorted({divisors[round(place * last / (MOST_GROUPS - 1))] for place in range(MOST_GROUPS)})


def strip_product(p: LevelProduct, conv: ConvWorkload, groups: int, strips: int) -> LevelProduct:
    """The convolution with so many groups there at once, its width in so many strips."""
    (shape,) = shapes_of(conv)
    d, h, w = shape.d, shape.h, shape.w
    points = -(-w.points // strips)
    repeats = conv.groups // groups
    results = shape.points * shape.co * groups
    return replace(
        p,
        n=h.points,
        k=shape.ci,
        d_a=p.d_a * groups * d.taps * h.taps * w.taps,
        d_b=p.d_b * groups * d.span * w.reach(points),
        d_acc=p.d_acc * groups * points,
        units=(p.units[0], 1, 1),
        d_epilogue=p.d_epilogue * groups * points,
        step=h.stride,
        halo=h.span - h.stride,
        rounds=shape.n * d.points * -(-w.points // points),
        repeats=repeats,
        points=points,
        taps=h.taps * w.taps,
        planes=d.taps,
        groups=groups,
        image=Lines(shape.n, d, h, w, points, p.d_b * groups),
        work=shape.macs // repeats,
        results=results * p.d_acc,
    )
