"""Gives kernels that are written as loops named blocks with iteration variables and regions, so that TVM's schedule
primitives can address them.

A kernel emitter only marks a block: `with named("tile"): ...`. The rest is derived when the function is complete
(`with_signatures`): the iteration variables are the loops around the block, the regions what its statements access.
Lowering removes all of this, so the generated code is the same with and without blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

import tvm
import tvm_ffi
from tvm import s_tir, sym, tirx
from tvm.ir import TensorLoad
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..match.access import substitute, variables
from .loops import index_of
from .prefetch import is_prefetch

Stmt: TypeAlias = Any
Region: TypeAlias = Any
# Marks a block that fills its buffer, until blocks have signatures.
_FILLS = "tvm_tiling.fills"
_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv, tirx.FloorMod, tirx.Min, tirx.Max)
_LEAVES = (tirx.BufferStore, tirx.Evaluate, tirx.Bind)
_NOTHING = tirx.Evaluate(tirx.const(0, "int32"))


_WITHOUT: ContextVar[bool] = ContextVar("without_blocks", default=False)


@contextmanager
def without_blocks() -> Iterator[None]:
    """Write kernels without blocks other than the root block, in two thirds of the time. Used for models, whose kernels
    are compiled directly. The code is the same, except for address registers in direct convolutions."""
    before = _WITHOUT.set(True)
    try:
        yield
    finally:
        _WITHOUT.reset(before)


@contextmanager
def named(name: str, *, fills: bool = False) -> Iterator[None]:
    """Put the statements within the context into a block; the first block is called `name`, the next `name`_1 and so
    on.

    fills: the block's output is a scratch buffer of which only the elements that this block wrote last are read, so it
    counts as written completely.
    """
    if _WITHOUT.get():
        yield
        return
    with T.sblock(name):
        T.reads()  # declared here, so that TVM's builder does not derive them
        T.writes()
        if fills:
            T.sblock_attr({_FILLS: True})
        yield


def with_signatures(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return `func` with the iteration variables and regions of all blocks in its root block."""
    root = func.body
    if _WITHOUT.get() or not isinstance(root, s_tir.SBlockRealize):
        return func
    scope = _Scope({v: v for v in func.params if tirx.is_buffer_var(v)}, sym.Analyzer(), {})
    body = scope.visit(root.block.body)
    return func.with_body(s_tir.SBlockRealize(root.iter_values, root.predicate, _rebuilt(root.block, body=body)))


@dataclass
class _Loop:
    variable: tirx.Var
    extent: tirx.Expr
    allocated: list[tirx.Var] = field(default_factory=list)  # scratch buffers allocated within the loop

    @property
    def is_single(self) -> bool:
        """Whether the loop has one iteration."""
        return isinstance(self.extent, tirx.IntImm) and int(self.extent) == 1


class _Scope:
    """Visits the statements of a block: loops around blocks get simplified extents, blocks get their signatures."""

    def __init__(self, buffers: dict[Any, Any], analyzer: sym.Analyzer, names: dict[str, count[int]]) -> None:
        self.buffers, self.analyzer, self.names = buffers, analyzer, names
        self.loops: list[_Loop] = []
        self.wide = any(str(extent.ty) == "int64" for buffer in buffers for extent in buffer.shape)

    def visit(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, tirx.SeqStmt):
            return tirx.SeqStmt([self.visit(part) for part in stmt.seq])
        if isinstance(stmt, tirx.AllocBuffer | tirx.DeclBuffer):
            self.buffers[stmt.buffer] = stmt.buffer
            for loop in self.loops:
                loop.allocated.append(stmt.buffer)
            return stmt
        if isinstance(stmt, _LEAVES) or not _holds_blocks(stmt):
            return stmt
        if isinstance(stmt, tirx.For):
            return self.loop(stmt)
        if isinstance(stmt, tirx.AttrStmt):
            return tirx.AttrStmt(stmt.node, stmt.attr_key, stmt.value, self.visit(stmt.body))
        if isinstance(stmt, tirx.IfThenElse):
            otherwise = None if stmt.else_case is None else self.visit(stmt.else_case)
            return tirx.IfThenElse(stmt.condition, self.visit(stmt.then_case), otherwise)
        assert isinstance(stmt, s_tir.SBlockRealize), type(stmt)
        return self.block(stmt)

    def loop(self, stmt: tirx.For) -> tirx.For:
        """Return the loop starting at 0, as TVM normalises all loops when lowering; its schedule primitives need this
        form."""
        body, start = stmt.body, self.analyzer.simplify(stmt.min)
        if not (isinstance(start, tirx.IntImm) and int(start) == 0):
            body = substitute(body, {stmt.loop_var: stmt.loop_var + stmt.min})
        extent = self.analyzer.simplify(stmt.extent)
        zero = tirx.const(0, str(extent.ty))
        self.analyzer.bind(stmt.loop_var, tvm.ir.Range.from_min_extent(zero, extent))
        self.loops.append(_Loop(stmt.loop_var, extent))
        body = self.visit(body)
        self.loops.pop()
        return tirx.For(stmt.loop_var, zero, extent, stmt.kind, body, stmt.thread_binding, stmt.annotations)

    def block(self, realize: s_tir.SBlockRealize) -> s_tir.SBlockRealize:
        own = realize.block
        body = _Scope(dict(self.buffers), self.analyzer, self.names).visit(own.body)
        reads, writes = self.regions(own, body)
        if _FILLS in own.annotations:
            writes = [_whole(region.source) for region in writes]
        free = {*tirx.analysis.undefined_vars(body, [])}
        loops = [loop for loop in self.loops if loop.variable in free]
        axes, mapping = [], {}
        for loop in loops:
            variable = tirx.Var(f"v_{loop.variable.name}", str(loop.variable.ty))
            mapping[loop.variable] = variable
            axes.append(tirx.IterVar(self.domain(loop), variable, _kind(loop, reads, writes)))
        named = _rebuilt(
            own,
            iter_vars=axes,
            reads=[substitute(region, mapping) for region in reads],
            writes=[substitute(region, mapping) for region in writes],
            body=substitute(body, mapping),
            name_hint=self.name(str(own.name_hint)),
            annotations={key: value for key, value in own.annotations.items() if key != _FILLS},
        )
        return s_tir.SBlockRealize([loop.variable for loop in loops], realize.predicate, named)

    def domain(self, loop: _Loop) -> tvm.ir.Range:
        """Return all possible values of the loop's variable."""
        kind, extent = str(loop.extent.ty), loop.extent
        if not isinstance(extent, tirx.IntImm):
            extent = tirx.const(int(self.analyzer.const_int_bound(extent).max_value), kind)
        return tvm.ir.Range.from_min_extent(tirx.const(0, kind), extent)

    def name(self, hint: str) -> str:
        number = next(self.names.setdefault(hint, count()))
        return f"{hint}_{number}" if number else hint

    def regions(self, own: s_tir.SBlock, body: Stmt) -> tuple[list[Region], list[Region]]:
        """Return what the block reads and writes of buffers that are not its own, simplified within the bounds of the
        loops. Prefetches read nothing."""
        drop = [((tirx.Evaluate,), _without_prefetch), ((tirx.Bind,), lambda _: _NOTHING)]
        plain, bound = tvm_ffi.structural_map(body, drop), _bound(body)
        if bound:
            plain = substitute(plain, bound)
        if self.wide:
            narrow = [((TensorLoad,), _narrow_load), ((tirx.BufferStore,), _narrow_store)]
            plain = tvm_ffi.structural_map(plain, narrow)
        seen = _rebuilt(own, body=plain)
        reads, writes, opaque = s_tir.analysis.get_sblock_access_region(seen, self.buffers)
        assert not opaque, opaque
        return [self.short(region) for region in reads], [self.short(region) for region in writes]

    def short(self, region: Region) -> Region:
        simplify = self.analyzer.simplify
        ranges = [tvm.ir.Range.from_min_extent(simplify(r.min), simplify(r.extent)) for r in region.region]
        return tirx.BufferRegion(region.source, ranges)


def _kind(loop: _Loop, reads: Sequence[Region], writes: Sequence[Region]) -> int:
    """Return whether the iterations of a loop produce different results, accumulate into the same ones, or overwrite
    them."""
    if loop.is_single:
        return int(tirx.IterVar.DataPar)
    results = [w for w in writes if not any(w.source.same_as(buffer) for buffer in loop.allocated)]
    for region in results:
        if loop.variable not in variables(region):
            adds = any(read.source.same_as(region.source) for read in reads)
            return int(tirx.IterVar.CommReduce if adds else tirx.IterVar.Opaque)
    return int(tirx.IterVar.DataPar if results else tirx.IterVar.Opaque)


def _holds_blocks(stmt: Stmt) -> bool:
    found: list[s_tir.SBlock] = []
    tvm_ffi.structural_walk(stmt, (s_tir.SBlock, found.append))
    return bool(found)


def _without_prefetch(stmt: tirx.Evaluate) -> tirx.Evaluate:
    return _NOTHING if is_prefetch(stmt) else stmt


def _bound(body: Stmt) -> dict[tirx.Var, tirx.Expr]:
    """Return the values of the names that `body` binds to indices."""
    found: dict[tirx.Var, tirx.Expr] = {}

    def note(bind: tirx.Bind) -> None:
        found[bind.var] = substitute(index_of(bind.value), found)

    tvm_ffi.structural_walk(body, (tirx.Bind, note))
    return found


def _narrow_load(load: TensorLoad) -> TensorLoad:
    return tirx.BufferLoad(load.source, [_narrow(index) for index in load.indices])


def _narrow_store(store: tirx.BufferStore) -> tirx.BufferStore:
    return tirx.BufferStore(store.buffer, store.value, [_narrow(index) for index in store.indices])


def _narrow(index: tirx.Expr) -> tirx.Expr:
    """Return an index in 32 bits, like loop variables: some Relax operators use 64 bits, and TVM cannot compare the
    two."""
    if str(index.ty) != "int64":
        return index
    return tvm_ffi.structural_map(
        index,
        [
            ((tirx.IntImm,), lambda number: tirx.IntImm("int32", int(number))),
            ((tirx.Cast,), lambda cast: cast.value if str(cast.value.ty) == "int32" else cast),
            (_ARITHMETIC, lambda operation: type(operation)(operation.a, operation.b)),
        ],
    )


def _whole(buffer: tirx.Var) -> Region:
    return tirx.BufferRegion(buffer, [tvm.ir.Range(0, extent) for extent in buffer.shape])


def _rebuilt(own: s_tir.SBlock, **changed: Any) -> s_tir.SBlock:
    """Return a block with some of its fields changed."""
    buffers = ("alloc_buffers", "match_buffers")
    names = ("iter_vars", "reads", "writes", "name_hint", "body", "init", *buffers, "annotations")
    return s_tir.SBlock(*(changed.get(name, getattr(own, name)) for name in names))
