"""TVM's MetaSchedule: a search with trial runs, against which a decision without any has to stand.

Two traps of this release (page 07). Its clean-up callback deletes the folder above an artifact, so it is left out here,
and artifacts lie in a private folder that is deleted with the search. Its builder processes spend more than 20 s on
importing every tensor intrinsic, which a schedule that is already applied does not need: the builder here does without.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tvm_tiling.lowering.threads import usable_core_count, use_all_cores
from tvm_tiling.workload import ConvWorkload, GemmWorkload

from ..operands import Operands, Workload
from .base import Peer, Prepared
from .tvm_operator import bind, target, tir

TRIALS = 64
BUILD_SECONDS = 120.0
RUN_SECONDS = 120.0


class MetaSchedule(Peer):
    """The best schedule of `trials` trials: minutes for each workload. `packed` makes no difference to it."""

    name = "metaschedule"
    needs = ("tvm", "xgboost", "psutil", "cloudpickle")
    serves = (GemmWorkload, ConvWorkload)

    def __init__(self, trials: int = TRIALS) -> None:
        self.trials = trials

    def prepare(self, operands: Operands, packed: bool) -> Prepared:
        import tvm

        module, found = tune(operands.workload, self.trials)
        return bind(tvm.compile(module, target=target())["main"], operands, f"{found} of {self.trials} trials ran")


def tune(workload: Workload, trials: int, per_round: int = 32) -> tuple[Any, int]:
    """The best module that `trials` trials find, and how many trials ran to the end.

    RuntimeError if none did.
    """
    from tvm.s_tir import meta_schedule as ms

    function = tir(workload)
    use_all_cores()  # sets the variable that the runner's processes read
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
        ran = sum(1 for record in database.get_all_tuning_records() if record.run_secs)
        if ran == 0:
            raise RuntimeError(f"none of {trials} trials ran")
        return ms.tir_integration.compile_tir(database, function, target()).mod, ran


def _builder(ms: Any, folder: str) -> Any:
    """A builder whose artifacts each get a folder of their own below `folder`."""

    # Nested functions: they are sent to the builder's processes whole, which need not know this package.
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
    """A runner whose processes use every core, each thread on its own, as the final measurement does."""

    def spread_out() -> None:
        import os

        from tvm_tiling.lowering.threads import usable_processors, use_all_cores

        use_all_cores()
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {usable_processors()[0]})

    return ms.runner.LocalRunner(timeout_sec=RUN_SECONDS, initializer=spread_out)
