"""Local search: improves a configuration through several storage levels by one small change at a time until none helps.

The changes are: one block more or fewer along an axis at a level, with outer blocks kept multiples of it; a step of K
halved, doubled, or slightly larger or smaller; the order of a level's loops; one or two blocks of sums; K split one
level further in or out; and another spread of instances over rows and columns. If a changed configuration does not fit,
its step of K is reduced.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..gemm.traffic import ceil_div
from .level_model import Blocks, LevelProduct, round_up, spreads
from .level_time import Choice, Timed
from .steps import deepest


def refined(p: LevelProduct, start: Choice, timed: Timed) -> Choice:
    """Return the local optimum reached from `start`. `timed` caches cycles across starts: two changes in five have been
    tried before from another start."""
    best = start
    seen = {start.blocks}
    improved = True
    while improved:
        improved = False
        for blocks in _changes(p, best.blocks):
            if blocks in seen:
                continue
            seen.add(blocks)
            found = timed.of(blocks)
            if found is None:
                blocks = deepest(p, blocks)
                found = timed.of(blocks)
            if found is not None and found.rank < best.rank:
                best, improved = found, True
                break
    return best


def _changes(p: LevelProduct, b: Blocks) -> Iterator[Blocks]:
    for level in range(len(b.rows)):
        yield from _other_blocks(p, b, level)
    if b.split < len(p.levels):
        yield from _other_steps(p, b)
    for level in range(min(len(b.rows), len(p.levels))):
        yield _turned(b, level)
    yield b._replace(sums=3 - b.sums)
    yield from _other_split(p, b)
    for across_m, across_n in spreads(p):
        if (across_m, across_n) != (b.across_m, b.across_n):
            rows = _whole_units(b.rows, p.units[0] * across_m[-1])
            columns = _whole_units(b.columns, p.units[1] * across_n[-1])
            yield b._replace(rows=rows, columns=columns, across_m=across_m, across_n=across_n)


def _turned(b: Blocks, level: int) -> Blocks:
    """Exchange the two loops of a level."""
    return b._replace(orders=(*b.orders[:level], b.orders[level][::-1], *b.orders[level + 1 :]))


def _other_blocks(p: LevelProduct, b: Blocks, level: int) -> Iterator[Blocks]:
    """Yield configurations with another number of blocks at a level: one more, one fewer, twice, half, one, or as many
    as the inner level has."""
    for axis, whole, own, across in (("m", p.m, b.rows, b.across_m), ("n", p.n, b.columns, b.across_n)):
        unit = p.units["mn".index(axis)] * across[-1]
        inner = own[level + 1] if level + 1 < len(own) else unit
        count = ceil_div(whole, own[level])
        for other in dict.fromkeys((count - 1, count + 1, ceil_div(count, 2), 2 * count, 1, ceil_div(whole, inner))):
            if not 0 < other <= ceil_div(whole, unit):
                continue
            size = round_up(ceil_div(whole, other), inner)
            if size == own[level]:
                size -= inner if other > count else -inner
            if not 0 < size < whole + inner or size == own[level]:
                continue
            sizes = [*own[:level], size, *own[level + 1 :]]
            for outer in range(level - 1, -1, -1):
                sizes[outer] = min(round_up(sizes[outer], sizes[outer + 1]), round_up(whole, sizes[outer + 1]))
            found = b._replace(rows=tuple(sizes)) if axis == "m" else b._replace(columns=tuple(sizes))
            yield found
            yield _turned(found, level)


def _other_steps(p: LevelProduct, b: Blocks) -> Iterator[Blocks]:
    units, own = ceil_div(p.k, p.units[2]), ceil_div(b.depth, p.units[2])
    smaller = [ceil_div(units, ceil_div(units, own) + 1), own - 1, ceil_div(own, 2)]
    for other in dict.fromkeys((*smaller, own + 1, 2 * own, units)):
        if 0 < other <= units and other != own:
            yield b._replace(depth=other * p.units[2])


def _other_split(p: LevelProduct, b: Blocks) -> Iterator[Blocks]:
    """Yield configurations that split K one level further in, with the same blocks there, and one level further out."""
    if b.split < len(p.levels):
        depth = p.k if b.split + 1 == len(p.levels) else b.depth
        inner = b._replace(rows=(*b.rows, b.rows[-1]), columns=(*b.columns, b.columns[-1]), orders=(*b.orders, "mn"))
        yield inner._replace(depth=depth)
        if inner.split < len(p.levels):
            yield from _other_steps(p, inner)
        yield from _other_blocks(p, inner._replace(depth=depth), inner.split)
    if b.split > 0:
        outer = b._replace(rows=b.rows[:-1], columns=b.columns[:-1], orders=b.orders[:-1])
        yield outer
        yield b._replace(
            rows=(*b.rows[:-2], b.rows[-1]), columns=(*b.columns[:-2], b.columns[-1]), orders=b.orders[:-1]
        )


def _whole_units(sizes: tuple[int, ...], unit: int) -> tuple[int, ...]:
    """Round the sizes up to multiples of `unit` and of each other."""
    found = [round_up(sizes[-1], unit)]
    for size in reversed(sizes[:-1]):
        found.append(round_up(size, found[-1]))
    return tuple(reversed(found))
