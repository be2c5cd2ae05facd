"""MetaSchedule's local builder without the imports that delay every first build.

TVM's own build function imports all tensor intrinsics in each process, which takes some 20 s of a time limit of 30 s,
and a build that times out counts as a failed trial. Configurations and plain schedules need none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.builder import BuilderInput, BuilderResult, LocalBuilder, PyBuilder

BUILD_SECONDS = 60.0
_TIMEOUT = "LocalBuilder: Timeout"


def local_builder(max_workers: int | None = None, timeout_sec: float = BUILD_SECONDS) -> Any:
    """Return a builder for `ms.tune_tir`, `relax_integration.tune_relax` and other tuners. `max_workers` is the number
    of processes (default: one per core); a build that takes more than `timeout_sec` seconds fails. Not for spaces that
    tensorize."""
    return _LocalBuilder(max_workers, timeout_sec)


@derived_object
class _LocalBuilder(PyBuilder):
    """TVM's LocalBuilder with `build`, and with a message for time-outs that fits it."""

    def __init__(self, max_workers: int | None, timeout_sec: float) -> None:
        super().__init__()
        self.timeout_sec = timeout_sec
        self.inner = LocalBuilder(max_workers=max_workers, timeout_sec=timeout_sec, f_build=build)

    def build(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        """Return a path or a reason for each input."""
        return [self._named(found) for found in self.inner.build(build_inputs)]

    def _named(self, found: BuilderResult) -> BuilderResult:
        if not str(found.error_msg or "").startswith(_TIMEOUT):
            return found
        return BuilderResult(None, f"timed out after {self.timeout_sec:g} s while building")


def build(module: tvm.IRModule, target: tvm.target.Target, _params: Any) -> tvm.runtime.Module:
    """Build a candidate; runs in a building process."""
    plain = tvm.s_tir.transform.RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module)
    return tvm.tirx.build(plain, target=target)
