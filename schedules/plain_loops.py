"""The last resort: functions whose blocks have loops of varying length, scans, sorts. Outer loops run in parallel."""

from __future__ import annotations

from math import prod

import tvm
from tvm import s_tir, tirx

from ..hardware.description import Cpu

# Elements of a block below which a start of the threads costs more than it saves.
_LEAST_PARALLEL = 8192


def apply(func: tirx.PrimFunc, name: str, cpu: Cpu) -> tirx.PrimFunc:
    """Each block parallel over its leading spatial loops; `func` itself where its loops cannot be moved."""
    sch = s_tir.Schedule(tvm.IRModule({name: func.with_attr("global_symbol", name)}))
    sch.work_on(name)
    try:
        blocks = sch.get_child_blocks(sch.get_sblock("root"))
    except s_tir.ScheduleError:  # there is no root block: code of another kind, which stays as it is
        return func
    for block in blocks:
        _begin(sch, block)
        _share(sch, block, cpu)
    return sch.mod[name]


def _begin(sch: s_tir.Schedule, block: s_tir.schedule.SBlockRV) -> None:
    """What a sum starts from is stored ahead of its loops where these may have no turns: within, nothing would be."""
    if sch.get(block).init is None:
        return
    kinds = [int(v.iter_type) for v in sch.get(block).iter_vars]
    loops = sch.get_loops(block)
    summed = [loop for loop, kind in zip(loops, kinds, strict=False) if kind == tirx.IterVar.CommReduce]
    extents = [sch.get(loop).extent for loop in summed]
    if len(loops) == len(kinds) and not all(isinstance(e, tirx.IntImm) and int(e) > 0 for e in extents):
        sch.decompose_reduction(block, summed[0])


def _share(sch: s_tir.Schedule, block: s_tir.schedule.SBlockRV, cpu: Cpu) -> None:
    """One block parallel, if it is large enough and nothing forbids it."""
    kinds = [int(v.iter_type) for v in sch.get(block).iter_vars]
    spatial = next((i for i, kind in enumerate(kinds) if kind != tirx.IterVar.DataPar), len(kinds))
    loops = sch.get_loops(block)[:spatial]
    extents = [sch.get(loop).extent for loop in loops]
    if not loops or not all(isinstance(e, tirx.IntImm) for e in extents):
        return
    if cpu.cores == 1 or prod(int(e) for e in extents) < _LEAST_PARALLEL:
        return
    try:
        sch.parallel(sch.fuse(*loops))
    except s_tir.ScheduleError:  # a dependence that only this block has; both check before they change: it stays serial
        return
