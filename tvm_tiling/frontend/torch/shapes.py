"""Static shapes for the inputs of an exported PyTorch program, by exporting it again."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...errors import ModelFormatError
from ..imported import check_dims, first_line
from .user_values import UserInput, arguments, user_inputs


@dataclass(frozen=True)
class OpenExtent:
    """A dynamic dimension of an input.

    name: as given in dynamic_shapes; empty if none was given or it was lost, as in saved programs. symbol: PyTorch's
    name, or the expression of the dimension, such as 2*s0.
    """

    input: str
    axis: int
    name: str
    symbol: str
    expr: Any

    @property
    def place(self) -> str:
        """Input and axis, such as x[0]."""
        return f"{self.input}[{self.axis}]"

    @property
    def shown(self) -> str:
        return self.name or self.place


def settled(
    program: torch.export.ExportedProgram, batch: int | None, dims: Mapping[str, int], where: str
) -> torch.export.ExportedProgram:
    """`program` with sizes for dynamic dimensions: for first dimensions by `batch`, for others by name.

    A name is the one in dynamic_shapes, PyTorch's own, or input and axis such as x[0]. Raises ModelFormatError if a
    name is unknown, a dimension remains dynamic, or the program excludes a size.
    """
    if batch is None and not dims:
        return program
    inputs = user_inputs(program, where)
    opened = list(open_extents(inputs))
    sizes = given_sizes(opened, batch, dims, where)
    values = symbol_values(opened, sizes, where)
    stated = {
        given.name: [
            sizes.get(f"{given.name}[{axis}]", _evaluated(extent, values))
            for axis, extent in enumerate(given.value.shape)
        ]
        for given in inputs
    }
    if any(not isinstance(extent, int) for shape in stated.values() for extent in shape):
        refuse_open(inputs, where)
    tensors = {given.node.name: torch.zeros(stated[given.name], dtype=given.value.dtype) for given in inputs}
    args, kwargs = arguments(program, tensors)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return torch.export.export(program.module(), args, kwargs)
        except Exception as error:
            shapes = ", ".join(f"{name!r} {tuple(shape)}" for name, shape in stated.items())
            raise ModelFormatError(f"{where}: it does not accept {shapes}: {first_line(error)}") from None


def given_sizes(opened: Sequence[OpenExtent], batch: int | None, dims: Mapping[str, int], where: str) -> dict[str, int]:
    """The sizes given by `batch` and `dims`, by input and axis."""
    _check_names(dims, opened, where)
    sizes: dict[str, int] = {}
    for size in opened:
        given = [dims[name] for name in (size.place, size.name, size.symbol) if name in dims]
        if len(set(given)) > 1:
            raise ModelFormatError(f"{where}: dims gives {size.place} two sizes, {given[0]} and {given[1]}")
        if given:
            sizes[size.place] = given[0]
    if batch is not None:
        known = symbol_values(opened, sizes, where)
        settled_by_dims = [s.place for s in opened if s.place not in sizes and s.expr.subs(known).is_Integer]
        leading = [size for size in opened if size.axis == 0 and size.place not in settled_by_dims]
        if not leading:
            raise ModelFormatError(f"{where}: batch is given, but no input has a dynamic first dimension")
        for size in leading:
            if sizes.setdefault(size.place, batch) != batch:
                raise ModelFormatError(
                    f"{where}: the first dimension of input {size.input!r} is {batch} by batch, but "
                    f"{sizes[size.place]} in dims"
                )
    return sizes


def refuse_open(inputs: Sequence[UserInput], where: str) -> None:
    """Raise ModelFormatError with every input that has a dynamic dimension, and what to pass."""
    opened = list(open_extents(inputs))
    if not opened:
        return
    shown = {(size.input, size.axis): size.name or size.symbol for size in opened}
    described = [
        f"{given.name!r} "
        f"({', '.join(shown.get((given.name, axis), str(extent)) for axis, extent in enumerate(given.value.shape))})"
        for given in inputs
        if any(name == given.name for name, _ in shown)
    ]
    raise ModelFormatError(
        f"{where}: the shape of input {', '.join(described)} is dynamic; expected batch=... for first "
        f"dimensions, dims={{{opened[0].shown!r}: ...}} by name, or a program that was exported without "
        "dynamic_shapes"
    )


def _check_names(dims: Mapping[str, int], opened: Sequence[OpenExtent], where: str) -> None:
    """Raise ModelFormatError if `dims` names a dimension that is not dynamic, or contains an invalid size."""
    accepted = {name for size in opened for name in (size.name, size.symbol, size.place)}
    shown = list(dict.fromkeys(size.shown for size in opened))
    check_dims({name: size for name, size in dims.items() if name not in accepted}, shown, where)
    check_dims({name: size for name, size in dims.items() if name in accepted}, sorted(accepted), where)


def symbol_values(opened: Sequence[OpenExtent], sizes: Mapping[str, int], where: str) -> dict[Any, Any]:
    """The values of PyTorch's symbols implied by the sizes; other sizes are computed from them."""
    values: dict[Any, Any] = {}
    for size in opened:
        if size.place not in sizes:
            continue
        value = sizes[size.place]
        for symbol, solved in _solved(size.expr, value):
            if values.setdefault(symbol, solved) != solved:
                other = next(o for o in opened if o.place in sizes and symbol in o.expr.free_symbols)
                raise ModelFormatError(
                    f"{where}: {size.shown} = {value} and {other.shown} = {sizes[other.place]} contradict "
                    f"each other; expected sizes with the same value of {symbol}"
                )
    return values


def _solved(expr: Any, value: int) -> list[tuple[Any, Any]]:
    """The symbol of an expression, and the value for which the expression is `value`; empty if it has several
    symbols."""
    if expr.is_Symbol:
        return [(expr, value)]
    if len(expr.free_symbols) != 1:
        return []
    import sympy

    (symbol,) = expr.free_symbols
    found = [root for root in sympy.solve(expr - value, symbol) if root.is_Integer]
    return [(symbol, int(root)) for root in found[:1]]


def _evaluated(extent: Any, values: Mapping[Any, Any]) -> Any:
    """A size if all its symbols have values, otherwise the extent itself."""
    if not isinstance(extent, torch.SymInt):
        return int(extent)
    found = extent.node.expr.subs(values)
    return int(found) if found.is_Integer else extent


def open_extents(inputs: Sequence[UserInput]) -> Iterator[OpenExtent]:
    """All dynamic dimensions."""
    for given in inputs:
        for axis, extent in enumerate(given.value.shape):
            if isinstance(extent, torch.SymInt):
                expr = extent.node.expr
                yield OpenExtent(given.name, axis, _given_name(extent, given.node.name, axis), str(expr), expr)


def _given_name(extent: torch.SymInt, node: str, axis: int) -> str:
    """The name of a dimension in dynamic_shapes, found by its location in an argument or by another location of the
    same symbol."""
    env = extent.node.shape_env
    given = getattr(env, "source_name_to_debug_name", {})
    found = given.get(f"L[{node!r}].size()[{axis}]")
    if found is None:
        for source in getattr(env, "var_to_sources", {}).get(extent.node.expr, ()):
            name = source.name() if callable(source.name) else source.name
            found = found or given.get(name)
    return found or ""
