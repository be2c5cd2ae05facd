"""Functions that compute the same for each index along the first axis of their tensors, such as each image of a batch:
scheduled for one index and called for as many as there are at run time.

    out[n, ...] = f(in[n, ...], weights)  for n < size

A function is proved to be of this kind by its structure: the size occurs only as the extent of axes and of first
dimensions, and such an axis only as the first index of a tensor with that dimension.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad
from tvm.tirx.buffer import BufferType

from .samples import is_open

Expr: TypeAlias = tirx.Expr


@dataclass(frozen=True)
class LeadingAxis:
    """A function and its leading axis. `one` is the function with a single index along the axis, `size` the variable of
    the axis's extent, and `parameters` the indices of the parameters with the axis."""

    func: tirx.PrimFunc
    one: tirx.PrimFunc
    size: tirx.Var
    parameters: frozenset[int]

    def over_all(self, scheduled: tirx.PrimFunc, skipped: int | None = None) -> tirx.PrimFunc | None:
        """Return `scheduled`, a schedule of `one`, applied at every index; None if it uses a tensor other than element
        by element. `skipped` is the index of a parameter that has another layout in `scheduled` (packed weights)."""
        place = tirx.Var("place", "int32")
        renewed: dict[tirx.Var, tirx.Var] = {}
        for number in self.parameters:
            own, whole = scheduled.params[number], self.func.params[number]
            if number != skipped:
                renewed[own] = tirx.decl_buffer(whole.shape, str(whole.dtype), own.name)

        def index(indices: Sequence[Expr]) -> list[Expr]:
            first = indices[0]
            return [first + tirx.Cast(str(first.ty), place), *indices[1:]]

        def load(found: TensorLoad) -> Expr:
            buffer = renewed.get(found.source)
            return found if buffer is None else tirx.BufferLoad(buffer, index(found.indices))

        def store(found: tirx.BufferStore) -> tirx.Stmt:
            buffer = renewed.get(found.buffer)
            return found if buffer is None else tirx.BufferStore(buffer, found.value, index(found.indices))

        realize = scheduled.body
        if not isinstance(realize, s_tir.SBlockRealize):
            return None
        root = realize.block
        body = tvm_ffi.structural_map(root.body, [(TensorLoad, load), (tirx.BufferStore, store)])
        if _uses(body, renewed.keys()):
            return None
        loop = tirx.For(place, tirx.const(0, "int32"), tirx.Cast("int32", self.size), tirx.ForKind.SERIAL, body)
        block = s_tir.SBlock(
            root.iter_vars, [], [], root.name_hint, loop, root.init, root.alloc_buffers, root.match_buffers
        )
        parameters = [renewed.get(parameter, parameter) for parameter in scheduled.params]
        whole_body = s_tir.SBlockRealize(realize.iter_values, realize.predicate, block)
        return tirx.PrimFunc(parameters, whole_body, scheduled.ret_type, scheduled.attrs)


def leading_axis(func: tirx.PrimFunc) -> LeadingAxis | None:
    """Return the axis along which a function of dynamic size computes the same at every index; None if there is
    none."""
    size = _size_of(func)
    if size is None:
        return None
    having = frozenset(n for n, p in enumerate(func.params) if _leads(p, size))
    if not all(_is_plain(parameter, size) for parameter in func.params) or not _does_the_same(func, size):
        return None
    one = tirx.const(1, str(size.ty))
    return LeadingAxis(
        func, tvm_ffi.structural_map(func, (tirx.Var, lambda v: one if v.same_as(size) else v)), size, having
    )


def _size_of(func: tirx.PrimFunc) -> tirx.Var | None:
    """Return the only dynamic size of the parameters."""
    found: list[tirx.Var] = []
    for parameter in func.params:
        if not isinstance(parameter.ty, BufferType):
            return None
        opened = [extent for extent in parameter.shape if is_open(extent)]
        if not all(isinstance(extent, tirx.Var) for extent in opened):
            return None
        found += opened
    return found[0] if found and all(size.same_as(found[0]) for size in found) else None


def _leads(buffer: tirx.Var, size: tirx.Var) -> bool:
    return bool(len(buffer.shape)) and buffer.shape[0].same_as(size)


def _is_plain(buffer: tirx.Var, size: tirx.Var) -> bool:
    """Return whether a tensor has the size as its first extent or not at all, and no strides."""
    rest = list(buffer.shape)[1 if _leads(buffer, size) else 0 :]
    return not len(buffer.strides) and not any(map(is_open, rest))


def _does_the_same(func: tirx.PrimFunc, size: tirx.Var) -> bool:
    """Return whether every block computes an index of the axis from that index alone."""
    blocks: list[s_tir.SBlock] = []
    loops: dict[tirx.Var, Expr] = {}

    def note(loop: tirx.For) -> None:
        loops[loop.loop_var] = loop.extent

    realized: list[s_tir.SBlockRealize] = []
    tvm_ffi.structural_walk(
        func.body, [(s_tir.SBlock, blocks.append), (s_tir.SBlockRealize, realized.append), (tirx.For, note)]
    )
    for realize in realized:
        block = realize.block
        if not all(_is_plain(buffer, size) for buffer in block.alloc_buffers) or len(block.match_buffers):
            return False
        if not block.iter_vars:
            continue
        own = set()
        for axis, value in zip(block.iter_vars, realize.iter_values, strict=True):
            if isinstance(axis.dom.extent, tirx.Var) and axis.dom.extent.same_as(size):
                of_loop = isinstance(value, tirx.Var) and value in loops and loops[value].same_as(size)
                if not of_loop or int(axis.iter_type) != tirx.IterVar.DataPar:
                    return False
                own.add(axis.var)
            elif is_open(axis.dom.extent):
                return False
        if not all(_reads_its_place(part, own, size) for part in (block.body, block.init) if part is not None):
            return False
    return True


def _reads_its_place(part: tirx.Stmt, own: set[tirx.Var], size: tirx.Var) -> bool:
    """Return whether axes of the size occur only as the first index of tensors with that dimension."""
    zero = tirx.const(0, "int32")
    single: dict[tirx.Var, tirx.Var] = {}  # tensors with one index in place of those with the size
    others: list[tirx.Var] = []

    def first(buffer: tirx.Var, indices: Sequence[Expr]) -> tuple[tirx.Var, list[Expr]]:
        if not _leads(buffer, size):
            return buffer, list(indices)
        if not (isinstance(indices[0], tirx.Var) and indices[0] in own):
            others.append(buffer)
        if buffer not in single:
            single[buffer] = tirx.decl_buffer((1, *list(buffer.shape)[1:]), str(buffer.dtype), buffer.name)
        return single[buffer], [zero, *indices[1:]]

    def load(found: TensorLoad) -> Expr:
        return tirx.BufferLoad(*first(found.source, found.indices))

    def store(found: tirx.BufferStore) -> tirx.Stmt:
        buffer, indices = first(found.buffer, found.indices)
        return tirx.BufferStore(buffer, found.value, indices)

    rest = tvm_ffi.structural_map(part, [(TensorLoad, load), (tirx.BufferStore, store)])
    return not others and not _uses(rest, {*own, size})


def _uses(part: tirx.Stmt, variables: Collection[tirx.Var]) -> bool:
    """Return whether one of the variables occurs anywhere in a statement, including the types of its tensors."""
    found: list[tirx.Var] = []

    def visit(variable: tirx.Var) -> None:
        if variable in variables:
            found.append(variable)

    tvm_ffi.structural_walk(part, (tirx.Var, visit))
    return bool(found)
