"""Cycles of a program with split-K, instruction by instruction.

Steps of A and of B alternate in the buffers while the sums of a block stay resident; an operand that stays resident as
a whole is loaded by the first blocks that need it. Of many blocks only the first are simulated; the others are
extrapolated from the later ones of these, in proportion to their lower bounds.
"""

from __future__ import annotations

import itertools

import numpy as np

from ..tiling import GemmTiling, ProductChunks
from .product_time import NOTHING, ProductEngines, Walk, whole_cycles
from .traffic import Product, ceil_div

MOST_TIMED = 4000  # instructions simulated


def split_cycles(p: Product, tiling: GemmTiling, chunks: ProductChunks, engines: ProductEngines) -> float:
    """Return the cycles from the first load to the last store."""
    rows, columns = (_parts(size, step) for size, step in ((p.m, chunks.step_m), (p.n, chunks.step_n)))
    blocks = list(itertools.product(range(len(rows)), range(len(columns))))
    if tiling.outer_order == "nm":
        blocks.sort(key=lambda block: block[::-1])
    depths = _parts(p.k, chunks.depth)
    tiles = ceil_div(chunks.step_m, chunks.tile_m) * ceil_div(chunks.step_n, chunks.tile_n)
    seen = max(2, MOST_TIMED // (tiles * len(depths)))
    walk, ends = _walk(p, tiling, chunks, engines, [(rows[i], columns[j], i, j) for i, j in blocks[:seen]], depths)
    done = engines.run(walk)
    cycles = float(done[-1])
    if len(blocks) > seen:
        some = seen // 2  # the first blocks are not typical
        least = [_least(p, engines, rows[i], columns[j], depths) for i, j in blocks]
        cycles += (done[ends[-1]] - done[ends[-some - 1]]) * sum(least[seen:]) / sum(least[seen - some : seen])
    return cycles


def _least(p: Product, engines: ProductEngines, rows: int, columns: int, depths: list[int]) -> float:
    """Return the lower bound of a block's cycles: multiplications, loads or stores."""
    products = engines.products(np.array(rows), np.array(columns), np.array(depths)).sum()
    a, b = rows * p.k * p.d_a / p.bw_a, columns * p.k * p.d_b / p.bw_b
    out = rows * columns * engines.leaving
    if engines.one_port:
        return float(max(products, a + b + out))
    return float(max(products, out, a + b if engines.one_queue else max(a, b)))


def _walk(
    p: Product,
    tiling: GemmTiling,
    chunks: ProductChunks,
    engines: ProductEngines,
    blocks: list[tuple[int, int, int, int]],
    depths: list[int],
) -> tuple[Walk, list[int]]:
    """Return the instructions of the blocks, each given by its rows, columns and position, and the last instruction of
    each block."""
    loads: list[tuple[float, int, int]] = []  # cycles, last user of the space, queue
    first: list[int] = []
    second: list[int] = []
    leave: list[int] = []
    space: list[int] = []
    ends: list[int] = []
    sizes: list[tuple[int, int, int]] = []
    known: dict[tuple[str, int, int], int] = {}  # loads of resident operands
    users: dict[str, list[int]] = {"a": [], "b": []}  # latest user of each load
    owners: dict[int, tuple[str, int]] = {}
    stores = 0

    def load(name: str, place: int, step: int, size: int, whole: bool, versions: int) -> int:
        if whole and (name, place, step) in known:
            return known[name, place, step]
        turn = len(users[name])
        before = NOTHING if whole or turn < versions else users[name][turn - versions]
        rate, each = (p.bw_a, p.d_a) if name == "a" else (p.bw_b, p.d_b)
        loads.append((size * each / rate, before, 0 if name == "a" or engines.one_queue else 1))
        known[name, place, step] = len(loads) - 1
        owners[len(loads) - 1] = (name, turn)
        users[name].append(NOTHING)
        return len(loads) - 1

    for rows, columns, row, column in blocks:
        parts = [(r, c) for r in _parts(rows, chunks.tile_m) for c in _parts(columns, chunks.tile_n)]
        if tiling.inner_order == "nm":
            parts = [(r, c) for c in _parts(columns, chunks.tile_n) for r in _parts(rows, chunks.tile_m)]
        for step, depth in enumerate(depths):
            of_a = load("a", row, step, rows * depth, chunks.whole_a, chunks.versions_a)
            of_b = load("b", column, step, columns * depth, chunks.whole_b, chunks.versions_b)
            last = step == len(depths) - 1
            for number, (r, c) in enumerate(parts):
                sizes.append((r, c, depth))
                first.append(of_a)
                second.append(of_b)
                leave.append(r * c if last else NOTHING)
                waits = stores + number - len(parts) * chunks.versions_sums
                space.append(waits if step == 0 and waits >= 0 else NOTHING)
            for own in (of_a, of_b):
                name, turn = owners[own]
                users[name][turn] = len(sizes) - 1
        stores += len(parts)
        ends.append(len(sizes) - 1)
    r, c, d = np.array(sizes, dtype=np.int64).T
    leaving = np.array(leave, dtype=np.int64)
    leaving = np.where(leaving >= 0, whole_cycles(leaving * engines.leaving), NOTHING)
    cost, before, queue = zip(*loads, strict=True)
    walk = Walk(
        engines.products(r, c, d).tolist(),
        first,
        second,
        leaving.tolist(),
        space,
        whole_cycles(np.array(cost)).tolist(),
        list(before),
        list(queue),
    )
    return walk, ends


def _parts(size: int, step: int) -> list[int]:
    """Return the step sizes of a dimension; the last may be shorter."""
    return [min(step, size - start) for start in range(0, size, step)]
