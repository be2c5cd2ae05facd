"""PrimFuncs as sequences of stages over flat memory, for everything that is neither a matrix multiplication nor a
convolution.

A stage is one block: axes, and an address and a value over them for each buffer that it writes. Buffers are flat, so
that a reshape only changes the indexing, and an address shows what is contiguous.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call, TensorLoad

from ..errors import UnsupportedOperator
from ..lowering.extents import analyzer_of, number_of, product_of, sizes_in
from ..lowering.open_index import OpenIndices
from ..lowering.samples import Extent, is_open, sampled
from ..lowering.wrapping import wrapping
from .access import address, loads, substitute, variables
from .blocks import why_in_place
from .evaluate import shortest
from .floats import simplified_around

Axis = tuple[tirx.Var, Extent]  # variable and extent; it starts at 0


@dataclass(frozen=True)
class Write:
    """The write of a stage to one buffer: the value at address `at`; for a reduction, a function of the current
    element, starting from `init`."""

    buffer: tirx.Buffer  # flat
    at: tirx.Expr
    value: tirx.Expr
    init: tirx.Expr | None = None


@dataclass(frozen=True)
class Stage:
    """One block. If it reduces, its values read the buffers that it writes at the address that it writes."""

    name: str
    axes: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    writes: tuple[Write, ...]

    @property
    def elements(self) -> int:
        """The number of elements written, at the sample of dynamic sizes."""
        return prod(sampled(extent) for _, extent in self.axes)

    @property
    def points(self) -> int:
        """The number of values computed, including every term of a sum."""
        return self.elements * prod(sampled(extent) for _, extent in self.reduced)

    @property
    def is_open(self) -> bool:
        """Return whether any extent is dynamic."""
        return any(is_open(extent) for _, extent in (*self.axes, *self.reduced))

    @property
    def expressions(self) -> list[tirx.Expr]:
        return [e for w in self.writes for e in (w.at, w.value, w.init) if e is not None]

    def reads(self) -> list[TensorLoad]:
        """Every load from a buffer that the stage does not write."""
        own = [w.buffer for w in self.writes]
        return [load for w in self.writes for load in loads(w.value) if not any(load.source.same_as(b) for b in own)]


@dataclass(frozen=True)
class StagedProgram:
    """A function as stages in execution order. `flat` maps each parameter to its flat buffer."""

    func: tirx.PrimFunc
    name: str
    stages: tuple[Stage, ...]
    flat: tuple[tuple[tirx.Var, tirx.Buffer], ...]
    kept: tuple[tirx.Buffer, ...]  # flat intermediate buffers that are not parameters


def stages_of(func: tirx.PrimFunc, name: str, numbers: Collection[tirx.Var] = ()) -> StagedProgram:
    """The stages of `func`, with cheap ones inlined into their readers. Raises UnsupportedOperator for unsupported
    blocks. `numbers`: parameters that are sizes, in addition to the variables in the shapes of others."""
    why = why_in_place(func)
    if why is not None:
        raise UnsupportedOperator(f"{name}: {why}; expected plain blocks")
    sch = s_tir.Schedule(tvm.IRModule({name: wrapping(func).with_attr("global_symbol", name)}), debug_mask="none")
    sch.work_on(name)
    try:
        root = sch.get_sblock("root")
        _fold(sch, root)
        blocks = [sch.get(b) for b in sch.get_child_blocks(root)]
    except Exception as error:
        raise UnsupportedOperator(
            f"{name}: its blocks cannot be separated; expected plain blocks under one root"
        ) from error
    func = sch.mod[name]
    flat: dict[tirx.Buffer, tirx.Buffer] = {}
    sizes = {*size_variables(func), *numbers}
    for parameter in func.params:
        if parameter in sizes or _is_unused(parameter, func):
            continue
        if not hasattr(parameter, "strides") or parameter.strides:
            raise UnsupportedOperator(
                f"{name}: parameter {parameter.name} is not a compact buffer; expected compact ones"
            )
        flat[parameter] = _flat(name, parameter, sizes)
    given = len(flat)
    for buffer in sch.get(root).alloc_buffers:
        flat[buffer] = _flat(name, buffer, sizes)
    items = list(flat.items())
    kept = tuple(b for _, b in items[given:])
    stages = _needed([_stage(name, block, flat, sizes) for block in blocks], kept)
    if not stages:
        raise UnsupportedOperator(f"{name}: it has no blocks; expected plain blocks under one root")
    return StagedProgram(func, name, stages, tuple(items[:given]), kept)


def _needed(stages: list[Stage], kept: Sequence[tirx.Buffer]) -> tuple[Stage, ...]:
    """The stages without those whose results are never read; of several results, only those that are read."""
    needed: list[Stage] = []
    read: list[tirx.Buffer] = []

    def wanted(write: Write) -> bool:
        own = any(write.buffer.same_as(k) for k in kept)
        return not own or any(write.buffer.same_as(r) for r in read)

    for stage in reversed(stages):
        writes = tuple(w for w in stage.writes if wanted(w))
        if not writes:
            continue
        # A reduction reads everything that it writes.
        part = stage if stage.reduced else replace(stage, writes=writes)
        needed.insert(0, part)
        read += [load.source for load in part.reads()]
    return tuple(needed)


def size_variables(func: tirx.PrimFunc) -> set[tirx.Var]:
    """The variables that are dynamic sizes: those in the shapes of parameters. Others are not sizes, and may be
    negative."""
    return {v for p in func.params if hasattr(p, "shape") for extent in p.shape for v in sizes_in(extent)}


def _is_unused(parameter: tirx.Var, func: tirx.PrimFunc) -> bool:
    """Return whether a parameter is an unused number."""
    return not hasattr(parameter, "strides") and parameter not in variables(func.body)


def _flat(name: str, buffer: tirx.Buffer, sizes: set[tirx.Var]) -> tirx.Buffer:
    if not all(_is_known(s, sizes) for s in buffer.shape):
        raise UnsupportedOperator(
            f"{name}: {buffer.name} has a 32-bit size, or one that no parameter has; expected constants, and "
            "dynamic 64-bit sizes of parameters"
        )
    elements = product_of(buffer.shape)
    return tirx.decl_buffer((elements if is_open(elements) else max(1, elements),), str(buffer.dtype), buffer.name)


def _is_known(extent: tirx.Expr, sizes: set[tirx.Var]) -> bool:
    """Return whether an extent is a constant, or consists of 64-bit sizes and small constants, so that products of
    several do not overflow, and divides only by constants: a size may be 0 at run time."""
    if not is_open(extent):
        return True
    divisors: list[tirx.Expr] = []
    kinds = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)
    tvm_ffi.structural_walk(extent, (kinds, lambda division: divisors.append(division.b)))
    numbers: list[tirx.IntImm] = []
    tvm_ffi.structural_walk(extent, (tirx.IntImm, numbers.append))
    if not all(isinstance(divisor, tirx.IntImm) and int(divisor) > 0 for divisor in divisors):
        return False
    if any(abs(int(number)) > _MOST_IN_EXTENTS for number in numbers):
        return False
    return str(extent.ty) == "int64" and not loads(extent) and sizes_in(extent) <= sizes


_MOST_IN_EXTENTS = 1 << 24

# ---- inlining --------------------------------------------------------------------------------------------------------


def _fold(sch: s_tir.Schedule, root: s_tir.schedule.SBlockRV) -> None:
    """Inline a block into its readers if it is cheap, or read once and not by a window."""
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
        except s_tir.ScheduleError:  # an output, or not invertible: it remains a stage
            continue


def _loads(node: Any, buffer: tirx.Buffer | None = None) -> int:
    """The number of loads in an expression or block, of one buffer if given."""
    count = 0

    def note(load: TensorLoad) -> None:
        nonlocal count
        count += buffer is None or load.source.same_as(buffer)

    tvm_ffi.structural_walk(node, (TensorLoad, note))
    return count


def _is_reduction(block: s_tir.SBlock) -> bool:
    return any(int(v.iter_type) == tirx.IterVar.CommReduce for v in block.iter_vars)


# Maximum loads of an expression after inlining an operand that it reads several times: a chain of operators that each
# read the previous one twice would double at every step.
MOST_LOADS = 64
_CHEAP = {"if_then_else", "likely", "floor", "ceil", "round", "trunc", "fabs", "reinterpret"}


def _costly(value: tirx.Expr) -> bool:
    """Return whether a value contains a function call or a floating-point division."""
    found: list[object] = []

    def call(node: Call) -> None:
        if getattr(node.op, "name", "").rpartition(".")[2] not in _CHEAP:
            found.append(node)

    tvm_ffi.structural_walk(value, [(Call, call), (tirx.Div, found.append)])
    return bool(found)


def _read_once(block: s_tir.SBlock, readers: Sequence[s_tir.SBlock]) -> bool:
    """Return whether each element is read about once: by one reader, at one place, with no more points than
    elements."""
    if len(readers) != 1:
        return False
    reader, buffer = readers[0], block.body.buffer
    places: list[TensorLoad] = []

    def note(load: TensorLoad) -> None:
        if load.source.same_as(buffer):
            places.append(load)

    tvm_ffi.structural_walk(reader.body, (TensorLoad, note))
    points = prod(sampled(_extent(v)) for v in reader.iter_vars)
    return len(places) == 1 and points <= prod(sampled(_extent(v)) for v in block.iter_vars)


def _extent(axis: tirx.IterVar) -> Extent:
    if not isinstance(axis.dom.min, tirx.IntImm) or int(axis.dom.min) != 0:
        raise UnsupportedOperator(f"axis {axis.var.name} does not start at 0; expected axes that start at 0")
    return number_of(axis.dom.extent)


# ---- one block -------------------------------------------------------------------------------------------------------


def _stage(name: str, block: s_tir.SBlock, flat: Mapping[tirx.Buffer, tirx.Buffer], sizes: set[tirx.Var]) -> Stage:
    kinds = {int(v.iter_type) for v in block.iter_vars}
    if not kinds <= {tirx.IterVar.DataPar, tirx.IterVar.CommReduce}:
        raise UnsupportedOperator(f"{name}: block {block.name_hint!r} is neither element-wise nor a reduction")
    every = [(v.var, _extent(v), int(v.iter_type) == tirx.IterVar.CommReduce) for v in block.iter_vars]
    if any(not is_open(extent) and extent < 1 for _, extent, _ in every):
        raise UnsupportedOperator(f"{name}: block {block.name_hint!r} has no elements")
    if not all(_is_known(e, sizes) for _, e, _ in every):
        raise UnsupportedOperator(f"{name}: block {block.name_hint!r} has an extent that no parameter has")
    narrow: dict[tirx.Var, tirx.Expr] = {}
    if sizes:
        every = [(_in_64_bits(v, narrow), extent, reduces) for v, extent, reduces in every]
    stores = _stores(name, block, block.body)
    starts = _stores(name, block, block.init) if block.init is not None else []
    inits = {store.buffer: store.value for store in starts}
    writes = []
    for store in stores:
        # A store addresses its buffer like a load.
        at = address(tirx.BufferLoad(store.buffer, list(store.indices)))
        init = inits.get(store.buffer)
        parts = [None if e is None else _flattened(substitute(e, narrow), flat) for e in (at, store.value, init)]
        writes.append(Write(flat[store.buffer], *parts))
    stage = Stage(
        block.name_hint,
        tuple((v, extent) for v, extent, reduces in every if not reduces),
        tuple((v, extent) for v, extent, reduces in every if reduces),
        tuple(writes),
    )
    return simplify(without_unit_axes(stage))


def _in_64_bits(variable: tirx.Var, narrow: dict[tirx.Var, tirx.Expr]) -> tirx.Var:
    """An axis with a 64-bit index, like dynamic sizes; adds the substitution of a 32-bit one to `narrow`."""
    if str(variable.ty) == "int64":
        return variable
    wide = tirx.Var(variable.name, "int64")
    narrow[variable] = tirx.Cast(str(variable.ty), wide)
    return wide


def _stores(name: str, block: s_tir.SBlock, body: tirx.Stmt) -> list[tirx.BufferStore]:
    """The stores of a block's body, with let-bound values substituted."""
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
                f"{name}: block {block.name_hint!r} contains a {type(statement).__name__}; expected stores"
            )
    return found


def _flattened(expr: tirx.Expr, flat: Mapping[tirx.Buffer, tirx.Buffer]) -> tirx.Expr:
    return tvm_ffi.structural_map(expr, (TensorLoad, lambda load: tirx.BufferLoad(flat[load.source], [address(load)])))


def mapped(stage: Stage, change: Mapping[tirx.Var, tirx.Expr]) -> tuple[Write, ...]:
    """The writes with substituted variables."""
    table = dict(change)

    def of(expr: tirx.Expr | None) -> tirx.Expr | None:
        return None if expr is None else substitute(expr, table)

    return tuple(Write(w.buffer, substitute(w.at, table), substitute(w.value, table), of(w.init)) for w in stage.writes)


def without_unit_axes(stage: Stage) -> Stage:
    """The stage without unit axes, which are at 0; a reduction over unit axes only becomes its first value."""
    gone = {v: tirx.const(0, str(v.ty)) for v, extent in (*stage.axes, *stage.reduced) if _is_unit(extent)}
    writes, reduced = mapped(stage, gone), tuple(a for a in stage.reduced if not _is_unit(a[1]))
    if not reduced:
        writes = tuple(replace(w, value=_from_start(w.value, writes), init=None) for w in writes)
    return replace(stage, axes=tuple(a for a in stage.axes if not _is_unit(a[1])), reduced=reduced, writes=writes)


def _is_unit(extent: Extent) -> bool:
    return not is_open(extent) and extent == 1


def _from_start(value: tirx.Expr, writes: Sequence[Write]) -> tirx.Expr:
    """`value` with the stage's own buffers at their initial values."""
    starts = [(w.buffer, w.init) for w in writes if w.init is not None]

    def at_start(load: TensorLoad) -> tirx.Expr:
        return next((init for buffer, init in starts if load.source.same_as(buffer)), load)

    return tvm_ffi.structural_map(value, (TensorLoad, at_start)) if starts else value


def simplify(stage: Stage) -> Stage:
    """The stage with simplified addresses and conditions; float arithmetic is unchanged."""
    axes = (*stage.axes, *stage.reduced)
    analyzer = analyzer_of(*(extent for _, extent in axes))
    for variable, extent in axes:
        zero, size = tirx.const(0, str(variable.ty)), extent
        analyzer.bind(variable, tvm.ir.Range.from_min_extent(zero, size if is_open(size) else _like(size, variable)))
    places = OpenIndices(axes) if stage.is_open else None

    def address_of(index: tirx.Expr) -> tirx.Expr:
        return analyzer.simplify(index) if places is None else places.shortest(index)

    def shorter(load: TensorLoad) -> TensorLoad:
        return tirx.BufferLoad(load.source, [address_of(i) for i in load.indices])

    own = {w.buffer: tirx.BufferLoad(w.buffer, [address_of(w.at)]) for w in stage.writes}

    def of(expr: tirx.Expr | None) -> tirx.Expr | None:
        if expr is None:
            return None
        loaded = tvm_ffi.structural_map(expr, (TensorLoad, shorter))
        if places is None:
            return simplified_around(loaded, lambda hidden: shortest(hidden, analyzer))
        # TVM's own form of an address may differ between equal addresses.
        veiled, held = _veiled(loaded)
        value = simplified_around(veiled, lambda hidden: shortest(hidden, analyzer))
        for variable, load in reversed(held):
            value = substitute(value, {variable: own.get(load.source, load)})
        return value

    writes = tuple(Write(w.buffer, own[w.buffer].indices[0], of(w.value), of(w.init)) for w in stage.writes)
    return replace(stage, writes=writes)


def _veiled(expr: tirx.Expr) -> tuple[tirx.Expr, list[tuple[tirx.Var, TensorLoad]]]:
    """An expression with a variable in place of each load, and the loads; loads within the address of another one come
    first."""
    held: list[tuple[tirx.Var, TensorLoad]] = []

    def veil(load: TensorLoad) -> tirx.Var:
        found = next((v for v, other in held if tvm_ffi.structural_equal(load, other)), None)
        if found is None:
            found = tirx.Var("loaded", str(load.ty))
            held.append((found, load))
        return found

    return tvm_ffi.structural_map(expr, (TensorLoad, veil)), held


def _like(value: int, variable: tirx.Var) -> tirx.Expr:
    return tirx.const(value, str(variable.ty))
