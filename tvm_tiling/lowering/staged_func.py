"""Stages as a PrimFunc of the program's own parameters, and their cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.tiling import Decision
from ..decide.vector.elementwise import Work
from ..match.stages import Stage, StagedProgram
from .prim_func import DECISION, root
from .samples import sampled
from .vector_statement import Resolve


def work_of(stages: tuple[Stage, ...]) -> Work:
    """Return what the stages move and compute; operation counts are those of the stage with the most points."""
    moved, word = 0, 1
    for stage in stages:
        seen: list[Any] = []
        for buffer in [load.source for load in stage.reads()] + [w.buffer for w in stage.writes]:
            size = max(1, tvm.DataType(str(buffer.dtype)).bits // 8)
            word = max(word, size)
            if not any(buffer.same_as(other) for other in seen):
                seen.append(buffer)
                moved += min(sampled(buffer.shape[0]), stage.points) * size
    main = max(stages, key=lambda stage: stage.points)
    counts = {"plain": 1, "divisions": 0, "functions": 0}

    def note(kind: str) -> Callable[[Any], None]:
        def add(_: Any) -> None:
            counts[kind] += 1

        return add

    for write in main.writes:
        tvm_ffi.structural_walk(
            write.value,
            [((tirx.Div,), note("divisions")), ((Call,), note("functions")), ((TensorLoad,), note("plain"))],
        )
    return Work(bytes=moved, points=sum(s.points for s in stages), word=word, **counts)


def write_stages(program: StagedProgram, tiling: Decision, emit: Callable[[Resolve], None]) -> tirx.PrimFunc:
    """Return a function of the program's parameters whose body emit(resolve) writes."""
    func = program.func
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(program.name)
        T.func_attr({"global_symbol": program.name, "tirx.noalias": True, DECISION: tiling.to_json()})
        for parameter in func.params:
            T.arg(parameter.name, parameter)
        with root():
            real = [(flat, parameter.view(*flat.shape)) for parameter, flat in program.flat]

            def resolve(load: TensorLoad) -> tirx.Expr:
                found = next((actual for flat, actual in real if load.source.same_as(flat)), None)
                return load if found is None else tirx.BufferLoad(found, list(load.indices))

            emit(resolve)
    return builder.get()
