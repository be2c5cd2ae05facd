"""Lowering of a module of operators to calls of TVM's virtual machine: the passes of TVM's own pipeline, and one
between them.

TVM plans a tensor whose extents have an upper bound, such as min(size, 1000000), for that bound, whatever the sizes of
a run. Such tensors get separate memory here, of the size that the run requires, before TVM plans the others.
"""

from __future__ import annotations

import math
from typing import Any

import tvm
from tvm import relax, sym, tirx

from .functions import reshape
from .fuse import with_views

_UNBOUNDED = 2**63 - 1
_ALLOCATE = "relax.builtin.alloc_tensor"


def machine_calls(mod: tvm.IRModule) -> tvm.IRModule:
    """`mod` for the code generation of the virtual machine."""
    passes = relax.transform
    given = {variable.name_hint for variable in mod.functions}
    mod = tvm.transform.Sequential(
        [
            relax.backend.DispatchSampling(),
            relax.backend.DispatchSortScan(),
            passes.LegalizeOps({"relax.reshape": reshape}),
        ]
    )(mod)
    mod = with_views(mod, {variable.name_hint for variable in mod.functions} - given)
    return tvm.transform.Sequential(
        [
            passes.ToNonDataflow(),
            passes.RemovePurityChecking(),
            passes.CallTIRRewrite(),
            tvm.transform.module_pass(_bounded_allocated, opt_level=0, name="tvm_tiling.bounded_allocated"),
            passes.StaticPlanBlockMemory(),
            passes.LowerAllocTensor(),
            passes.KillAfterLastUse(),
            passes.LowerRuntimeBuiltin(),
            passes.ComputePrimValue(),
            passes.VMShapeLower(),
            passes.AttachGlobalSymbol(),
        ]
    )(mod)


def _bounded_allocated(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
    allocating = _Allocating(mod)
    for variable, func in mod.functions.items():
        if isinstance(func, relax.Function):
            allocating.builder_.update_func(variable, allocating.visit_expr(func))
    return allocating.builder_.get()


@relax.expr_functor.mutator
class _Allocating(relax.PyExprMutator):
    """Allocates tensors with bounded dynamic extents at their actual size."""

    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._analyzer = sym.Analyzer()

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        if not isinstance(call.op, tvm.ir.Op) or call.op.name != _ALLOCATE or not self._bounded(call.args[0]):
            return super().visit_call_(call)
        shape, dtype, device, scope = call.args
        size = self._analyzer.simplify(math.prod(shape.values) * _bytes(dtype.value))
        memory = relax.op.memory
        storage = self.builder_.emit(memory.alloc_storage(relax.ShapeExpr([size]), device, scope, "uint8"))
        return memory.alloc_tensor(storage, 0, shape, dtype, device)

    def _bounded(self, shape: relax.ShapeExpr) -> bool:
        """Return whether an extent is dynamic with an upper bound."""
        return any(
            not isinstance(extent, tirx.IntImm) and self._analyzer.const_int_bound(extent).max_value < _UNBOUNDED
            for extent in shape.values
        )


def _bytes(dtype: Any) -> int:
    return (dtype.bits * dtype.lanes + 7) // 8
