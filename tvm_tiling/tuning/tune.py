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
from .measuring.runner import LOCAL, Runner, refuse_other_cpu
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
    """Search for configurations near the analytical decision that are measurably faster, and store them.

    model_or_op: a GemmWorkload or ConvWorkload; an operator as accepted by tiling_schedule; or a model as accepted by
    compile, with `model_options` of that function (`batch`, `dims`, `shapes`, `example_inputs`, `params`,
    `calibration`, `limits`; on a CPU also `precision` "float32", "bfloat16" or "float16").

    `dims` may give ranges: dims={"m": (1, 512)} for the rows of a matrix multiplication, dims={"length": (1, 512)} for
    a dimension of a model. A matrix multiplication with a dynamic number of rows is then searched for one configuration
    for the whole range, which is taken if it is faster than the analytical decision in the geometric mean over sizes of
    the range, beyond noise.

    `target` is "llvm" (this CPU), an accelerator, whose configurations are simulated, or a Hardware. `database`: a
    ShapeDatabase or its URL, which stores results and provides seeds; without one, results are only in the report.
    `trials`: the maximum number of configurations to measure, for one operator or for a whole model, including earlier
    sessions with the same database unless `resume` is False. `runner`: "local", "rpc://host:port/key" for the workers
    of a TVM tracker, or a Measurer. `cost_model` ranks what to try next and learns from every trial: a TilingCostModel,
    or a CostModel such as Formulas; by default a model of the analytical predictions and the newest trials on this
    machine in the database. `prepacked`: weights are packed outside the measured time; those of a model always are.
    `seeded`: configurations of matching and near entries are measured first. `seed`: of the random numbers that choose
    configurations to explore. `progress`: a function called after every trial, or whether to show a progress bar on a
    terminal. `log`: a file that gets a line of JSON for every trial as it completes, or a function called with its
    Trial; `report.log` has those of this session.

    Returns a TuneReport, or a ModelTuneReport for a model. Ctrl-C ends the search early: the result so far is reported,
    and all measurements are kept. Raises WorkloadError for an invalid argument, HardwareError for a target that this
    machine cannot measure, and another TilingError for an operator that cannot be tuned, a runner that cannot be
    reached, and a database that cannot be written.
    """
    if isinstance(trials, bool) or not isinstance(trials, int) or trials < 1:
        raise WorkloadError(f"trials = {trials!r}; expected a whole number of at least 1")
    hardware = hardware_of(target)
    if runner == LOCAL:
        refuse_other_cpu(hardware, "this CPU, or runner='rpc://host:port/key' of such machines")
    with _started(runner, hardware) as template:
        from .tuned import tuned  # takes some tenths of a second, during which the template imports what it needs

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
    """Start the template of the processes that measure on this CPU; None if there are none."""
    if runner != LOCAL or hardware.cpu is None:
        yield None
        return
    template = Template.of(TIMING, BUILDING)
    template.start()
    try:
        yield template
    finally:
        template.close()
