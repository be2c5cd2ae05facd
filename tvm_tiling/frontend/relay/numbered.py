"""Parameters that TVM's compiler renamed to p0, p1 and so on.

A compiled model is saved (in Model Library Format, or as the parameters of a library) with the constants that remained
after optimisation. The code generators numbered them in the order of a depth-first traversal from the result, operands
from first to last. By then everything that depends only on constants had been folded, and biases had gained dimensions
of size 1. So the constants of the source model are brought into the same order, and each has to match the elements of
its number. After further optimisation (folded scales, blocked weights) they do not match, and the model is rejected.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import ModelFormatError
from ...plain_text import plain_json
from .tree import Constant, Expr, Function, GlobalRef, MakeTuple, Missing, TensorType, Var, children, in_order

ACCEPTED = "expected params with the names of the model, from before relay.build"


@dataclass(frozen=True)
class Numbered:
    """The mapping of numbered parameters to a model. `values`: arrays of variables, by name; `parts`: arrays of
    expressions that the compiler folded, by id; `gone`: variables used only by such expressions; `names`: the name
    found for each number, for reports."""

    values: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[int, Any] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    names: tuple[tuple[str, str], ...] = ()


def is_numbered(names: Collection[str]) -> bool:
    """Return whether these are the names given by the code generators: p0 to the last one without gaps."""
    return len(names) > 0 and set(names) == {f"p{number}" for number in range(len(names))}


def graph_inputs(graph: bytes | memoryview, where: str) -> tuple[str, ...]:
    """The names of the inputs and parameters of a compiled graph. Raises ModelFormatError."""
    try:
        nodes = plain_json(bytes(graph))["nodes"]
        return tuple(str(node["name"]) for node in nodes if node["op"] == "null")
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ModelFormatError(f"{where}: not the graph of a compiled model; expected JSON with its nodes") from None


def by_number(main: Function, arrays: Mapping[str, Any], listed: Collection[str] | None, where: str) -> Numbered:
    """The mapping of `arrays`, named p0 and so on, to `main`.

    `listed`: the names of all inputs and parameters of the compiled model, if known. Raises ModelFormatError if the
    mapping is ambiguous.
    """
    names = {variable.name for variable in main.params}
    inputs = None if listed is None else set(listed) - set(arrays)
    known = inputs is not None and inputs <= names
    slots = _slots(main, inputs if known else None, where)
    ordered = [arrays[f"p{number}"] for number in range(len(arrays))]
    if known:
        whole = len(slots) == len(ordered) and all(map(_fits, slots, ordered))
        places = list(range(len(slots))) if whole else None
    else:
        places = _only_places(slots, ordered)
    if places is None:
        raise ModelFormatError(
            f"{where}: its parameters p0 to p{len(arrays) - 1} are those of the compiled model and cannot be "
            f"matched to the parameters of the model; {ACCEPTED}"
        )
    chosen = [slots[place] for place in places]
    pairs = [(slot, _shaped(slot, array)) for slot, array in zip(chosen, ordered, strict=True)]
    values = {slot.name: array for slot, array in pairs if isinstance(slot, Var)}
    return Numbered(
        values,
        {id(slot): array for slot, array in pairs if not isinstance(slot, Var)},
        frozenset(names - inputs - set(values)) if known and inputs is not None else frozenset(),
        tuple(
            (f"p{number}", f"%{slot.name}" if isinstance(slot, Var) else f"the result of line {slot.place}")
            for number, slot in enumerate(chosen)
        ),
    )


def _slots(main: Function, inputs: Collection[str] | None, where: str) -> list[Expr]:
    """The expressions that the code generators would number, in their order: the largest ones that depend on no input.

    Scalars became part of the kernels. If the inputs are unknown, each variable is its own slot.
    """
    constant: set[int] = set()
    for expr in in_order(main.body):
        if isinstance(expr, Function | GlobalRef):
            raise ModelFormatError(
                f"{where}: parameters p0, p1, ... are not supported for a model with local functions; {ACCEPTED}"
            )
        if isinstance(expr, Var):
            fixed = inputs is not None and expr.name not in inputs
        else:
            fixed = all(id(part) in constant for part in children(expr))
        if fixed:
            constant.add(id(expr))
    found: list[Expr] = []
    seen: set[int] = set()
    stack: list[Expr] = [main.body]
    while stack:
        expr = stack.pop()
        if id(expr) in seen:
            continue
        seen.add(id(expr))
        if id(expr) in constant and not isinstance(expr, MakeTuple):
            if not _is_scalar(expr):
                found.append(expr)
        elif inputs is None and isinstance(expr, Var):
            found.append(expr)
        else:
            stack.extend(reversed(children(expr)))
    return found


def _is_scalar(expr: Expr) -> bool:
    return isinstance(expr, Constant | Missing) and isinstance(expr.type, TensorType) and not expr.type.shape


def _fits(expr: Expr, array: Any) -> bool:
    """Return whether an array matches the type that the model states, ignoring dimensions of size 1."""
    if not isinstance(expr.type, TensorType):
        return False
    value = np.asarray(array)
    same = [extent for extent in expr.type.shape if extent != 1] == [extent for extent in value.shape if extent != 1]
    held = not isinstance(expr, Constant) or np.array_equal(expr.value.ravel(), value.ravel())
    return same and value.dtype.name == expr.type.dtype and held


def _only_places(slots: Sequence[Expr], arrays: Sequence[Any]) -> list[int] | None:
    """The slots of the arrays, in order, if the assignment is unique: the first one equals the last one."""
    first, last = _embedded(slots, arrays), _embedded(slots[::-1], arrays[::-1])
    if first is None or last is None:
        return None
    return first if first == [len(slots) - 1 - place for place in reversed(last)] else None


def _embedded(slots: Sequence[Expr], arrays: Sequence[Any]) -> list[int] | None:
    """The earliest slots of the arrays, in order."""
    found: list[int] = []
    at = 0
    for array in arrays:
        while at < len(slots) and not _fits(slots[at], array):
            at += 1
        if at == len(slots):
            return None
        found.append(at)
        at += 1
    return found


def _shaped(expr: Expr, array: Any) -> Any:
    """An array in the shape that the model states, without the dimensions of size 1 that the compiler added."""
    assert isinstance(expr.type, TensorType)
    return np.asarray(array).reshape([extent or 0 for extent in expr.type.shape])
