"""Reasons for the fields of a CPU decision, as text."""

from __future__ import annotations

from dataclasses import replace

from ...figures import quantity, times
from ...hardware.description import Cpu
from ...hardware.dot_instructions import DotInstruction
from ...workload import GemmWorkload
from ..tiling import GemmTiling, Reason
from .microkernel import registers_of
from .traffic import ceil_div

# Fields whose reason does not depend on the decision.
_ALWAYS = {
    "utilisation": "share of the peak multiply-add rate in the predicted time",
    "predicted_seconds": "of the slowest core, at the clock frequency that the system reports",
}

PREFETCHED = "its first read may be from memory"  # of prefetch_b


def with_reasons(tiling: GemmTiling, why: dict[str, str]) -> GemmTiling:
    """Return `tiling` with a reason for every field named in `why`."""
    named = {**why, **_ALWAYS}
    found = ((name, getattr(tiling, name), text) for name, text in named.items())
    return replace(tiling, reasons=tuple(Reason(*each) for each in found if each[1] is not None))


def blocked_reasons(
    w: GemmWorkload, cpu: Cpu, engine: DotInstruction, tiling: GemmTiling, *, bad: bool, plain_a: bool, forced: bool
) -> dict[str, str]:
    """Return the reasons for a kernel with register tiles. `bad`: the tile's rows collide in L1 when read in place."""
    assert tiling.mr and tiling.nr and tiling.lanes and tiling.keep is not None
    l1 = cpu.cache(1)
    ways = l1.ways if l1 else 8
    rows, vectors, tiles = tiling.mr, tiling.nr // tiling.lanes, ceil_div(w.m, tiling.mr)
    collide = f"rows of A, {w.lda} elements apart, {'exceed' if bad else 'fit'} the ways of an L1 set"
    copied = "the rows of a tile are copied once per block of columns"
    if not bad and engine.widens(w.types.a):
        collide = f"elements are widened to {engine.a} as they are read"
        copied += " and widened at the same time"
    forms = {
        "normal": collide,
        "nocopy": f"{collide}; copying costs more than it saves"
        if bad
        else f"{quantity(rows, 'row')} of A fit the {ways} ways of an L1 set; more rows would evict each other",
        "inline": f"{collide}: {quantity(tiling.keep, 'row')} in place, {rows - tiling.keep} from a small buffer",
        "pack": f"{collide}: {copied}" if plain_a else f"{engine.name} takes its operands converted or interleaved",
    }
    cores = quantity(cpu.cores, "core")
    fastest = f"the fastest division of {cores} among batch, m, n and K" if cpu.cores > 1 else cores
    packing = {
        "ahead": f"B is prepacked in {engine.stored} and widened as it is read" if engine.stored else "B is prepacked",
        "pack": f"each panel of B is used for {quantity(tiles, 'tile')} of rows, which pays for packing it",
        "none": f"B is used for {quantity(tiles, 'tile')} of rows, which does not pay for packing it",
    }
    needed = registers_of(rows, vectors, rows=engine.rows)
    return {
        "form": "forced" if forced else forms[tiling.form or "normal"],
        "mr": f"{rows} x {quantity(vectors, 'vector')}: {needed} of {cpu.vector_registers} registers",
        "nr": f"{quantity(vectors, 'vector')} of {tiling.lanes} lanes, {engine.name}",
        "lanes": f"{cpu.vector_bits}-bit registers of {engine.acc}",
        "keep": f"of {quantity(rows, 'row')}; rows that share a cache set may fill {cpu.priority_ratio:.0%} of its "
        f"{ways} ways",
        "partition_m": "one core's share of the rows",
        "partition_n": "a block of B stays in L2",
        "partition_k": "a tile of A stays in L1" if tiling.split_k else "all of K",
        "outer_order": "a block of B is used for all rows before the next one",
        "inner_order": "a tile of A stays in L1, panels of B stream past"
        if tiling.inner_order == "mn"
        else "a panel of B stays in L1, tiles of A stream past",
        "threads_batch": f"for {quantity(w.batch, 'multiplication')}; {fastest}",
        "threads_m": f"for {quantity(w.m, 'row')}",
        "threads_n": f"for {quantity(w.n, 'column')}",
        "threads_k": "K is divided, as m and n alone do not keep the cores busy"
        if (tiling.threads_k or 1) > 1
        else "each core adds up all of its K",
        "pack_a": f"as in kernel variant {tiling.form}",
        "pack_b": packing[tiling.pack_b or "none"],
        "prefetch_b": PREFETCHED,
        "prefetch_next": "or it would arrive during the first tiles that use it, faster than memory delivers",
        "load_a": "once per block of columns",
        "load_b": "for packing; tiles read the packed copy" if tiling.pack_b != "none" else "once per tile of rows",
    }


def stream_reasons(w: GemmWorkload, cpu: Cpu, tiling: GemmTiling) -> dict[str, str]:
    """Return the reasons for the streaming kernel."""
    along = "k" if w.trans_b else "n"
    return {
        "form": (f"B is streamed once, along {along}, as each of its elements is used only {times(w.m)}"),
        "partition_n": "the columns of a core, whose sums fit L2",
        "partition_k": "all of K" if w.trans_b else "rows of B that are read in one pass over the sums",
        "nr": "columns whose sums are in registers" if w.trans_b else "one vector",
        "threads_n": f"of {quantity(cpu.cores, 'core')}, for {quantity(w.n, 'column')}",
        "pack_b": "each element of B is read only once",
        "load_b": "streamed",
    }
