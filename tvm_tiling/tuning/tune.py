"""tune(): from an operator or a model to measured configurations in a database."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..errors import WorkloadError
from ..hardware.description import Hardware
from ..old_names import old_arguments
from ..target import Target, hardware_of
from .measuring.runner import LOCAL, Runner
from .measuring.template import BUILDING, TIMING, Template

if TYPE_CHECKING:
    from .metaschedule.cost_model import TilingCostModel
    from .outcome import ModelTuneReport, TuneReport
    from .search import CostModel
    from .session import Progress
    from .shapes.database import ShapeDatabase
    from .trial import Trial


@old_arguments(ahead="prepacked")
def tune(
    model_or_op: Any,
    target: Target = "llvm",
    *,
    database: ShapeDatabase | str | None = None,
    trials: int = 64,
    runner: Runner = LOCAL,
    cost_model: CostModel | TilingCostModel | None = None,
    prepacked: bool = False,
    seeded: bool = True,
    resume: bool = True,
    seed: int = 0,
    progress: Callable[[Progress], None] | bool = True,
    log: Callable[[Trial], None] | str | os.PathLike[str] | None = None,
    **model_options: Any,
) -> TuneReport | ModelTuneReport:
    """Search for configurations near the formulas' that are measured to be faster, and keep them.

    model_or_op: a GemmWorkload or ConvWorkload; an operator as tiling_schedule takes it; or a model as compile takes
    it, with `model_options` as that function's (`batch`, `dims`, `shapes`, `example_inputs`, `params`, `calibration`,
    `limits`; on a CPU `precision` "float32", "bfloat16" or "float16").
    `dims` may give ranges: dims={"m": (1, 512)} of a product's rows, dims={"length": (1, 512)} of a model's size. Then
    a product of open rows is searched for one configuration for all of them, which is taken if it is faster than the
    formulas' in the geometric mean over sizes of the range, beyond noise.
    `target` is "llvm" (this CPU), an accelerator, whose configurations are simulated, or a Hardware. `database`: a
    ShapeDatabase or its URL, where results go and seeds come from; without one they are only in the report.

    `trials`: cuts measured at most, of one operator or of all of a model, those of earlier sessions with the same
    database included unless `resume` is False. `runner`: "local", "rpc://host:port/key" for the workers of a TVM
    tracker, or a Measurer. `cost_model` says what to try next and learns from every trial: a TilingCostModel, or a
    CostModel as Formulas is one; left out, one that knows the formulas and the database's newest trials on this
    machine. `prepacked`: weights are packed before the time that counts; those of a model always are. `seeded`: cuts of
    entries that match or are near are measured first. `progress`: a function told of every trial, or whether to show a
    bar on a terminal. `log`: a file that gets a line of JSON for every trial as it comes, or a function that is given
    its Trial; `report.log` has those of this session.

    Ctrl-C ends the search early: it reports what it found, and everything measured is kept. TilingErrors say what
    cannot be tuned, reached or written.
    """
    if isinstance(trials, bool) or not isinstance(trials, int) or trials < 1:
        raise WorkloadError(f"trials = {trials!r}, accepted: a whole number of at least 1")
    hardware = hardware_of(target)
    with _started(runner, hardware) as template:
        from .tuned import tuned  # some tenths of a second, in which the template imports what it needs

        return tuned(
            model_or_op,
            hardware,
            database=database,
            trials=trials,
            runner=runner,
            template=template,
            cost_model=cost_model,
            prepacked=prepacked,
            seeded=seeded,
            resume=resume,
            seed=seed,
            progress=progress,
            log=log,
            model_options=model_options,
        )


@contextlib.contextmanager
def _started(runner: Runner, hardware: Hardware) -> Iterator[Template | None]:
    """What processes that measure on this CPU come from, under way; None where there are none."""
    if runner != LOCAL or hardware.cpu is None:
        yield None
        return
    template = Template.of(TIMING, BUILDING)
    template.start()
    try:
        yield template
    finally:
        template.close()
