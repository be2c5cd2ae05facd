"""Model nodes of each operator group that becomes one kernel.

TVM's fusion merges equal groups to one function, and binds their calls to new variables. So the bindings of a group are
found again by their operands, in the function before fusion, whose variables have the names of their nodes
(node_names.py).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, TypeAlias

import tvm
from tvm import relax

from ...frontend.node_names import NODES, numbers_of, variable_of, without_mark
from .dataflow import Expr, replace_operands

# The equivalent of a value in the function before fusion: a variable, a tuple of values, or None if unknown.
_Origin: TypeAlias = Any


def with_nodes(before: tvm.IRModule, grouped: tvm.IRModule) -> tvm.IRModule:
    """`grouped`, the result of FuseOps on `before`, with the calls of its function "main" bound to variables named
    after all nodes of each group."""
    if not before.attrs or NODES not in before.attrs:
        return grouped
    nodes = _Nodes(before["main"])
    main = grouped["main"]
    origins: dict[relax.Var, _Origin] = dict(zip(main.params, before["main"].params, strict=True))
    renamed: dict[relax.Var, Expr] = {}
    known: dict[relax.Var, tuple[int, ...]] = {}
    blocks = []
    for block in main.body.blocks:
        bindings = []
        for binding in block.bindings:
            numbers, origins[binding.var] = nodes.of(grouped, binding, origins)
            # An alias of a variable, such as an output's, remains when FuseTIR removes the first one.
            known[binding.var] = numbers = known.get(binding.value, numbers)
            bindings.append(_renamed(binding, numbers, renamed))
        blocks.append(type(block)(bindings))
    body = relax.SeqExpr(blocks, replace_operands(main.body.body, renamed))
    updated = tvm.IRModule(dict(grouped.functions), attrs=grouped.attrs)
    function = relax.Function(main.params, body, main.ret_ty, main.is_pure, main.attrs)
    updated.update_func(grouped.get_global_var("main"), function)
    return updated


def _renamed(binding: relax.Binding, numbers: Sequence[int], renamed: dict[relax.Var, Expr]) -> relax.Binding:
    """A binding with the variables of `renamed` replaced; adds its own variable if that gets another name."""
    variable = binding.var
    if isinstance(binding, relax.MatchCast):
        return relax.MatchCast(variable, replace_operands(binding.value, renamed), binding.ty)
    if numbers and numbers != numbers_of(variable.name):
        name = without_mark(variable.name) + variable_of(numbers)
        renamed[variable] = type(variable)(name, variable.ty)
    return relax.VarBinding(renamed.get(variable, variable), replace_operands(binding.value, renamed))


class _Nodes:
    """The nodes of each binding of a function, and its bindings by their computation."""

    def __init__(self, func: relax.Function) -> None:
        bindings = [binding for block in func.body.blocks for binding in block.bindings]
        self._numbers = _numbers(bindings)
        self._places = {binding.var: place for place, binding in enumerate(bindings)}
        self._found: dict[Hashable, list[relax.Var]] = {}
        for binding in reversed(bindings):
            if isinstance(binding, relax.VarBinding):
                self._found.setdefault(_key(binding.value, lambda v: v), []).append(binding.var)

    def of(
        self, mod: tvm.IRModule, binding: relax.Binding, origins: dict[relax.Var, _Origin]
    ) -> tuple[tuple[int, ...], _Origin]:
        """(numbers of the nodes, equivalent of its variable before fusion) for a binding of the grouped function."""
        value = binding.value
        origin = self._origin(value, origins)
        group = mod[value.op] if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar) else None
        if origin is not None or not isinstance(group, relax.Function):
            return self._of([origin]), origin
        inner = {p: _of(argument, origins) for p, argument in zip(group.params, value.args, strict=True)}
        constants = {p: a for p, a in zip(group.params, value.args, strict=True) if isinstance(a, tvm.ir.GenericConst)}
        made: list[_Origin] = []
        for block in group.body.blocks:
            for each in block.bindings:
                found = self._origin(replace_operands(each.value, constants), inner)
                inner[each.var] = found
                made.append(found)
        return self._of(made), _of(group.body.body, inner)

    def _origin(self, value: Expr, origins: dict[relax.Var, _Origin]) -> _Origin:
        """The equivalent of a value before fusion."""
        found = None
        if isinstance(value, relax.Call | relax.TupleGetItem):
            found = self._found.get(_key(value, origins.get))
        if not found:
            return _of(value, origins)
        # Equal calls are matched in order; the last one also matches any further occurrence.
        return found.pop() if len(found) > 1 else found[0]

    def _of(self, origins: Sequence[_Origin]) -> tuple[int, ...]:
        variables = {v for origin in origins for v in _variables(origin)}
        ordered = sorted(variables & self._places.keys(), key=self._places.__getitem__)
        return tuple(dict.fromkeys(number for v in ordered for number in self._numbers.get(v, ())))


def _numbers(bindings: Sequence[relax.Binding]) -> dict[relax.Var, tuple[int, ...]]:
    """The nodes of each binding's variable: those in its name; for a variable introduced by a pass, those of its
    consumers; and if no consumer has a name, those of its operands."""
    known = {binding.var: numbers_of(binding.var.name) for binding in bindings}
    reads = {binding.var: relax.analysis.free_vars(binding.value) for binding in bindings}
    unnamed = {variable for variable, numbers in known.items() if not numbers}
    for variable in reversed(list(known)):
        if known[variable]:
            known.update((source, known[variable]) for source in reads[variable] if source in unnamed)
    for variable in known:
        if not known[variable]:
            sources = (known.get(source) for source in reads[variable])
            known[variable] = next((numbers for numbers in sources if numbers), ())
    return known


def _key(expr: Expr, stands_for: Callable[[relax.Var], Hashable]) -> Hashable:
    """A key of a value's computation, equal for equal operators on equal operands; `stands_for` maps variables."""
    if isinstance(expr, relax.Var):
        return stands_for(expr)
    if isinstance(expr, relax.Call):
        return _key(expr.op, stands_for), *(_key(argument, stands_for) for argument in expr.args)
    if isinstance(expr, relax.Tuple):
        return tuple(_key(field, stands_for) for field in expr.fields)
    if isinstance(expr, relax.TupleGetItem):
        return _key(expr.tuple_value, stands_for), int(expr.index)
    if isinstance(expr, tvm.ir.GenericConst):
        return expr.value.__chandle__() if isinstance(expr.value, tvm.runtime.Tensor) else ""
    if isinstance(expr, tvm.ir.GlobalVar):
        return str(expr.name_hint)
    return str(expr.name) if isinstance(expr, tvm.ir.Op) else ""


def _of(expr: Expr, origins: dict[relax.Var, _Origin]) -> _Origin:
    """The equivalent before fusion of a variable, a tuple of variables or a field of one."""
    if isinstance(expr, relax.Var):
        return origins.get(expr)
    if isinstance(expr, relax.Tuple):
        return tuple(_of(field, origins) for field in expr.fields)
    if isinstance(expr, relax.TupleGetItem):
        several = _of(expr.tuple_value, origins)
        return several[expr.index] if isinstance(several, tuple) else several
    return None


def _variables(origin: _Origin) -> Iterator[relax.Var]:
    if isinstance(origin, relax.Var):
        yield origin
    elif isinstance(origin, tuple):
        for part in origin:
            yield from _variables(part)
