"""Objectives by which configurations through several storage levels are ranked.

"utilisation"  fewest cycles; each additional read of the operands must save 1 percent
"traffic"      fewest bytes from external memory, among those at most 5 percent slower than the fastest
"energy"       least energy, by the coefficients of the machine description
"edp"          least energy-delay product
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ..gemm.best import AS_FAST, WORTH_BYTES, Prefer
from ..gemm.traffic import ceil_div
from .level_model import Blocks, LevelProduct, Traffic

DOUBT = 0.1  # relative improvement required of an energy-delay product whose cycles are estimated


class Objective(NamedTuple):
    """The caller's preference, and the most cycles that a configuration may take (0: not known yet)."""

    prefer: Prefer = "utilisation"
    limit: float = 0.0

    def within(self, fastest: float) -> Objective:
        """Return the objective, limited by the cycles of the fastest configuration."""
        return self._replace(limit=fastest * (1 + AS_FAST))

    def beats(self, rank: tuple[float, ...], fastest: tuple[float, ...]) -> bool:
        """Return whether a convolution's configuration, whose cycles are estimated, replaces the fastest one. Fewer
        cycles alone do not suffice, and an energy-delay product must be smaller by DOUBT."""
        if self.prefer == "edp":
            return rank[0] < fastest[0] * (1 - DOUBT)
        return rank[:-1] < fastest[:-1]

    def rank(
        self, p: LevelProduct, b: Blocks, traffic: tuple[Traffic, ...], cycles: float, cost: float
    ) -> tuple[float, ...]:
        """Return the rank of a configuration, smallest is best. `cost` is its cycles plus a penalty per instruction."""
        load_a, load_b = traffic[0].load_a, traffic[0].load_b
        if self.prefer == "utilisation":
            again = p.read(b, load_a, load_b) / p.read(b, 1, 1) - 1
            return cost * (1 + WORTH_BYTES * again), load_a + load_b
        if self.prefer == "traffic":
            late = cycles if cycles > self.limit else 0.0
            return late, p.read(b, load_a, load_b), cost
        energy = level_energy(p, b, traffic)
        return (energy * cycles if self.prefer == "edp" else energy), cost

    @property
    def by_estimate(self) -> bool:
        """Whether a configuration whose program is too long to simulate may be chosen by its estimate."""
        return self.prefer in ("utilisation", "energy")


FASTEST = Objective()


def level_energy(p: LevelProduct, b: Blocks, traffic: tuple[Traffic, ...]) -> float:
    """Return the energy of a matrix multiplication in pJ: its multiply-accumulates, every byte read from or written to
    a memory on the way in and out, and the accesses of the matrix engines to the innermost level. Each group of
    instances that holds the same piece writes it and reads it."""
    mac, external, *levels = p.pj
    total = p.work or p.m * p.n * p.k
    pj = mac * total * p.repeats
    out = p.all_out * p.repeats
    above, copies = external, (1, 1)
    for level, own in enumerate(levels):
        moved = p.loaded(b, level, traffic[level].load_a, traffic[level].load_b)
        here = b.across_n[level], b.across_m[level]
        for size, before, now in zip(moved, copies, here, strict=True):
            pj += size * p.repeats * (before * above + now * own)
        pj += out * (above + own)
        above, copies = own, here
    rows, columns = ceil_div(p.m, p.block[0]), p.n * p.rounds * p.points / p.block[1]
    if p.image is None:
        columns = sum(count * ceil_div(size, p.block[1]) for count, size in _parts(p.n, b.columns[-1]))
        rows = sum(count * ceil_div(size, p.block[0]) for count, size in _parts(p.m, b.rows[-1]))
    reach = max(p.macs / (p.block[0] * p.block[1]), p.block[2])
    deep = sum(count * math.ceil(size * p.taps / reach) for count, size in _parts(p.k, min(b.depth, p.k))) * p.planes
    depth = p.k * p.summed
    read_a = p.all_a * columns
    read_b = rows * depth * p.n * p.rounds * p.points * p.groups * (p.d_b if p.image is None else 1)
    return pj + levels[-1] * p.repeats * (read_a + read_b + p.all_out * (2 * deep - 1))


def _parts(size: int, step: int) -> list[tuple[int, int]]:
    """Return (count, size) of the steps of an axis."""
    whole, rest = divmod(size, step)
    return [(whole, step), (1, rest)] if rest else [(whole, step)]
