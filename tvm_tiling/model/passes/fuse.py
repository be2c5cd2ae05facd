"""Operators into groups that become one kernel each: TVM's fusion, told which operators do not write a product back.

TVM judges an operator by its indices alone. One that pads or cuts off at the end reads every element where it writes
it, and one that repeats a narrow tensor counts as a broadcast as a bias does; both pass for element-wise work behind a
product or convolution, but write another number of elements than that has sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

import tvm
from tvm import relax, tirx

from .dataflow import shape_of

INJECTIVE, PRODUCT, OPAQUE = 2, 4, 8  # TVM's patterns: of those behind the first nothing is fused to a product


def fused_operators(mod: tvm.IRModule, alone: Callable[[tirx.PrimFunc], bool] | None = None) -> tvm.IRModule:
    """`mod`, in TIR operator by operator, with a PrimFunc for every group. Operators that are to stay `alone` are in no
    group."""
    mod = relax.transform.AnnotateTIROpPattern()(mod)
    for variable, func in mod.functions.items():
        if alone is not None and isinstance(func, tirx.PrimFunc) and alone(func):
            mod.update_func(variable, func.with_attr("op_pattern", OPAQUE))
    given = {variable.name_hint for variable in mod.functions}  # groups of earlier passes among them
    while True:
        grouped = relax.transform.FuseOps()(mod)
        made = [func for variable, func in grouped.functions.items() if variable.name_hint not in given]
        resizing = {name for func in made for name in _resizing(mod, func)}
        if not resizing:
            return relax.transform.RewriteDataflowReshape()(relax.transform.FuseTIR()(grouped))
        for name in resizing:
            mod.update_func(mod.get_global_var(name), mod[name].with_attr("op_pattern", INJECTIVE))


def _resizing(mod: tvm.IRModule, group: relax.Function | tirx.PrimFunc) -> Iterator[str]:
    """Operators of a group behind a product that have another number of elements than it."""
    if not isinstance(group, relax.Function) or not (group.attrs and group.attrs.get("Primitive")):
        return
    sums: dict[relax.Var, int] = {}  # of what follows a product, the elements that it has
    for block in group.body.blocks:
        for binding in block.bindings:
            call = binding.value
            if not isinstance(call, relax.Call) or call.op != tvm.ir.Op.get("relax.call_tir"):
                continue
            name, shape = call.args[0].name_hint, shape_of(binding.var)
            elements = None if shape is None else prod(shape)
            followers = [sums[read] for read in call.args[1].fields if read in sums]
            pattern = int(mod[name].attrs.get("op_pattern", OPAQUE))
            if followers and pattern < INJECTIVE and any(elements != count for count in followers):
                yield name
            elif followers:
                sums[binding.var] = followers[0]
            elif elements is not None and pattern == PRODUCT:
                sums[binding.var] = elements
