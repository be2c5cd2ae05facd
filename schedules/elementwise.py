"""Element-wise operators and data movement: each stage is a copy with arithmetic, vectorised and memory-bound.

    parallel task
      stage, split where a condition changes (pad, concatenate), adjacent axes fused
        serial outer axes, one of them divided among tasks
          vectors along the innermost axis, then its remainder

If the innermost axis of the output differs from that of an input (a transpose), blocks of lanes x lanes pass through
registers: rows are loaded along the input's axis and stored along the output's. If that innermost axis is short, as in
a channel shuffle, vectors along the input's axis are interleaved into one of the output's; each may come from a tensor
of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import tvm
import tvm_ffi
from tvm import sym, tirx
from tvm.ir import TensorLoad
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.vector.elementwise import ElementwiseTiling, decide_elementwise, shared_axis
from ..hardware.description import Cpu
from ..lowering.extents import as_index, parted, parts_of, times
from ..lowering.loops import share
from ..lowering.named_values import TOGETHER
from ..lowering.registers import register
from ..lowering.samples import Extent, is_open, sampled
from ..lowering.staged_func import work_of, write_stages
from ..lowering.transpose import transpose
from ..lowering.vector_math import holds_function
from ..lowering.vector_statement import (
    Resolve,
    compute,
    constant,
    holds_choice,
    last_vectors,
    loop,
    on_last_task,
    resolved,
)
from ..match.access import loads
from ..match.loop_axes import fused, split, stride
from ..match.open_pieces import pieces_of
from ..match.stages import Axis, Stage, StagedProgram, Write, mapped, simplify

Expr: TypeAlias = tirx.Expr
Place: TypeAlias = dict[tirx.Var, Expr]
_BLOCK = 16  # most rows and columns of a block transposed in registers
_STRANDS = 8  # most vectors interleaved into one


@dataclass(frozen=True)
class Turned:
    """A load whose contiguous axis `along` is not the innermost axis of the output."""

    load: TensorLoad
    along: tirx.Var


@dataclass(frozen=True)
class Woven:
    """A stage whose innermost axis `short` has one element per strand. Along `along` the input is contiguous, and the
    output is contiguous except for the short axis."""

    piece: Stage
    along: tirx.Var
    short: tirx.Var
    strands: tuple[Expr, ...]  # the value at each index of the short axis
    most: int  # output elements that fit the size of one input element, at least 1


def apply(program: StagedProgram, cpu: Cpu) -> tirx.PrimFunc | None:
    """Return the function in one parallel region; None if it reduces or a stage reads another."""
    written = [w.buffer for stage in program.stages for w in stage.writes]
    if any(stage.reduced for stage in program.stages):
        return None
    if any(load.source.same_as(b) for stage in program.stages for load in stage.reads() for b in written):
        return None
    tiling = decide_elementwise(work_of(program.stages), cpu)
    return write_stages(program, tiling, lambda resolve: ElementwiseEmitter(program.stages, tiling, resolve).emit())


class ElementwiseEmitter:
    """Emits stages without reductions that do not read each other."""

    def __init__(self, stages: Sequence[Stage], tiling: ElementwiseTiling, resolve: Resolve) -> None:
        self.pieces = [fused([part])[0] for stage in stages for part in pieces_of(stage)]
        self.tiling, self.resolve = tiling, resolve

    def emit(self) -> None:
        tasks = self.tiling.tasks
        with T.parallel(0, tasks) if tasks > 1 else T.serial(0, 1) as task:
            for piece in self.pieces:
                self.piece(piece, task)

    def piece(self, piece: Stage, task: Expr) -> None:
        lane_axis = _lane_axis(piece)
        turned = _turned(piece, lane_axis, min(_BLOCK, self.tiling.lanes)) if lane_axis is not None else None
        if turned is not None and lane_axis is not None:
            self.blocks(piece, lane_axis, turned, task)
            return
        woven = _woven(piece, lane_axis) if lane_axis is not None else None
        if woven is not None:
            self.weave(woven, task)
            return
        axes = list(piece.axes)
        if not axes:
            with on_last_task(task, self.tiling.tasks):
                self.write(piece, {}, None, 1)
            return
        width = self.tiling.lanes if lane_axis is not None else 1
        units = [sampled(extent if v is not lane_axis else parts_of(extent, width)) for v, extent in axes]
        self.loops(piece, axes, lane_axis, shared_axis(units, self.tiling.tasks), task)

    def loops(self, piece: Stage, axes: list[Axis], lane_axis: tirx.Var | None, shared: int, task: Expr) -> None:
        """Emit serial loops over all axes, axis number `shared` over this task's share, the last one in vectors."""
        with self.nest([axis for axis in axes if axis[0] is not lane_axis], axes[shared][0], task) as place:
            if lane_axis is None:
                self.write(piece, place, None, 1)
            else:
                count = self.tiling.tasks if axes[shared][0] is lane_axis else 1
                self.along(piece, place, lane_axis, dict(axes)[lane_axis], task, count)

    @contextmanager
    def nest(self, axes: Sequence[Axis], shared: tirx.Var, task: Expr) -> Iterator[Place]:
        """Open serial loops over `axes`, over this task's share of `shared` if it is among them; return their place."""
        place: Place = {}
        with ExitStack() as stack:
            for variable, extent in axes:
                first, end = share(extent, task, self.tiling.tasks) if variable is shared else (0, extent)
                place[variable] = stack.enter_context(loop(variable, first, end))
            yield place

    def along(self, piece: Stage, place: Place, axis: tirx.Var, extent: Extent, task: Expr, tasks: int) -> None:
        """Emit whole vectors along an axis, or this task's share of them, then the remaining elements."""
        lanes = self.tiling.lanes
        whole, rest = parted(extent, lanes)
        if not _is_none(whole):
            self.vectors(piece, place, axis, *share(whole, task, tasks))
        if not _is_none(rest):

            def last(start: Expr, width: int, _: Expr | None) -> None:
                self.write(piece, {**place, axis: start}, axis, width)

            with on_last_task(task, tasks):
                last_vectors(whole, rest, lanes, axis, last)

    def vectors(self, piece: Stage, place: Place, axis: tirx.Var, first: Expr | int, end: Expr | int) -> None:
        """Emit the whole vectors from `first` to `end`: several in each iteration if they take functions, whose
        instructions alternate, and the others one by one."""
        lanes = constant(self.tiling.lanes, axis)
        if any(holds_function(write.value) for write in piece.writes):
            start = first
            blocks = (end - start) // TOGETHER
            if not _is_none(blocks):
                with loop(axis, 0, blocks) as block:
                    for write in piece.writes:
                        for number in range(TOGETHER):
                            vector = block * constant(TOGETHER, axis) + start + constant(number, axis)
                            self.store(write, {**place, axis: vector * lanes}, axis, self.tiling.lanes)
            first = start + blocks * TOGETHER
        if not _is_none(end - first):
            with loop(axis, first, end) as block:
                self.write(piece, {**place, axis: block * lanes}, axis, self.tiling.lanes)

    def write(self, piece: Stage, place: Place, lane_axis: tirx.Var | None, width: int) -> None:
        for write in piece.writes:
            self.store(write, place, lane_axis, width)

    def store(self, write: Write, place: Place, lane_axis: tirx.Var | None, width: int) -> None:
        def put(value: Expr, lane: Expr) -> None:
            at = dict(place)
            if lane_axis is not None and width > 1:
                at[lane_axis] = place[lane_axis] + lane
            target = self.resolve(tirx.BufferLoad(write.buffer, [write.at]))
            T.buffer_store(target.source, value, [resolved(i, at, self.resolve) for i in target.indices])

        compute(write.value, place, lane_axis, width, self.resolve, put)

    # ---- short axes -----------------------------------------------------------------------------------------------

    def weave(self, woven: Woven, task: Expr) -> None:
        """Load a vector along the input's axis for each index of the short axis, and interleave them for the store."""
        tasks, along = self.tiling.tasks, woven.along
        extent = dict(woven.piece.axes)[along]
        width = 1 << (min(self.tiling.lanes, extent).bit_length() - 1)
        whole, rest = divmod(extent, width)
        outer = [axis for axis in woven.piece.axes if axis[0] is not woven.short and axis[0] is not along]
        axes = [*outer, (along, whole)]
        shared = shared_axis([size for _, size in axes], tasks)
        with self.nest(outer, axes[shared][0], task) as place:
            divided = tasks if shared == len(outer) else 1
            with loop(along, *share(whole, task, divided)) as block:
                self.woven_vector(woven, {**place, along: block * constant(width, along)}, width)
            with on_last_task(task, divided) if rest else nullcontext():
                while rest:
                    width = 1 << (rest.bit_length() - 1)
                    self.woven_vector(woven, {**place, along: constant(extent - rest, along)}, width)
                    rest -= width

    def woven_vector(self, woven: Woven, place: Place, width: int) -> None:
        """Emit `width` elements of each strand."""
        write = woven.piece.writes[0]
        strands = []
        for value in woven.strands:
            kept = register(width, str(value.ty))
            compute(value, place, woven.along, width, self.resolve, partial(_put, kept))
            strands.append(kept[_whole(width) if width > 1 else 0])
        target = resolved(
            tirx.BufferLoad(write.buffer, [write.at]), {**place, woven.short: constant(0, woven.short)}, self.resolve
        )
        order = [strand * width + lane for lane in range(width) for strand in range(len(strands))]
        most = self.tiling.lanes * woven.most
        for first in range(0, len(order), most):
            part = order[first : first + most]
            at_once = T.ramp(target.indices[0] + constant(first, woven.along), constant(1, woven.along), len(part))
            T.buffer_store(target.source, T.Shuffle(strands, part), [at_once])

    # ---- transposes -----------------------------------------------------------------------------------------------

    def blocks(self, piece: Stage, lane_axis: tirx.Var, turned: Turned, task: Expr) -> None:
        """Transpose blocks of two axes through registers; the edges are copied without a transpose."""
        size = min(_BLOCK, self.tiling.lanes)
        tasks = self.tiling.tasks
        extents = dict(piece.axes)
        outer = [a for a in piece.axes if a[0] is not lane_axis and a[0] is not turned.along]
        across, across_rest = parted(extents[lane_axis], size)
        along, along_rest = parted(extents[turned.along], size)
        axes = [*outer, (turned.along, along), (lane_axis, across)]
        shared = shared_axis([sampled(extent) for _, extent in axes], tasks)
        with self.nest(axes, axes[shared][0], task) as place:
            for variable in (turned.along, lane_axis):
                place[variable] = place[variable] * constant(size, variable)
            self.block(piece.writes[0], place, lane_axis, turned, size)
        if not (_is_none(along_rest) and _is_none(across_rest)):
            self.edges(piece, outer, lane_axis, turned, size, task)

    def block(self, write: Write, place: Place, lane_axis: tirx.Var, turned: Turned, size: int) -> None:
        dtype = str(turned.load.ty)
        rows = []
        for row in range(size):
            at = {**place, lane_axis: place[lane_axis] + constant(row, lane_axis)}
            first = resolved(turned.load, at, self.resolve)
            kept = register(size, dtype)
            one = constant(1, lane_axis)
            T.buffer_store(kept, tirx.BufferLoad(first.source, [T.ramp(first.indices[0], one, size)]), [_whole(size)])
            rows.append(kept[_whole(size)])
        columns = transpose(rows, dtype)
        for column, vector in enumerate(columns):
            at = {**place, turned.along: place[turned.along] + constant(column, turned.along)}
            self.column(write, at, lane_axis, turned, size, vector)

    def column(
        self, write: Write, place: Place, lane_axis: tirx.Var, turned: Turned, size: int, vector: TensorLoad
    ) -> None:
        """Store one vector of the output, with the transposed vector in place of the load."""

        def put(result: Expr, lane: Expr) -> None:
            at = {**place, lane_axis: place[lane_axis] + lane}
            target = self.resolve(tirx.BufferLoad(write.buffer, [write.at]))
            T.buffer_store(target.source, result, [resolved(i, at, self.resolve) for i in target.indices])

        compute(write.value, place, lane_axis, size, self.resolve, put, [(turned.load, vector.source)])

    def edges(
        self, piece: Stage, outer: list[Axis], lane_axis: tirx.Var, turned: Turned, size: int, task: Expr
    ) -> None:
        """Emit the elements after the last whole block of either axis."""
        extents = dict(piece.axes)
        (across, columns), (along, rows) = (parted(extents[v], size) for v in (lane_axis, turned.along))
        # For each region: the first row and their number, and whole blocks of columns or the columns after them.
        regions = ((0, extents[turned.along], 0, columns), (times(along, size), rows, across, 0))
        for row, count, whole, rest in regions:
            if _is_none(count) or (_is_none(whole) and _is_none(rest)):
                continue
            axes = [*outer, (turned.along, count)]
            shared = shared_axis([sampled(extent) for _, extent in axes], self.tiling.tasks)
            with self.nest(axes, axes[shared][0], task) as place:
                place[turned.along] = place[turned.along] + as_index(row, turned.along)
                if not _is_none(whole):
                    with loop(lane_axis, 0, whole) as block:
                        self.write(piece, {**place, lane_axis: block * constant(size, lane_axis)}, lane_axis, size)
                    continue

                def last(start: Expr, width: int, _: Expr | None, place: Place = place) -> None:
                    self.write(piece, {**place, lane_axis: start}, lane_axis, width)

                last_vectors(across, rest, size, lane_axis, last)


def _is_none(count: Extent) -> bool:
    """Return whether a count is statically zero."""
    return not is_open(count) and count == 0


def _put(target: tirx.Var, value: Expr, lane: Expr) -> None:
    T.buffer_store(target, value, [lane])


def _whole(size: int) -> Expr:
    return T.ramp(0, 1, size)


def _lane_axis(piece: Stage) -> tirx.Var | None:
    """Return the axis along which every write is contiguous."""
    for variable, _ in reversed(piece.axes):
        if all(stride(w.at, variable) == 1 for w in piece.writes):
            return variable
    return None


def _moves(address: Expr, variable: tirx.Var) -> bool:
    """Return whether a step of `variable` moves by a constant distance other than to the next element."""
    parts = sym.detect_linear_equation(address, [variable])
    return len(parts) == 2 and not (isinstance(parts[0], tirx.IntImm) and int(parts[0]) in (0, 1))


def _woven(piece: Stage, lane_axis: tirx.Var) -> Woven | None:
    """Return how to interleave a stage whose innermost axis is short, or combines a short axis with others; None for
    other stages."""
    if len(piece.writes) != 1 or any(is_open(size) for _, size in piece.axes):
        return None
    counted: list[int] = []

    def note(part: tirx.FloorMod) -> None:
        if part.a.same_as(lane_axis) and isinstance(part.b, tirx.IntImm):
            counted.append(int(part.b))

    tvm_ffi.structural_walk(piece.writes[0].value, (tirx.FloorMod, note))
    extent = dict(piece.axes)[lane_axis]
    if counted and 2 <= counted[0] <= _STRANDS and extent % counted[0] == 0:
        piece = split(piece, lane_axis, counted[0])
    write = piece.writes[0]
    short, count = next(axis for axis in reversed(piece.axes) if stride(write.at, axis[0]) == 1)
    kind = str(write.value.ty)
    if not 2 <= count <= _STRANDS or kind in ("bool", "bfloat16"):
        return None
    chosen = holds_choice(write.value)  # each strand reads its own tensor
    apart = chosen or any(stride(load.indices[0], short) not in (0, 1, None) for load in loads(write.value))
    long = [variable for variable, size in piece.axes if size > 1 and stride(write.at, variable) == count]
    if not apart or not long:
        return None
    strands = tuple(_strand(piece, short, number) for number in range(count))
    read = [load for strand in strands for load in loads(strand)]
    if not read or any(holds_choice(strand) for strand in strands):
        return None
    for variable in long:
        if all(stride(load.indices[0], variable) in (0, 1) for load in read):
            bits = [tvm.DataType(str(load.ty)).bits for load in read]
            return Woven(piece, variable, short, strands, max(1, max(bits) // tvm.DataType(kind).bits))
    return None


def _strand(piece: Stage, short: tirx.Var, number: int) -> Expr:
    """Return the value of a stage at one index of an axis, without the conditions that are known there."""
    axes = tuple(axis for axis in piece.axes if axis[0] is not short)
    at = mapped(piece, {short: constant(number, short)})
    return simplify(replace(piece, axes=axes, writes=at)).writes[0].value


def _turned(piece: Stage, lane_axis: tirx.Var, size: int) -> Turned | None:
    """Return the only load that is contiguous along another axis, if both axes are long enough for a block."""
    extents = dict(piece.axes)
    if len(piece.writes) != 1 or sampled(extents[lane_axis]) < size or holds_choice(piece.writes[0].value) or size < 2:
        return None
    for load in loads(piece.writes[0].value):
        address = load.indices[0]
        if loads(address) or not _moves(address, lane_axis) or str(load.ty) == "bool":
            continue
        for variable, extent in piece.axes:
            if variable is not lane_axis and sampled(extent) >= size and stride(address, variable) == 1:
                return Turned(load, variable)
    return None
