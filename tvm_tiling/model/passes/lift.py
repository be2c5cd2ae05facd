"""Lifting of constants out of a model's function: they become arguments after its inputs."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import relax

from .dataflow import is_op

INPUTS = "tvm_tiling.inputs"  # attribute of "main": the number of parameters that are inputs; by default, all


@dataclass(frozen=True)
class LiftedConstant:
    """A constant that is now an argument; `readers` are the names of the PrimFuncs that take it."""

    value: tvm.runtime.Tensor
    readers: tuple[str, ...]


def lift_constants(mod: tvm.IRModule) -> tuple[tvm.IRModule, list[LiftedConstant]]:
    """`mod` whose function "main" takes its tensor constants as additional parameters; and these, in order."""
    main = mod["main"]
    lifting = _Lifting()
    body = lifting.visit_expr(main.body)
    if not lifting.found:
        return mod, []
    parameters = [variable for variable, _ in lifting.found]
    lifted = relax.Function([*main.params, *parameters], body, main.ret_ty, main.is_pure, main.attrs)
    lifted = lifted.with_attr(INPUTS, len(main.params))
    updated = tvm.IRModule(dict(mod.functions), attrs=mod.attrs)
    updated.update_func(mod.get_global_var("main"), lifted)
    readers = _readers(lifted)
    constants = [LiftedConstant(value, tuple(readers.get(variable, ()))) for variable, value in lifting.found]
    return updated, constants


@relax.expr_functor.mutator
class _Lifting(relax.PyExprMutator):
    """Replaces every constant by a variable, the same one for the same constant."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[relax.Var, tvm.runtime.Tensor]] = []

    def visit_generic_const_(self, op: tvm.ir.GenericConst) -> relax.Expr:
        if not isinstance(op.value, tvm.runtime.Tensor):
            return op
        for variable, value in self.found:
            if value.same_as(op.value):
                return variable
        variable = relax.Var(f"constant_{len(self.found)}", op.ty)
        self.found.append((variable, op.value))
        return variable


def _readers(func: relax.Function) -> dict[relax.Var, list[str]]:
    """Names of the PrimFuncs of which each variable is an argument."""
    readers: dict[relax.Var, list[str]] = {}
    for block in func.body.blocks:
        for binding in block.bindings:
            if is_op(binding.value, "call_tir"):
                target, arguments = binding.value.args[:2]
                for argument in arguments.fields if isinstance(arguments, relax.Tuple) else ():
                    if isinstance(argument, relax.Var):
                        readers.setdefault(argument, []).append(target.name_hint)
    return readers
