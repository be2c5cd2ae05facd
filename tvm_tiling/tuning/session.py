"""tune(): a search over configurations near the analytical decision, seeded from the database, measured and stored."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from ..decide.configs.config import Config, config_of
from ..decide.configs.open_configs import fixed_config
from ..decide.surroundings import Surroundings
from ..hardware.description import Hardware
from ..measure import DOUBTFUL
from ..sizes import Range
from ..workload import ConvWorkload, GemmWorkload
from .least_cost import least_cost, possible_seconds
from .measuring.incumbents import impossible
from .measuring.measurer import Compares, Job, Measured, Measurer
from .outcome import TuneReport
from .search import CostModel, Search, SearchRules, SearchSpace
from .shapes.entries import Entry
from .shapes.generate import shape_text
from .shapes.kept_config import tiling_if_possible
from .shapes.trials import TrialLog
from .trial import Told, Trial

_T = TypeVar("_T")
AtOnce: TypeAlias = Callable[[], int]
"""Returns the preferred number of jobs per batch of a measurer, which may change as workers join a tracker."""

SEEDS = 4  # configurations from matching entries, and as many from near ones


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a search. `model` ranks what to try next, None for the analytical predictions; `seeded`: first
    measure the configurations of matching and near entries; `resume`: continue from the measurements of earlier
    sessions. `seed` controls the exploration. `told` is called with every trial."""

    rules: SearchRules
    model: CostModel | None = None
    seeded: bool = True
    resume: bool = True
    seed: int = 0
    told: Told | None = None


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress of a search: trials done out of the maximum, failures, the best cost and the lower bound."""

    done: int
    of: int
    failed: int
    best: float | None
    least: float
    unit: str


class Tuning:
    """The search for one operator, from its seeds to its report; can be run in steps."""

    def __init__(
        self,
        workload: GemmWorkload | ConvWorkload,
        hardware: Hardware,
        *,
        space: SearchSpace,
        measurer: Measurer,
        log: TrialLog,
        settings: Settings,
        prepacked: bool = False,
        epilogue: str = "",
        name: str = "",
    ) -> None:
        """`prepacked`: weights are packed outside the measured time; `epilogue` names the fused epilogue; `name` is the
        name of the operator in trial reports, by default its shape."""
        start = time.monotonic()
        self.workload, self.hardware, self.prepacked, self.epilogue = workload, hardware, prepacked, epilogue
        self.unit = "s" if hardware.cpu is not None else "cycles"
        self.least = self._least()
        self._measurer, self._log, self._space = measurer, log, space
        past = self._past() if settings.resume else {}
        if all(cost is None for cost in past.values()):
            past = {}  # the cause was then the runner rather than the configurations: they are measured again
        seeds = self._known() if settings.seeded else []
        # The clock of a CPU may differ from its description, so its lower bound never ends a search.
        least = 0.0 if hardware.cpu is not None else self.least
        self._search = Search(
            space, seeds, settings.rules, model=settings.model, least=least, past=past, seed=settings.seed
        )
        self._of = settings.rules.trials
        self.earlier = len(past)
        self._before = past.get(space.start)
        # Costs measured earlier are not comparable with new ones: the best of them becomes the incumbent again.
        best = self._search.best
        self._again = [] if best is None or self.stopped else list(dict.fromkeys([best, space.start]))
        self._failures: dict[str, int] = {}
        self._name, self._told = name or shape_text(workload), settings.told
        self._trials: list[Trial] = []
        self._noise: dict[Config, float] = {}  # measurements of this session -> fraction disturbed by other work
        self._settled: Entry | None = None
        self._apart = ""
        self._seconds = {"deciding": time.monotonic() - start, "building and measuring": 0.0}
        self.trials = 0

    def _least(self, config: Config | None = None) -> float:
        """Return a lower bound on the cost of the operator, for the algorithm of a configuration if given."""
        return least_cost(self.workload, self.hardware, config)

    def _past(self) -> dict[Config, float | None]:
        """Return what earlier sessions measured."""
        return self._log.past(self.workload, self.hardware, prepacked=self.prepacked, epilogue=self.epilogue)

    def _job(self, config: Config) -> Job:
        return Job(
            workload=self.workload,
            config=config,
            hardware=self.hardware,
            prepacked=self.prepacked,
            epilogue=self.epilogue,
        )

    def _known(self) -> list[Config]:
        """Return configurations of matching and near entries that this machine supports for this shape."""
        database, workload, hardware = self._log.database, self.workload, self.hardware
        known: list[Config] = []
        for epilogue in dict.fromkeys(
            (self.epilogue, "")
        ):  # a configuration for another epilogue is likely to be as good
            asked: dict[str, Any] = {
                "target": hardware,
                "prepacked": self.prepacked,
                "epilogue": epilogue,
                "limit": SEEDS,
            }
            known += [hit.entry.config for hit in database.matches(workload, order="estimate", **asked)]
            known += [entry.config for entry in database.nearest(workload, **asked)]
            known += self._of_ranges(epilogue)
        return [
            config
            for config in dict.fromkeys(known)
            if tiling_if_possible(config, workload, hardware, prepacked=self.prepacked)
        ]

    def _of_ranges(self, epilogue: str) -> Iterator[Config]:
        """Yield the configurations of ranges that include the rows of the workload, specialised to that number."""
        workload = self.workload
        if not isinstance(workload, GemmWorkload) or self.hardware.cpu is None:
            return
        rows = Range(workload.m, workload.m)
        about: dict[str, Any] = {"target": self.hardware, "prepacked": self.prepacked, "epilogue": epilogue}
        for entry in self._log.database.ranges(workload, limit=SEEDS, **about):
            if entry.rows is None or not entry.rows.rows.covers(rows):
                continue
            config = fixed_config(entry.config, workload.m)
            tiling = tiling_if_possible(config, workload, self.hardware, prepacked=self.prepacked)
            if tiling is not None:
                yield config_of(tiling, workload, self.hardware, Surroundings(prepacked=self.prepacked))

    @property
    def stopped(self) -> str:
        """Why the search has ended, or an empty string."""
        return self._search.stopped

    @property
    def cost(self) -> float | None:
        """The best cost so far."""
        return None if self._search.best is None else self._search.cost

    @property
    def hope(self) -> float:
        """The saving that the luckiest remaining configuration could bring; 0 when the search has ended."""
        return 0.0 if self.stopped else self._search.hope

    @property
    def since(self) -> int:
        """Trials since the last gain."""
        return self._search.since

    @property
    def failed(self) -> int:
        """Trials of this session that failed."""
        return sum(self._failures.values())

    def step(self, count: int, progress: Callable[[Progress], None] | None = None) -> int:
        """Measure up to `count` more configurations and return their number. Results are stored as they arrive, however
        the step ends."""
        start = time.monotonic()
        configs = self._search.propose(count)
        again, self._again = self._again if configs else [], []
        jobs = [self._job(config) for config in (*again, *configs)]
        self._seconds["deciding"] += time.monotonic() - start
        learned: list[Measured] = []
        try:
            for measured in self._measured(jobs):
                if measured.job.config in again:
                    self._note_again(self._possible(measured))
                    continue
                measured = self._possible(measured)
                learned.append(measured)
                self._note(measured)
                self._log.add(measured)
                found = self._progress(learned)
                self._tell(measured, found.best)
                if progress is not None:
                    progress(found)
        finally:
            self._search.learn(learned)
            self._log.flush()
        return len(learned)

    def _measured(self, jobs: Sequence[Job]) -> Iterator[Measured]:
        for measured, _ in self._timed(self._measurer.measure(jobs)):
            yield measured

    def _timed(self, results: Iterable[_T]) -> Iterator[tuple[_T, float]]:
        """Yield results as they arrive, each with the seconds that it took, which are added to the total."""
        start = time.monotonic()
        for result in results:
            spent = time.monotonic() - start
            self._seconds["building and measuring"] += spent
            yield result, spent
            start = time.monotonic()

    def _possible(self, measured: Measured) -> Measured:
        """Return the result, measured again if no CPU could be that fast; a failure if the new result is impossible
        too. This applies to any measurer, so that only valid costs are stored."""
        job, cpu = measured.job, self.hardware.cpu
        if cpu is None or measured.cost is None:
            return measured
        least = possible_seconds(self.workload, job.config, cpu)
        if measured.cost >= least:
            return measured
        again = next(iter(self._measurer.measure([job])))
        if again.cost is None or again.cost >= least:
            return again
        reason = impossible(job, measured.cost, again.cost, least)
        return Measured(job=job, reason=reason, seconds_spent=measured.seconds_spent + again.seconds_spent)

    def _tell(self, measured: Measured, best: float | None) -> None:
        trial = Trial(
            number=self.earlier + self.trials,
            operator=self._name,
            config=measured.job.config,
            unit=self.unit,
            predicted=self._space.predicted(measured.job.config),
            cost=measured.cost,
            best=best,
            reason=measured.reason,
            disturbed=measured.disturbed,
            seconds=measured.seconds_spent,
        )
        self._trials.append(trial)
        if self._told is not None:
            self._told(trial)

    def _note(self, measured: Measured) -> None:
        self.trials += 1
        self._noise[measured.job.config] = measured.disturbed
        if measured.reason is not None:
            self._failures[measured.reason] = self._failures.get(measured.reason, 0) + 1
        elif measured.job.config == self._space.start:
            self._before = measured.cost
            self._log.decided(measured)

    def _note_again(self, measured: Measured) -> None:
        self._search.again(measured)
        self._noise[measured.job.config] = measured.disturbed
        if measured.cost is not None:
            self._log.keep(measured)
            if measured.job.config == self._space.start:
                self._before = measured.cost
                self._log.decided(measured)

    def _progress(self, learned: Sequence[Measured]) -> Progress:
        costs = [measured.cost for measured in learned if measured.cost is not None]
        known = [*costs, *([self.cost] if self.cost is not None else [])]
        return Progress(
            done=self.earlier + self.trials,
            of=self._of,
            failed=self.failed,
            best=min(known, default=None),
            least=self.least,
            unit=self.unit,
        )

    def settle(self) -> None:
        """Time the best configuration and the decision in one session, and store both costs, since trials are measured
        at different times. If nothing was measured since the last call, the stored result stays."""
        best, start = self._search.best, self._space.start
        compares = isinstance(self._measurer, Compares) and self.hardware.cpu is not None
        kept = self._log.entry(self.workload, self.hardware, prepacked=self.prepacked, epilogue=self.epilogue)
        if not self.trials and kept is not None and (kept.disturbed is not None or not compares):
            self._settled = kept
            return
        if best is None or not compares:
            return
        assert isinstance(self._measurer, Compares)
        job = self._job(start)
        if best == start:
            assert self.cost is not None
            noise = self._noise.get(start, 0.0)
            self._settled = self._log.settle([(job, self.cost)], decided=self.cost, disturbed=noise)
            return
        found = self._measurer.compare(job, replace(job, config=best))
        if isinstance(found, str):
            self._apart = found
            return
        costs = [(replace(job, config=best), found.after)]
        if found.before < found.after:  # the decision is better after all
            costs.append((job, found.before))
        self._settled = self._log.settle(costs, decided=found.before, disturbed=found.disturbed)

    def report(self, stopped: str = "") -> TuneReport:
        """Return the result so far; `stopped` is why the search ended if it did not end by itself."""
        settled = self._settled
        best = self._search.best if settled is None else settled.config
        before = self._before if settled is None or settled.decided_cost is None else settled.decided_cost
        return TuneReport(
            workload=self.workload,
            target=self.hardware.name,
            unit=self.unit,
            trials=self.trials,
            earlier=self.earlier,
            failures=tuple(sorted(self._failures.items(), key=lambda item: -item[1])),
            best=best,
            cost_before=before,
            cost_after=self.cost if settled is None else settled.cost,
            least=self.least if best is None else self._least(best),
            stopped=stopped or self.stopped or "unfinished",
            seconds=(*self._seconds.items(), ("database", self._log.seconds)),
            disturbed=None if settled is None else settled.disturbed,
            disturbed_trials=sum(share > DOUBTFUL for share in self._noise.values()),
            apart=self._apart,
            log=tuple(self._trials),
        )


def run(tuning: Tuning, at_once: AtOnce, progress: Callable[[Progress], None] | None = None) -> TuneReport:
    """Run a search to its end, `at_once` configurations at a time. Ctrl-C ends it early with the result so far."""
    stopped = ""
    try:
        while not tuning.stopped:
            if not tuning.step(at_once(), progress):
                break
    except KeyboardInterrupt:
        stopped = "interrupted"
    with contextlib.suppress(KeyboardInterrupt):
        tuning.settle()
    return tuning.report(stopped)
