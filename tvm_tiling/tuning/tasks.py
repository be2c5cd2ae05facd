"""tune() of a model: its operators as tasks, trials spent where they may gain most."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..decide.as_scheduled import asked_for
from ..decide.configs.neighbourhood import neighbourhood
from ..decide.epilogue import said
from ..errors import HardwareError, UnsupportedOperator
from ..hardware.description import Hardware
from ..workload import ConvWorkload, GemmWorkload
from .measuring.measurer import Measurer
from .outcome import ModelTuneReport, TaskReport
from .session import AtOnce, Progress, Settings, Tuning
from .shapes.trials import TrialLog

if TYPE_CHECKING:
    from ..frontend import ImportedModel

FIRST = 2  # cuts of every task before tasks are compared: the formulas' own, and one seed
WORTH = 0.002  # of the model's time: a task that cannot save as much in the luckiest case gets no trials


@dataclass(frozen=True, kw_only=True)
class Task:
    """An operator of a model, with the `epilogue` that is measured behind it; equal ones are one task, `calls` of all
    of them together in one run."""

    name: str
    workload: GemmWorkload | ConvWorkload
    prepacked: bool
    epilogue: str
    calls: int


def tasks_of(model: Any, hardware: Hardware, options: Mapping[str, Any]) -> list[Task]:
    """The products and convolutions of a model as compile takes it, those first that are predicted to take longest.

    `options` are compile's that give open dimensions their sizes, `example_inputs`, `params` and `calibration`.
    UnsupportedOperator for a model without any; errors of compile for what it cannot read or target.
    """
    found: dict[tuple[GemmWorkload | ConvWorkload, bool, str], Task] = {}
    predicted: dict[tuple[GemmWorkload | ConvWorkload, bool, str], float] = {}
    for task, cost in (_on_cpu if hardware.cpu is not None else _on_accelerator)(model, hardware, options):
        key = _key(task)
        found[key] = replace(found[key], calls=found[key].calls + task.calls) if key in found else task
        predicted[key] = predicted.get(key, 0.0) + task.calls * cost
    if not found:
        raise UnsupportedOperator("the model has no product or convolution that is scheduled; nothing to tune")
    return sorted(found.values(), key=lambda task: -predicted[_key(task)])


def _key(task: Task) -> tuple[GemmWorkload | ConvWorkload, bool, str]:
    return task.workload, task.prepacked, task.epilogue


def _on_cpu(model: Any, hardware: Hardware, options: Mapping[str, Any]) -> Iterator[tuple[Task, float]]:
    """Each operator of each size, with the seconds that are predicted for a call."""
    from ..model.pipeline import decided

    if options.get("calibration") is not None:
        raise HardwareError(
            f"calibration: {hardware.name} is a CPU, which models are not quantised for; accepted: None"
        )
    for imported in _imported(model, options):
        for operator in decided(imported.module, hardware):
            if operator.workload is not None and operator.tiling is not None:
                workload, prepacked = asked_for(operator.workload, hardware, operator.prepacked)
                behind = said(operator.epilogue)
                task = Task(
                    name=operator.name, workload=workload, prepacked=prepacked, epilogue=behind, calls=operator.calls
                )
                yield task, operator.tiling.predicted_seconds or 0.0


def _on_accelerator(model: Any, hardware: Hardware, options: Mapping[str, Any]) -> Iterator[tuple[Task, float]]:
    """Each operator that runs on the accelerator, with its multiply-adds."""
    from ..model.accel.compile import accelerated_operators, single

    imported = single(list(_imported(model, options)), hardware)
    for operator in accelerated_operators(imported, hardware, options.get("calibration")):
        task = Task(name=operator.name, workload=operator.workload, prepacked=False, epilogue="", calls=operator.calls)
        yield task, float(operator.workload.macs)


def _imported(model: Any, options: Mapping[str, Any]) -> Iterator[ImportedModel]:
    """The model in each of the sizes that `options` give its open dimensions."""
    from ..frontend import load_model
    from ..model.open_sizes import settings_of

    given = {name: value for name, value in options.items() if name not in ("batch", "dims", "calibration")}
    for sizes in settings_of(options.get("batch"), options.get("dims")):
        yield load_model(model, batch=sizes.batch, dims=sizes.dims, **given)


def tune_tasks(
    tasks: Sequence[Task],
    hardware: Hardware,
    measurer: Measurer,
    at_once: AtOnce,
    log: TrialLog,
    settings: Settings,
    progress: Callable[[Progress], None] | None = None,
) -> ModelTuneReport:
    """Measure the configurations of `tasks`, settings.rules.trials of them in all.

    Every task's own configuration first: what it takes times its calls is its weight. Then, batch by batch, the task
    whose luckiest cut that is left would save the model most, given predictions, what they were off by, and the
    roofline; a task that has had trials without a gain counts less. Ctrl-C ends it, with everything kept.
    """
    start = time.monotonic()
    searches = []
    for task in tasks:
        space = neighbourhood(task.workload, hardware, prepacked=task.prepacked)
        search = Tuning(
            task.workload,
            hardware,
            space=space,
            measurer=measurer,
            log=log,
            settings=settings,
            prepacked=task.prepacked,
            epilogue=task.epilogue,
            name=task.name,
        )
        searches.append((task, search))
    left = settings.rules.trials - sum(search.earlier for _, search in searches)
    total = max(left, 0)

    def told(_: Progress) -> None:
        if progress is not None:
            progress(_overall(searches, total))

    stopped = ""
    try:
        for _, search in searches:
            if left > 0 and search.cost is None:
                left -= search.step(min(FIRST, left), told)
        while left > 0:
            task, search = max(searches, key=lambda pair: _worth(*pair))
            whole = sum(task.calls * (search.cost or 0.0) for task, search in searches)
            if task.calls * search.hope <= WORTH * whole:
                stopped = f"no operator is left that could save {WORTH:.1%} of the model's time"
                break
            done = search.step(min(at_once(), left), told)
            if not done:
                stopped = "every search is at its end"
                break
            left -= done
    except KeyboardInterrupt:
        stopped = "interrupted"
    with contextlib.suppress(KeyboardInterrupt):
        for _, search in searches:
            search.settle()
    reports = [
        TaskReport(name=task.name, calls=task.calls, report=search.report("no trials left, or none worth it"))
        for task, search in searches
    ]
    reports.sort(key=lambda found: -found.calls * (found.report.cost_before or 0.0))
    return ModelTuneReport(
        tasks=tuple(reports),
        stopped=stopped or f"{settings.rules.trials} trials done",
        seconds=(("all", time.monotonic() - start), ("database", log.seconds)),
    )


def _worth(task: Task, search: Tuning) -> float:
    """What the next trials of a task may save in one run of the model."""
    return task.calls * search.hope / (1 + search.since / 8)


def _overall(searches: Sequence[tuple[Task, Tuning]], total: int) -> Progress:
    """Progress of the model: its time is that of all calls of what was measured."""
    measured = [(task, search) for task, search in searches if search.cost is not None]
    return Progress(
        done=sum(search.trials for _, search in searches),
        of=total,
        failed=sum(search.failed for _, search in searches),
        best=sum(task.calls * (search.cost or 0.0) for task, search in measured) if measured else None,
        least=sum(task.calls * search.least for task, search in measured),
        unit=searches[0][1].unit,
    )
