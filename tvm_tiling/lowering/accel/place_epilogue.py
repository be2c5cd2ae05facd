"""Places the epilogue and the store at a loop of the schedule that computes the sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

from tvm import DataType, s_tir, tirx
from tvm.ir import Call

from ...hardware.description import Hardware
from ...hardware.machine import Machine
from ...match.access import loads
from .moves import Block, LoopRV, below, last_loops, on_engine, tiled
from .operands import further_operands, loops_of, place_loads
from .pieces import in_pieces

MOST_VERSIONS = 8  # of results waiting for their store


class EpilogueCapacity(NamedTuple):
    """Bytes available for results and epilogue operands (None: unlimited), and the number of results in a whole tile
    and in the part of it that the vector engine computes at once."""

    bytes: int | None
    whole: int
    part: int


def place_epilogue(
    sch: s_tir.Schedule, whole: LoopRV, part: LoopRV, capacity: EpilogueCapacity, sizes: Mapping[int, int] | None = None
) -> None:
    """Place the block "results", if there is one, at `part` on the vector engine, and "store" on the store engine.
    `sizes` divides the results at `part` further: elements computed at once along some of their six axes."""
    store = sch.get_sblock("store")
    blocks = [sch.get(block).name_hint for block in sch.get_child_blocks(sch.get_sblock("root"))]
    if "results" not in blocks:
        sch.reverse_compute_at(store, part, preserve_unit_loops=True)
        on_engine(sch, store, "store", below(sch, store, part))
        return
    results = sch.get_sblock("results")
    sch.reverse_compute_at(results, part, preserve_unit_loops=True)
    if sizes:
        part = tiled(sch, results, [sizes.get(axis) for axis in range(6)], sorted(sizes))[-1]
    sums = sch.get(sch.get_sblock("sums")).body.buffer
    serve_results(sch, results, store, whole, part, capacity, further_operands(sch, results, [sums], "out"))


def serve_results(
    sch: s_tir.Schedule,
    results: Block,
    store: Block,
    whole: LoopRV,
    part: LoopRV,
    capacity: EpilogueCapacity,
    made: Sequence[Block],
) -> None:
    """Assign `results`, which is at `part`, to the vector engine, followed by the store and preceded by the loads
    `made` of its further operands. These are placed at `whole` if two versions of a tile fit, otherwise at each
    part."""
    own = [sch.get(loop) for loop in last_loops(sch, results, below(sch, results, part))]
    each = _width(sch.get(results).body.buffer)
    for load in made:
        buffer = sch.get(load).body.buffer
        if _one_for_each(own, loops_of(sch, results, buffer)):
            each += _width(buffer)
    scratch = 4 * capacity.part * _scratch(sch.get(results).body.value)
    at, versions = whole, 2
    if capacity.bytes is not None and 2 * each * capacity.whole + scratch > capacity.bytes:
        at, versions = part, max(2, min(MOST_VERSIONS, (capacity.bytes - scratch) // (each * capacity.part)))
    sch.reverse_compute_at(store, at, preserve_unit_loops=True)
    place_loads(sch, results, at, made)
    on_engine(sch, results, "vector", below(sch, results, part), versions)
    on_engine(sch, store, "store", below(sch, store, at))


def finished(sch: s_tir.Schedule, name: str, hardware: Hardware) -> tirx.PrimFunc:
    """Return the scheduled function with its epilogue divided into pieces that fit the machine's output buffer."""
    func = sch.mod[name]
    pieces = _epilogue_pieces(sch, Machine(hardware).capacity("out"))
    return (in_pieces(func, name, pieces) or func) if pieces > 1 else func


def _epilogue_pieces(sch: s_tir.Schedule, capacity: int | None) -> int:
    """Return into how many pieces the block "results" must be divided to fit `capacity` bytes: two versions of its
    results and further operands, and a scratch element for each nested operation of its expression."""
    blocks = [sch.get(block).name_hint for block in sch.get_child_blocks(sch.get_sblock("root"))]
    if capacity is None or "results" not in blocks:
        return 1
    results = sch.get_sblock("results")
    block = sch.get(results)
    count = int(block.annotations["vsim.loops"])
    elements = prod(_extent(sch.get(loop)) for loop in last_loops(sch, results, count))
    sums = sch.get(sch.get_sblock("sums")).body.buffer
    others = {load.source for load in loads(block.body.value) if not load.source.same_as(sums)}
    held, whole = 2 * _width(block.body.buffer) + 4 * _scratch(block.body.value), 0
    own = [sch.get(loop) for loop in last_loops(sch, results, count)]
    for buffer in others:
        varies = loops_of(sch, results, buffer)
        if _one_for_each(own, varies):
            held += 2 * _width(buffer)
        else:  # resident while the pieces are processed
            whole += 2 * _width(buffer) * prod(_extent(loop) for loop in own if loop.loop_var in varies)
    return -(-elements * held // max(1, capacity - whole))


def _one_for_each(loops: Sequence[tirx.For], varies: set[tirx.Var]) -> bool:
    """Return whether an operand that depends on these variables has a separate element for each iteration of the
    loops."""
    return all(loop.loop_var in varies or _extent(loop) == 1 for loop in loops)


def _extent(loop: tirx.For) -> int:
    return int(loop.extent) if isinstance(loop.extent, tirx.IntImm) else 1


def _width(buffer: tirx.Buffer) -> int:
    return int(DataType(str(buffer.dtype)).bits + 7) // 8


def _scratch(expr: tirx.Expr) -> int:
    """Return the scratch elements needed to evaluate an expression: the first operand's result is kept while the second
    is evaluated, and an operation overwrites one of its operands."""
    parts = [getattr(expr, name) for name in ("a", "b", "value") if isinstance(getattr(expr, name, None), tirx.Expr)]
    parts += list(expr.args) if isinstance(expr, Call) else []
    kept = most = 0
    for needed in map(_scratch, parts):
        most = max(most, kept + needed)
        kept += needed > 0
    return max(1, most) if parts else 0
