"""MetaSchedule's trials in the log format of tune(): what was measured, and why a build or a run failed.

    ms.tune_tir(..., measure_callbacks=[*ms.MeasureCallback.create("default"), tt.trial_log("trials.jsonl")])

TVM counts failures in its table and writes whole modules with their errors to files in its work folder. Here each
failure is one sentence, counted by cause in Python's log.
"""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.measure_callback import PyMeasureCallback

from ...figures import times
from ...schedule import Target, hardware_of
from ..trial import Told, Trial, TrialFile
from .postprocs import known_config

_log = logging.getLogger(__name__)

_TIMEOUT = re.compile(r"Local(Builder|Runner): Timeout, killed after ([\d.]+) seconds")
_RAISED = re.compile(r"\w+: An exception occurred\n")
_INTRINSICS = (
    "; each process of TVM's LocalBuilder first imports all tensor intrinsics, which may take 20 s: use "
    "builder=tt.local_builder() or a longer timeout_sec"
)


def trial_log(log: str | os.PathLike[str] | Callable[[Trial], None], target: Target = "llvm") -> Any:
    """Return a MetaSchedule measure callback that appends every trial to a file, or passes it to a function, like the
    `log` of tune(), and logs how many trials of each round failed, and why.

    `target` is as in tiling_schedule. Configurations and predictions are those of this package's rules; trials of other
    rules have none. OSError if the file cannot be written.
    """
    return _TrialLog(log if callable(log) else TrialFile(log), target)


@derived_object
class _TrialLog(PyMeasureCallback):
    """Reports the candidates of each round once they have been measured."""

    def __init__(self, told: Told, target: Target) -> None:
        super().__init__()
        self.told, self.hardware = told, hardware_of(target)
        self.done: Counter[str] = Counter()
        self.best: dict[str, float] = {}

    def apply(
        self,
        task_scheduler: Any,
        task_id: int,
        measure_candidates: Sequence[Any],
        builder_results: Sequence[Any],
        runner_results: Sequence[Any],
    ) -> None:
        """Report one round of a task."""
        operator = str(task_scheduler.tasks_[task_id].ctx.task_name)
        failed: Counter[str] = Counter()
        for candidate, built, ran in zip(measure_candidates, builder_results, runner_results, strict=True):
            trial = self._trial(operator, candidate, built, ran)
            self.told(trial)
            failed.update([trial.reason] if trial.reason is not None else [])
        if failed:
            reasons = "; ".join(f"{times(count)}: {reason}" for reason, count in failed.most_common())
            _log.warning("%s: %d of %d trials failed, %s", operator, failed.total(), len(runner_results), reasons)

    def _trial(self, operator: str, candidate: Any, built: Any, ran: Any) -> Trial:
        seconds = [float(second) for second in ran.run_secs or ()]
        cost = sum(seconds) / len(seconds) if seconds else None
        self.done[operator] += 1
        if cost is not None:
            self.best[operator] = min(cost, self.best.get(operator, cost))
        known = known_config(candidate.sch, self.hardware)
        return Trial(
            number=self.done[operator],
            operator=operator,
            config=None if known is None else known[1],
            unit="s" if self.hardware.cpu is not None else "cycles",
            predicted=None if known is None else known[0].predicted(known[1]),
            cost=cost,
            best=self.best.get(operator),
            reason=None if cost is not None else cause(built.error_msg or ran.error_msg),
            disturbed=None,
            seconds=None,
        )


def cause(error: object) -> str:
    """Return an error of MetaSchedule's builders and runners as one sentence."""
    text = str(error or "").strip()
    if found := _TIMEOUT.match(text):
        built = found[1] == "Builder"
        doing = "building" if built else "running"
        return f"timed out after {float(found[2]):g} s while {doing}{_INTRINSICS if built else ''}"
    lines = [line.strip() for line in _RAISED.sub("", text).splitlines() if line.strip()]
    return lines[-1] if lines else "not measured, no reason was given"
