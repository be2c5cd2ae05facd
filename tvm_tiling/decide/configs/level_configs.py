"""Configurations of matrix multiplications and convolutions on machines with several storage levels, with the single
algorithm "levels".

rows, columns        blocks of every level from the outermost to the one where K is split, inclusive; if it is not
                     split, those of one tile come last. For a convolution: output channels, and lines of points
orders               order of the two loops at each of these levels, such as "mn nm"
depth                a step of K (for a convolution, input channels); 0 if K is not split
across_m, across_n   number of instances over which rows and columns of each level are spread, cumulatively
sums                 blocks of sums held in the innermost level at once
points, groups       for a convolution: points of a line, and groups held at once
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...errors import DatabaseError, HardwareError
from ...hardware.description import Hardware
from ...workload import ConvWorkload, GemmWorkload
from ..gemm.traffic import ceil_div
from ..levels.level_conv import strip_product
from ..levels.level_gemm import LevelsTiling, decide_levels, level_product, levels_tiling
from ..levels.level_model import Blocks, LevelProduct, nested, round_up, spreads
from ..levels.level_time import Choice, Timed
from ..levels.objective import Objective
from ..tiling import Decision
from .record import Blocks as LevelBlocks
from .record import Config, Value
from .rule import Undivided, changed, halves_and_doubles, integer, integers


class LevelsConfigs(Undivided):
    """Configurations of one workload; `behind` as in decide_levels."""

    forms, name = ("levels",), ""

    def __init__(self, workload: GemmWorkload | ConvWorkload, hardware: Hardware, behind: int) -> None:
        self.w, self.hardware, self.behind = workload, hardware, behind
        self.p: LevelProduct = replace(level_product(workload, hardware), d_epilogue=behind)
        self.count = len(hardware.levels)

    def config_of(self, tiling: Decision) -> Config:
        """Return the configuration of a decision."""
        t = tiling
        assert isinstance(t, LevelsTiling)
        count = next((i for i, config in enumerate(t.levels) if config.name == t.split_level), self.count)
        p = self._product(t.points, t.groups)
        choices: dict[str, Value] = {
            "rows": (*(config.left[0] for config in t.levels[:count]), t.tile_m),
            "columns": (*(config.right[1] // t.points for config in t.levels[:count]), t.tile_n // t.points),
            "orders": " ".join((*(config.order for config in t.levels[:count]), t.tile_order)),
            "depth": t.tile_k // p.summed if t.split_k else 0,
            "across_m": tuple(config.across_m for config in t.levels),
            "across_n": tuple(config.across_n for config in t.levels),
            "sums": t.sum_slots,
        }
        if self.w.op == "conv":
            choices |= {"points": t.points, "groups": t.groups}
        levels = (
            LevelBlocks(level=config.name, left=config.left, right=config.right, result=config.result)
            for config in t.levels
        )
        return Config.of(self.w.op, "levels", choices, levels)

    def decided(self) -> Config:
        """Return the configuration of the decision."""
        return self.config_of(decide_levels(self.w, self.hardware, behind=self.behind))

    def tiling_of(self, config: Config) -> LevelsTiling:
        """Return the decision of a configuration for this shape."""
        return levels_tiling(*self._choice(config))

    def cost(self, config: Config) -> float:
        """Return the predicted cycles plus a small penalty per instruction."""
        batch = self.w.batch if isinstance(self.w, GemmWorkload) else 1
        return batch * self._choice(config)[1].times.cost

    def candidates(self) -> Iterator[Config]:
        """Yield the decision's configuration only: the search that finds it discards the others."""
        yield self.decided()

    def near(self, config: Config) -> Iterator[Config]:
        """Yield blocks and steps of K of half and twice the size at each level, other loop orders, one or two blocks of
        sums, and other spreads over the instances."""
        p = self._product_of(config)
        split = len(str(config.choice("orders")).split())
        across = {name: integers(config, name, self.count) for name in ("across_m", "across_n")}
        for name, whole, unit, over in (
            ("rows", p.m, p.units[0], across["across_m"]),
            ("columns", p.n, p.units[1], across["across_n"]),
        ):
            sizes = integers(config, name, split)
            for place, size in enumerate(sizes):
                inner = sizes[place + 1] if place + 1 < split else unit * over[-1]
                for other in halves_and_doubles(size, inner, round_up(whole, inner)):
                    yield changed(config, **{name: (*sizes[:place], other, *sizes[place + 1 :])})
        depth = integer(config, "depth", 0)
        for steps in halves_and_doubles(depth, p.units[2], p.k) if depth else ():
            yield changed(config, depth=steps)
        orders = str(config.choice("orders")).split()
        for place, own in enumerate(orders):
            yield changed(config, orders=" ".join((*orders[:place], own[::-1], *orders[place + 1 :])))
        yield changed(config, sums=3 - min(2, integer(config, "sums")))
        for across_m, across_n in spreads(p):
            yield changed(config, across_m=across_m, across_n=across_n)

    def fits(self, config: Config) -> bool:
        """Return True: configurations that exceed a level are refused."""
        return True

    def _product(self, points: int, groups: int) -> LevelProduct:
        """Return the matrix multiplication that is tiled; for a convolution, with strips of about `points` points and
        `groups` groups held at once."""
        if not isinstance(self.w, ConvWorkload):
            return self.p
        together = next(count for count in range(min(groups, self.w.groups), 0, -1) if self.w.groups % count == 0)
        return strip_product(self.p, self.w, together, ceil_div(self.w.wo, min(points, self.w.wo)))

    def _product_of(self, config: Config) -> LevelProduct:
        return self._product(integer(config, "points"), integer(config, "groups")) if self.w.op == "conv" else self.p

    def _choice(self, config: Config) -> tuple[LevelProduct, Choice]:
        """Return the matrix multiplication and its configuration clipped to the shape. Raises HardwareError if a level
        is too small."""
        p, blocks = self._clipped(config)
        found = Timed(p, Objective()).of(blocks)
        if found is None:
            raise HardwareError(
                f"config: blocks of {blocks.rows} rows and {blocks.columns} columns do not fit the levels of "
                f"{self.hardware.name}; expected smaller blocks"
            )
        return p, found

    def _clipped(self, config: Config) -> tuple[LevelProduct, Blocks]:
        p = self._product_of(config)
        orders = str(config.choice("orders")).split()
        if not 0 < len(orders) <= self.count + 1 or set(orders) - {"mn", "nm"}:
            raise DatabaseError(
                f"config: orders = {config.choice('orders')!r}; expected 'mn' or 'nm' for each of at most "
                f"{self.count + 1} levels"
            )
        across_m, across_n = (integers(config, name, self.count) for name in ("across_m", "across_n"))
        if (across_m, across_n) not in set(spreads(p)):
            raise HardwareError(
                f"config: across_m = {across_m} and across_n = {across_n} do not cover the instances of "
                f"{self.hardware.name}; expected factors of each level's instances"
            )
        depth = integer(config, "depth", 0)
        if bool(depth) != (len(orders) <= self.count):
            raise DatabaseError(
                f"config: depth = {depth} with {len(orders)} orders on {self.count} levels; expected 0 with "
                f"{self.count + 1} orders, or a step of K with fewer"
            )
        rows = nested(integers(config, "rows", len(orders)), p.m, p.units[0] * across_m[-1])
        columns = nested(integers(config, "columns", len(orders)), p.n, p.units[1] * across_n[-1])
        step = min(round_up(depth, p.units[2]), round_up(p.k, p.units[2])) if depth else p.k
        sums = min(2, integer(config, "sums"))
        return p, Blocks(rows, columns, tuple(orders), step, across_m, across_n, sums)
