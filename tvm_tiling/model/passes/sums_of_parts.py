"""1x1 convolutions of two concatenated tensors as a sum of two convolutions, which read the tensors where they are.

A concatenation copies both tensors. Where a convolution with few output channels is its only reader, as in SqueezeNet's
and GhostNet's blocks, the copy costs more than the sum, which the second convolution computes in its epilogue. Pooling
between the two is applied to each tensor, with the same result.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from ...frontend.node_names import joined
from .dataflow import Expr, Rewriter, array, constant, is_op, rewrite, shape_of, use_counts
from .layout import POOLS

# Output channels per input channel up to which the sum is taken: the copy reads and writes every input channel, the sum
# reads and writes every output channel once more.
_FEW = 0.5


@dataclass(frozen=True)
class _Sum:
    """`tensors`: those that are concatenated, with their `weights`. `between`: the variables of the concatenation and
    of the pooling operators behind it, in order."""

    tensors: tuple[relax.Var, ...]
    weights: tuple[np.ndarray, ...]
    between: tuple[relax.Var, ...]


def with_sums_of_parts(mod: tvm.IRModule) -> tvm.IRModule:
    """`mod`, channels first, with float32 convolutions of two tensors in place of those of their concatenation."""
    func = mod["main"]
    bound = {binding.var: binding.value for block in func.body.blocks for binding in block.bindings}
    uses = use_counts(func)
    found = {variable: part for variable, value in bound.items() if (part := _sum(value, bound, uses)) is not None}
    if not found:
        return mod

    def write(rewriter: Rewriter, variable: relax.Var, call: Expr) -> Expr | None:
        if variable not in found:
            return None
        total = found[variable]
        rewriter.name = joined(rewriter.name, *(each.name for each in total.between))
        results = []
        for tensor, weights in zip(total.tensors, total.weights, strict=True):
            data = rewriter.renamed.get(tensor, tensor)
            for pool in (bound[each] for each in total.between[1:]):
                data = rewriter.emit(relax.Call(pool.op, [data], pool.attrs, pool.ty_args))
            results.append(rewriter.emit(relax.Call(call.op, [data, constant(weights)], call.attrs, call.ty_args)))
        return relax.op.add(results[1], results[0])

    return rewrite(mod, write)


def _sum(call: Expr, bound: dict[relax.Var, Expr], uses: Counter[relax.Var]) -> _Sum | None:
    if not is_op(call, "nn.conv2d") or str(call.attrs.data_layout) != "NCHW" or str(call.attrs.kernel_layout) != "OIHW":
        return None
    kernels, data = array(call.args[1]), call.args[0]
    if kernels is None or kernels.dtype != np.float32 or int(call.attrs.groups) != 1:
        return None
    if kernels.shape[2:] != (1, 1) or kernels.shape[0] > _FEW * kernels.shape[1]:
        return None
    between: list[relax.Var] = []
    while isinstance(data, relax.Var) and uses[data] == 1:
        between.append(data)
        value = bound.get(data, data)
        if is_op(value, "concat"):
            return _of_concat(value, kernels, bound, tuple(reversed(between)))
        if not is_op(value, *POOLS) or str(value.attrs.layout) != "NCHW":
            return None
        data = value.args[0]
    return None


def _of_concat(
    concat: Expr, kernels: np.ndarray, bound: dict[relax.Var, Expr], between: tuple[relax.Var, ...]
) -> _Sum | None:
    fields = bound.get(concat.args[0], concat.args[0])
    tensors = tuple(fields.fields) if isinstance(fields, relax.Tuple) else ()
    shapes = [shape_of(tensor) for tensor in tensors]
    if len(tensors) != 2 or concat.attrs.axis is None or int(concat.attrs.axis) not in (1, -3):
        return None
    if any(shape is None or len(shape) != 4 for shape in shapes) or not all(isinstance(t, relax.Var) for t in tensors):
        return None
    first = shapes[0][1]  # type: ignore[index]
    parts = np.ascontiguousarray(kernels[:, :first]), np.ascontiguousarray(kernels[:, first:])
    return _Sum(tensors, parts, between)
