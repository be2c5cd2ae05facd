"""tune(): a search over cuts near the formulas', seeded from the database, measured, kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..decide.configs.config import Config
from ..hardware.description import Hardware
from ..workload import ConvWorkload, GemmWorkload
from .least_cost import least_cost
from .measuring.measurer import Job, Measured, Measurer
from .outcome import TuneReport
from .search import CostModel, Search, SearchRules, SearchSpace
from .shapes.kept_config import tiling_if_possible
from .shapes.trials import TrialLog

SEEDS = 4  # cuts of matched entries, and as many of near ones


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to search. `model` is asked what to try next, None for the formulas' predictions; `seeded`: measure the
    configurations of entries that match or are near first; `resume`: go on from what earlier sessions measured. `seed`
    is that of the exploration."""

    rules: SearchRules
    model: CostModel | None = None
    seeded: bool = True
    resume: bool = True
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Progress:
    """A search under way: trials done of at most so many, what failed, the best cost and the least there is."""

    done: int
    of: int
    failed: int
    best: float | None
    least: float
    unit: str


class Tuning:
    """The search of one operator, from its seeds to its report; may be run in steps."""

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
    ) -> None:
        """`prepacked`: weights are packed before the time that counts; `epilogue` names what is fused behind."""
        start = time.monotonic()
        self.workload, self.hardware, self.prepacked, self.epilogue = workload, hardware, prepacked, epilogue
        self.unit = "s" if hardware.cpu is not None else "cycles"
        self.least = least_cost(workload, hardware)
        self._measurer, self._log, self._space = measurer, log, space
        past = log.past(workload, hardware, prepacked=prepacked, epilogue=epilogue) if settings.resume else {}
        seeds = self._known() if settings.seeded else []
        # A CPU's clock is not what its description says at every moment, so its least cost ends no search.
        least = 0.0 if hardware.cpu is not None else self.least
        self._search = Search(
            space, seeds, settings.rules, model=settings.model, least=least, past=past, seed=settings.seed
        )
        self._of = settings.rules.trials
        self.earlier = len(past)
        self._before = past.get(space.start)
        # Costs of another day are not beside those of today: the best of them is the incumbent again.
        best = self._search.best
        self._again = [] if best is None or self.stopped else list(dict.fromkeys([best, space.start]))
        self._failures: dict[str, int] = {}
        self._seconds = {"deciding": time.monotonic() - start, "building and measuring": 0.0}
        self.trials = 0

    def _known(self) -> list[Config]:
        """Configurations of matched entries and of near ones that this machine can do for this shape."""
        database, workload, hardware = self._log.database, self.workload, self.hardware
        known: list[Config] = []
        for epilogue in dict.fromkeys(
            (self.epilogue, "")
        ):  # behind other steps a configuration is likely to be as good
            asked: dict[str, Any] = {
                "target": hardware,
                "prepacked": self.prepacked,
                "epilogue": epilogue,
                "limit": SEEDS,
            }
            known += [hit.entry.config for hit in database.matches(workload, order="estimate", **asked)]
            known += [entry.config for entry in database.nearest(workload, **asked)]
        return [
            config
            for config in dict.fromkeys(known)
            if tiling_if_possible(config, workload, hardware, prepacked=self.prepacked)
        ]

    @property
    def stopped(self) -> str:
        """Why the search is at its end, empty while it is not."""
        return self._search.stopped

    @property
    def cost(self) -> float | None:
        """The best cost so far."""
        return None if self._search.best is None else self._search.cost

    @property
    def hope(self) -> float:
        """What the luckiest cut that is left would save; 0 when the search is at its end."""
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
        """Measure up to `count` cuts more; how many it were. Results are kept as they come, whatever ends the step."""
        start = time.monotonic()
        configs = self._search.propose(count)
        again, self._again = self._again if configs else [], []
        jobs = [
            Job(
                workload=self.workload,
                config=config,
                hardware=self.hardware,
                prepacked=self.prepacked,
                epilogue=self.epilogue,
            )
            for config in (*again, *configs)
        ]
        self._seconds["deciding"] += time.monotonic() - start
        learned: list[Measured] = []
        try:
            for measured in self._measured(jobs):
                if measured.job.config in again:
                    self._note_again(measured)
                    continue
                learned.append(measured)
                self._note(measured)
                self._log.add(measured)
                if progress is not None:
                    progress(self._progress(learned))
        finally:
            self._search.learn(learned)
            self._log.flush()
        return len(learned)

    def _measured(self, jobs: Sequence[Job]) -> Iterator[Measured]:
        start = time.monotonic()
        for measured in self._measurer.measure(jobs):
            self._seconds["building and measuring"] += time.monotonic() - start
            yield measured
            start = time.monotonic()

    def _note(self, measured: Measured) -> None:
        self.trials += 1
        if measured.reason is not None:
            self._failures[measured.reason] = self._failures.get(measured.reason, 0) + 1
        elif measured.job.config == self._space.start:
            self._before = measured.cost
            self._log.decided(measured)

    def _note_again(self, measured: Measured) -> None:
        self._search.again(measured)
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

    def report(self, stopped: str = "") -> TuneReport:
        """What was found so far; `stopped` is why it ended where the search did not end by itself."""
        return TuneReport(
            workload=self.workload,
            target=self.hardware.name,
            unit=self.unit,
            trials=self.trials,
            earlier=self.earlier,
            failures=tuple(sorted(self._failures.items(), key=lambda item: -item[1])),
            best=self._search.best,
            cost_before=self._before,
            cost_after=self.cost,
            least=self.least,
            stopped=stopped or self.stopped or "not at its end",
            seconds=(*self._seconds.items(), ("database", self._log.seconds)),
        )


def run(tuning: Tuning, at_once: int, progress: Callable[[Progress], None] | None = None) -> TuneReport:
    """Run a search to its end, `at_once` cuts at a time. Ctrl-C ends it early, with what was found so far."""
    try:
        while not tuning.stopped:
            if not tuning.step(at_once, progress):
                break
    except KeyboardInterrupt:
        return tuning.report("interrupted")
    return tuning.report()
