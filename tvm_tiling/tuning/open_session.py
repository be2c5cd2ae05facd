"""tune() for a matrix multiplication with a dynamic number of rows: a search over configurations for a range of rows,
evaluated at several sizes.

Every configuration runs alternately with the analytical decision at numbers of rows spread over the range, and its cost
follows from the geometric mean of these ratios. The best one is measured again, for longer, at other numbers of rows
(those that it was selected at are biased in its favour) and with both in swapped positions. It is kept if its geometric
mean is better there, beyond noise; otherwise nothing changes.
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
from ..figures import quantity
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

SIZES = 7  # numbers of rows at which a configuration is measured
USUAL_ROWS = 512  # upper end of the measurements for an unbounded range
PATIENT = 0.02  # expected gain over the prediction for a choice not yet measured, in log cost
_CHOICES = ("microkernel", "depth", "columns")


def sizes_of(rows: Range, seed: int, count: int = SIZES) -> tuple[int, ...]:
    """Return up to `count` numbers of rows within a range, from its first to its last (or to the last that is priced):
    in equal logarithmic steps, randomly displaced except at the ends."""
    most = USUAL_ROWS if rows.last is None else ROWS[-1]
    last = max(most, 4 * rows.first) if rows.last is None else min(rows.last, max(most, 4 * rows.first))
    draw, steps = random.Random(seed), max(1, count - 1)
    places = [0.0, *((step + draw.uniform(-0.5, 0.5)) / steps for step in range(1, steps)), 1.0]
    found = {min(last, max(rows.first, round(rows.first * (last / rows.first) ** place))) for place in places}
    return tuple(sorted(found))


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of positive numbers."""
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def _comparing_rows(measurer: object) -> ComparesRows:
    """Return `measurer` if it compares kernels over several numbers of rows. RunnerError for any other."""
    if not isinstance(measurer, ComparesRows):
        raise RunnerError(
            f"runner: a {type(measurer).__name__} measures static sizes only; expected {LOCAL!r}, or a Measurer with "
            "over_rows, for a dynamic number of rows"
        )
    return measurer


def both_ways(there: PairedResult, back: PairedResult) -> PairedResult:
    """Combine two sessions, the second with candidate and incumbent swapped. The placement of tensors, and which side
    runs first, shifts all pairs of a session by some percent: the interval of one session does not include this, the
    difference between the two does."""
    ratio = math.sqrt(there.ratio / back.ratio)
    apart = abs(math.log(there.ratio * back.ratio)) / 2
    known = math.hypot(there.uncertainty, back.uncertainty) / 2
    return replace(there, ratio=ratio, uncertainty=math.hypot(known, apart))


class Effects:
    """The CostModel for configurations with a dynamic number of rows: the analytical prediction, corrected by the mean
    error of measured configurations with the same tile, depth and columns."""

    def __init__(self) -> None:
        self._residuals: list[tuple[Config, float]] = []

    def rank(self, space: SearchSpace, configs: Sequence[Config]) -> Sequence[Config]:
        """Return `configs` with the cheapest first."""
        effects = self._effects()

        def estimate(config: Config) -> float:
            parts = (effects[name].get(config.choice(name), -PATIENT) for name in _CHOICES)
            return math.log(space.predicted(config)) + math.fsum(parts)

        return sorted(configs, key=estimate)

    def update(self, space: SearchSpace, measured: Sequence[Measured]) -> None:
        """Learn from measurements."""
        for one in measured:
            if one.cost is not None:
                residual = math.log(one.cost / space.predicted(one.job.config))
                self._residuals.append((one.job.config, residual))

    def _effects(self) -> dict[str, dict[object, float]]:
        """Return, by choice and value, the mean residual after the preceding choices, shrunk towards 0 where few
        configurations have it."""
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
    """The search for one matrix multiplication with a dynamic number of rows, from its seeds to its report; can be run
    in steps."""

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
        """`workload` is the matrix multiplication at a sample of its `rows`; the other arguments are as in Tuning."""
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

    # ---- queries of a search -----------------------------------------------------------------------------------------

    def _least(self, config: Config | None = None) -> float:
        return geometric_mean([least_cost(at_rows(self.workload, rows), self.hardware) for rows in self._sizes])

    def _job(self, config: Config) -> Job:
        return replace(super()._job(config), rows=self.rows)

    def _past(self) -> dict[Config, float | None]:
        about: dict[str, Any] = {"prepacked": self.prepacked, "epilogue": self.epilogue, "rows": self.rows}
        return self._log.past(self.workload, self.hardware, **about)

    def _known(self) -> list[Config]:
        """Return configurations from entries for ranges of the same and of nearby workloads, and for numbers of rows
        within the range, that this machine supports."""
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
        """Return whether an entry is for this workload with a number of rows within the range."""
        known = entry.workload
        return isinstance(known, GemmWorkload) and known.m in self.rows and known == at_rows(self.workload, known.m)

    # ---- measuring ---------------------------------------------------------------------------------------------------

    def _measured(self, jobs: Sequence[Job]) -> Iterator[Measured]:
        for (job, found), seconds in self._timed(self._in_turns(jobs)):
            if isinstance(found, str):
                yield Measured(job=job, reason=found, seconds_spent=seconds)
                continue
            measured = self._rows_measured(self._sizes, found)
            # All costs are those of the decision divided by the gain, so that they compare as the alternating runs did.
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
        """Return why costs are impossible on this machine, or an empty string."""
        cpu = self.hardware.cpu
        if isinstance(found, str) or cpu is None:
            return ""
        for rows, one in zip(sizes, found, strict=True):
            least = possible_seconds(at_rows(self.workload, rows), job.config, cpu)
            if one.seconds < least:
                return (
                    f"impossible cost: {cost_of(one.seconds)} for {quantity(rows, 'row')}, which take at least "
                    f"{cost_of(least)} on any such CPU"
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
        return measured  # checked for each size

    # ---- result ------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Measure the best configuration at other numbers of rows, and keep it if it is faster there beyond noise. If
        nothing is better, the configuration of the range's entry, if any, is measured again. If nothing was measured
        since the last call, the stored result stays."""
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
        """Return the result so far."""
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
