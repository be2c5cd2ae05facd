"""The step of K at the levels where K is split: the largest that fits, with steps of nearly equal size."""

from __future__ import annotations

from ..gemm.traffic import ceil_div
from .level_model import Blocks, LevelProduct, held_at, share, traffic_of


def deepest(p: LevelProduct, b: Blocks) -> Blocks:
    """Return the configuration with the largest fitting step of K, evened out."""
    if b.split == len(p.levels):
        return b
    most, traffic = p.k, traffic_of(p, b)
    for level in range(b.split, len(p.levels)):
        storage, (a, other) = p.levels[level], _bytes_of_step(p, b, level)
        if storage.capacity is None:
            most = min(most, storage.capacities[0] // (a * p.turns), storage.capacities[1] // (other * p.turns))
        else:
            held = held_at(p, b, level, traffic[level])
            results = held.out * (b.sums if level == len(p.levels) - 1 else p.turns) if held is not None else 0
            most = min(most, (storage.capacity - results) // ((a + other) * p.turns))
    return stepped(p, b, most // p.units[2])


def stepped(p: LevelProduct, b: Blocks, most: int) -> Blocks:
    """Return the configuration with evened-out steps of at most `most` units of K."""
    units = ceil_div(p.k, p.units[2])
    return b._replace(depth=ceil_div(units, ceil_div(units, max(1, min(most, units)))) * p.units[2])


def _bytes_of_step(p: LevelProduct, b: Blocks, level: int) -> tuple[int, int]:
    """Return the bytes of one instance's blocks of A and B at the split level for each step along K."""
    return (
        p.bytes_a(share(b.rows[-1], p.m, b.across_m[level], p.units[0]), 1),
        p.bytes_b(share(b.columns[-1], p.n, b.across_n[level], p.units[1]), 1),
    )
