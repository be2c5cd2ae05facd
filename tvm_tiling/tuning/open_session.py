"""tune() of a product of open rows: a search over configurations that serve a range of rows, judged over its sizes.

Every configuration runs beside the formulas' own at numbers of rows spread over the range, and costs what the geometric
mean of these ratios says. The best one is measured once more, for longer and at other numbers of rows: those it was
chosen by flatter it; and with both in each other's place. It is kept if its geometric mean is better there, beyond
noise; else nothing changes.
"""

from __future__ import annotations

import contextlib
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..decide.configs.config import Config
from ..decide.configs.open_configs import OpenSpace, for_open_rows
from ..decide.gemm.open_rows import ROWS, at_rows
from ..decide.surroundings import Surroundings
from ..errors import DatabaseError
from ..hardware.description import Hardware
from ..model.package_versions import versions
from ..sizes import Range
from ..workload import GemmWorkload
from .least_cost import least_cost, possible_seconds
from .measuring.incumbents import cost_of
from .measuring.measurer import ComparesRows, Job, Measured, Measurer
from .measuring.paired_benchmark import PairedResult
from .measuring.runner import LOCAL, RunnerError
from .outcome import TuneReport
from .search import SearchSpace
from .session import SEEDS, Settings, Tuning
from .shapes.entries import Entry
from .shapes.generate import shape_text
from .shapes.row_range import RowsMeasured
from .shapes.schema import RANGE
from .shapes.trials import TrialLog

SIZES = 7  # numbers of rows that a configuration is measured at
USUAL_ROWS = 512  # that a range without an end is measured up to
PATIENT = 0.02  # how much faster than predicted a choice is hoped to be that was not measured yet, logarithm
_CHOICES = ("microkernel", "depth", "columns")


def sizes_of(rows: Range, seed: int, count: int = SIZES) -> tuple[int, ...]:
    """Up to `count` numbers of rows within a range, from its first to its last, or as many as formulas price: in
    equal steps of their logarithm, each but the ends drawn around its place."""
    most = USUAL_ROWS if rows.last is None else ROWS[-1]
    last = max(most, 4 * rows.first) if rows.last is None else min(rows.last, max(most, 4 * rows.first))
    draw, steps = random.Random(seed), max(1, count - 1)
    places = [0.0, *((step + draw.uniform(-0.5, 0.5)) / steps for step in range(1, steps)), 1.0]
    found = {min(last, max(rows.first, round(rows.first * (last / rows.first) ** place))) for place in places}
    return tuple(sorted(found))


def geometric_mean(values: Sequence[float]) -> float:
    """Of numbers above 0."""
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def _comparing_rows(measurer: object) -> ComparesRows:
    """`measurer` if it times products of open rows; RunnerError for any other."""
    if not isinstance(measurer, ComparesRows):
        raise RunnerError(
            f"runner: a {type(measurer).__name__} measures fixed sizes; accepted for products of open rows: "
            f"{LOCAL!r}, or a Measurer with over_rows"
        )
    return measurer


def both_ways(there: PairedResult, back: PairedResult) -> PairedResult:
    """Two sessions as one, in the second of which candidate and incumbent have changed places. Where tensors lie, and
    which of the two runs first, makes some percent in all pairs of a session: its interval does not know of it, the
    difference of the two does."""
    ratio = math.sqrt(there.ratio / back.ratio)
    apart = abs(math.log(there.ratio * back.ratio)) / 2
    known = math.hypot(there.uncertainty, back.uncertainty) / 2
    return replace(there, ratio=ratio, uncertainty=math.hypot(known, apart))


class Effects:
    """The CostModel of configurations of open rows: the formulas' prediction, and how far what was measured with the
    same tile, depth and columns was off."""

    def __init__(self) -> None:
        self._residuals: list[tuple[Config, float]] = []

    def rank(self, space: SearchSpace, configs: Sequence[Config]) -> Sequence[Config]:
        """`configs`, the cheapest first."""
        effects = self._effects()

        def estimate(config: Config) -> float:
            parts = (effects[name].get(config.choice(name), -PATIENT) for name in _CHOICES)
            return math.log(space.predicted(config)) + math.fsum(parts)

        return sorted(configs, key=estimate)

    def update(self, space: SearchSpace, measured: Sequence[Measured]) -> None:
        """Take in what was measured."""
        for one in measured:
            if one.cost is not None:
                residual = math.log(one.cost / space.predicted(one.job.config))
                self._residuals.append((one.job.config, residual))

    def _effects(self) -> dict[str, dict[object, float]]:
        """By choice and value, the mean of what the choices before it leave, drawn to 0 where few have it."""
        if not self._residuals:
            return {name: {} for name in _CHOICES}
        middle = statistics.fmean(residual for _, residual in self._residuals)
        rest = [(config, residual - middle) for config, residual in self._residuals]
        found: dict[str, dict[object, float]] = {}
        for name in _CHOICES:
            by_value: dict[object, list[float]] = defaultdict(list)
            for config, residual in rest:
                by_value[config.choice(name)].append(residual)
            found[name] = {value: math.fsum(own) / (len(own) + 1) for value, own in by_value.items()}
            rest = [(config, residual - found[name][config.choice(name)]) for config, residual in rest]
        return found


class OpenTuning(Tuning):
    """The search of one product of open rows, from its seeds to its report; may be run in steps."""

    workload: GemmWorkload

    def __init__(
        self,
        workload: GemmWorkload,
        hardware: Hardware,
        rows: Range,
        *,
        measurer: Measurer,
        log: TrialLog,
        settings: Settings,
        prepacked: bool = False,
        epilogue: str = "",
        name: str = "",
    ) -> None:
        """`workload` is the product at the sample of its `rows`, the others as a Tuning has them."""
        self.rows, self._sizes = rows, sizes_of(rows, settings.seed)
        self._others = sizes_of(rows, settings.seed + 1)
        self._turns, self._base = _comparing_rows(measurer), 0.0
        self._found: RowsMeasured | None = None
        super().__init__(
            workload,
            hardware,
            space=OpenSpace(workload, hardware, Surroundings(prepacked=prepacked), self._sizes),
            measurer=measurer,
            log=log,
            settings=replace(settings, model=Effects()),
            prepacked=prepacked,
            epilogue=epilogue,
            name=name or f"{shape_text(workload)} rows={rows}",
        )
        self._base = self._before or 0.0

    # ---- what a search asks ------------------------------------------------------------------------------------------

    def _least(self, config: Config | None = None) -> float:
        return geometric_mean([least_cost(at_rows(self.workload, rows), self.hardware) for rows in self._sizes])

    def _job(self, config: Config) -> Job:
        return replace(super()._job(config), rows=self.rows)

    def _past(self) -> dict[Config, float | None]:
        about: dict[str, Any] = {"prepacked": self.prepacked, "epilogue": self.epilogue, "rows": self.rows}
        return self._log.past(self.workload, self.hardware, **about)

    def _known(self) -> list[Config]:
        """Configurations of entries of ranges of the same product and of near ones, and of numbers of rows within the
        range, that this machine can do."""
        database, space = self._log.database, self._space
        assert isinstance(space, OpenSpace)
        known: list[Config] = []
        for epilogue in dict.fromkeys((self.epilogue, "")):
            about: dict[str, Any] = {"target": self.hardware, "prepacked": self.prepacked, "epilogue": epilogue}
            known += [entry.config for entry in database.ranges(self.workload, limit=SEEDS, **about)]
            near = database.nearest(self.workload, limit=SEEDS, **about)
            known += [entry.config for entry in near if self._is_within(entry)]
        found: dict[Config, None] = {}
        for config in known:
            with contextlib.suppress(DatabaseError):
                opened = for_open_rows(config, space.start)
                settled = None if opened is None else space.settled(opened)
                if settled is not None:
                    found.setdefault(settled)
        return list(found)

    def _is_within(self, entry: Entry) -> bool:
        """Whether an entry is of this product with a number of rows within the range."""
        known = entry.workload
        return isinstance(known, GemmWorkload) and known.m in self.rows and known == at_rows(self.workload, known.m)

    # ---- measuring ---------------------------------------------------------------------------------------------------

    def _measured(self, jobs: Sequence[Job]) -> Iterator[Measured]:
        for (job, found), seconds in self._timed(self._in_turns(jobs)):
            if isinstance(found, str):
                yield Measured(job=job, reason=found, seconds_spent=seconds)
                continue
            measured = self._rows_measured(self._sizes, found)
            # All costs are the decision's over the gain, so that they compare as the runs in turns did.
            self._base = self._base or geometric_mean([one.seconds * one.ratio for one in found])
            cost = self._base / measured.gain
            if job.config == self._space.start:
                cost = self._base
            elif not measured.won:
                cost = max(cost, self._base)
            disturbed = max(one.disturbed for one in found)
            yield Measured(job=job, cost=cost, spread=measured.spread, disturbed=disturbed, seconds_spent=seconds)

    def _in_turns(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, tuple[PairedResult, ...] | str]]:
        for job, found in self._turns.over_rows(jobs, self._job(self._space.start), self._sizes):
            yield job, self._impossible(job, self._sizes, found) or found

    def _impossible(self, job: Job, sizes: Sequence[int], found: tuple[PairedResult, ...] | str) -> str:
        """Why costs are none; empty where they are possible on this machine."""
        cpu = self.hardware.cpu
        if isinstance(found, str) or cpu is None:
            return ""
        for rows, one in zip(sizes, found, strict=True):
            least = possible_seconds(at_rows(self.workload, rows), job.config, cpu)
            if one.seconds < least:
                return (
                    f"impossible cost: {cost_of(one.seconds)} for {rows} rows, which take at least {cost_of(least)} on "
                    "any such CPU"
                )
        return ""

    def _rows_measured(self, sizes: Sequence[int], found: Sequence[PairedResult]) -> RowsMeasured:
        return RowsMeasured(
            rows=self.rows,
            sizes=tuple(sizes),
            gains=tuple(one.ratio for one in found),
            spreads=tuple(one.uncertainty for one in found),
            version=versions()["tvm-tiling"],
        )

    def _possible(self, measured: Measured) -> Measured:
        return measured  # looked at size by size

    # ---- the end -----------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Measure the best configuration at other numbers of rows, and keep it if it is faster there beyond noise.
        Where nothing is better, the configuration of the range's entry is measured anew, if there is one. Where nothing
        was measured since the last time, what is kept stays."""
        best, start = self._search.best, self._space.start
        kept = self._log.range_entry(self._job(start))
        self._settled = kept
        if kept is not None:
            self._found = kept.rows
        config = kept.config if kept is not None and best in (None, start) else best
        if not self.trials or config is None or config == start:
            return
        job, usual = self._job(config), self._job(start)
        found = next(iter(self._turns.over_rows([job], usual, self._others, thorough=True)))[1]
        back = next(iter(self._turns.over_rows([usual], job, self._others, thorough=True)))[1]
        why = found if isinstance(found, str) else self._impossible(job, self._others, found)
        if isinstance(found, str) or isinstance(back, str) or why:
            self._apart = why or str(back)
            return
        measured = self._rows_measured(self._others, [both_ways(*two) for two in zip(found, back, strict=True)])
        seconds = geometric_mean([one.seconds for one in found])
        disturbed = max(one.disturbed for one in (*found, *back))
        entry = Entry(
            workload=at_rows(self.workload, self.rows.first),
            config=config,
            cost=seconds,
            kind=RANGE,
            epilogue=self.epilogue,
            prepacked=self.prepacked,
            decided_cost=seconds * measured.gain,
            disturbed=disturbed,
            rows=measured,
        )
        again = kept is not None and kept.config == config
        if measured.won or again or kept is None:
            self._found, self._settled = measured, entry
        if measured.won or again:
            self._log.database.add_many([entry], target=self.hardware)

    def report(self, stopped: str = "") -> TuneReport:
        """What was found so far."""
        plain, found, settled = super().report(stopped), self._found, self._settled
        before = self._before if settled is None else settled.decided_cost
        taken = settled is not None and found is not None and found.won
        start = None if before is None else self._space.start
        return replace(
            plain,
            best=settled.config if taken and settled is not None else start,
            cost_before=before,
            cost_after=settled.cost if taken and settled is not None else before,
            least=self.least,
            rows=self.rows,
            over_rows=found,
        )
