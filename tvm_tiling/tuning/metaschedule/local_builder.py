"""MetaSchedule's local builder without the import that makes every first build wait.

TVM's own build function imports all tensor intrinsics in each process, some 20 s of a time limit of 30 (page 07), and a
build that comes too late counts as a failed trial. Cuts and plain schedules need none of them.
"""

from __future__ import annotations

from typing import Any

import tvm

BUILD_SECONDS = 60.0


def local_builder(max_workers: int | None = None, timeout_sec: float = BUILD_SECONDS) -> Any:
    """A builder for `ms.tune_tir`, `relax_integration.tune_relax` and other tuners. `max_workers`: processes, left out
    one for each core; a build that takes more than `timeout_sec` seconds fails. Not for spaces that tensorize."""
    from tvm.s_tir.meta_schedule.builder import LocalBuilder

    return LocalBuilder(max_workers=max_workers, timeout_sec=timeout_sec, f_build=build)


def build(module: tvm.IRModule, target: tvm.target.Target, _params: Any) -> tvm.runtime.Module:
    """What a building process does with a candidate."""
    plain = tvm.s_tir.transform.RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module)
    return tvm.tirx.build(plain, target=target)
