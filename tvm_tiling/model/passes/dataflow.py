"""Rewriting of a Relax function binding by binding, the basis of this package's graph passes.

Relax's own mutators visit every expression; the functions here are straight sequences of operator calls, so a pass only
defines the replacement of a call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import tvm
from tvm import relax, tirx

from ...errors import UnsupportedOperator
from ...frontend.node_names import joined
from ...lowering.extents import number_of
from ...lowering.samples import Extent
from ...refusal import blocks_closed
from ...runtime.tensors import array_of, tensor_of

Expr: TypeAlias = relax.Expr
# Returns the replacement of a bound value, whose operands are already replaced; None keeps it.
Rewrite = Callable[["Rewriter", relax.Var, Expr], Expr | None]


class Rewriter:
    """The function being built: `emit` adds a binding, `value` returns the value bound to an expression.

    `name`: the name of new variables, from the nodes of the variable being replaced.
    """

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self.builder = builder
        self._bound: dict[relax.Var, Expr] = {}
        self.uses: Counter[relax.Var] = Counter()
        self.renamed: dict[relax.Var, Expr] = {}
        self.name = ""

    def take_name(self, *sources: Expr) -> None:
        """Add the nodes of these variables to the name of the present one, in front: its replacement includes their
        computation."""
        self.name = joined(*(source.name for source in sources if isinstance(source, relax.Var)), self.name)

    @contextmanager
    def named_after(self, source: Expr) -> Iterator[None]:
        """Within the context, name variables after the nodes of `source`, if it has any: they compute it in another
        form."""
        before = self.name
        self.name = (joined(source.name) if isinstance(source, relax.Var) else "") or before
        try:
            yield
        finally:
            self.name = before

    def emit(self, expr: Expr) -> Expr:
        """Bind `expr` and return its variable; constants and variables are returned unchanged."""
        if isinstance(expr, tvm.ir.GenericConst | relax.Var | relax.Tuple | relax.ShapeExpr):
            return expr
        variable = self.builder.emit(expr, self.name)
        self._bound[variable] = expr
        return variable

    def value(self, expr: Expr) -> Expr:
        """The call bound to a variable, or the expression itself."""
        return self._bound.get(expr, expr) if isinstance(expr, relax.Var) else expr


def rewrite(mod: tvm.IRModule, rewrites: Rewrite, parameters: Sequence[relax.Var] | None = None) -> tvm.IRModule:
    """Rebuild the function "main" of `mod` through `rewrites`; unused values are removed. With `parameters`, which may
    have other shapes than those of "main", values have no type before they are emitted."""
    func = mod["main"]
    if not isinstance(func.body, relax.SeqExpr):
        raise UnsupportedOperator("main: not a Relax function in normal form; expected a straight sequence of bindings")
    for block in func.body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.If | relax.Function):
                raise UnsupportedOperator(f"main: control flow at {binding.var.name}; expected straight sequences")
    builder = relax.BlockBuilder()
    rewriter = Rewriter(builder)
    rewriter.uses = use_counts(func)
    attributes = dict(func.attrs) if func.attrs else None
    if parameters is not None:
        rewriter.renamed.update(zip(func.params, parameters, strict=True))
    with blocks_closed(builder), builder.function("main", list(parameters or func.params), attrs=attributes):
        with builder.dataflow():
            for block in func.body.blocks:
                for binding in block.bindings:
                    if isinstance(binding, relax.MatchCast):
                        # A data-dependent shape has its name from here on.
                        source = replace_operands(binding.value, rewriter.renamed)
                        rewriter.renamed[binding.var] = builder.match_cast(source, binding.ty)
                        continue
                    rewriter.name = joined(binding.var.name)
                    value = replace_operands(binding.value, rewriter.renamed)
                    if parameters is None:
                        value = builder.normalize(value)
                    new = rewrites(rewriter, binding.var, value)
                    rewriter.renamed[binding.var] = rewriter.emit(value if new is None else new)
            body = replace_operands(func.body.body, rewriter.renamed)
            output = builder.emit_output(body)
        builder.emit_func_output(output)
    built = builder.finalize()
    updated = tvm.IRModule(dict(mod.functions), attrs=mod.attrs)
    updated.update_func(mod.get_global_var("main"), built["main"])
    for variable, func in built.functions.items():
        if variable.name_hint != "main":
            updated[variable] = func
    return relax.transform.DeadCodeElimination(["main"])(updated)


def use_counts(func: relax.Function) -> Counter[relax.Var]:
    """The number of values that read each variable, the result of the function included."""
    uses = Counter(relax.analysis.free_vars(func.body.body))
    for block in func.body.blocks:
        for binding in block.bindings:
            uses.update(relax.analysis.free_vars(binding.value))
    return uses


RENEWED = "main_renewed"  # the temporary name of the function that replaces "main"


def renewed(mod: tvm.IRModule, builder: relax.BlockBuilder) -> tvm.IRModule:
    """`mod` with the functions from `builder`, with RENEWED in place of "main"."""
    built = builder.finalize()
    functions = {v: f for v, f in built.functions.items() if v.name_hint not in ("main", RENEWED)}
    updated = tvm.IRModule(functions, attrs=mod.attrs)
    updated["main"] = built[RENEWED].with_attr("global_symbol", "main")
    return updated


def replace_operands(expr: Expr, renamed: dict[relax.Var, Expr]) -> Expr:
    """`expr` with its variables replaced, including those in nested tuples and calls."""
    if isinstance(expr, relax.Var):
        return renamed.get(expr, expr)
    if isinstance(expr, relax.Call):
        arguments = [replace_operands(a, renamed) for a in expr.args]
        if all(new.same_as(old) for new, old in zip(arguments, expr.args, strict=True)):
            return expr
        return relax.Call(expr.op, arguments, expr.attrs, expr.ty_args)
    if isinstance(expr, relax.Tuple):
        return relax.Tuple([replace_operands(f, renamed) for f in expr.fields])
    if isinstance(expr, relax.TupleGetItem):
        return relax.TupleGetItem(replace_operands(expr.tuple_value, renamed), expr.index)
    return expr


def is_op(expr: Expr, *names: str) -> bool:
    """Return whether `expr` calls one of these operators, named without "relax."."""
    return isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op) and expr.op.name[6:] in names


def array(expr: Expr) -> np.ndarray | None:
    """The value of a constant, sharing its memory, which must not be written; None for anything else."""
    if not isinstance(expr, tvm.ir.GenericConst):
        return None
    held = array_of(expr.value)
    if held is None:
        return expr.value.numpy()
    held.flags.writeable = False
    return held


def constant(value: np.ndarray) -> tvm.ir.GenericConst:
    """A constant of this value, which must not be written any more."""
    return relax.const(tensor_of(value))


def shape_of(expr: Expr) -> tuple[int, ...] | None:
    """The static shape of a tensor, None if it has none."""
    return static_shape(expr.ty)


def static_shape(kind: tvm.ir.Type) -> tuple[int, ...] | None:
    """The static shape of a tensor's type, None for other types."""
    shape: Any = getattr(kind, "shape", None)
    if not isinstance(shape, relax.ShapeExpr) or not all(isinstance(s, tirx.IntImm) for s in shape.values):
        return None
    return tuple(int(s) for s in shape.values)


def extents_of(expr: Expr) -> tuple[Extent, ...] | None:
    """The shape of a tensor, possibly with dynamic sizes; None if it is data-dependent."""
    shape: Any = getattr(expr.ty, "shape", None)
    return tuple(map(number_of, shape.values)) if isinstance(shape, relax.ShapeExpr) else None


def numbers(expr: Expr) -> list[int] | None:
    """The integers in a tuple; None if it has others."""
    if not isinstance(expr, relax.Tuple):
        return None
    found = [int(field) for field in expr.fields if isinstance(field, tirx.IntImm)]
    return found if len(found) == len(expr.fields) else None


def ints(values: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(v) for v in values)
