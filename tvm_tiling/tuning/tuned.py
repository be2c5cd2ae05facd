"""What tune() does: settles what is searched for and what measures, opens the database, and runs the search."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..decide.as_scheduled import asked_for
from ..decide.configs.neighbourhood import neighbourhood
from ..decide.epilogue import NONE, said
from ..errors import WorkloadError
from ..hardware.description import Hardware
from ..workload import ConvWorkload, GemmWorkload
from .learning.past import past_trials
from .learning.recorded import pretrained
from .measuring.local import LocalBench, LocalMeasurer
from .measuring.measurer import Measurer
from .measuring.runner import LOCAL, Address, Runner
from .measuring.simulator import SimulatorMeasurer
from .measuring.template import Template
from .outcome import ModelTuneReport, TuneReport
from .progress import Bar
from .search import CostModel, SearchRules
from .session import AtOnce, Progress, Settings, Tuning, run
from .shapes.database import ShapeDatabase
from .shapes.key import Workload
from .shapes.trials import TrialLog
from .tasks import tasks_of, tune_tasks
from .trial import Told, TrialFile
from .workers.remote import RemoteMeasurer

if TYPE_CHECKING:
    from .metaschedule.cost_model import TilingCostModel

LEARNED_FROM = 500  # of the database's trials, the newest: what takes some tenths of a second to learn from

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
    """The search that tune() says, with its arguments; local processes are forks of `template`."""
    operator = _operator(model_or_op, hardware, prepacked)
    if operator is not None and model_options:
        raise WorkloadError(f"{', '.join(model_options)}: of a model; the operator given has none")

    def settings() -> Settings:
        model = _model(cost_model, opened, hardware)
        rules = SearchRules(trials=trials)
        return Settings(rules=rules, model=model, seeded=seeded, resume=resume, seed=seed, told=told)

    with _told(log) as told, _opened(database) as opened, TrialLog(opened) as kept:
        if operator is None:
            tasks = tasks_of(model_or_op, hardware, model_options)
            with _measuring(runner, hardware, template) as (measurer, at_once), _shown(progress, "tuning") as show:
                return tune_tasks(tasks, hardware, measurer, at_once, kept, settings(), show)
        workload, prepacked, epilogue = operator
        space = neighbourhood(workload, hardware, prepacked=prepacked)
        with _measuring(runner, hardware, template) as (measurer, at_once), _shown(progress, "tuning") as show:
            search = Tuning(
                workload,
                hardware,
                space=space,
                measurer=measurer,
                log=kept,
                settings=settings(),
                prepacked=prepacked,
                epilogue=epilogue,
            )
            return run(search, at_once, show)


@contextlib.contextmanager
def _measuring(runner: Runner, hardware: Hardware, template: Template | None) -> Iterator[tuple[Any, AtOnce]]:
    """The runner's measurer and how many jobs it takes at a time now; ended afterwards if it was started here."""
    measurer, at_once = measurer_of(runner, hardware, template)
    try:
        yield measurer, at_once
    finally:
        if isinstance(runner, str):
            measurer.close()


@contextlib.contextmanager
def _shown(progress: Shown | bool, title: str) -> Iterator[Shown | None]:
    """What is told of the progress: a bar, the caller's function, or nothing."""
    if progress is True:
        with Bar(title) as bar:
            yield bar
    else:
        yield progress or None


@contextlib.contextmanager
def _told(log: Told | str | os.PathLike[str] | None) -> Iterator[Told | None]:
    """What is told of every trial: a file, the caller's function, or nothing."""
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
    """What says which configurations to try next; it is taught while the runner's processes start."""
    if given is None:
        model = pretrained(hardware)
        model.remember(past_trials(database, hardware, LEARNED_FROM), hardware)
        return model
    # A TilingCostModel is known by what it has: its class would bring TVM where it is not needed.
    schedules = getattr(given, "schedules", None)
    learned: CostModel = given if schedules is None else schedules.learned
    return learned


def _operator(op: Any, hardware: Hardware, prepacked: bool) -> tuple[Workload, bool, str] | None:
    """What a schedule of an operator asks for: the workload, whether its weights are prepacked, and what is fused
    behind that can be measured by its name; None for what is a model."""
    if isinstance(op, GemmWorkload | ConvWorkload):
        return *asked_for(op, hardware, prepacked), NONE
    if isinstance(op, str | bytes):
        return None
    from ..match import epilogue_of, match, prim_func_of
    from ..model.accel.operator import is_operator

    if not is_operator(op):
        return None
    functions = getattr(op, "functions", None)
    if functions is not None:
        if len(functions) != 1:
            raise WorkloadError(f"a module of {len(functions)} operators; accepted: one, or a Relax model")
        op = next(iter(functions.values()))
    program = match(prim_func_of(op), may_swap=False, keep_taps=True)
    # What an accelerator asks for has no epilogue: its configurations are of the sums alone.
    behind = said(epilogue_of(program)) if hardware.cpu is not None else NONE
    return *asked_for(program.workload, hardware, prepacked), behind


LOCAL_AT_ONCE = 8
PER_WORKER = 2  # jobs that are given at a time for each worker of a tracker


def measurer_of(runner: Runner, hardware: Hardware, template: Template | None = None) -> tuple[Measurer, AtOnce]:
    """What measures on `hardware`, and how many jobs it had best be given at a time; processes here are forks of
    `template` where one is under way. RunnerError for what is not a runner, or a tracker that cannot be reached or has
    no workers."""
    if not isinstance(runner, str):
        return runner, lambda: LOCAL_AT_ONCE
    if runner == LOCAL:
        local = SimulatorMeasurer() if hardware.cpu is None else LocalMeasurer(LocalBench(template=template))
        return local, lambda: LOCAL_AT_ONCE
    remote = RemoteMeasurer(Address.parse(runner), hardware)
    return remote, lambda: PER_WORKER * remote.workers
