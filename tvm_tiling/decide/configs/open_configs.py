"""Configurations of a product of open rows on a CPU: what its decision settles for all numbers of rows, and by ranges.

    form         open
    microkernel  rows and vectors of the register tile; weights are packed as wide
    depth        summed elements of a block of K, which weights are packed in
    columns      of a block of B
    rows         the last number of rows of each range but the last, which has no end
    shares       of batch, rows and columns among the cores, three numbers for each range

One configuration serves all ranges: its weights are packed once.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from ...errors import DatabaseError, HardwareError, TilingError
from ...hardware.description import Cpu, Hardware
from ...sizes import Range
from ...workload import GemmWorkload
from ..gemm.microkernel import tallest
from ..gemm.open_rows import (
    FORM,
    MOST_ROWS,
    MOST_VECTORS,
    ROWS,
    OpenGemmTiling,
    RowRange,
    at_rows,
    decide_open_rows,
    opened,
    shared,
)
from ..options import GIVEN, Options
from ..surroundings import Surroundings
from ..tiling import GemmTiling, Reason
from .gemm_configs import BlockedConfigs
from .record import Config, Value
from .rule import changed, halves_and_doubles, integer, integers

LEAST_DEPTH = 64  # of a block of K that is tried: shorter ones add up sums more often than they multiply
LOWER_TILES = 4  # heights of a tile of so many vectors, from the most on
DEPTHS, COLUMNS = (1, 2, 3, 4), (1, 2, 4, 16)  # blocks of K, and of columns, that candidates are cut into
FIXED = ("normal", "inline", "pack")  # forms of a product of so many rows, whose choices an open one may take


def open_config(tiling: OpenGemmTiling) -> Config:
    """What a decision for open rows settles."""
    assert tiling.mr and tiling.nr and tiling.lanes
    return _config(
        (tiling.mr, tiling.nr // tiling.lanes),
        tiling.partition_k,
        max(1, tiling.partition_n // tiling.nr) * tiling.nr,
        [(found.rows or 0, found.threads) for found in tiling.ranges],
    )


def open_tiling_of(
    config: Config,
    workload: GemmWorkload,
    hardware: Hardware,
    around: Surroundings,
    *,
    why: str = GIVEN,
) -> OpenGemmTiling:
    """The decision that a configuration stands for, with `workload` at the sample of its rows; `why`
    becomes the reason. HardwareError where the machine cannot, DatabaseError where the configuration is of another
    operator or lacks a choice."""
    cpu = _cpu(hardware)
    if config.op != workload.op or config.form != FORM:
        raise DatabaseError(
            f"config: algorithm = {config.form!r} of a {config.op} for a product of open rows; expected {FORM!r} of a "
            "gemm"
        )
    plain = _at_rows(config, workload, around, cpu, max(workload.m, integers(config, "microkernel", 2)[0]))
    assert plain.nr
    whole = -(-workload.n // plain.nr) * plain.nr
    columns = max(1, min(integer(config, "columns"), whole) // plain.nr) * plain.nr
    plain = replace(plain, partition_n=columns, threads_batch=1, threads_m=1, threads_n=1)
    ranges = _ranges(config, workload, around, cpu)
    found = opened(plain, workload, cpu, around, 0, ranges, tile_why=why, ranges_why=why)
    kept = tuple(Reason(r.field, r.value, why) if r.field == "form" else r for r in found.reasons)
    return replace(found, reasons=(*kept, Reason("config", str(config), why)))


def open_tiling_for(
    workload: GemmWorkload,
    hardware: Hardware,
    options: Options,
    around: Surroundings,
    rows: Range,
    epilogue: str = "",
) -> OpenGemmTiling:
    """The decision of a product of open `rows` that lie in memory: that of a configuration that is given or known, else
    of the formulas; `workload` and errors as in decide_open_rows, `epilogue` names what is fused behind."""
    known = options.known_open_config(workload, hardware, rows, epilogue)
    if known is not None:
        try:
            return open_tiling_of(known[0], workload, hardware, around, why=known[1])
        except TilingError as error:  # this machine, operator or version does not admit the configuration
            if options.config is not None:
                raise
            warnings.warn(
                f"a known configuration does not apply, formulas decide: {error}", RuntimeWarning, stacklevel=2
            )
    return decide_open_rows(workload, hardware, options, around)


def fixed_config(config: Config, rows: int) -> Config:
    """A configuration of open rows as one for so many: with the shares of the range that they lie in."""
    place = sum(rows > limit for limit in _limits(config))
    return _as_fixed(config, config.choice("microkernel"), _shares(config)[place])


def for_open_rows(config: Config, start: Config) -> Config | None:
    """A configuration of so many rows as one for open ones, with the ranges of `start`; None where it has no tile."""
    if config.form == FORM:
        return config
    if config.form not in FIXED:
        return None
    tile = integers(config, "microkernel", 2)
    return changed(
        start,
        microkernel=(min(tile[0], MOST_ROWS), tile[1]),
        depth=config.choice("depth"),
        columns=config.choice("columns"),
    )


class OpenSpace:
    """The configurations around the decision of a product of open rows, priced over `sizes`, numbers of rows: for the
    first, the middle and the last of them, which is as much as prices tell apart."""

    def __init__(self, workload: GemmWorkload, hardware: Hardware, around: Surroundings, sizes: Sequence[int]) -> None:
        self.workload, self.hardware, self.around = workload, hardware, around
        self.sizes = tuple(dict.fromkeys((sizes[0], sizes[len(sizes) // 2], sizes[-1])))
        self._cpu = _cpu(hardware)
        self.decision = decide_open_rows(workload, hardware, Options(prepacked=around.prepacked), around)
        self.start = self.settled(open_config(self.decision)) or open_config(self.decision)
        self._prices: dict[Config, float] = {}
        self._rules: dict[int, BlockedConfigs] = {}
        self._ranked = sorted(self._candidates(), key=lambda config: (self.predicted(config), config != self.start))

    def configs(self, limit: int | None = None) -> Iterable[Config]:
        """Up to `limit` configurations, the cheapest by prediction first."""
        return islice(self._ranked, limit)

    def predicted(self, config: Config) -> float:
        """The geometric mean of predicted seconds over these sizes."""
        if config not in self._prices:
            logs = [math.log(self._seconds(config, rows)) for rows in self.sizes]
            self._prices[config] = math.exp(math.fsum(logs) / len(logs))
        return self._prices[config]

    def features(self, config: Config) -> dict[str, float]:
        """Nothing: no trials that were recorded tell of open rows."""
        return {}

    def settled(self, config: Config) -> Config | None:
        """The configuration as the product has it, blocks clipped; None where it is impossible."""
        try:
            return open_config(open_tiling_of(config, self.workload, self.hardware, self.around))
        except TilingError:
            return None

    def _seconds(self, config: Config, rows: int) -> float:
        """Predicted for so many rows, which tiles share evenly."""
        most, vectors = integers(config, "microkernel", 2)
        height = -(-rows // -(-rows // most))
        place = sum(rows > limit for limit in _limits(config))
        if rows not in self._rules:
            self._rules[rows] = BlockedConfigs(at_rows(self.workload, rows), self._cpu, self.around)
        return self._rules[rows].cost(_as_fixed(config, (height, vectors), _shares(config)[place]))

    def _candidates(self) -> Iterator[Config]:
        found: dict[Config, None] = {self.start: None}
        for tile in self._tiles():
            base = changed(self.start, microkernel=tile)
            for depth in self._depths():
                for columns in self._columns(tile[1]):
                    self._add(found, changed(base, depth=depth, columns=columns))
        for config in (*self._shared_otherwise(), *self._near(self.start)):
            self._add(found, config)
        return iter(found)

    def _add(self, found: dict[Config, None], config: Config) -> None:
        own = self.settled(config)
        if own is not None:
            found.setdefault(own)

    def _tiles(self) -> Iterator[tuple[int, int]]:
        for vectors in range(1, MOST_VECTORS + 1):
            most = min(MOST_ROWS, tallest(self._cpu.vector_registers, vectors))
            yield from ((rows, vectors) for rows in range(most, max(0, most - LOWER_TILES), -1))

    def _depths(self) -> list[int]:
        """The start's, and K in few blocks."""
        whole = self.workload.k
        parts = [-(-whole // count) for count in DEPTHS]
        return list(dict.fromkeys([integer(self.start, "depth"), *(part for part in parts if part >= LEAST_DEPTH)]))

    def _columns(self, vectors: int) -> list[int]:
        """The start's, and all columns in few blocks."""
        panel = vectors * (self.decision.lanes or 1)
        panels = -(-self.workload.n // panel)
        parts = [-(-panels // count) * panel for count in COLUMNS if count <= panels]
        return list(dict.fromkeys([integer(self.start, "columns"), *parts]))

    def _near(self, config: Config) -> Iterator[Config]:
        for depth in halves_and_doubles(integer(config, "depth"), 1, self.workload.k):
            yield changed(config, depth=depth)

    def _shared_otherwise(self) -> Iterator[Config]:
        """One range at a time shared in another way, and longer or shorter by half."""
        limits, shares = _limits(self.start), _shares(self.start)
        for place in range(len(shares)):
            for own in _ways(self._cpu.cores):
                changed_shares = (*shares[:place], own, *shares[place + 1 :])
                yield changed(self.start, shares=tuple(part for three in changed_shares for part in three))
        for place, limit in enumerate(limits):
            for other in (limit // 2, 2 * limit):
                moved = (*limits[:place], other, *limits[place + 1 :])
                yield changed(self.start, rows=moved)


def _ways(cores: int) -> Iterator[tuple[int, int, int]]:
    """Shares of rows and columns that use all cores, or one."""
    yield 1, 1, 1
    yield from ((1, rows, cores // rows) for rows in range(1, cores + 1) if cores > 1 and cores % rows == 0)


def _config(tile: tuple[int, int], depth: int, columns: int, ranges: list[tuple[int, tuple[int, int, int]]]) -> Config:
    choices: dict[str, Value] = {
        "microkernel": tile,
        "depth": depth,
        "columns": columns,
        "rows": tuple(rows for rows, _ in ranges[:-1]),
        "shares": tuple(part for _, shares in ranges for part in shares),
    }
    return Config.of("gemm", FORM, choices)


def _cpu(hardware: Hardware) -> Cpu:
    if hardware.cpu is None:
        raise HardwareError(f"{hardware.name} has no cpu; expected a hardware description with a [cpu] table")
    return hardware.cpu


def _limits(config: Config) -> tuple[int, ...]:
    """The last rows of the ranges but the last; DatabaseError for what does not rise."""
    value = config.choice("rows")
    if not isinstance(value, tuple) or any(size < 1 for size in value) or sorted(set(value)) != list(value):
        raise DatabaseError(f"config: rows = {value!r}; expected whole numbers of at least 1 that rise")
    return value


def _shares(config: Config) -> list[tuple[int, int, int]]:
    """The shares of each range."""
    flat = integers(config, "shares", 3 * (1 + len(_limits(config))))
    return [(flat[at], flat[at + 1], flat[at + 2]) for at in range(0, len(flat), 3)]


def _ranges(config: Config, workload: GemmWorkload, around: Surroundings, cpu: Cpu) -> tuple[RowRange, ...]:
    """The ranges of a configuration, equal neighbours joined."""
    found: list[RowRange] = []
    for rows, shares in zip((*_limits(config), None), _shares(config), strict=True):
        tiling = _at_rows(config, workload, around, cpu, rows or ROWS[-1], shares)
        here = shared(rows, tiling)
        if found and found[-1].threads == here.threads:
            found.pop()
        found.append(here)
    return tuple(found)


def _at_rows(
    config: Config,
    workload: GemmWorkload,
    around: Surroundings,
    cpu: Cpu,
    rows: int,
    shares: tuple[int, int, int] = (1, 1, 1),
) -> GemmTiling:
    """The product of so many rows as the configuration cuts it, cores shared in batch, rows and columns."""
    rule = BlockedConfigs(at_rows(workload, rows), cpu, around)
    return rule.tiling_of(_as_fixed(config, config.choice("microkernel"), shares))


def _as_fixed(config: Config, tile: Value, shares: tuple[int, int, int]) -> Config:
    """The choices of a configuration as those of a product of so many rows."""
    choices: dict[str, Value] = {
        "microkernel": tile,
        "threads": (*shares, 1),
        "depth": config.choice("depth"),
        "columns": config.choice("columns"),
        "inner_order": "mn",
        "pack_b": "pack",
    }
    return Config.of("gemm", "normal", choices)
