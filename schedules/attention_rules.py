"""Selection of the kernel emitter for attention: static or dynamic sizes."""

from __future__ import annotations

from tvm import tirx

from ..decide.vector.attention import AttentionTiling, attention_engine, decide_attention, scores_space
from ..decide.vector.elementwise import ElementwiseTiling
from ..hardware.description import Cpu
from ..lowering.dot import linked
from ..lowering.staged_func import write_stages
from ..lowering.vector_statement import Resolve
from ..match.attention import attention_of
from ..match.stages import StagedProgram
from .attention import AttentionEmitter
from .open_attention import OpenAttentionEmitter
from .row_emitter import RowEmitter


def apply(program: StagedProgram, cpu: Cpu) -> tuple[tirx.PrimFunc, AttentionTiling] | None:
    """Return the function as fused attention with its decision; None if it is not an attention operator."""
    found = attention_of(program)
    if found is None:
        return None
    engine = attention_engine(found.shape, cpu)
    if engine is None or (found.is_open and (engine.group > 1 or not engine.in_place)):
        return None
    tiling = decide_attention(found.shape, cpu)
    rows = ElementwiseTiling(lanes=tiling.lanes, tasks=1, predicted_seconds=0.0)
    probe = RowEmitter(found.rows, rows, lambda load: load, found.kept)
    if probe.lane_axis is not None:
        return None

    def emit(resolve: Resolve) -> None:
        with linked(engine):
            if found.is_open:
                OpenAttentionEmitter(found, tiling, engine, resolve, scores_space(cpu)).emit()
            else:
                AttentionEmitter(found, tiling, engine, resolve).emit()

    return write_stages(program, tiling, emit), tiling
