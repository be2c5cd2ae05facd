"""Replaces computed extents by variables.

A tensor of a pooling operator has extents such as min(h // 2 - 1, (h - 1) // 2) * 2 + 3. A kernel would compute them
for every element, and TVM's simplifier would take seconds, or fail. The caller knows the extents, since it passes
tensors with their shapes. So an extent becomes a variable, and other extents are expressed in terms of it where
possible.

An extent is a polynomial of sizes and atoms: quotients, remainders, minima and maxima. An extent with a single atom
that occurs once and alone determines the atom: x = a + 3 gives a = x - 3. Other extents become variables of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.tirx.buffer import BufferType

from .extents import sizes_in
from .open_index import OpenIndices, Polynomial
from .samples import is_open, sampled

_KIND = "int64"
_NODES = (tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv, tirx.FloorMod, tirx.Min, tirx.Max)


def with_named_extents(func: tirx.PrimFunc) -> tuple[tirx.PrimFunc, dict[tirx.Var, int]]:
    """Return the function with variables for computed extents, and the sample value of each. Returns `func` unchanged
    if an internal tensor has an extent that those of the parameters do not determine."""
    given = [p for p in func.params if isinstance(p.ty, BufferType)]
    names = _Names()
    for parameter in given:
        for extent in parameter.shape:
            names.add(extent)
    names.settle()
    if not names.sizes:
        return func, {}
    every = [*_extents(func.body), *(extent for parameter in given for extent in parameter.shape)]
    named = _mapping(every, names.named)

    def renewed(buffer: tirx.Var) -> tirx.Var:
        shape = [named(extent) for extent in buffer.shape]
        return tirx.decl_buffer(shape, str(buffer.dtype), buffer.name, strides=list(buffer.strides))

    own = {b: renewed(b) for b in (*given, *_allocated(func.body)) if any(map(is_open, b.shape))}
    known = {v for p in given for extent in own.get(p, p).shape for v in sizes_in(extent)}
    known |= {v for p in given for extent in p.shape for v in sizes_in(extent)}.intersection(func.params)
    inside = {v for b in own.values() for extent in b.shape for v in sizes_in(extent)}
    inside |= {v for extent in _extents(func.body) for v in sizes_in(named(extent))}
    if not inside <= known:
        return func, {}
    body = named(tvm_ffi.structural_map(func.body, (tirx.Var, lambda variable: own.get(variable, variable))))
    return tirx.PrimFunc([own.get(p, p) for p in func.params], body, func.ret_type, func.attrs), names.sizes


class _Names:
    """Extents, and the variables of which they are composed."""

    def __init__(self) -> None:
        self._places = OpenIndices(())
        self._extents: list[tuple[tirx.Expr, Polynomial]] = []
        self._atoms: dict[int, Polynomial] = {}  # atoms in terms of variables
        self._whole: list[tuple[Polynomial, Polynomial]] = []  # extents that are variables of their own
        self.sizes: dict[tirx.Var, int] = {}

    def add(self, extent: tirx.Expr) -> None:
        if is_open(extent) and not isinstance(extent, tirx.Var) and str(extent.ty) == _KIND:
            polynomial = self._places.polynomial(extent)
            if self._unnamed(polynomial) and all(polynomial != other for _, other in self._extents):
                self._extents.append((extent, polynomial))

    def settle(self) -> None:
        """Introduce variables for all extents."""
        left = list(self._extents)
        while left:
            found = next(((e, p, a) for e, p in left if (a := self._alone(self._shown(p))) is not None), None)
            if found is None:
                break
            extent, polynomial, atom = found
            variable, shown = self._variable(extent), self._shown(polynomial)
            sign = shown.pop((atom,))
            rest = self._places.sum(variable, {monomial: -factor for monomial, factor in shown.items()})
            self._atoms[atom] = {monomial: sign * factor for monomial, factor in rest.items()}
            left = [(e, p) for e, p in left if self._unnamed(self._shown(p))]
        for extent, polynomial in left:
            if self._unnamed(shown := self._shown(polynomial)):
                self._whole.append((shown, self._variable(extent)))

    def named(self, extent: tirx.Expr) -> tirx.Expr:
        """Return an extent in terms of the variables, as far as they determine it."""
        if not is_open(extent) or isinstance(extent, tirx.Var) or str(extent.ty) != _KIND:
            return extent
        polynomial = self._places.polynomial(extent)
        if not self._unnamed(polynomial):
            return extent
        shown = self._shown(polynomial)
        whole = next((variable for other, variable in self._whole if other == shown), shown)
        return self._places.expression(whole)

    def _variable(self, extent: tirx.Expr) -> Polynomial:
        variable = tirx.Var(f"extent_{len(self.sizes)}", _KIND)
        self.sizes[variable] = sampled(extent)
        return self._places.polynomial(variable)

    def _unnamed(self, polynomial: Polynomial) -> set[int]:
        """Return the atoms of a polynomial that are not variables."""
        return {atom for monomial in polynomial for atom in monomial if not self._places.is_variable(atom)}

    def _shown(self, polynomial: Polynomial) -> Polynomial:
        return self._places.replaced(polynomial, self._atoms)

    def _alone(self, polynomial: Polynomial) -> int | None:
        """Return the only atom of a polynomial if it forms a term of its own; None otherwise."""
        atoms = self._unnamed(polynomial)
        if len(atoms) != 1:
            return None
        (atom,) = atoms
        holding = [monomial for monomial in polynomial if atom in monomial]
        return atom if holding == [(atom,)] and abs(polynomial[atom,]) == 1 else None


def _mapping(extents: list[tirx.Expr], named: Callable[[tirx.Expr], tirx.Expr]) -> Callable[[Any], Any]:
    """Return a function that replaces extents by their `named` form wherever they occur."""
    pairs: list[tuple[tirx.Expr, tirx.Expr]] = []

    def replace(part: Any) -> Any:
        if not pairs:
            return part

        def one(node: tirx.Expr) -> tirx.Expr:
            return next((new for old, new in pairs if tvm_ffi.structural_equal(old, node)), node)

        return tvm_ffi.structural_map(part, (_NODES, one))

    # Extents that are parts of others come first; the others are then matched with the parts replaced.
    for extent in sorted(filter(is_open, extents), key=_nodes):
        new, met = named(extent), replace(extent)
        if not isinstance(extent, tirx.Var) and not tvm_ffi.structural_equal(met, new):
            pairs.append((met, new))
    return replace


def _nodes(expr: tirx.Expr) -> int:
    count: list[Any] = []
    tvm_ffi.structural_walk(expr, (tirx.Expr, count.append))
    return len(count)


def _extents(body: Any) -> list[tirx.Expr]:
    """Return the extents of loops, of the axes of blocks and of their buffers."""
    found: list[tirx.Expr] = []

    def block(node: s_tir.SBlock) -> None:
        found.extend(axis.dom.extent for axis in node.iter_vars)
        found.extend(extent for buffer in node.alloc_buffers for extent in buffer.shape)

    tvm_ffi.structural_walk(body, [(s_tir.SBlock, block), (tirx.For, lambda loop: found.append(loop.extent))])
    return found


def _allocated(body: Any) -> list[tirx.Var]:
    found: list[tirx.Var] = []
    tvm_ffi.structural_walk(body, (s_tir.SBlock, lambda block: found.extend(block.alloc_buffers)))
    return found
