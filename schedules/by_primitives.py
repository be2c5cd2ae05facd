"""Matrix multiplications and convolutions by TVM's schedule primitives only, for users who need a trace
(docs/schedules.md).

    parallel partitions of the result         split, reorder, fuse, parallel
      K                                       rfactor first, if the decision divides K among cores
        tiles of rows, panels of columns      in the decided inner order
          K, the register tile                unroll, vectorize; the sums in a buffer of their own (cache_write)
          epilogue                            reverse_compute_at

The right operand is packed by cache_read and transform_layout. If the decided tile does not divide an extent, the next
smaller tile that does is used, or, if that is much smaller, the extent is padded by pad_einsum: the predicates of a
non-dividing split would reach the innermost loop, where TVM's vectoriser falls back to scalars.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tvm import s_tir, tirx
from tvm.s_tir.schedule import LoopRV, SBlockRV

from ..decide.conv.conv_tiling import ConvTiling
from ..decide.known import tiling_for
from ..decide.options import Options
from ..decide.tiling import Decision, GemmTiling
from ..errors import HardwareError, UnsupportedOperator
from ..hardware.description import Hardware
from ..lowering.conv_block import AXES, conv_block
from ..lowering.prim_func import DECISION
from ..lowering.product_moves import ProductAxes, product_axes, split_k
from ..match import ConvProgram, GemmProgram, epilogue_of, match
from .cpu_schedule import around_conv, around_product

# A smaller tile that divides the extent is used if it has at least this share of the decided size.
NEAR = 0.6


def schedule_by_primitives(sch: s_tir.Schedule, name: str, hardware: Hardware, options: Options) -> Decision:
    """Apply the decision for the function `name` of a fresh schedule and record it at the function's root block.

    Raises UnsupportedOperator for anything but a matrix multiplication with one axis for each of m, n and k or a
    convolution of NHWC images in one group; HardwareError for an accelerator and for options that primitives do not
    support.
    """
    if hardware.cpu is None:
        raise HardwareError(f"primitives = True applies to CPUs; {hardware.name} has no CPU; expected False")
    if options.prepacked:
        raise HardwareError("primitives = True packs weights in every call; expected weights = 'plain'")
    sch.work_on(name)
    # A given configuration distinguishes the operands, so they must not be exchanged.
    program = match(sch.mod[name], name, may_swap=options.config is None, keep_taps=True)
    root = sch.get_sblock("root")
    sums = next(block for block in sch.get_child_blocks(root) if sch.get(block).init is not None)
    try:
        tiling = _applied(sch, sums, program, hardware, options)
    except s_tir.ScheduleError as error:
        raise UnsupportedOperator(
            f"{name}: TVM refuses a primitive that primitives = True needs; expected primitives = False for this "
            "operator"
        ) from error
    sch.annotate(root, DECISION, tiling.to_json())
    return tiling


def _applied(
    sch: s_tir.Schedule, sums: SBlockRV, program: GemmProgram | ConvProgram, hardware: Hardware, options: Options
) -> Decision:
    if isinstance(program, ConvProgram):
        conv = _conv_tiling(program, hardware, options)
        _convolution(sch, sums, conv)
        return conv
    around = around_product(program, False)
    tiling = tiling_for(program.workload, hardware, options, around, epilogue_of(program))
    assert isinstance(tiling, GemmTiling)
    _product(sch, sums, tiling)
    return tiling


# ---- matrix multiplications ------------------------------------------------------------------------------------------


def _product(sch: s_tir.Schedule, sums: SBlockRV, tiling: GemmTiling) -> None:
    axes, parts = product_axes(sch, sums), tiling.threads_k or 1
    m, n, k = axes.m, axes.n, axes.k
    extents = [int(v.dom.extent) for v in sch.get(sums).iter_vars]
    in_rows = axes.column == len(sch.get(sums).reads[axes.right].region) - 1  # the right operand is [k, n]
    if tiling.form == "stream" and in_rows:
        _stream(sch, sums, axes, extents, tiling)
        return
    lanes = min(tiling.lanes or 1, extents[n])
    rows = _near(extents[m], tiling.mr or 1)
    width = _near(extents[n], (tiling.nr or lanes) // lanes, lanes) * lanes
    end, alone = _end(sch, sums), []
    multiples = {m: rows, n: width, k: parts}
    if any(extents[place] % multiple for place, multiple in multiples.items()):
        sch.pad_einsum(sums, [multiples.get(place, 1) for place in range(len(extents))])
        if end is not None:
            sch.compute_inline(sch.get_consumers(sums)[0])
        alone, end = [*sch.get_consumers(sums)], None
    total = sums
    if parts > 1:
        sums, k = split_k(sch, total, parts), k + 1
        alone, end = [*sch.get_consumers(total)], None
    packed = None
    if tiling.pack_b == "pack" or not in_rows or extents[n] % width:
        packed = _stage(sch, sums, axes.right)
    alone += [block for block in sch.get_producers(sums) if packed is None or sch.get(block) != sch.get(packed)]
    end = end or sch.cache_write(sums, 0, "global")
    loops = sch.get_loops(sums)
    batch = [loop for place, loop in enumerate(loops) if place not in (m, n, k)]
    mt, mi = sch.split(loops[m], [None, rows])
    nt, nv, lane = sch.split(loops[n], [None, width // lanes, lanes])
    mo, mt = sch.split(mt, [_shares(_extent(sch, mt), tiling.threads_m or 1), None])
    panels = _extent(sch, nt)
    share = min(-(-panels // (tiling.threads_n or 1)), max(1, tiling.partition_n // width))
    no, nt = sch.split(nt, [None, _divisor(panels, share)])
    tiles = (mt, nt) if tiling.inner_order == "mn" else (nt, mt)
    sch.reorder(*batch, mo, no, *tiles, loops[k], mi, nv, lane)
    _parallel(sch, [*batch, mo, no])
    sch.reverse_compute_at(end, tiles[1], preserve_unit_loops=True)
    if packed is not None:
        _pack(sch, packed, axes.column, width, lanes)
    _registers(sch, sums, end, loops[k], (mi, nv), lane, lanes)
    for block in alone:
        _parallel(sch, sch.get_loops(block)[:1])
    if parts > 1:
        _parallel(sch, sch.get_loops(total)[: min(m, n) + 1])


def _stream(sch: s_tir.Schedule, sums: SBlockRV, axes: ProductAxes, extents: Sequence[int], tiling: GemmTiling) -> None:
    """Schedule a multiplication with few rows: several rows of the right operand at a time are added to a row of sums
    that stays in L1."""
    columns = extents[axes.n]
    lanes = _divisor(columns, tiling.lanes or 1)
    end = _end(sch, sums) or sch.cache_write(sums, 0, "global")
    loops = sch.get_loops(sums)
    batch = [loops[place] for place in axes.batch]
    chunk = _divisor(columns // lanes, min(tiling.partition_n, -(-columns // (tiling.threads_n or 1))) // lanes)
    no, nt, lane = sch.split(loops[axes.n], [None, chunk, lanes])
    ko, ki = sch.split(loops[axes.k], [None, _divisor(extents[axes.k], tiling.partition_k)])
    sch.reorder(*batch, no, ko, loops[axes.m], nt, ki, lane)
    _parallel(sch, [*batch, no])
    sch.reverse_compute_at(end, no, preserve_unit_loops=True)
    _registers(sch, sums, end, ko, (ki,), lane, lanes)


def _end(sch: s_tir.Schedule, sums: SBlockRV) -> SBlockRV | None:
    """Inline the blocks after the sums into one and return it; None if nothing reads the sums."""
    behind = list(sch.get_consumers(sums))
    if not behind:
        return None
    end = behind[0]
    while further := list(sch.get_consumers(end)):
        sch.compute_inline(end)
        end = further[0]
    return end


def _stage(sch: s_tir.Schedule, sums: SBlockRV, read: int) -> SBlockRV:
    """Return the block that writes an operand for this block only: its padding, else a copy."""
    buffer = sch.get(sums).reads[read].source
    for producer in sch.get_producers(sums):
        if sch.get(producer).writes[0].source.same_as(buffer):
            return producer
    return sch.cache_read(sums, read, "global")


def _pack(sch: s_tir.Schedule, stage: SBlockRV, axis: int, width: int, lanes: int) -> None:
    """Arrange the buffer that `stage` writes in panels of `width` along `axis`, with the panels in parallel."""
    shape = sch.get(stage).writes[0].source.shape
    whole = [tirx.Var(f"i{d}", str(extent.ty)) for d, extent in enumerate(shape)]
    others = [v for d, v in enumerate(whole) if d != axis]
    panels = [*others[:-1], whole[axis] // width, others[-1], whole[axis] % width]
    sch.transform_layout(stage, ("write", 0), tirx.IndexMap(whole, panels, None))
    loops = list(sch.get_loops(stage))
    panel, vector, lane = sch.split(loops[axis], [None, width // lanes, lanes])
    rest = [loop for d, loop in enumerate(loops) if d != axis]
    sch.reorder(*rest[:-1], panel, rest[-1], vector, lane)
    sch.vectorize(lane)
    _parallel(sch, [*rest[:-1], panel])


def _registers(
    sch: s_tir.Schedule,
    sums: SBlockRV,
    end: SBlockRV,
    first: LoopRV,
    unrolled: Sequence[LoopRV],
    lane: LoopRV,
    lanes: int,
) -> None:
    """Unroll and vectorise the register tile and its store; sums are initialised before `first`, the loop over K."""
    for loop in unrolled:
        sch.unroll(loop)
    sch.vectorize(lane)
    *_, rows, columns = sch.get_loops(end)
    vector, column = sch.split(columns, [None, lanes])
    if len(unrolled) > 1:
        sch.unroll(rows)
        sch.unroll(vector)
    sch.vectorize(column)
    sch.decompose_reduction(sums, first)


# ---- convolutions ----------------------------------------------------------------------------------------------------


def _conv_tiling(program: ConvProgram, hardware: Hardware, options: Options) -> ConvTiling:
    """Return the decision for the direct algorithm of this convolution."""
    if options.form not in (None, "direct"):
        raise HardwareError(f"algorithm = {options.form!r} with primitives = True; expected 'direct' for convolutions")
    if options.config is None and options.decision is None:
        options = replace(options, form="direct")
    around = around_conv(program, False, options)
    tiling = tiling_for(program.workload, hardware, options, around, epilogue_of(program))
    assert isinstance(tiling, ConvTiling)
    if tiling.form != "direct":
        raise HardwareError(f"algorithm = {tiling.form!r} with primitives = True; expected 'direct' for convolutions")
    return tiling


def _convolution(sch: s_tir.Schedule, sums: SBlockRV, tiling: ConvTiling) -> None:
    conv = conv_block(sch, sums)
    end = _end(sch, sums) or sch.cache_write(sums, 0, "global")
    weights = sch.cache_read(sums, conv.kernel, "global")
    images = [block for block in sch.get_producers(sums) if sch.get(block) != sch.get(weights)]
    loops = sch.get_loops(sums)
    n, y, x, co, kh, kw, c = (loops[conv.place[axis]] for axis in AXES)
    lanes = _divisor(conv.extent["co"], tiling.lanes or 1)
    width = _divisor(conv.extent["co"] // lanes, tiling.vectors or 1) * lanes
    yt, yi = sch.split(y, [None, _divisor(conv.extent["y"], tiling.tile_rows or 1)])
    xt, xi = sch.split(x, [None, _divisor(conv.extent["x"], tiling.tile_columns or 1)])
    ct, cv, lane = sch.split(co, [None, width // lanes, lanes])
    shared, ct = sch.split(ct, [_shares(_extent(sch, ct), tiling.threads_columns or 1), None])
    tiles = (xt, ct) if tiling.inner_order == "mn" else (ct, xt)
    sch.reorder(n, shared, yt, *tiles, kh, kw, c, yi, xi, cv, lane)
    _parallel(sch, [n, shared, yt])
    sch.reverse_compute_at(end, tiles[1], preserve_unit_loops=True)
    _pack(sch, weights, conv.kernel_axes.index("co"), width, lanes)
    sch.unroll(sch.get_loops(end)[-3])
    _registers(sch, sums, end, kh, (yi, xi, cv), lane, lanes)
    for block in images:
        _parallel(sch, sch.get_loops(block)[:2])


# ---- common helpers --------------------------------------------------------------------------------------------------


def _divisor(extent: int, most: int) -> int:
    """Return the largest divisor of `extent` that is at most `most`."""
    return max(d for d in range(1, max(1, min(extent, most)) + 1) if extent % d == 0)


def _near(extent: int, size: int, unit: int = 1) -> int:
    """Return the tile in multiples of `unit`: the largest up to `size` that divides `extent`, or `size` if that one is
    too small."""
    size = max(1, min(size, -(-extent // unit)))
    if extent % unit:
        return size
    divisor = _divisor(extent // unit, size)
    return divisor if divisor >= NEAR * size else size


def _shares(extent: int, least: int) -> int:
    """Return the smallest divisor of `extent` that is at least `least`."""
    return next(d for d in range(min(least, extent), extent + 1) if extent % d == 0)


def _extent(sch: s_tir.Schedule, loop: LoopRV) -> int:
    return int(sch.get(loop).extent)


def _parallel(sch: s_tir.Schedule, loops: Sequence[LoopRV]) -> None:
    sch.parallel(sch.fuse(*loops) if len(loops) > 1 else loops[0])
