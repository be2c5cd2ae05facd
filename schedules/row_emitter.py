"""Kernel emitter for stages that run row by row: rows in strips, each stage of a strip after the other
(reduction.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import TypeAlias

import tvm_ffi
from tvm import sym, tirx
from tvm.ir import TensorLoad
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.vector.elementwise import ElementwiseTiling, shared_axis
from ..decide.vector.reduction import ALONG_VECTORS, OPEN_VECTORS, strip_vectors
from ..lowering.extents import as_index, parted, parts_of, times
from ..lowering.half_bits import kept_as
from ..lowering.lane_total import lane_total, vectors_total
from ..lowering.loops import share
from ..lowering.registers import register, small_buffer
from ..lowering.samples import Extent, is_open, sampled
from ..lowering.vector_statement import Resolve, compute, constant, last_vectors, loop, on_last_task, resolved
from ..match.access import variables
from ..match.loop_axes import fused, stride
from ..match.row_buffer import StripRows, shrunk
from ..match.row_group import RowGroup
from ..match.stages import Axis, Stage, Write
from ..match.window import Window, accumulated, window_of

Expr: TypeAlias = tirx.Expr
Place: TypeAlias = dict[tirx.Var, Expr]


@dataclass(frozen=True)
class Strip:
    """Rows computed together: vectors along an axis of rows, or one row if `axis` is None.

    `vectors` lists (first lane, width) of each. `inside`: no bound depends on the axis here.
    """

    axis: tirx.Var | None
    vectors: tuple[tuple[int, int], ...]
    inside: bool = True


class RowEmitter:
    """Emits one group of stages; `local` are its own buffers that nothing else reads."""

    def __init__(
        self, group: RowGroup, tiling: ElementwiseTiling, resolve: Resolve, local: Sequence[tirx.Buffer]
    ) -> None:
        self.tiling, self.outer_resolve = tiling, resolve
        self.lanes = tiling.lanes
        self.base = tirx.Var("base", _kind(group))
        stages = fused([_by_stride(stage) for stage in group.stages])
        first = next((stage for stage in stages if stage.reduced), stages[0])
        self.rows = first.axes
        self.lane_axis = lane_axis(first, self.rows)
        extent = sampled(dict(self.rows).get(self.lane_axis, 1))
        self.vectors = strip_vectors(extent, self.lanes, self.other_rows(), tiling.tasks)
        self.row_local = [b for b in local if not _whole_rows(group, b)]
        self.kept_rows: list[tirx.Buffer] = []
        pitch = self.vectors * self.lanes if self.lane_axis is not None else 1
        strip = StripRows(frozenset(v for v, _ in self.rows), self.lane_axis, self.base, pitch)
        for buffer in local:
            if _whole_rows(group, buffer):
                stages, small = shrunk(stages, buffer, dict(group.columns)[buffer], strip)
                self.kept_rows.append(small)
        self.windows = [window_of(stage) for stage in stages]
        self.held: list[tuple[tirx.Buffer, tuple[tirx.Var, ...]]] = []
        self.small: list[tuple[tirx.Buffer, tirx.Var]] = []

    def other_rows(self) -> int:
        return prod(sampled(extent) for v, extent in self.rows if v is not self.lane_axis)

    def emit(self) -> None:
        tasks = self.tiling.tasks
        axis = self.lane_axis
        strip = self.vectors * self.lanes
        units = [sampled(extent if v is not axis else parts_of(extent, strip)) for v, extent in self.rows]
        shared = shared_axis(units, tasks) if units else -1
        with T.parallel(0, tasks) if tasks > 1 else T.serial(0, 1) as task:
            self.small = [(flat, small_buffer(tuple(flat.shape), str(flat.dtype))) for flat in self.kept_rows]
            place: Place = {}
            with ExitStack() as stack:
                if not units:
                    stack.enter_context(on_last_task(task, tasks))
                for number, (variable, extent) in enumerate(self.rows):
                    if variable is axis:
                        continue
                    first, end = share(extent, task, tasks) if number == shared else (0, extent)
                    place[variable] = stack.enter_context(loop(variable, first, end))
                if axis is None:
                    self.strip(place, Strip(None, ((0, 1),)))
                else:
                    self.strips(place, axis, task, tasks if self.rows[shared][0] is axis else 1)

    def strips(self, place: Place, axis: tirx.Var, task: Expr, tasks: int) -> None:
        """Emit all rows along the lanes' axis: those at a border one by one, the others in strips."""
        extent = dict(self.rows)[axis]
        if is_open(extent):
            self.open_strips(place, axis, extent, task, tasks)
            return
        start, end = 0, int(extent)
        for window in self.windows:
            first, last = window.inside(axis, int(extent))
            start, end = max(start, first), min(end, last)
        if end <= start:
            start, end = int(extent), int(extent)
        strip = self.vectors * self.lanes
        whole, rest = divmod(end - start, strip)
        if whole:
            vectors = tuple((i * self.lanes, self.lanes) for i in range(self.vectors))
            first, last = share(whole, task, tasks)
            with loop(axis, first, last) as number:
                at = number * constant(strip, axis) + constant(start, axis)
                self.strip({**place, axis: at}, Strip(axis, vectors))
        with on_last_task(task, tasks):
            if rest:
                vectors = tuple((i, min(self.lanes, rest - i)) for i in range(0, rest, self.lanes))
                self.strip({**place, axis: constant(end - rest, axis)}, Strip(axis, vectors))
            for low, high in ((0, start), (end, extent)):
                if low < high:
                    with loop(axis, low, high) as at:
                        self.strip({**place, axis: at}, Strip(axis, ((0, 1),), inside=False))

    def open_strips(self, place: Place, axis: tirx.Var, extent: Expr, task: Expr, tasks: int) -> None:
        """Emit the same for a dynamic number of rows: strips, then single vectors, then narrower ones."""
        strip, lanes = self.vectors * self.lanes, self.lanes
        if any(window.depends_on(axis) for window in self.windows):
            first, end = share(extent, task, tasks)
            with loop(axis, first, end) as at:
                self.strip({**place, axis: at}, Strip(axis, ((0, 1),), inside=False))
            return
        whole, _ = parted(extent, strip)
        first, end = share(whole, task, tasks)
        with loop(axis, first, end) as number:
            vectors = tuple((i * lanes, lanes) for i in range(self.vectors))
            self.strip({**place, axis: number * constant(strip, axis)}, Strip(axis, vectors))
        with on_last_task(task, tasks):
            every, rest = parted(extent, lanes)
            if self.vectors > 1:
                with loop(axis, as_index(times(whole, self.vectors), axis), as_index(every, axis)) as number:
                    self.strip({**place, axis: number * constant(lanes, axis)}, Strip(axis, ((0, lanes),)))

            def last(start: Expr, width: int, _: Expr | None) -> None:
                self.strip({**place, axis: start}, Strip(axis, ((0, width),)))

            last_vectors(every, rest, lanes, axis, last)

    # ---- one strip ------------------------------------------------------------------------------------------------

    def strip(self, place: Place, strip: Strip) -> None:
        """Emit every stage for the rows of a strip."""
        self.held = []
        if strip.axis is not None:
            place = {**place, self.base: place[strip.axis]}
        names = {v for v, _ in self.rows}
        for window in self.windows:
            stage = window.stage
            columns = [a for a in stage.axes if a[0] not in names]
            if stage.reduced:
                self.reduce(window, place, strip)
            elif columns:
                self.columns(stage, columns, place, strip)
            else:
                for write in stage.writes:
                    self.row_values(write, place, strip)

    def row_values(self, write: Write, place: Place, strip: Strip) -> None:
        """Compute one value for each row of the strip into registers, and store it if others read it."""
        kept = tuple(register(width, str(write.buffer.dtype)) for _, width in strip.vectors)
        for number, target in enumerate(kept):
            self.compute(write.value, place, strip, number, partial(_put, target))
        self.keep(write, kept, place, strip)

    def keep(self, write: Write, kept: tuple[tirx.Var, ...], place: Place, strip: Strip) -> None:
        """Let later stages read `kept` in place of what `write` writes; it is stored unless the buffer is local to the
        group."""
        if not any(write.buffer.same_as(b) for b in self.row_local):
            for number, source in enumerate(kept):
                self.store(write, place, strip, number, source)
        self.held.append((write.buffer, kept))

    def store(self, write: Write, place: Place, strip: Strip, number: int, source: tirx.Var) -> None:
        """Store the lanes of a register."""
        read = tirx.BufferLoad(source, [constant(0, strip.axis)])
        self.compute(
            read,
            place,
            strip,
            number,
            partial(self.put, write, place, strip, number),
            [(read, source)],
        )

    def put(self, write: Write, place: Place, strip: Strip, number: int, value: Expr, lane: Expr) -> None:
        at = self.place(place, strip, number)
        if strip.axis is not None and strip.vectors[number][1] > 1:
            at[strip.axis] = at[strip.axis] + lane
        self.put_at(write, value, at)

    def put_at(self, write: Write, value: Expr, at: Place) -> None:
        target = self.resolve(tirx.BufferLoad(write.buffer, [write.at]), 0)
        indices = [sym.Analyzer().simplify(resolved(i, at, self.outer_resolve)) for i in target.indices]
        T.buffer_store(target.source, kept_as(value, str(target.source.dtype)), indices)

    def place(self, place: Place, strip: Strip, number: int) -> Place:
        """Return the position of the first lane of a vector of the strip."""
        if strip.axis is None:
            return dict(place)
        return {**place, strip.axis: place[strip.axis] + constant(strip.vectors[number][0], strip.axis)}

    def resolve(self, load: TensorLoad, number: int) -> TensorLoad:
        for buffer, kept in self.held:
            if load.source.same_as(buffer):
                return tirx.BufferLoad(kept[number], [tirx.const(0, "int32")])
        for flat, small in self.small:
            if load.source.same_as(flat):
                # The strip's own position cancels; TVM's CompactBufferAllocation fails if it has to prove that.
                return tirx.BufferLoad(small, [sym.Analyzer().simplify(i) for i in load.indices])
        return self.outer_resolve(load)

    def compute(
        self,
        expr: Expr,
        place: Place,
        strip: Strip,
        number: int,
        store: Callable[[Expr, Expr], None],
        held: Sequence[tuple[TensorLoad, tirx.Var]] = (),
    ) -> None:
        """Compute a value for each lane of a vector of the strip."""
        width = strip.vectors[number][1]
        known = [*held, *self.known(expr, number)]
        if width == 1:
            known_sources = known

            def scalar(load: TensorLoad) -> Expr:
                for source, kept in known_sources:
                    if load.source.same_as(source.source):
                        return tirx.BufferLoad(kept, [tirx.const(0, "int32")])
                return load if any(load.source.same_as(k) for _, k in known_sources) else self.resolve(load, number)

            compute(expr, self.place(place, strip, number), None, 1, scalar, store)
            return
        compute(
            expr,
            self.place(place, strip, number),
            strip.axis,
            width,
            lambda load: self.resolve(load, number),
            store,
            known,
        )

    def known(self, expr: Expr, number: int) -> list[tuple[TensorLoad, tirx.Var]]:
        """Return the loads of `expr` whose values are in registers."""
        found: list[tuple[TensorLoad, tirx.Var]] = []

        def note(load: TensorLoad) -> None:
            for buffer, kept in self.held:
                if load.source.same_as(buffer):
                    found.append((load, kept[number]))

        tvm_ffi.structural_walk(expr, (TensorLoad, note))
        return found

    # ---- columns --------------------------------------------------------------------------------------------------

    def columns(self, stage: Stage, columns: list[Axis], place: Place, strip: Strip) -> None:
        """Compute a value for every column of the strip's rows."""
        if strip.axis is not None:
            with ExitStack() as stack:
                at = dict(place)
                for variable, extent in columns:
                    at[variable] = stack.enter_context(loop(variable, 0, extent))
                for write in stage.writes:
                    for number in range(len(strip.vectors)):
                        self.compute(
                            write.value,
                            at,
                            strip,
                            number,
                            partial(self.put, write, at, strip, number),
                        )
            return
        last = next((v for v, _ in reversed(columns) if all(stride(w.at, v) == 1 for w in stage.writes)), None)
        with ExitStack() as stack:
            at = dict(place)
            for variable, extent in columns:
                if variable is not last:
                    at[variable] = stack.enter_context(loop(variable, 0, extent))
            if last is None:
                for write in stage.writes:
                    self.column_vector(write, at, None, 1)
                return
            whole, rest = parted(dict(columns)[last], self.lanes)
            if is_open(whole) or whole:
                with loop(last, 0, whole) as block:
                    for write in stage.writes:
                        self.column_vector(write, {**at, last: block * constant(self.lanes, last)}, last, self.lanes)

            def at_end(start: Expr, width: int, _: Expr | None) -> None:
                for write in stage.writes:
                    self.column_vector(write, {**at, last: start}, last, width)

            last_vectors(whole, rest, self.lanes, last, at_end)

    def column_vector(self, write: Write, at: Place, axis: tirx.Var | None, width: int) -> None:
        def put(value: Expr, lane: Expr) -> None:
            self.put_at(write, value, at if axis is None or width == 1 else {**at, axis: at[axis] + lane})

        compute(write.value, at, axis, width, lambda load: self.resolve(load, 0), put)

    # ---- reductions -----------------------------------------------------------------------------------------------

    def reduce(self, window: Window, place: Place, strip: Strip) -> None:
        stage = window.stage
        # Vectors along a reduction axis would extend past the border that bounds the window.
        if strip.axis is None and not window.bounds and self.can_split(stage):
            for number, write in enumerate(stage.writes):
                self.along(stage, number, place)
                self.store_kept(write, place)
            return
        sums = [tuple(register(width, str(w.buffer.dtype)) for _, width in strip.vectors) for w in stage.writes]
        for write, kept in zip(stage.writes, sums, strict=True):
            assert write.init is not None
            for number, target in enumerate(kept):
                self.compute(write.init, place, strip, number, partial(_put, target))
        at = dict(place)
        with ExitStack() as stack:
            for variable, extent in stage.reduced:
                first, end = self.bounds(window, variable, extent, at, strip)
                at[variable] = stack.enter_context(loop(variable, first, end))
            for number in range(len(strip.vectors)):
                self.step(stage, sums, at, strip, number)
        for write, kept in zip(stage.writes, sums, strict=True):
            self.keep(write, kept, place, strip)

    def step(self, stage: Stage, sums: list[tuple[tirx.Var, ...]], at: Place, strip: Strip, number: int) -> None:
        """Accumulate one more element in each lane; all values are computed before any of the sums changes."""
        own = [(tirx.BufferLoad(w.buffer, [w.at]), kept[number]) for w, kept in zip(stage.writes, sums, strict=True)]
        width = strip.vectors[number][1]
        fresh = [kept[number] for kept in sums]
        if len(fresh) > 1:
            fresh = [register(width, str(kept[number].dtype)) for kept in sums]
        for write, target in zip(stage.writes, fresh, strict=True):
            self.compute(write.value, at, strip, number, partial(_put, target), own)
        if len(fresh) > 1:
            for source, kept in zip(fresh, sums, strict=True):
                whole = T.ramp(0, 1, width) if width > 1 else tirx.const(0, "int32")
                T.buffer_store(kept[number], tirx.BufferLoad(source, [whole]), [whole])

    def bounds(self, window: Window, variable: tirx.Var, extent: Extent, at: Place, strip: Strip) -> tuple[Expr, Expr]:
        first, end = constant(0, variable), as_index(extent, variable)
        for bound in window.bounds:
            if not bound.variable.same_as(variable):
                continue
            if strip.inside and strip.axis is not None and strip.axis in variables(bound.condition):
                continue
            if bound.least is not None:
                first = tirx.max(first, resolved(bound.least, at, self.outer_resolve))
            if bound.end is not None:
                end = tirx.min(end, resolved(bound.end, at, self.outer_resolve))
        return first, tirx.max(first, end)

    def can_split(self, stage: Stage) -> bool:
        """Return whether each lane may reduce a part of its own."""
        kinds = {str(w.buffer.dtype) for w in stage.writes}
        return "bool" not in kinds and all(accumulated(stage, n) is not None for n in range(len(stage.writes)))

    def along(self, stage: Stage, number: int, place: Place) -> None:
        """Emit one reduction of one row, with vectors along its innermost axis; the result is left in `held`."""
        write, lanes = stage.writes[number], self.lanes
        found = accumulated(stage, number)
        assert found is not None and write.init is not None
        dtype = str(write.buffer.dtype)
        *outer, (axis, extent) = stage.reduced
        whole, rest = parted(extent, lanes)
        if not is_open(whole) and whole == 0:
            lanes, whole, rest = sampled(extent), 1, 0
        many = min(OPEN_VECTORS, sampled(whole)) if is_open(whole) else min(ALONG_VECTORS, whole)
        sums = [register(lanes, dtype) for _ in range(many)]
        for kept in sums[:1] if is_open(whole) else sums:
            T.buffer_store(kept, _broadcast(write.init, lanes), [_whole(lanes)])
        own = tirx.BufferLoad(write.buffer, [write.at])
        operation, term = found

        def step(at: Place, start: Expr, kept: tirx.Var, width: int, done: Expr | None = None) -> None:
            def resolve(load: TensorLoad) -> Expr:
                if load.source.same_as(write.buffer):
                    return tirx.BufferLoad(kept, [tirx.const(0, "int32")])
                return load if load.source.same_as(kept) else self.resolve(load, 0)

            moved = {**at, axis: start}
            value = write.value
            if done is not None and not _repeats(operation):
                value = operation(own, tirx.Select(axis >= done, term, write.init))
            compute(value, moved, axis, width, resolve, partial(_put, kept), [(own, kept)])

        with ExitStack() as stack:
            at = dict(place)
            for variable, size in outer:
                at[variable] = stack.enter_context(loop(variable, 0, size))
            blocks, single = parted(whole, many)
            # For a row that may be short, the other sums are initialised only if there are vectors for all of them.
            some = tirx.min(as_index(blocks, axis), constant(1, axis)) if is_open(blocks) else 1
            with T.serial(constant(0, axis), some) if is_open(blocks) else nullcontext():
                for kept in sums[1:] if is_open(blocks) else ():
                    T.buffer_store(kept, _broadcast(write.init, lanes), [_whole(lanes)])
                with loop(axis, 0, blocks) as block:
                    for i, kept in enumerate(sums):
                        step(at, block * constant(many * lanes, axis) + constant(i * lanes, axis), kept, lanes)
                if is_open(blocks):
                    sums = [vectors_total(operation, sums, lanes)]
            if is_open(single):
                with loop(axis, as_index(times(blocks, many), axis), as_index(whole, axis)) as one:
                    step(at, one * constant(lanes, axis), sums[0], lanes)
            else:
                for i in range(single):
                    step(at, as_index(times(blocks, many, lanes), axis) + constant(i * lanes, axis), sums[i], lanes)
            last_vectors(whole, rest, lanes, axis, lambda start, width, done: step(at, start, sums[-1], width, done))
        self.held.append((write.buffer, (lane_total(operation, sums, lanes, dtype),)))

    def store_kept(self, write: Write, place: Place) -> None:
        if not any(write.buffer.same_as(b) for b in self.row_local):
            buffer, kept = self.held.pop()
            self.put_at(write, tirx.BufferLoad(kept[0], [tirx.const(0, "int32")]), dict(place))
            self.held.append((buffer, kept))


def lane_axis(stage: Stage, rows: tuple[Axis, ...]) -> tirx.Var | None:
    """Return the axis of rows along which vectors are formed; None if vectors are along the reduction axis."""
    if not rows:
        return None
    window = bool(window_of(stage).bounds)
    addresses = [load.indices[0] for load in stage.reads()]
    innermost = stage.reduced[-1][0] if stage.reduced else None
    if innermost is not None and not window and any(stride(a, innermost) == 1 for a in addresses):
        overlapping = any(stride(a, rows[-1][0]) in (1, 2, 3, 4) for a in addresses)
        if not overlapping:
            return None
    return rows[-1][0]


def _by_stride(stage: Stage) -> Stage:
    """Return the stage with its reduction axes in the order of the first operand's addresses."""
    addresses = [load.indices[0] for load in stage.reads()]
    if not addresses or len(stage.reduced) < 2:
        return stage
    steps = {v: stride(addresses[0], v) or 0 for v, _ in stage.reduced}
    return replace(stage, reduced=tuple(sorted(stage.reduced, key=lambda a: -abs(steps[a[0]]))))


def _whole_rows(group: RowGroup, buffer: tirx.Buffer) -> bool:
    return any(buffer.same_as(b) for b, _ in group.columns)


def _kind(group: RowGroup) -> str:
    axes = [a for stage in group.stages for a in (*stage.axes, *stage.reduced)]
    return str(axes[0][0].ty) if axes else "int64"


def _repeats(operation: object) -> bool:
    """Return whether an operation is idempotent, so that elements may be taken twice."""
    kind = operation.args[0] if isinstance(operation, partial) else operation
    return kind in (tirx.Max, tirx.Min)


def _put(target: tirx.Var, value: Expr, lane: Expr) -> None:
    T.buffer_store(target, value, [lane])


def _broadcast(value: Expr, lanes: int) -> Expr:
    return T.broadcast(value, lanes) if lanes > 1 else value


def _whole(lanes: int) -> Expr:
    return T.ramp(0, 1, lanes) if lanes > 1 else tirx.const(0, "int32")
