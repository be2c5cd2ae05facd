"""Matrix multiplications by TVM's schedule primitives: split-K by rfactor, partitions by split and reorder.

The primitives are recorded in the trace, for manual schedules, the primitives form, and MetaSchedule search spaces.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import s_tir, tirx
from tvm.s_tir.schedule import LoopRV, SBlockRV

from ..errors import UnsupportedOperator
from ..match.access import variables


@dataclass(frozen=True)
class ProductAxes:
    """Indices of the axes among a block's iteration variables; `right` is the index of the operand with the columns
    among the block's reads, `column` its axis of columns."""

    m: int
    n: int
    k: int
    batch: tuple[int, ...]
    right: int
    column: int


def product_axes(sch: s_tir.Schedule, block: SBlockRV) -> ProductAxes:
    """Return the axes of the matrix multiplication that `block` computes, with unmodified loops.

    Raises UnsupportedOperator for other blocks, or if m, n or k consists of several axes.
    """
    own = sch.get(block)

    def refuse(why: str) -> UnsupportedOperator:
        return UnsupportedOperator(
            f"block {own.name_hint!r}: {why}; expected a matrix multiplication with one axis for each of m, n and k"
        )

    axes = [v.var for v in own.iter_vars]
    reduced = [i for i, v in enumerate(own.iter_vars) if int(v.iter_type) == tirx.IterVar.CommReduce]
    if own.init is None or len(own.writes) != 1 or len(own.reads) != 2 or len(reduced) != 1:
        raise refuse("it does not reduce the product of two operands over one axis")
    if len(sch.get_loops(block)) != len(axes) or not all(isinstance(v.dom.extent, tirx.IntImm) for v in own.iter_vars):
        raise refuse("its loops were modified or have dynamic extents")
    stored = [i for r in own.writes[0].region for i, v in enumerate(axes) if v.same_as(r.min)]
    read = [[i for i, v in enumerate(axes) if v in variables(region)] for region in own.reads]
    if sorted([*stored, *reduced]) != list(range(len(axes))):
        raise refuse("its result is not indexed by its own axes")
    sides = [place for place in stored if (place in read[0]) != (place in read[1])]
    n = sides[-1] if sides else -1
    right = next((number for number in (1, 0) if n in read[number]), 1)
    m = [place for place in sides if place not in read[right]]
    columns = [d for d, r in enumerate(own.reads[right].region) if n >= 0 and r.min.same_as(axes[n])]
    if len(m) != 1 or len(sides) != 2 or len(columns) != 1:
        raise refuse(f"its operands have {len(sides)} axes of their own")
    batch = tuple(place for place in stored if place not in (m[0], n))
    return ProductAxes(m[0], n, reduced[0], batch, right, columns[0])


def split_k(sch: s_tir.Schedule, block: SBlockRV, parts: int) -> SBlockRV:
    """Split the only reduction axis of `block` into `parts` partial sums that are computed side by side (rfactor).

    Returns the block of the partial sums, whose parts may run in parallel; `block` adds them up. Raises
    UnsupportedOperator if `block` has several reduction axes or `parts` does not divide the axis.
    """
    own = sch.get(block)
    places = [i for i, v in enumerate(own.iter_vars) if int(v.iter_type) == tirx.IterVar.CommReduce]
    extents = [own.iter_vars[i].dom.extent for i in places]
    if len(places) != 1 or not isinstance(extents[0], tirx.IntImm) or len(sch.get_loops(block)) != len(own.iter_vars):
        raise UnsupportedOperator(f"block {own.name_hint!r}; expected one static reduction axis and unmodified loops")
    if parts < 1 or int(extents[0]) % parts:
        raise UnsupportedOperator(
            f"block {own.name_hint!r}: parts = {parts}; expected a divisor of its reduction axis, {extents[0]}"
        )
    over, _ = sch.split(sch.get_loops(block)[places[0]], [parts, None])
    return sch.rfactor(over, 0)


def partition(
    sch: s_tir.Schedule, block: SBlockRV, m: int, n: int, k: int | None = None, order: str = "mn"
) -> list[LoopRV]:
    """Divide the matrix multiplication `block` into partitions of `m` x `n` results and `k` steps of K (None: all of
    K), by split and reorder. `order` "mn" puts the loop over row partitions outside, "nm" inside.

    Returns the loops (batch ..., over m, over n, over k, m, n, k), with over m and over n as ordered. Raises
    UnsupportedOperator if `block` is not a matrix multiplication with one axis for each of m, n and k.
    """
    if order not in ("mn", "nm") or min(m, n, 1 if k is None else k) < 1:
        raise UnsupportedOperator(
            f"m = {m}, n = {n}, k = {k}, order = {order!r}; expected sizes of at least 1 and order 'mn' or 'nm'"
        )
    axes, loops = product_axes(sch, block), sch.get_loops(block)
    extents = [int(sch.get(loop).extent) for loop in loops]
    over, inside = {}, {}
    for place, size in {axes.m: m, axes.n: n, axes.k: extents[axes.k] if k is None else k}.items():
        over[place], inside[place] = sch.split(loops[place], [None, min(size, extents[place])])
    outer = [over[axes.m], over[axes.n]] if order == "mn" else [over[axes.n], over[axes.m]]
    ordered = [*(loops[place] for place in axes.batch), *outer, over[axes.k], *inside.values()]
    sch.reorder(*ordered)
    return ordered
