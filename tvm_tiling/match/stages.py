"""A PrimFunc as a sequence of stages over flat memory: what is neither a product nor a convolution, ready for a nest.

A stage is one block: axes, and for each buffer that it writes an address and a value over them. Buffers are one flat
axis each, so that a reshape is no more than another way to count, and an address tells what is contiguous.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, sym, tirx
from tvm.ir import Call, TensorLoad

from ..errors import UnsupportedOperator
from ..lowering.wrapping import wrapping
from .access import address, loads, substitute
from .blocks import why_in_place
from .evaluate import shortest
from .floats import simplified_around

Axis = tuple[tirx.Var, int]  # its variable and extent; it starts at 0


@dataclass(frozen=True)
class Write:
    """One buffer of a stage: the value at address `at`; of a reduction, over the element so far, from `init` on."""

    buffer: tirx.Buffer  # flat
    at: tirx.Expr
    value: tirx.Expr
    init: tirx.Expr | None = None


@dataclass(frozen=True)
class Stage:
    """One block. Where it reduces, its values read the buffers it writes at the address it writes them."""

    name: str
    axes: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    writes: tuple[Write, ...]

    @property
    def elements(self) -> int:
        """How many elements it writes."""
        return prod(extent for _, extent in self.axes)

    @property
    def points(self) -> int:
        """How many values it computes, those of a sum one by one."""
        return self.elements * prod(extent for _, extent in self.reduced)

    @property
    def expressions(self) -> list[tirx.Expr]:
        return [e for w in self.writes for e in (w.at, w.value, w.init) if e is not None]

    def reads(self) -> list[TensorLoad]:
        """Every load of another buffer than those it writes."""
        own = [w.buffer for w in self.writes]
        return [load for w in self.writes for load in loads(w.value) if not any(load.source.same_as(b) for b in own)]


@dataclass(frozen=True)
class StagedProgram:
    """A function as stages in the order they run. `flat` maps each parameter to its flat buffer."""

    func: tirx.PrimFunc
    name: str
    stages: tuple[Stage, ...]
    flat: tuple[tuple[tirx.Var, tirx.Buffer], ...]
    kept: tuple[tirx.Buffer, ...]  # flat buffers of what is written and read again, not parameters


def stages_of(func: tirx.PrimFunc, name: str) -> StagedProgram:
    """The stages of `func`, cheap ones folded into their readers; UnsupportedOperator where it has other blocks."""
    why = why_in_place(func)
    if why is not None:
        raise UnsupportedOperator(f"{name}: {why}; accepted: plain blocks")
    sch = s_tir.Schedule(tvm.IRModule({name: wrapping(func).with_attr("global_symbol", name)}), debug_mask="none")
    sch.work_on(name)
    try:
        root = sch.get_sblock("root")
        _fold(sch, root)
        blocks = [sch.get(b) for b in sch.get_child_blocks(root)]
    except Exception as error:
        raise UnsupportedOperator(
            f"{name}: its blocks cannot be taken apart; accepted: plain blocks under one root"
        ) from error
    func = sch.mod[name]
    flat: dict[tirx.Buffer, tirx.Buffer] = {}
    for parameter in func.params:
        if not hasattr(parameter, "strides") or parameter.strides:
            raise UnsupportedOperator(
                f"{name}: parameter {parameter.name} is not a compact buffer; accepted: compact ones"
            )
        flat[parameter] = _flat(name, parameter)
    given = len(flat)
    for buffer in sch.get(root).alloc_buffers:
        flat[buffer] = _flat(name, buffer)
    items = list(flat.items())
    kept = tuple(b for _, b in items[given:])
    stages = _needed([_stage(name, block, flat) for block in blocks], kept)
    if not stages:
        raise UnsupportedOperator(f"{name}: it holds no blocks; accepted: plain blocks under one root")
    return StagedProgram(func, name, stages, tuple(items[:given]), kept)


def _needed(stages: list[Stage], kept: Sequence[tirx.Buffer]) -> tuple[Stage, ...]:
    """The stages without those whose results nobody reads; of several results at once only those that are read."""
    needed: list[Stage] = []
    read: list[tirx.Buffer] = []

    def wanted(write: Write) -> bool:
        own = any(write.buffer.same_as(k) for k in kept)
        return not own or any(write.buffer.same_as(r) for r in read)

    for stage in reversed(stages):
        writes = tuple(w for w in stage.writes if wanted(w))
        if not writes:
            continue
        # What reduces reads all that it writes.
        part = stage if stage.reduced else replace(stage, writes=writes)
        needed.insert(0, part)
        read += [load.source for load in part.reads()]
    return tuple(needed)


def _flat(name: str, buffer: tirx.Buffer) -> tirx.Buffer:
    if not all(isinstance(s, tirx.IntImm) for s in buffer.shape):
        raise UnsupportedOperator(f"{name}: the shape of {buffer.name} is not fixed; accepted: fixed shapes")
    return tirx.decl_buffer((max(1, prod(int(s) for s in buffer.shape)),), str(buffer.dtype), buffer.name)


# ---- folding ---------------------------------------------------------------------------------------------------------


def _fold(sch: s_tir.Schedule, root: s_tir.schedule.SBlockRV) -> None:
    """Inline what is cheap, or is read once by no window, into its readers."""
    for block in sch.get_child_blocks(root):
        written = sch.get(block)
        consumers = sch.get_consumers(block)
        if not consumers or _is_reduction(written) or not isinstance(written.body, tirx.BufferStore):
            continue
        readers = [sch.get(c) for c in consumers]
        if _costly(written.body.value) and not _read_once(written, readers):
            continue
        reads = sum(_loads(reader, written.body.buffer) for reader in readers)
        if reads > 1 and reads * _loads(written.body.value) > MOST_LOADS:
            continue
        try:
            sch.compute_inline(block)
        except s_tir.ScheduleError:  # an output, or indices that cannot be inverted: it stays a stage
            continue


def _loads(node: Any, buffer: tirx.Buffer | None = None) -> int:
    """How many elements an expression or a block reads, of one buffer where it is given."""
    count = 0

    def note(load: TensorLoad) -> None:
        nonlocal count
        count += buffer is None or load.source.same_as(buffer)

    tvm_ffi.structural_walk(node, (TensorLoad, note))
    return count


def _is_reduction(block: s_tir.SBlock) -> bool:
    return any(int(v.iter_type) == tirx.IterVar.CommReduce for v in block.iter_vars)


# Elements that an expression may come to read by taking in one that it reads several times: a chain of operators each
# of which reads the one before twice would double at every link.
MOST_LOADS = 64
_CHEAP = {"if_then_else", "likely", "floor", "ceil", "round", "trunc", "fabs", "reinterpret"}


def _costly(value: tirx.Expr) -> bool:
    """Whether it holds a function or a division of numbers that are not whole."""
    found: list[object] = []

    def call(node: Call) -> None:
        if getattr(node.op, "name", "").rpartition(".")[2] not in _CHEAP:
            found.append(node)

    tvm_ffi.structural_walk(value, [(Call, call), (tirx.Div, found.append)])
    return bool(found)


def _read_once(block: s_tir.SBlock, readers: Sequence[s_tir.SBlock]) -> bool:
    """Whether each element is read about once: by one reader, in one place, which has no more points than elements."""
    if len(readers) != 1:
        return False
    reader, buffer = readers[0], block.body.buffer
    places: list[TensorLoad] = []

    def note(load: TensorLoad) -> None:
        if load.source.same_as(buffer):
            places.append(load)

    tvm_ffi.structural_walk(reader.body, (TensorLoad, note))
    points = prod(_extent(v) for v in reader.iter_vars)
    return len(places) == 1 and points <= prod(_extent(v) for v in block.iter_vars)


def _extent(axis: tirx.IterVar) -> int:
    extent = axis.dom.extent
    if not isinstance(extent, tirx.IntImm) or int(axis.dom.min) != 0:
        raise UnsupportedOperator(f"axis {axis.var.name} has no fixed extent; accepted: fixed ones that start at 0")
    return int(extent)


# ---- one block -------------------------------------------------------------------------------------------------------


def _stage(name: str, block: s_tir.SBlock, flat: Mapping[tirx.Buffer, tirx.Buffer]) -> Stage:
    kinds = {int(v.iter_type) for v in block.iter_vars}
    if not kinds <= {tirx.IterVar.DataPar, tirx.IterVar.CommReduce}:
        raise UnsupportedOperator(f"{name}: block {block.name_hint!r} is neither element-wise nor a reduction")
    every = [(v.var, _extent(v), int(v.iter_type) == tirx.IterVar.CommReduce) for v in block.iter_vars]
    if any(extent < 1 for _, extent, _ in every):
        raise UnsupportedOperator(f"{name}: block {block.name_hint!r} has no elements")
    stores = _stores(name, block, block.body)
    starts = _stores(name, block, block.init) if block.init is not None else []
    inits = {store.buffer: store.value for store in starts}
    writes = []
    for store in stores:
        # A store addresses its buffer as a load would.
        at = address(tirx.BufferLoad(store.buffer, list(store.indices)))
        init = inits.get(store.buffer)
        parts = [None if e is None else _flattened(e, flat) for e in (at, store.value, init)]
        writes.append(Write(flat[store.buffer], *parts))
    stage = Stage(
        block.name_hint,
        tuple((v, extent) for v, extent, reduces in every if not reduces),
        tuple((v, extent) for v, extent, reduces in every if reduces),
        tuple(writes),
    )
    return simplify(without_unit_axes(stage))


def _stores(name: str, block: s_tir.SBlock, body: tirx.Stmt) -> list[tirx.BufferStore]:
    """The stores of a block's body; values that it names first are put where they are used."""
    named: dict[tirx.Var, tirx.Expr] = {}
    found = []
    for statement in body.seq if isinstance(body, tirx.SeqStmt) else [body]:
        if isinstance(statement, tirx.Bind):
            named[statement.var] = substitute(statement.value, named)
        elif isinstance(statement, tirx.BufferStore):
            value = substitute(statement.value, named)
            found.append(tirx.BufferStore(statement.buffer, value, list(statement.indices)))
        else:
            raise UnsupportedOperator(
                f"{name}: block {block.name_hint!r} holds a {type(statement).__name__}; accepted: stores"
            )
    return found


def _flattened(expr: tirx.Expr, flat: Mapping[tirx.Buffer, tirx.Buffer]) -> tirx.Expr:
    return tvm_ffi.structural_map(expr, (TensorLoad, lambda load: tirx.BufferLoad(flat[load.source], [address(load)])))


def mapped(stage: Stage, change: Mapping[tirx.Var, tirx.Expr]) -> tuple[Write, ...]:
    """The writes with variables replaced."""
    table = dict(change)

    def of(expr: tirx.Expr | None) -> tirx.Expr | None:
        return None if expr is None else substitute(expr, table)

    return tuple(Write(w.buffer, substitute(w.at, table), substitute(w.value, table), of(w.init)) for w in stage.writes)


def without_unit_axes(stage: Stage) -> Stage:
    """Axes of one element stand at 0; a reduction over none but those is what it computes of its first value."""
    gone = {v: tirx.const(0, str(v.ty)) for v, extent in (*stage.axes, *stage.reduced) if extent == 1}
    writes, reduced = mapped(stage, gone), tuple(a for a in stage.reduced if a[1] > 1)
    if not reduced:
        writes = tuple(replace(w, value=_from_start(w.value, writes), init=None) for w in writes)
    return replace(stage, axes=tuple(a for a in stage.axes if a[1] > 1), reduced=reduced, writes=writes)


def _from_start(value: tirx.Expr, writes: Sequence[Write]) -> tirx.Expr:
    """`value` where what the stage itself writes is still as it was at the start."""
    starts = [(w.buffer, w.init) for w in writes if w.init is not None]

    def at_start(load: TensorLoad) -> tirx.Expr:
        return next((init for buffer, init in starts if load.source.same_as(buffer)), load)

    return tvm_ffi.structural_map(value, (TensorLoad, at_start)) if starts else value


def simplify(stage: Stage) -> Stage:
    """The stage with addresses and conditions in their shortest form; arithmetic of floats stays as it is."""
    analyzer = sym.Analyzer()
    for variable, extent in (*stage.axes, *stage.reduced):
        zero, size = (tirx.const(value, str(variable.ty)) for value in (0, extent))
        analyzer.bind(variable, tvm.ir.Range.from_min_extent(zero, size))

    def shorter(load: TensorLoad) -> TensorLoad:
        return tirx.BufferLoad(load.source, [analyzer.simplify(i) for i in load.indices])

    def of(expr: tirx.Expr | None) -> tirx.Expr | None:
        if expr is None:
            return None
        loaded = tvm_ffi.structural_map(expr, (TensorLoad, shorter))
        return simplified_around(loaded, lambda hidden: shortest(hidden, analyzer))

    writes = tuple(Write(w.buffer, analyzer.simplify(w.at), of(w.value), of(w.init)) for w in stage.writes)
    return replace(stage, writes=writes)
