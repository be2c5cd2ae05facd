"""Fallback for functions whose blocks have loops of varying length, scans and sorts: outer loops run in parallel."""

from __future__ import annotations

from math import prod

import tvm
from tvm import s_tir, tirx

from ..hardware.description import Cpu

# Elements of a block below which the start of threads costs more than it saves.
_LEAST_PARALLEL = 8192


def apply(func: tirx.PrimFunc, name: str, cpu: Cpu) -> tirx.PrimFunc:
    """Return the function with each block parallel over its leading spatial loops; `func` unchanged if its loops cannot
    be transformed."""
    sch = s_tir.Schedule(tvm.IRModule({name: func.with_attr("global_symbol", name)}))
    sch.work_on(name)
    try:
        blocks = sch.get_child_blocks(sch.get_sblock("root"))
    except s_tir.ScheduleError:  # no root block: another kind of code, which stays unchanged
        return func
    for block in blocks:
        _begin(sch, block)
        _share(sch, block, cpu)
    return sch.mod[name]


def _begin(sch: s_tir.Schedule, block: s_tir.schedule.SBlockRV) -> None:
    """Store the initial value of a reduction before its loops if these may have no iterations, in which case it would
    not be stored inside."""
    if sch.get(block).init is None:
        return
    kinds = [int(v.iter_type) for v in sch.get(block).iter_vars]
    loops = sch.get_loops(block)
    summed = [loop for loop, kind in zip(loops, kinds, strict=False) if kind == tirx.IterVar.CommReduce]
    extents = [sch.get(loop).extent for loop in summed]
    if len(loops) == len(kinds) and not all(isinstance(e, tirx.IntImm) and int(e) > 0 for e in extents):
        sch.decompose_reduction(block, summed[0])


def _share(sch: s_tir.Schedule, block: s_tir.schedule.SBlockRV, cpu: Cpu) -> None:
    """Make one block parallel if it is large enough and TVM allows it."""
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
    # A dependence within the block; both primitives check before they change anything, so it stays serial.
    except s_tir.ScheduleError:
        return
