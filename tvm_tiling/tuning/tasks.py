"""tune() for a model: its operators as tasks, with trials spent where they may gain most."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from ..decide.as_scheduled import asked_for
from ..decide.configs.neighbourhood import neighbourhood
from ..decide.epilogue import said
from ..decide.gemm.open_rows import OpenGemmTiling
from ..errors import HardwareError, UnsupportedOperator, WorkloadError
from ..figures import quantity
from ..hardware.description import Hardware
from ..operand_types import HALVES
from ..sizes import Range, leading_of
from ..workload import ConvWorkload, GemmWorkload
from .measuring.measurer import Measurer
from .open_session import OpenTuning
from .outcome import ModelTuneReport, TaskReport
from .session import AtOnce, Progress, Settings, Tuning
from .shapes.trials import TrialLog

if TYPE_CHECKING:
    from ..frontend import ImportedModel

FIRST = 2  # configurations of every task before tasks are compared: the analytical decision, and one seed
WORTH = 0.002  # of the model's time: a task that cannot save this much at best gets no trials


_Key: TypeAlias = tuple[GemmWorkload | ConvWorkload, bool, str, Range | None]


@dataclass(frozen=True, kw_only=True)
class Task:
    """An operator of a model with its measured `epilogue`; equal operators are one task, with their total `calls` per
    run. With `rows`, it is a matrix multiplication for any number of rows in that range, and its workload has a sample
    of them."""

    name: str
    workload: GemmWorkload | ConvWorkload
    prepacked: bool
    epilogue: str
    calls: int
    rows: Range | None = None


def tasks_of(model: Any, hardware: Hardware, options: Mapping[str, Any]) -> list[Task]:
    """Return the matrix multiplications and convolutions of a model as accepted by compile, longest predicted time
    first.

    `options` are compile's that give dynamic dimensions their sizes, `example_inputs`, `params`, `calibration` and, on
    a CPU, a `precision` that does not require calibration. A task has the name of the first node that it computes.
    Raises UnsupportedOperator for a model without any, and the errors of compile for what it cannot read or target.
    """
    found: dict[_Key, Task] = {}
    taken: set[str] = set()
    predicted: dict[_Key, float] = {}
    for task, cost in (_on_cpu if hardware.cpu is not None else _on_accelerator)(model, hardware, options):
        key = _key(task)
        if key in found:
            found[key] = replace(found[key], calls=found[key].calls + task.calls)
        else:
            found[key] = replace(task, name=_fresh(task.name, taken))
        predicted[key] = predicted.get(key, 0.0) + task.calls * cost
    if not found:
        raise UnsupportedOperator(
            "the model has no matrix multiplication or convolution that is scheduled; nothing to tune"
        )
    return sorted(found.values(), key=lambda task: -predicted[_key(task)])


def _key(task: Task) -> _Key:
    return task.workload, task.prepacked, task.epilogue, task.rows


def _name(operator: Any) -> str:
    """The first node computed by an operator; its function if the model has no names."""
    return str(operator.nodes[0] if operator.nodes else operator.name)


def _fresh(name: str, taken: set[str]) -> str:
    """The name, with a number if another task already has it."""
    numbered = (f"{name} #{number}" for number in itertools.count(2))
    fresh = name if name not in taken else next(each for each in numbered if each not in taken)
    taken.add(fresh)
    return fresh


def _on_cpu(model: Any, hardware: Hardware, options: Mapping[str, Any]) -> Iterator[tuple[Task, float]]:
    """Yield each operator at each size with its predicted seconds per call."""
    from ..model.pipeline import decided
    from ..model.precision.graphs import in_precision

    precision = options.get("precision", "float32")
    if precision not in ("float32", *HALVES):
        raise WorkloadError(
            f"precision = {precision!r} is not supported for tuning; expected {', '.join(('float32', *HALVES))}"
        )
    if options.get("calibration") is not None:
        raise HardwareError(
            f"calibration: {hardware.name} is a CPU, and models are quantised for accelerators only; expected None"
        )
    for imported in _imported(model, options, open_ranges=True):
        with imported.at_sample():
            found = decided(in_precision(imported, precision, hardware, None).model.module, hardware)
        for operator in found.operators:
            if operator.workload is None or operator.tiling is None:
                continue
            workload, prepacked = operator.workload, operator.prepacked
            if operator.rows is None:
                if isinstance(operator.tiling, OpenGemmTiling):
                    continue  # computed rows, such as image windows, are not stored in databases
                workload, prepacked = asked_for(workload, hardware, prepacked)
            task = Task(
                name=_name(operator),
                workload=workload,
                prepacked=prepacked,
                epilogue=said(operator.epilogue),
                calls=operator.calls,
                rows=operator.rows,
            )
            yield task, operator.tiling.predicted_seconds or 0.0


def _on_accelerator(model: Any, hardware: Hardware, options: Mapping[str, Any]) -> Iterator[tuple[Task, float]]:
    """Yield each operator that runs on the accelerator, with its multiply-accumulates."""
    from ..model.accel.compile import accelerated_operators, single

    imported = single(list(_imported(model, options)), hardware)
    for operator in accelerated_operators(imported, hardware, options.get("calibration")):
        task = Task(name=operator.name, workload=operator.workload, prepacked=False, epilogue="", calls=operator.calls)
        yield task, float(operator.workload.macs)


def _imported(model: Any, options: Mapping[str, Any], *, open_ranges: bool = False) -> Iterator[ImportedModel]:
    """Yield the model for each of the sizes that `options` give its dynamic dimensions; with `open_ranges`, dimensions
    given as a range stay symbolic."""
    from ..frontend import load_model
    from ..model.open_sizes import settings_of

    own = ("batch", "dims", "calibration", "precision")
    given = {name: value for name, value in options.items() if name not in own}
    for setting in settings_of(options.get("batch"), options.get("dims")):
        stays = open_ranges and bool(setting.ranges or setting.batch_range)
        about: dict[str, Any] = {"leave_open": True, "may_be_empty": setting.may_be_empty} if stays else {}
        imported = load_model(model, batch=setting.batch, dims=setting.dims, **about, **given)
        if stays:
            sizes = setting.within(imported.open_sizes, leading_of(imported.input_shapes))
            imported = replace(imported, open_sizes=sizes)
        yield imported


def search_of(task: Task, hardware: Hardware, measurer: Measurer, log: TrialLog, settings: Settings) -> Tuning:
    """Return the search for a task."""
    about: dict[str, Any] = {"log": log, "settings": settings, "prepacked": task.prepacked, "epilogue": task.epilogue}
    if task.rows is not None:
        assert isinstance(task.workload, GemmWorkload)
        return OpenTuning(task.workload, hardware, task.rows, measurer=measurer, name=task.name, **about)
    space = neighbourhood(task.workload, hardware, prepacked=task.prepacked)
    return Tuning(task.workload, hardware, space=space, measurer=measurer, name=task.name, **about)


def tune_tasks(
    tasks: Sequence[Task],
    hardware: Hardware,
    measurer: Measurer,
    at_once: AtOnce,
    log: TrialLog,
    settings: Settings,
    progress: Callable[[Progress], None] | None = None,
) -> ModelTuneReport:
    """Measure configurations of `tasks`, settings.rules.trials in total.

    Every task's own configuration comes first: its time multiplied by its calls is the weight of the task. Then, batch
    by batch, trials go to the task whose luckiest remaining configuration would save the model most, given predictions,
    their errors, and the roofline; a task whose trials brought no gain counts less. Ctrl-C ends the search, keeping all
    results.
    """
    start = time.monotonic()
    searches = [(task, search_of(task, hardware, measurer, log, settings)) for task in tasks]
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
                stopped = f"no remaining operator could save {WORTH:.1%} of the model's time"
                break
            done = search.step(min(at_once(), left), told)
            if not done:
                stopped = "every search has ended"
                break
            left -= done
    except KeyboardInterrupt:
        stopped = "interrupted"
    with contextlib.suppress(KeyboardInterrupt):
        for _, search in searches:
            search.settle()
    reports = [
        TaskReport(name=task.name, calls=task.calls, report=search.report("no trials left, or none worthwhile"))
        for task, search in searches
    ]
    reports.sort(key=lambda found: -found.calls * (found.report.cost_before or 0.0))
    return ModelTuneReport(
        tasks=tuple(reports),
        stopped=stopped or f"{quantity(settings.rules.trials, 'trial')} done",
        seconds=(("all", time.monotonic() - start), ("database", log.seconds)),
    )


def _worth(task: Task, search: Tuning) -> float:
    """Return the possible saving per run of the model from the next trials of a task."""
    return task.calls * search.hope / (1 + search.since / 8)


def _overall(searches: Sequence[tuple[Task, Tuning]], total: int) -> Progress:
    """Return the progress of the model; its time is that of all calls measured."""
    measured = [(task, search) for task, search in searches if search.cost is not None]
    return Progress(
        done=sum(search.trials for _, search in searches),
        of=total,
        failed=sum(search.failed for _, search in searches),
        best=sum(task.calls * (search.cost or 0.0) for task, search in measured) if measured else None,
        least=sum(task.calls * search.least for task, search in measured),
        unit=searches[0][1].unit,
    )
