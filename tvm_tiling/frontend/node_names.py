"""Names of a model's nodes, kept through the graph passes, so that a report says where each operator comes from.

A Relax module lists the names in an attribute. A variable carries the numbers of its nodes in its own name
("lv__n3_17__"): TVM's passes keep names of variables, and numbers do not bring text of a file into the names of TIR
buffers or into kernels. What TVM appends to make a name unique comes behind the mark and is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import tvm
from tvm import relax

from ..plain_text import printable
from .fitting import fitted
from .open_shapes import OpenShapes

NODES = "tvm_tiling.nodes"  # attribute of a module: the names, by number
MOST_NODES = 1 << 20
_MARK = re.compile(r"__n(\d{1,9}(?:_\d{1,9})*)__")
_PLAIN = "lv"  # how TVM's builder calls variables


class NodeNames:
    """The names that an importer meets, numbered in their order."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def variable(self, name: str) -> str:
        """What to call variables that node `name` makes; "" for a node without a name."""
        shown = printable(name)
        if not shown or len(self._numbers) >= MOST_NODES:
            return ""
        return variable_of([self._numbers.setdefault(shown, len(self._numbers))])

    def attached(self, module: tvm.IRModule) -> tvm.IRModule:
        """`module` with the names."""
        return module.with_attr(NODES, list(self._numbers)) if self._numbers else module


class NamingBuilder(relax.BlockBuilder):
    """A builder that calls variables as `called` says, where the caller gives no name. `shapes`: the open sizes of the
    model, of which operands are made to agree; None where all are fixed."""

    called = ""
    shapes: OpenShapes | None = None

    def emit(self, expr: relax.Expr, name_hint: str = "") -> relax.Var:
        """The variable that `expr` is bound to."""
        return super().emit(self._fitted(expr), name_hint or self.called)

    def normalize(self, expr: relax.Expr) -> relax.Expr:
        """`expr` with its type."""
        return super().normalize(self._fitted(expr))

    def match_cast(self, value: relax.Expr, ty: tvm.ir.Type, name_hint: str = "") -> relax.Var:
        """A variable for `value`, of type `ty`."""
        return super().match_cast(value, ty, name_hint or self.called)

    def _fitted(self, expr: relax.Expr) -> relax.Expr:
        if self.shapes is None or not isinstance(expr, relax.Call):
            return expr
        bound = with_bound_parts(self, expr)
        return fitted(self, bound, self.shapes) if isinstance(bound, relax.Call) else bound


def with_bound_parts(builder: relax.BlockBuilder, expr: relax.Expr, name: str = "") -> relax.Expr:
    """`expr` with the calls within it bound to variables called `name`: normalize() of the builder gives none."""
    known: dict[int, relax.Expr] = {}

    def inside(part: relax.Expr) -> relax.Expr:
        if isinstance(part, relax.Tuple):
            return relax.Tuple([bound(field) for field in part.fields])
        if isinstance(part, relax.TupleGetItem):
            return relax.TupleGetItem(bound(part.tuple_value), part.index)
        if isinstance(part, relax.Call) and _is_operator(part) and any(map(_has_parts, part.args)):
            return relax.Call(part.op, [bound(argument) for argument in part.args], part.attrs, part.ty_args)
        return part

    def bound(part: relax.Expr) -> relax.Expr:
        if isinstance(part, relax.Tuple):
            return inside(part)
        if not _is_operator(part):
            return part
        place = part.__chandle__()
        if place not in known:
            known[place] = builder.emit(inside(part), name)
        return known[place]

    return inside(expr)


def _has_parts(expr: object) -> bool:
    return isinstance(expr, relax.Tuple) or _is_operator(expr)


def _is_operator(expr: object) -> bool:
    """Whether an expression calls an operator of Relax, or is a field of what does."""
    if isinstance(expr, relax.TupleGetItem):
        return True
    return isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op) and expr.op.name.startswith("relax.")


def variable_of(numbers: Iterable[int]) -> str:
    """What to call a variable that these nodes make, "" for none."""
    found = dict.fromkeys(numbers)
    return f"{_PLAIN}__n{'_'.join(map(str, found))}__" if found else ""


def numbers_of(name: str) -> tuple[int, ...]:
    """The numbers of the nodes that make a variable of this name; empty where none is known."""
    found = _MARK.search(name)
    return tuple(map(int, found[1].split("_"))) if found else ()


def joined(*names: str) -> str:
    """What to call a variable that is made by what made variables of these names, in that order; "" for none."""
    marked = [name for name in names if "__n" in name]
    return variable_of(number for name in marked for number in numbers_of(name))


def without_mark(name: str) -> str:
    """A variable's name without its nodes, or any other text without their numbers."""
    return _MARK.sub("", name) or name


def names_in(module: tvm.IRModule) -> Sequence[str]:
    """The names that a module lists, by number; none where it has no list. A caller's module may have any."""
    listed = module.attrs.get(NODES) if module.attrs else None
    if not isinstance(listed, tvm.ir.Array):
        return ()
    return [printable(str(name)) if isinstance(name, str) else "" for name in listed]


def without_names(module: tvm.IRModule) -> tvm.IRModule:
    """`module` without its list of names, so that it is equal to what another model's nodes made like it."""
    kept = {key: value for key, value in (module.attrs or {}).items() if key != NODES}
    return tvm.IRModule(dict(module.functions), attrs=kept or None)


def nodes_named(names: Sequence[str], numbers: Iterable[int]) -> tuple[str, ...]:
    """The names of these numbers, each once, in their order."""
    return tuple(dict.fromkeys(names[n] for n in numbers if n < len(names) and names[n]))
