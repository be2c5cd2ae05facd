"""Convolutions as matrix multiplications tiled through several storage levels, with the halo of every block counted.

The matrix multiplication has m = output channels, k = input channels times taps and n = output points. On the chip,
blocks of points are rectangles: the output is divided across its width into strips, and each strip into lines from top
to bottom. One column of the matrix multiplication is thus one line of a strip, and one step of k is one input channel
with all its taps. Images, depth planes and strips are separate ranges of columns that no block spans. Each group is a
matrix multiplication of its own; small groups are held several at a time. A few strip widths and group counts are
tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from ...workload import ConvWorkload
from ..conv.shape import Axis, shapes_of
from .level_model import LevelProduct
from .level_time import Choice

MOST_GROUPS = 5  # group counts to try
PATIENCE = 2  # narrower strips to try after the best one


@dataclass(frozen=True)
class Lines:
    """What lines of `points` output points read of a convolution's input: `images` images with these axes, `size` bytes
    per point and step of k."""

    images: int
    deep: Axis
    high: Axis
    wide: Axis
    points: int
    size: int
    # Results of earlier calls: a decision asks for the same few values thousands of times, and hashing all fields for a
    # cache would take longer than the look-up.
    _known: dict[tuple[bool, int, int], int] = field(default_factory=dict, init=False, repr=False, compare=False)

    def read(self, bordered: bool, lines: int, parts: int) -> int:
        """Return the bytes read for each step of k by all blocks of `lines` lines, each divided into `parts` parts.
        Every part holds the input lines that it shares with its neighbour. Lines within a block that no tap reads are
        counted too."""
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
    """Return the number of input points under all blocks of `step` output points, with padding if `bordered`, else
    without."""
    total = 0
    for start in range(0, axis.points, step):
        first = start * axis.stride + axis.start
        last = first + axis.reach(min(step, axis.points - start))
        total += last - first if bordered else max(0, min(last, axis.size) - max(first, 0))
    return total


def level_convolutions(p: LevelProduct, conv: ConvWorkload) -> list[list[LevelProduct]]:
    """Return the candidate matrix multiplications of a convolution, `p` being that of one group: for each number of
    groups held at once, the strips from widest to narrowest."""
    return [
        [strip_product(p, conv, groups, strips) for strips in _doubled(conv.wo)]
        for groups in _numbers_of_groups(conv.groups)
    ]


def best_of(
    products: list[list[LevelProduct]], found: Callable[[LevelProduct], Choice | None]
) -> tuple[LevelProduct, Choice] | None:
    """Return the best configuration and its matrix multiplication; None if none fits. For the number of groups that is
    best with the widest fitting strip, narrower strips are tried until PATIENCE of them bring no improvement."""
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
    """Return the matrix multiplication with the smallest blocks."""
    return strip_product(p, conv, 1, conv.wo)


def _doubled(most: int) -> Iterator[int]:
    """Yield 1, 2, 4, ... and finally `most`."""
    count = 1
    while count < most:
        yield count
        count *= 2
    yield most


def _numbers_of_groups(groups: int) -> list[int]:
    """Return up to MOST_GROUPS divisors of `groups`, evenly spaced among all of them."""
    divisors = [count for count in range(1, groups + 1) if groups % count == 0]
    last = len(divisors) - 1
    return sorted({divisors[round(place * last / (MOST_GROUPS - 1))] for place in range(MOST_GROUPS)})


def strip_product(p: LevelProduct, conv: ConvWorkload, groups: int, strips: int) -> LevelProduct:
    """Return the convolution as a matrix multiplication with `groups` groups held at once and its width in `strips`
    strips."""
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
