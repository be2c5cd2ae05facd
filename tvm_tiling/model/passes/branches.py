"""Conversion of branches to selection: both are computed, and the condition selects from their results.

Kernels then run in a straight sequence, which the other passes and the execution plan require. Branches from exporters
are small compared to the layers around them; a larger one costs its time in every run. A branch that rejects its
inputs, for instance an out-of-range index, rejects them in every run too.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import relax

from ...errors import UnsupportedOperator
from ...frontend.node_names import joined
from .dataflow import Expr, replace_operands


def without_branches(mod: tvm.IRModule) -> tvm.IRModule:
    """`mod` with all If removed from its function "main". Raises UnsupportedOperator if results of the branches differ
    in shape or type."""
    func = mod["main"]
    if not isinstance(func.body, relax.SeqExpr) or not _has_branch(func.body):
        return mod
    builder = relax.BlockBuilder()
    attributes = dict(func.attrs) if func.attrs else None
    with builder.function("main", list(func.params), attrs=attributes):
        with builder.dataflow():
            output = builder.emit_output(_inlined(builder, func.body, {}))
        builder.emit_func_output(output)
    updated = tvm.IRModule(dict(mod.functions), attrs=mod.attrs)
    updated.update_func(mod.get_global_var("main"), builder.finalize()["main"])
    return updated


def _has_branch(body: relax.SeqExpr) -> bool:
    return any(isinstance(binding.value, relax.If) for block in body.blocks for binding in block.bindings)


def _inlined(builder: relax.BlockBuilder, body: Expr, renamed: dict[relax.Var, Expr]) -> Expr:
    """The value of `body`, whose bindings are emitted; `renamed` maps its variables to their replacements."""
    if not isinstance(body, relax.SeqExpr):
        return replace_operands(body, renamed)
    for block in body.blocks:
        for binding in block.bindings:
            if isinstance(binding, relax.MatchCast):
                source = replace_operands(binding.value, renamed)
                renamed[binding.var] = builder.match_cast(source, binding.ty)
            elif isinstance(binding.value, relax.If):
                renamed[binding.var] = _chosen(builder, binding.value, binding.var.name, renamed)
            else:
                value = replace_operands(binding.value, renamed)
                renamed[binding.var] = builder.emit(value, joined(binding.var.name))
    return replace_operands(body.body, renamed)


def _chosen(builder: relax.BlockBuilder, branch: relax.If, name: str, renamed: dict[relax.Var, Expr]) -> Expr:
    condition = replace_operands(branch.cond, renamed)
    taken, other = (
        builder.emit(_inlined(builder, side, dict(renamed))) for side in (branch.true_branch, branch.false_branch)
    )
    return _where(builder, condition, taken, other, name)


def _where(builder: relax.BlockBuilder, condition: Expr, a: Expr, b: Expr, name: str) -> Expr:
    if isinstance(a.ty, relax.TupleType) and isinstance(b.ty, relax.TupleType) and len(a.ty.fields) == len(b.ty.fields):
        fields = []
        for place in range(len(a.ty.fields)):
            left, right = (builder.emit(relax.TupleGetItem(side, place)) for side in (a, b))
            fields.append(_where(builder, condition, left, right, name))
        return builder.emit(relax.Tuple(fields))
    if not isinstance(a.ty, relax.TensorType) or not tvm_ffi.structural_equal(a.ty, b.ty):
        raise UnsupportedOperator(
            f"main: the branches at {name} return {a.ty} and {b.ty}; expected tensors of the same shape and type"
        )
    return builder.emit(relax.op.where(condition, a, b), joined(name))
