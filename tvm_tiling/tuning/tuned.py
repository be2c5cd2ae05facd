"""Implementation of tune(): resolves what to search and what measures, opens the database, and runs the search."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..hardware.description import Hardware
from .learning.past import past_trials
from .learning.recorded import pretrained
from .measuring.local import LocalBench, LocalMeasurer
from .measuring.measurer import Measurer
from .measuring.runner import LOCAL, Address, Runner, RunnerError
from .measuring.simulator import SimulatorMeasurer
from .measuring.template import Template
from .operator import operator_of
from .outcome import ModelTuneReport, TuneReport
from .progress import Bar
from .search import CostModel, SearchRules
from .session import AtOnce, Progress, Settings, run
from .shapes.database import ShapeDatabase
from .shapes.trials import TrialLog
from .tasks import search_of, tasks_of, tune_tasks
from .trial import Told, TrialFile
from .workers.remote import RemoteMeasurer

if TYPE_CHECKING:
    from .metaschedule.cost_model import TilingCostModel

LEARNED_FROM = 500  # newest trials of the database, which take some tenths of a second to learn from

Shown = Callable[[Progress], None]


def tuned(
    model_or_op: Any,
    hardware: Hardware,
    *,
    database: ShapeDatabase | str | None,
    trials: int,
    runner: Runner,
    template: Template | None,
    cost_model: CostModel | TilingCostModel | None,
    prepacked: bool,
    seeded: bool,
    resume: bool,
    seed: int,
    progress: Shown | bool,
    log: Told | str | os.PathLike[str] | None,
    model_options: Mapping[str, Any],
) -> TuneReport | ModelTuneReport:
    """Run the search that tune() describes, with its arguments; local processes are forks of `template`."""
    operator = operator_of(model_or_op, hardware, prepacked, model_options)

    def settings() -> Settings:
        model = _model(cost_model, opened, hardware)
        rules = SearchRules(trials=trials)
        return Settings(rules=rules, model=model, seeded=seeded, resume=resume, seed=seed, told=told)

    with _told(log) as told, _opened(database) as opened, TrialLog(opened) as kept:
        if operator is None:
            tasks = tasks_of(model_or_op, hardware, model_options)
            with _measuring(runner, hardware, template) as (measurer, at_once), _shown(progress, "tuning") as show:
                return tune_tasks(tasks, hardware, measurer, at_once, kept, settings(), show)
        with _measuring(runner, hardware, template) as (measurer, at_once), _shown(progress, "tuning") as show:
            return run(search_of(operator, hardware, measurer, kept, settings()), at_once, show)


@contextlib.contextmanager
def _measuring(runner: Runner, hardware: Hardware, template: Template | None) -> Iterator[tuple[Any, AtOnce]]:
    """Provide the measurer of the runner and the number of jobs that it currently takes at a time; it is closed
    afterwards if it was created here."""
    measurer, at_once = measurer_of(runner, hardware, template)
    try:
        yield measurer, at_once
    finally:
        if isinstance(runner, str):
            measurer.close()


@contextlib.contextmanager
def _shown(progress: Shown | bool, title: str) -> Iterator[Shown | None]:
    """Provide what shows the progress: a bar, the caller's function, or nothing."""
    if progress is True:
        with Bar(title) as bar:
            yield bar
    else:
        yield progress or None


@contextlib.contextmanager
def _told(log: Told | str | os.PathLike[str] | None) -> Iterator[Told | None]:
    """Provide what receives every trial: a file, the caller's function, or nothing."""
    if log is None or callable(log):
        yield log
        return
    with TrialFile(log) as file:
        yield file


@contextlib.contextmanager
def _opened(database: ShapeDatabase | str | None) -> Iterator[ShapeDatabase]:
    if isinstance(database, ShapeDatabase):
        yield database
        return
    with ShapeDatabase("sqlite://" if database is None else database) as opened:
        yield opened


def _model(given: CostModel | TilingCostModel | None, database: ShapeDatabase, hardware: Hardware) -> CostModel:
    """Return the cost model; it is trained while the processes of the runner start."""
    if given is None:
        model = pretrained(hardware)
        model.remember(past_trials(database, hardware, LEARNED_FROM), hardware)
        return model
    # A TilingCostModel is recognised by its attributes: importing its class would import TVM unnecessarily.
    schedules = getattr(given, "schedules", None)
    learned: CostModel = given if schedules is None else schedules.learned
    return learned


LOCAL_AT_ONCE = 8
PER_WORKER = 2  # jobs per worker of a tracker at a time


def measurer_of(runner: Runner, hardware: Hardware, template: Template | None = None) -> tuple[Measurer, AtOnce]:
    """Return the measurer for `hardware`, and the preferred number of jobs at a time; local processes are forks of
    `template` if given. RunnerError for an invalid runner, or a tracker that cannot be reached or has no workers."""
    if not isinstance(runner, str):
        return runner, lambda: LOCAL_AT_ONCE
    if runner == LOCAL:
        local = SimulatorMeasurer() if hardware.cpu is None else LocalMeasurer(LocalBench(template=template))
        return local, lambda: LOCAL_AT_ONCE
    try:
        address = Address.parse(runner)
    except RunnerError:
        raise RunnerError(f"runner {runner!r}; expected {LOCAL!r}, or 'rpc://host:port/key' of a TVM tracker") from None
    remote = RemoteMeasurer(address, hardware)
    return remote, lambda: PER_WORKER * remote.workers
