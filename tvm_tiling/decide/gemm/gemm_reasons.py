"""Reasons for the fields of a CPU decision, as text."""

from __future__ import annotations

from dataclasses import replace

from ...figures import quantity
from ...hardware.description import Cpu
from ...hardware.dot_instructions import DotInstruction
from ...workload import GemmWorkload
from ..tiling import GemmTiling, Reason
from .microkernel import registers_of
from .traffic import ceil_div

# Fields whose reason does not depend on the decision.
_ALWAYS = {
    "utilisation": "share of the peak multiply-adds in the predicted cycles of the slowest core",
    "predicted_seconds": "predicted cycles of the slowest core at the clock frequency that the system reports",
}


def with_reasons(tiling: GemmTiling, why: dict[str, str]) -> GemmTiling:
    """Return `tiling` with a reason for every field named in `why`."""
    named = {**why, **_ALWAYS}
    return replace(tiling, reasons=tuple(Reason(name, getattr(tiling, name), text) for name, text in named.items()))


def blocked_reasons(
    w: GemmWorkload, cpu: Cpu, engine: DotInstruction, tiling: GemmTiling, *, bad: bool, plain_a: bool, forced: bool
) -> dict[str, str]:
    """Return the reasons for a kernel with register tiles. `bad`: the tile's rows collide in L1 when read in place."""
    assert tiling.mr and tiling.nr and tiling.lanes and tiling.keep is not None
    l1 = cpu.cache(1)
    ways = l1.ways if l1 else 8
    rows, vectors, tiles = tiling.mr, tiling.nr // tiling.lanes, ceil_div(w.m, tiling.mr)
    collide = f"rows {w.lda} elements apart {'map' if bad else 'do not map'} more rows to a cache set than it has ways"
    copied = "the rows of a tile are copied once per block of columns"
    if not bad and engine.widens(w.types.a):
        collide = f"elements are widened to {engine.a} as they are read"
        copied += " and widened only once"
    forms = {
        "normal": collide,
        "nocopy": f"{collide}; copying costs more than it saves"
        if bad
        else f"taller tiles would collide in L1, {quantity(rows, 'row')} fit its {ways} ways",
        "inline": f"{collide}: {quantity(tiling.keep, 'row')} in place, {rows - tiling.keep} from a small buffer",
        "pack": f"{collide}: {copied}" if plain_a else f"{engine.name} takes its operands converted or interleaved",
    }
    parts = (tiling.threads_batch, tiling.threads_m, tiling.threads_n, tiling.threads_k)
    cores = quantity(cpu.cores, "core")
    shares = " x ".join(map(str, parts)) + f" in batch, m, n and K: the fastest division of {cores}"
    packing = {
        "ahead": f"B is prepacked in {engine.stored} and widened as it is read" if engine.stored else "B is prepacked",
        "pack": f"a panel of B serves {quantity(tiles, 'tile')} of rows",
        "none": f"{quantity(tiles, 'tile')} of rows are too few for packing a B of this size",
    }
    needed = registers_of(rows, vectors, rows=engine.rows)
    return {
        "form": "forced" if forced else forms[tiling.form or "normal"],
        "mr": f"{rows} x {quantity(vectors, 'vector')}: {needed} of {cpu.vector_registers} registers",
        "nr": f"{quantity(vectors, 'vector')} of {tiling.lanes} lanes, {engine.name}",
        "lanes": f"{cpu.vector_bits}-bit registers of {engine.acc}",
        "keep": f"of {quantity(rows, 'row')}, those read in place; up to {cpu.priority_ratio:.0%} of {ways} ways "
        "where rows collide",
        "partition_m": "one core's share of the rows",
        "partition_n": "a block of B stays in L2",
        "partition_k": "a tile of A stays in L1" if tiling.split_k else "all of K",
        "outer_order": "a block of B serves all rows before the next",
        "inner_order": "a tile of A stays, panels of B stream past"
        if tiling.inner_order == "mn"
        else "a panel of B stays",
        "threads_batch": shares,
        "threads_m": shares,
        "threads_n": shares,
        "threads_k": "m and n alone do not keep the cores busy" if parts[3] != 1 else shares,
        "pack_a": "determined by the kernel variant",
        "pack_b": packing[tiling.pack_b or "none"],
        "load_a": "once per block of columns",
        "load_b": "once: tiles read the packed copy" if tiling.pack_b != "none" else "once per tile of rows",
    }


def stream_reasons(w: GemmWorkload, cpu: Cpu, tiling: GemmTiling) -> dict[str, str]:
    """Return the reasons for the streaming kernel."""
    along = "k" if w.trans_b else "n"
    return {
        "form": (
            f"{quantity(w.m, 'row')}: each element of B is used {quantity(w.m, 'time')}, so B is streamed once, along "
            f"{along}"
        ),
        "partition_n": "one core's columns, with sums in L2",
        "partition_k": "all of K" if w.trans_b else "rows of B read side by side in one pass over the sums",
        "nr": "columns summed side by side in registers" if w.trans_b else "one vector",
        "threads_n": f"columns divided among {quantity(tiling.threads_n or 1, 'core')} of {cpu.cores}",
        "pack_b": "B is read once",
        "load_b": "once",
    }
