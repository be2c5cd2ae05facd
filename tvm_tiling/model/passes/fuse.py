"""Grouping of operators into kernels: TVM's fusion, with corrections for operators that cannot be an epilogue.

TVM classifies an operator only by its indices. One that pads or crops at the end reads every element where it writes
it, and one that repeats a narrow tensor counts as a broadcast like a bias; both pass as element-wise operators after a
matrix multiplication or convolution, but write a different number of elements than that has sums. Nor does it count how
often a chain of operators that each read the previous one twice is duplicated when all are inlined into one expression.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import tvm
import tvm_ffi
from tvm import relax, tirx

from ...lowering.extents import product_of, same
from ...lowering.samples import Extent
from ...match.access import loads
from ...match.stages import MOST_LOADS
from .dataflow import Expr, Rewriter, extents_of, is_op, rewrite
from .functions import RESHAPES
from .node_groups import with_nodes

# TVM's patterns: operators after the first are not fused to a matrix multiplication
INJECTIVE, PRODUCT, OPAQUE = 2, 4, 8


def fused_operators(mod: tvm.IRModule, alone: Callable[[tirx.PrimFunc], bool] | None = None) -> tvm.IRModule:
    """`mod`, with TIR per operator, converted to one PrimFunc per group. Operators for which `alone` is true are in no
    group."""
    mod = relax.transform.AnnotateTIROpPattern()(mod)
    for variable, func in mod.functions.items():
        if alone is not None and isinstance(func, tirx.PrimFunc) and alone(func):
            mod.update_func(variable, func.with_attr("op_pattern", OPAQUE))
    given = {variable.name_hint for variable in mod.functions}  # including groups of earlier passes
    while True:
        grouped = relax.transform.FuseOps()(mod)
        made = [func for variable, func in grouped.functions.items() if variable.name_hint not in given]
        unfit = {name: INJECTIVE for func in made for name in _unfit(mod, func)}
        unfit |= {name: OPAQUE for func in made for name in _of_numbers(func)}
        if not unfit:
            grouped = with_nodes(mod, grouped)
            return with_views(relax.transform.FuseTIR()(grouped), given)
        for name, pattern in unfit.items():
            mod.update_func(mod.get_global_var(name), mod[name].with_attr("op_pattern", pattern))


def with_views(mod: tvm.IRModule, single: Collection[str]) -> tvm.IRModule:
    """`mod` with reshapes that copy nothing. TVM looks for them in every kernel, and fails for some quotients by sums
    of dynamic sizes, and takes kernels without elements for reshapes to another shape: both kinds are hidden meanwhile.
    Those of a reshape alone are known by their mark. `single`: the functions of one operator."""
    hidden = {
        variable: func
        for variable, func in mod.functions.items()
        if isinstance(func, tirx.PrimFunc) and (_has_sums(func) or _is_empty(func))
    }
    shown = tvm.IRModule(dict(mod.functions), attrs=mod.attrs)
    for variable in hidden:
        shown.update_func(variable, hidden[variable].with_body(tirx.Evaluate(0)))
    found = relax.transform.RewriteDataflowReshape()(shown)
    for variable, func in hidden.items():
        found.update_func(found.get_global_var(variable.name_hint), func)
    views = {v.name_hint for v, func in hidden.items() if RESHAPES in (func.attrs or ()) and v.name_hint in single}

    def view(_: Rewriter, variable: relax.Var, call: Expr) -> Expr | None:
        if not isinstance(variable, relax.DataflowVar) or not is_op(call, "call_tir"):
            return None
        if call.args[0].name_hint not in views:
            return None
        return relax.op.reshape(call.args[1].fields[0], call.ty.shape)

    return rewrite(found, view) if views else found


def _is_empty(func: tirx.PrimFunc) -> bool:
    """Return whether a tensor of a kernel has no elements at any size."""
    return any(isinstance(extent, tirx.IntImm) and int(extent) == 0 for extent in _extents(func))


def _has_sums(func: tirx.PrimFunc) -> bool:
    """Return whether a kernel divides by sums of dynamic sizes, or has tensors with such extents."""
    found: list[tirx.Expr] = []
    tvm_ffi.structural_walk(func.body, [((tirx.FloorDiv, tirx.FloorMod), lambda node: found.append(node.b))])
    sums: list[tirx.Expr] = []
    for size in (*found, *_extents(func)):
        if not isinstance(size, int | tirx.IntImm):
            tvm_ffi.structural_walk(size, [((tirx.Add, tirx.Sub), sums.append)])
    return bool(sums)


def _extents(func: tirx.PrimFunc) -> list[tirx.Expr]:
    """The extents of all tensors of a kernel."""
    return [extent for parameter in func.params for extent in getattr(parameter, "shape", ())]


def _of_numbers(group: relax.Function | tirx.PrimFunc) -> Iterator[str]:
    """Operators of a group with a scalar argument, such as a dynamic size as a tensor, that the group takes as a scalar
    too: TVM defines it twice in the kernel if other sizes are dynamic."""
    if not isinstance(group, relax.Function) or not (group.attrs and group.attrs.get("Primitive")):
        return
    numbers = {
        parameter for parameter in group.params if not isinstance(parameter.ty, relax.TensorType | relax.ShapeType)
    }
    for block in group.body.blocks if numbers else ():
        for binding in block.bindings:
            call = binding.value
            if not isinstance(call, relax.Call) or call.op != tvm.ir.Op.get("relax.call_tir"):
                continue
            if not numbers.isdisjoint(part for part in call.args[1].fields if isinstance(part, tirx.Var)):
                yield call.args[0].name_hint


def _unfit(mod: tvm.IRModule, group: relax.Function | tirx.PrimFunc) -> Iterator[str]:
    """Operators of a group after a matrix multiplication that have a different number of elements, or make its epilogue
    read more than MOST_LOADS elements for each."""
    if not isinstance(group, relax.Function) or not (group.attrs and group.attrs.get("Primitive")):
        return
    sums: dict[relax.Var, Extent] = {}  # number of elements of values after a matrix multiplication
    reads: dict[relax.Var, int] = {}  # number of loads per element of each value in the group
    with_product = False
    many = []
    for block in group.body.blocks:
        for binding in block.bindings:
            call = binding.value
            if not isinstance(call, relax.Call) or call.op != tvm.ir.Op.get("relax.call_tir"):
                continue
            name, shape = call.args[0].name_hint, extents_of(binding.var)
            elements = None if shape is None else product_of(shape)
            followers = [sums[read] for read in call.args[1].fields if read in sums]
            pattern = int(mod[name].attrs.get("op_pattern", OPAQUE))
            with_product |= pattern == PRODUCT
            if pattern < INJECTIVE:
                reads[binding.var] = _reads(mod[name], [reads.get(read, 1) for read in call.args[1].fields])
                if reads[binding.var] > MOST_LOADS:
                    many.append(name)
                    reads[binding.var] = 1
            if (
                followers
                and pattern < INJECTIVE
                and (elements is None or not all(same(elements, count) for count in followers))
            ):
                yield name
            elif followers:
                sums[binding.var] = followers[0]
            elif elements is not None and pattern == PRODUCT:
                sums[binding.var] = elements
    if with_product:
        yield from many


def _reads(operator: tirx.PrimFunc, reads: Sequence[int]) -> int:
    """The number of loads per element of an operator's result, given those of its operands."""
    sources = [load.source for load in loads(operator.body)]
    operands = zip(operator.params, reads, strict=False)  # the result is the last parameter
    return sum(count for operand, count in operands for source in sources if source.same_as(operand))
