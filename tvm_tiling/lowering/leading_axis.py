"""Functions that do the same for each place along the first axis of their tensors, as a network does for each image of
a batch: scheduled for one place, and called for as many as a run brings.

    out[n, ...] = f(in[n, ...], weights)  for n < size

That a function is of this kind is proved by its text: the size stands nowhere but as extent of axes and of first
dimensions, and such an axis nowhere but as first index of a tensor that has the dimension.
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
    """`one`: the function with a single place along the axis. `size`: the variable that says how many a run has;
    `parameters`: those of the function that have the axis, by number."""

    func: tirx.PrimFunc
    one: tirx.PrimFunc
    size: tirx.Var
    parameters: frozenset[int]

    def over_all(self, scheduled: tirx.PrimFunc, skipped: int | None = None) -> tirx.PrimFunc | None:
        """`scheduled`, a schedule of `one`, for every place; None where it uses a tensor in another way than element by
        element. `skipped`: the parameter that is in another form there, packed."""
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
    """The axis along which a function of open size does the same everywhere; None where it has none."""
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
    """The only open size of the parameters."""
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
    """Whether a tensor has the size as its first extent or not at all, and no strides of its own."""
    rest = list(buffer.shape)[1 if _leads(buffer, size) else 0 :]
    return not len(buffer.strides) and not any(map(is_open, rest))


def _does_the_same(func: tirx.PrimFunc, size: tirx.Var) -> bool:
    """Whether every block computes a place from that place alone."""
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
    """Whether axes of the size stand nowhere but as first index of tensors that have it, and there alone."""
    zero = tirx.const(0, "int32")
    single: dict[tirx.Var, tirx.Var] = {}  # tensors of one place in the place of those of the size
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
    """Whether one of the variables stands anywhere in a statement, in the types of its tensors too."""
    found: list[tirx.Var] = []

    def visit(variable: tirx.Var) -> None:
        if variable in variables:
            found.append(variable)

    tvm_ffi.structural_walk(part, (tirx.Var, visit))
    return bool(found)
