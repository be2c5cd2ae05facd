"""Rejoins reductions that MetaSchedule's default postprocessors split into initialisation and update.

RewriteReductionBlock does that to every reduction that it sees, including those of functions annotated with a
configuration: it replaces a block X with the blocks X_init and X_update.
"""

from __future__ import annotations

import tvm_ffi
from tvm import s_tir, tirx

INIT, UPDATE = "_init", "_update"


def rejoined(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return the function with every such pair merged into the original block."""
    body = tvm_ffi.structural_map(func.body, (tirx.SeqStmt, _without_pairs))
    return func if body.same_as(func.body) else func.with_body(body)


def _without_pairs(sequence: tirx.SeqStmt) -> tirx.Stmt:
    kept: list[tirx.Stmt] = []
    for statement in sequence.seq:
        first, rest = _only_block(kept[-1]) if kept else None, _only_block(statement)
        if first is not None and rest is not None and _is_pair(first, rest):
            kept[-1] = _with_block(statement, _joined(first, rest))
        else:
            kept.append(statement)
    if len(kept) == len(sequence.seq):
        return sequence
    return kept[0] if len(kept) == 1 else tirx.SeqStmt(kept)


def _only_block(statement: tirx.Stmt) -> s_tir.SBlock | None:
    """Return the block of a loop nest that contains nothing else."""
    while isinstance(statement, tirx.For):
        statement = statement.body
    return statement.block if isinstance(statement, s_tir.SBlockRealize) else None


def _is_pair(first: s_tir.SBlock, rest: s_tir.SBlock) -> bool:
    name = str(first.name_hint).removesuffix(INIT)
    return (
        name != first.name_hint
        and rest.name_hint == name + UPDATE
        and rest.init is None
        and len(first.iter_vars) == len(_kept(rest))
    )


def _kept(block: s_tir.SBlock) -> list[tirx.IterVar]:
    """Return the spatial axes."""
    return [axis for axis in block.iter_vars if int(axis.iter_type) == tirx.IterVar.DataPar]


def _joined(first: s_tir.SBlock, rest: s_tir.SBlock) -> s_tir.SBlock:
    axes = {own.var: other.var for own, other in zip(first.iter_vars, _kept(rest), strict=True)}
    start = tvm_ffi.structural_map(first.body, (tirx.Var, lambda variable: axes.get(variable, variable)))
    written = [region.source for region in rest.writes]
    return s_tir.SBlock(
        rest.iter_vars,
        [read for read in rest.reads if not any(read.source.same_as(buffer) for buffer in written)],
        rest.writes,
        str(rest.name_hint).removesuffix(UPDATE),
        rest.body,
        start,
        rest.alloc_buffers,
        rest.match_buffers,
        rest.annotations,
    )


def _with_block(statement: tirx.Stmt, block: s_tir.SBlock) -> tirx.Stmt:
    """Return the loop nest with its block replaced."""
    return tvm_ffi.structural_map(
        statement, (s_tir.SBlockRealize, lambda r: s_tir.SBlockRealize(r.iter_values, r.predicate, block))
    )
