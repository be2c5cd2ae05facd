"""Node names of a model, preserved through the graph passes, so that a report can show the origin of each operator.

A Relax module lists the names in an attribute. A variable carries the numbers of its nodes in its own name
("lv__n3_17__"): TVM's passes preserve variable names, and numbers keep text of a file out of the names of TIR buffers
and kernels. Suffixes that TVM appends for uniqueness follow the mark and are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import tvm
from tvm import relax

from ..plain_text import printable
from .fitting import fitted
from .open_shapes import OpenShapes

NODES = "tvm_tiling.nodes"  # module attribute: the names, by number
MOST_NODES = 1 << 20
_MARK = re.compile(r"__n(\d{1,9}(?:_\d{1,9})*)__")
_PLAIN = "lv"  # TVM's default name of a variable


class NodeNames:
    """The names that an importer encounters, numbered in order."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def variable(self, name: str) -> str:
        """Return the name for variables that node `name` produces, or "" for an unnamed node."""
        shown = printable(name)
        if not shown or len(self._numbers) >= MOST_NODES:
            return ""
        return variable_of([self._numbers.setdefault(shown, len(self._numbers))])

    def attached(self, module: tvm.IRModule) -> tvm.IRModule:
        """Return `module` with the names attached."""
        return module.with_attr(NODES, list(self._numbers)) if self._numbers else module


class NamingBuilder(relax.BlockBuilder):
    """A builder that names variables as `called` says unless the caller gives a name. `shapes`: the dynamic dimensions
    of the model, whose operands are made to agree; None if all are fixed."""

    called = ""
    shapes: OpenShapes | None = None

    def emit(self, expr: relax.Expr, name_hint: str = "") -> relax.Var:
        """Bind `expr` to a variable and return it."""
        return super().emit(self._fitted(expr), name_hint or self.called)

    def normalize(self, expr: relax.Expr) -> relax.Expr:
        """Return `expr` with its type."""
        return super().normalize(self._fitted(expr))

    def match_cast(self, value: relax.Expr, ty: tvm.ir.Type, name_hint: str = "") -> relax.Var:
        """Return a variable for `value` with type `ty`."""
        return super().match_cast(value, ty, name_hint or self.called)

    def _fitted(self, expr: relax.Expr) -> relax.Expr:
        if self.shapes is None or not isinstance(expr, relax.Call):
            return expr
        bound = with_bound_parts(self, expr)
        return fitted(self, bound, self.shapes) if isinstance(bound, relax.Call) else bound


def with_bound_parts(builder: relax.BlockBuilder, expr: relax.Expr, name: str = "") -> relax.Expr:
    """Return `expr` with nested calls bound to variables called `name`, which the builder's normalize() leaves
    unnamed."""
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
    """Return whether an expression calls a Relax operator, or is a field of such a call."""
    if isinstance(expr, relax.TupleGetItem):
        return True
    return isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op) and expr.op.name.startswith("relax.")


def variable_of(numbers: Iterable[int]) -> str:
    """Return the name of a variable that these nodes produce, or "" for none."""
    found = dict.fromkeys(numbers)
    return f"{_PLAIN}__n{'_'.join(map(str, found))}__" if found else ""


def numbers_of(name: str) -> tuple[int, ...]:
    """Return the numbers of the nodes in a variable name; empty if there are none."""
    found = _MARK.search(name)
    return tuple(map(int, found[1].split("_"))) if found else ()


def joined(*names: str) -> str:
    """Return the name of a variable produced by the nodes of several variables, in order, or "" for none."""
    marked = [name for name in names if "__n" in name]
    return variable_of(number for name in marked for number in numbers_of(name))


def without_mark(name: str) -> str:
    """Return the name of a variable without its mark, or any other text without node numbers."""
    return _MARK.sub("", name) or name


def names_in(module: tvm.IRModule) -> Sequence[str]:
    """Return the names that a module lists, by number; empty without a list. The attribute of a caller's module is not
    trusted."""
    listed = module.attrs.get(NODES) if module.attrs else None
    if not isinstance(listed, tvm.ir.Array):
        return ()
    return [printable(str(name)) if isinstance(name, str) else "" for name in listed]


def without_names(module: tvm.IRModule) -> tvm.IRModule:
    """Return `module` without its list of names, so that equal modules of different models compare equal."""
    kept = {key: value for key, value in (module.attrs or {}).items() if key != NODES}
    return tvm.IRModule(dict(module.functions), attrs=kept or None)


def nodes_named(names: Sequence[str], numbers: Iterable[int]) -> tuple[str, ...]:
    """Return the distinct names of these numbers, in order."""
    return tuple(dict.fromkeys(names[n] for n in numbers if n < len(names) and names[n]))
