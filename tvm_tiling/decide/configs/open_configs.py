"""Configurations of a matrix multiplication with a dynamic number of rows on a CPU: choices for all row counts, and
divisions among cores by ranges of rows.

    form         open
    microkernel  rows and vectors of the register tile; weights are packed in panels of this width
    depth        elements of K in a block; weights are packed in these blocks
    columns      columns of a block of B
    rows         last row count of each range except the last, which is unbounded
    shares       division of batch, rows and columns among cores, three numbers per range

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
from ..tiling import Decision, GemmTiling, Reason
from .gemm_configs import BlockedConfigs
from .record import Config, Value
from .rule import changed, halves_and_doubles, integer, integers

LEAST_DEPTH = 64  # smallest K block that is tried: shorter ones spend more on adding partial sums than on multiplying
LOWER_TILES = 4  # tile heights tried for each number of vectors, from the largest down
DEPTHS, COLUMNS = (1, 2, 3, 4), (1, 2, 4, 16)  # numbers of K blocks and column blocks that are tried
FIXED = ("normal", "inline", "pack")  # kernel variants for a static number of rows whose choices also apply here


def open_config(tiling: OpenGemmTiling) -> Config:
    """Return the configuration of a decision for dynamic rows."""
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
    """Return the decision of a configuration, with `workload` at the sample number of rows; `why` becomes the reason.

    Raises HardwareError if the machine cannot run it, and DatabaseError if the configuration is for another operator or
    lacks a choice.
    """
    cpu = _cpu(hardware)
    if config.op != workload.op or config.form != FORM:
        raise DatabaseError(
            f"config: algorithm = {config.form!r} of a {config.op} for a gemm with dynamic rows; expected {FORM!r} of "
            "a "
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
    return replace(found, reasons=(*kept, Reason("config", config.description, why)))


def open_tiling_again(
    decision: Decision, workload: GemmWorkload, hardware: Hardware, around: Surroundings
) -> OpenGemmTiling | None:
    """Return the decision that follows from the configuration of `decision`; None if it has none."""
    if not isinstance(decision, OpenGemmTiling) or not (decision.mr and decision.nr and decision.lanes):
        return None
    return open_tiling_of(open_config(decision), workload, hardware, around)


def open_tiling_for(
    workload: GemmWorkload,
    hardware: Hardware,
    options: Options,
    around: Surroundings,
    rows: Range,
    epilogue: str = "",
) -> OpenGemmTiling:
    """Return the decision for a matrix multiplication with a dynamic number of `rows` that are stored in memory: that
    of a given or known configuration, else that of the formulas.

    `workload` and errors are those of decide_open_rows; `epilogue` names the fused operators.
    """
    known = options.known_open_config(workload, hardware, rows, epilogue)
    if known is not None:
        try:
            return open_tiling_of(known[0], workload, hardware, around, why=known[1])
        except TilingError as error:  # the configuration does not apply to this machine, operator or version
            if options.config is not None:
                raise
            warnings.warn(f"a known configuration does not apply and is ignored: {error}", RuntimeWarning, stacklevel=2)
    return decide_open_rows(workload, hardware, options, around)


def fixed_config(config: Config, rows: int) -> Config:
    """Return a configuration for dynamic rows as one for `rows` rows, with the division of the range that contains
    them."""
    place = sum(rows > limit for limit in _limits(config))
    return _as_fixed(config, config.choice("microkernel"), _shares(config)[place])


def for_open_rows(config: Config, start: Config) -> Config | None:
    """Return a configuration for a static number of rows as one for dynamic rows, with the ranges of `start`; None if
    it has no register tile."""
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
    """The configurations around the decision for a matrix multiplication with dynamic rows.

    Costs are predicted for the first, the middle and the last of `sizes`, which suffices to rank the configurations.
    """

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
        """Return up to `limit` configurations in order of predicted cost."""
        return islice(self._ranked, limit)

    def predicted(self, config: Config) -> float:
        """Return the geometric mean of the predicted seconds over the sizes."""
        if config not in self._prices:
            logs = [math.log(self._seconds(config, rows)) for rows in self.sizes]
            self._prices[config] = math.exp(math.fsum(logs) / len(logs))
        return self._prices[config]

    def features(self, config: Config) -> dict[str, float]:
        """Return no features: recorded trials contain no dynamic rows."""
        return {}

    def settled(self, config: Config) -> Config | None:
        """Return the configuration clipped to the operator's sizes; None if it is impossible."""
        try:
            return open_config(open_tiling_of(config, self.workload, self.hardware, self.around))
        except TilingError:
            return None

    def _seconds(self, config: Config, rows: int) -> float:
        """Return the predicted seconds for `rows` rows, divided evenly among tiles."""
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
        """Return the block depth of the start, and K divided into few blocks."""
        whole = self.workload.k
        parts = [-(-whole // count) for count in DEPTHS]
        return list(dict.fromkeys([integer(self.start, "depth"), *(part for part in parts if part >= LEAST_DEPTH)]))

    def _columns(self, vectors: int) -> list[int]:
        """Return the block width of the start, and all columns divided into few blocks."""
        panel = vectors * (self.decision.lanes or 1)
        panels = -(-self.workload.n // panel)
        parts = [-(-panels // count) * panel for count in COLUMNS if count <= panels]
        return list(dict.fromkeys([integer(self.start, "columns"), *parts]))

    def _near(self, config: Config) -> Iterator[Config]:
        for depth in halves_and_doubles(integer(config, "depth"), 1, self.workload.k):
            yield changed(config, depth=depth)

    def _shared_otherwise(self) -> Iterator[Config]:
        """Yield other divisions for one range at a time, and ranges of half and twice the length."""
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
    """Yield the divisions of rows and columns that use one core or all cores."""
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
        raise HardwareError(f"{hardware.name} has no CPU; expected a hardware description with a [cpu] table")
    return hardware.cpu


def _limits(config: Config) -> tuple[int, ...]:
    """Return the last row count of each range except the last. Raises DatabaseError unless they increase."""
    value = config.choice("rows")
    if not isinstance(value, tuple) or any(size < 1 for size in value) or sorted(set(value)) != list(value):
        raise DatabaseError(f"config: rows = {value!r}; expected increasing whole numbers of at least 1")
    return value


def _shares(config: Config) -> list[tuple[int, int, int]]:
    """Return the division among cores for each range."""
    flat = integers(config, "shares", 3 * (1 + len(_limits(config))))
    return [(flat[at], flat[at + 1], flat[at + 2]) for at in range(0, len(flat), 3)]


def _ranges(config: Config, workload: GemmWorkload, around: Surroundings, cpu: Cpu) -> tuple[RowRange, ...]:
    """Return the ranges of a configuration, with equal neighbours joined."""
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
    """Return the tiling of the matrix multiplication with `rows` rows, with cores divided by batch, rows and
    columns."""
    rule = BlockedConfigs(at_rows(workload, rows), cpu, around)
    return rule.tiling_of(_as_fixed(config, config.choice("microkernel"), shares))


def _as_fixed(config: Config, tile: Value, shares: tuple[int, int, int]) -> Config:
    """Return the choices of a configuration as those for a static number of rows."""
    choices: dict[str, Value] = {
        "microkernel": tile,
        "threads": (*shares, 1),
        "depth": config.choice("depth"),
        "columns": config.choice("columns"),
        "inner_order": "mn",
        "pack_b": "pack",
    }
    return Config.of("gemm", "normal", choices)
