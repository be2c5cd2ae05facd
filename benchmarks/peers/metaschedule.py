"""TVM's MetaSchedule: a search with trial runs, as the reference for decisions without any.

Two pitfalls of this TVM release. Its clean-up callback deletes the folder above an artifact, so it is left out here,
and artifacts are in a private folder that is deleted with the search. Its builder processes spend more than 20 s
importing every tensor intrinsic, which is unnecessary for a schedule that is already applied; the builder here skips
them.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm_tiling.runtime.launcher import use_all_cores
from tvm_tiling.runtime.threads import usable_core_count
from tvm_tiling.workload import ConvWorkload, GemmWorkload

from ..operands import Operands, Workload
from .base import Peer, Prepared
from .tvm_operator import bind, target, tir

TRIALS = 64
BUILD_SECONDS = 120.0
RUN_SECONDS = 120.0


class MetaSchedule(Peer):
    """The best schedule of `trials` trials, which takes minutes per workload. `packed` has no effect."""

    name = "metaschedule"
    needs = ("tvm", "xgboost", "psutil", "cloudpickle")
    supports = (GemmWorkload, ConvWorkload)

    def __init__(self, trials: int = TRIALS) -> None:
        self.trials = trials

    def prepare(self, operands: Operands, packed: bool) -> Prepared:
        found = search(operands.workload, self.trials)
        return prepared(found, operands, f"{found.ran} of {self.trials} trials ran")


@dataclass(frozen=True)
class Found:
    """Result of a search: the trace of its best schedule as JSON, its seconds, and how the search went."""

    trace: Any
    best_seconds: float
    ran: int
    seconds: float


def prepared(found: Found, operands: Operands, note: str) -> Prepared:
    """Replay the schedule on its workload and compile it."""
    import tvm
    from tvm import s_tir

    schedule = s_tir.Schedule(tir(operands.workload))
    s_tir.schedule.Trace.apply_json_to_schedule(found.trace, schedule)
    return bind(tvm.compile(schedule.mod, target=target())["main"], operands, note)


def search(workload: Workload, trials: int, per_round: int = 32) -> Found:
    """Return the best schedule of `trials` trials. Raises RuntimeError if no trial completed."""
    from tvm.s_tir import meta_schedule as ms

    function = tir(workload)
    use_all_cores()  # sets the variable that the runner's processes read
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="metaschedule-") as folder:
        artifacts = Path(folder, "artifacts")
        artifacts.mkdir()
        database = ms.tune_tir(
            function,
            target(),
            work_dir=str(Path(folder, "work")),
            max_trials_global=trials,
            num_trials_per_iter=min(trials, per_round),
            builder=_builder(ms, str(artifacts)),
            runner=_runner(ms),
            measure_callbacks=[ms.measure_callback.AddToDatabase(), ms.measure_callback.UpdateCostModel()],
            num_tuning_cores=usable_core_count(),
            seed=0,
        )
        records = [record for record in database.get_all_tuning_records() if record.run_secs]
        if not records:
            raise RuntimeError(f"none of {trials} trials ran")
        best = min(records, key=_seconds)
        return Found(_plain(best.trace.as_json()), _seconds(best), len(records), time.perf_counter() - start)


def _plain(value: Any) -> Any:
    """Return a trace's JSON without TVM's own number types, so that it can be written to a file."""
    if isinstance(value, str | int | float | type(None)):
        return value
    return value.value if hasattr(value, "value") else [_plain(item) for item in value]


def _seconds(record: Any) -> float:
    runs = [float(second) for second in record.run_secs]
    return sum(runs) / len(runs)


def _builder(ms: Any, folder: str) -> Any:
    """Return a builder that gives each artifact its own folder below `folder`."""

    # Nested functions: they are serialised by value, because the builder's processes need not have this package.
    def build(module: Any, build_target: Any, _params: Any) -> Any:
        import tvm

        clean = tvm.s_tir.transform.RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module)
        return tvm.compile(clean, target=build_target)

    def export(built: Any) -> str:
        import tempfile
        from pathlib import Path

        from tvm.support.tar import tar

        path = Path(tempfile.mkdtemp(dir=folder), f"product.{tar.output_format}")
        built.export_library(str(path), fcompile=tar)
        return str(path)

    return ms.builder.LocalBuilder(
        max_workers=usable_core_count(), timeout_sec=BUILD_SECONDS, f_build=build, f_export=export
    )


def _runner(ms: Any) -> Any:
    """Return a runner whose processes use every core with pinned threads, as the final measurement does."""

    def spread_out() -> None:
        import os

        from tvm_tiling.runtime.launcher import use_all_cores
        from tvm_tiling.runtime.threads import usable_processors

        use_all_cores()
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {usable_processors()[0]})

    return ms.runner.LocalRunner(timeout_sec=RUN_SECONDS, initializer=spread_out)
