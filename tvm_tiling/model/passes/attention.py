"""Fusion of attention to one operator: from the scores q k^T over a softmax to their multiplication by v, with adjacent
operators.

Torch's fused attention and one written as matrix multiplications arrive in the same form: a matrix multiplication,
element-wise operators such as a scale and masks, a softmax along the last axis, possibly zeros for fully masked rows, a
matrix multiplication. Operators that only reorder queries, keys, values or the result are included, so that the kernel
reads and writes in place. schedules/attention.py supports the resulting function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax, tirx

from ...frontend.node_names import joined
from ...lowering.extents import sizes_in
from ...lowering.samples import Extent, is_open, sampled
from .dataflow import RENEWED, Expr, array, extents_of, is_op, renewed, replace_operands, shape_of
from .layout import BROADCASTING

_REORDERING = frozenset(("reshape", "permute_dims", "strided_slice", "squeeze", "expand_dims", "broadcast_to"))
_ALONG_ROWS = frozenset((*BROADCASTING, "reshape", "nn.softmax", "max", "full_like", "zeros_like", "astype"))
# Minimum rows and keys for which the kernel's tiles and vectors are well filled, and the accepted head sizes.
_LEAST_ROWS, _LEAST_KEYS = 4, 8
_HEAD = range(2, 257)
# Divisors between these magnitudes have a normal reciprocal.
_SMALLEST, _LARGEST = 2.0**-126, 2.0**126
# Operators into whose expression TVM inlines a scalar constant.
_WITH_SCALARS = (
    *("add", "subtract", "multiply", "divide", "power", "maximum", "minimum"),
    *("equal", "not_equal", "greater", "greater_equal", "less", "less_equal", "full_like"),
)


@dataclass(frozen=True)
class _Line:
    """The bindings of a function in order, and the uses of each variable; the index after the last binding is the end
    of the function."""

    bindings: tuple[relax.VarBinding, ...]
    places: dict[relax.Var, int]
    uses: dict[relax.Var, tuple[int, ...]]

    def value(self, expr: Expr) -> Expr:
        place = self.places.get(expr) if isinstance(expr, relax.Var) else None
        return expr if place is None else self.bindings[place].value

    def users(self, place: int) -> tuple[int, ...]:
        return self.uses.get(self.bindings[place].var, ())

    def operands(self, place: int) -> list[int]:
        """Indices of the bindings that a binding reads."""
        return [self.places[v] for v in relax.analysis.free_vars(self.bindings[place].value) if v in self.places]


def fuse_attention(mod: tvm.IRModule) -> tvm.IRModule:
    """`mod` with each attention in its function "main" as a separate function, marked to become one PrimFunc."""
    line = _line(mod["main"])
    groups: dict[int, frozenset[int]] = {}  # by the index of the last binding
    for place, binding in enumerate(line.bindings):
        if is_op(binding.value, "nn.softmax"):
            group = _group(line, place)
            if group is not None and not any(group & other for other in groups.values()):
                groups[max(group)] = group
    return _with_groups(mod, line, groups) if groups else mod


def _line(func: relax.Function) -> _Line:
    bindings = tuple(binding for block in func.body.blocks for binding in block.bindings)
    uses: dict[relax.Var, tuple[int, ...]] = {}
    for place, binding in enumerate(bindings):
        for variable in relax.analysis.free_vars(binding.value):
            uses[variable] = (*uses.get(variable, ()), place)
    for variable in relax.analysis.free_vars(func.body.body):
        uses[variable] = (*uses.get(variable, ()), len(bindings))
    return _Line(bindings, {binding.var: place for place, binding in enumerate(bindings)}, uses)


def _group(line: _Line, softmax: int) -> frozenset[int] | None:
    """Indices of the bindings of the attention around a softmax; None if the pattern does not apply or is not
    profitable."""
    shape = extents_of(line.bindings[softmax].var)
    if shape is None or int(line.bindings[softmax].value.attrs.axis) not in (-1, len(shape) - 1):
        return None
    scores = _scores(line, softmax)
    if scores is None or not _gains(line, scores):
        return None
    group, ends = {scores}, set[int]()
    front = [scores]
    while front:
        for user in line.users(front.pop()):
            if user in group:
                continue
            value = line.bindings[user].value if user < len(line.bindings) else None
            if is_op(value, "matmul"):
                ends.add(user)
            elif not is_op(value, *_ALONG_ROWS):
                return None
            else:
                front.append(user)
            group.add(user)
    if len(ends) != 1 or softmax not in group:
        return None
    end = ends.pop()
    weights, values = line.bindings[end].value.args
    if line.places.get(weights) not in group or line.places.get(values) in group or max(group) != end:
        return None
    if not _is_head((extents_of(line.bindings[end].var) or (0,))[-1]):
        return None
    _add_sources(line, group)
    return frozenset(group | set(_behind(line, end)))


def _scores(line: _Line, place: int) -> int | None:
    """The matrix multiplication from which the operand of a softmax is computed by element-wise operators only."""
    for source in line.operands(place):
        value = line.bindings[source].value
        if is_op(value, "matmul"):
            return source
        if is_op(value, *BROADCASTING, "reshape"):
            found = _scores(line, source)
            if found is not None:
                return found
    return None


def _gains(line: _Line, scores: int) -> bool:
    """Return whether the kernel is profitable for these scores: float32, and neither too few nor with too long
    vectors."""
    product = line.bindings[scores].value
    shape, left = extents_of(line.bindings[scores].var), extents_of(product.args[0])
    if shape is None or left is None or len(shape) < 2 or str(product.ty.dtype) != "float32":
        return False
    return sampled(shape[-2]) >= _LEAST_ROWS and sampled(shape[-1]) >= _LEAST_KEYS and _is_head(left[-1])


def _is_head(extent: Extent) -> bool:
    return not is_open(extent) and extent in _HEAD


def _add_sources(line: _Line, group: set[int]) -> None:
    """Add operators that only reorder or scale an operand, and have no other uses."""
    front = list(group)
    while front:
        for source in line.operands(front.pop()):
            value = line.bindings[source].value
            if source in group or not set(line.users(source)) <= group:
                continue
            value = _as_product(value)
            scales = is_op(value, "multiply") and any(shape_of(a) == () for a in value.args)
            if scales or is_op(value, *_REORDERING):
                group.add(source)
                front.append(source)


def _as_product(value: Expr) -> Expr:
    """A division by a constant scalar as a multiplication by its reciprocal, which is inlined into the kernel; scores
    change by at most a unit in the last place. Anything else as it is."""
    divisor = array(value.args[1]) if is_op(value, "divide") else None
    if divisor is None or divisor.shape != () or divisor.dtype != np.float32 or not _SMALLEST < abs(divisor) < _LARGEST:
        return value
    return relax.op.multiply(value.args[0], relax.const(np.float32(1) / divisor, "float32"))


def _behind(line: _Line, end: int) -> list[int]:
    """Transpositions and reshapes of the result."""
    places: list[int] = []
    while len(users := set(line.users(end))) == 1:
        end = users.pop()
        if end >= len(line.bindings) or not is_op(line.bindings[end].value, "reshape", "permute_dims"):
            break
        places.append(end)
    return places


# ---- the functions ---------------------------------------------------------------------------------------------------


def _with_groups(mod: tvm.IRModule, line: _Line, groups: dict[int, frozenset[int]]) -> tvm.IRModule:
    func = mod["main"]
    inside = {place for group in groups.values() for place in group}
    builder = relax.BlockBuilder(mod)
    renamed: dict[relax.Var, Expr] = {}
    bodies = {last: _function(line, sorted(group)) for last, group in groups.items()}
    with builder.function(RENEWED, list(func.params), attrs=dict(func.attrs) if func.attrs else None):
        with builder.dataflow():
            for place, binding in enumerate(line.bindings):
                if place in groups:
                    body, arguments = bodies[place]
                    variable = builder.add_func(body, "attention")
                    operands = [replace_operands(argument, renamed) for argument in arguments]
                    name = _name([line.bindings[inner] for inner in sorted(groups[place])])
                    renamed[binding.var] = builder.emit(relax.Call(variable, operands), name)
                elif isinstance(binding, relax.MatchCast):
                    source = builder.normalize(replace_operands(binding.value, renamed))
                    renamed[binding.var] = builder.match_cast(source, binding.ty)
                elif place not in inside:
                    value = replace_operands(binding.value, renamed)
                    plain = isinstance(value, relax.Var | tvm.ir.GenericConst)
                    renamed[binding.var] = value if plain else builder.emit(value, joined(binding.var.name))
            output = builder.emit_output(replace_operands(func.body.body, renamed))
        builder.emit_func_output(output)
    return renewed(mod, builder)


def _name(bindings: Sequence[relax.VarBinding]) -> str:
    """The name of a variable computed by all these bindings: the nodes of the matrix multiplications, then the
    others."""
    products = [binding.var.name for binding in bindings if is_op(binding.value, "matmul")]
    return joined(*products, *(binding.var.name for binding in bindings))


def _function(line: _Line, group: Sequence[int]) -> tuple[relax.Function, list[Expr]]:
    """The bindings as a function, and its arguments: variables and constants from outside."""
    own = {line.bindings[place].var for place in group}
    arguments: list[Expr] = []
    parameters: list[relax.Var] = []
    renamed: dict[relax.Var, Expr] = {}

    def parameter(argument: Expr, name: str) -> relax.Var:
        parameters.append(relax.Var(name, argument.ty))
        arguments.append(argument)
        return parameters[-1]

    def lifted(value: Expr) -> Expr:
        """A call whose constants are parameters, except scalars that TVM inlines."""
        if not isinstance(value, relax.Call):
            return value
        operands = list(value.args)
        for number, operand in enumerate(operands):
            written = is_op(value, *_WITH_SCALARS) and shape_of(operand) == ()
            if isinstance(operand, tvm.ir.GenericConst) and not written:
                operands[number] = parameter(operand, f"constant{len(parameters)}")
        return relax.Call(value.op, operands, value.attrs, value.ty_args)

    values = {place: lifted(_as_product(line.bindings[place].value)) for place in group}
    for place in group:
        for variable in relax.analysis.free_vars(line.bindings[place].value):
            if variable not in own and variable not in renamed:
                renamed[variable] = parameter(variable, f"operand{len(parameters)}")
    known = {extent for p in parameters for extent in extents_of(p) or () if isinstance(extent, tirx.Var)}
    used = {
        v for e in (*parameters, *own) for extent in extents_of(e) or () if is_open(extent) for v in sizes_in(extent)
    }
    if left := sorted(used - known, key=str):
        # Sizes that are not by themselves an extent of any operand.
        parameters.append(relax.Var("sizes", relax.ShapeType(left)))
        arguments.append(relax.ShapeExpr(left))
    builder = relax.BlockBuilder()
    with builder.function("attention", parameters, attrs={"Primitive": True}):
        with builder.dataflow():
            for place in group[:-1]:
                renamed[line.bindings[place].var] = builder.emit(replace_operands(values[place], renamed))
            output = builder.emit_output(replace_operands(values[group[-1]], renamed))
        builder.emit_func_output(output)
    # Two functions must not share a shape variable.
    made = relax.utils.copy_with_new_vars(builder.finalize()["attention"])
    return made.without_attr("global_symbol"), arguments
