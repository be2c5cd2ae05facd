"""A decision as text: every choice with its value and its reason."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, NamedTuple

from .conv.tiling import ConvTiling
from .levels.gemm import LevelsTiling
from .rnn.column import RnnTiling
from .rnn.column_product import ColumnTiling
from .rnn.cpu import RnnCpuTiling
from .rnn.recurrence import RecurrenceTiling
from .tiling import Decision, GemmTiling
from .vector.attention import AttentionTiling

_ORDERS = {"mn": "m outside n", "nm": "n outside m"}
_CUT = ("partition_m", "partition_n", "partition_k", "tile_m", "tile_n", "outer_order", "inner_order")
_SPLIT = ("split_k", "need_acc_buffer", "acc_bytes")
_LOADS = ("load_a", "load_b", "utilisation", "predicted_seconds")
_FOLD = ("stride_fold", "pci", "ws", "bci", "kmax", "kw_pieces")
_LEAVING = ("aco", "co_block", "pco", "wso", "pco_whole", "pco_remainder")
_LOOPS = ("loop_order", "block_steps")
_COUNTS = ("steps", "reads", "weight_rows", "write_rows", "cycles", "utilisation", "predicted_seconds")
_PROGRAM = ("chunks", "blocks")  # of an accelerator: what its program loads and multiplies
_HEADLINE = ("mode", "feasible", "reasons", "candidates")


def _rest(kind: type[Decision], *shown: tuple[str, ...]) -> tuple[str, ...]:
    named = {name for names in shown for name in names}
    return tuple(f.name for f in fields(kind) if f.name not in named)


# The parts of a decision in reading order. What no other machine has is the CPU's.
_SECTIONS: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    GemmTiling.op: (
        ("cut", _CUT),
        ("split-K", _SPLIT),
        ("program", _PROGRAM),
        ("CPU", _rest(GemmTiling, _CUT, _SPLIT, _LOADS, _PROGRAM, _HEADLINE)),
        ("predicted", _LOADS),
    ),
    ConvTiling.op: (
        ("form", ("form",)),
        ("fold", _FOLD),
        ("output", _LEAVING),
        ("loops", _LOOPS),
        ("CPU", _rest(ConvTiling, ("form",), _FOLD, _LEAVING, _LOOPS, _COUNTS, _HEADLINE)),
        ("predicted", _COUNTS),
    ),
    AttentionTiling.op: (
        ("block", ("form", "block_rows", "lanes")),
        ("register tiles", ("scores", "values")),
        ("cores", ("threads_batch", "threads_rows")),
        ("predicted", ("predicted_seconds",)),
    ),
    ColumnTiling.op: (
        ("columns", ("ep", "vp")),
        ("piece", ("rows", "columns", "versions", "vectors", "sums")),
        ("predicted", ("cycles", "utilisation")),
    ),
    RnnTiling.op: (
        ("columns", ("ep", "vp", "tail")),
        ("threads", ("threads", "threads_needed", "engines")),
        ("predicted", ("cycles_per_step", "row_wise_per_step", "cycles", "utilisation", "seed_gap")),
    ),
    RnnCpuTiling.op: (
        ("columns", ("ep", "vp", "threads")),
        ("predicted", ("cycles_per_step", "utilisation", "predicted_seconds")),
    ),
    RecurrenceTiling.op: (
        ("columns", ("ep", "vp")),
        ("register tile", ("lanes", "blocks", "rows")),
        ("cores", ("threads", "turning")),
        ("predicted", ("predicted_seconds",)),
    ),
    LevelsTiling.op: (
        ("one product", ("tile_m", "tile_n", "tile_k", "sum_slots")),
        ("split-K", ("split_level",)),
        ("predicted", ("load_a", "load_b", "cycles", "utilisation")),
    ),
}


class Row(NamedTuple):
    """One choice as text: the part of the decision it belongs to, its name, its value and why."""

    section: str
    name: str
    value: str
    why: str


def explained(tiling: Decision) -> Iterator[Row]:
    """Every choice of the decision in reading order. Fields that are None are left out; the forms that were compared
    follow, and last, in the section "also", reasons for anything else."""
    shown = set()
    for section, names in _SECTIONS[tiling.op]:
        for name in names:
            value = getattr(tiling, name, None)
            if value is None:
                continue
            shown.add(name)
            if name in _PROGRAM:
                yield from _parts(section, value, tiling.why(name))
            else:
                yield Row(section, name, _text(name, value), tiling.why(name))
    if isinstance(tiling, ConvTiling):
        for form, seconds, why in tiling.candidates:
            yield Row("compared", form, "refused" if seconds is None else _text("predicted_seconds", seconds), why)
    if isinstance(tiling, RnnTiling) and len(tiling.layers) > 1:
        for number, layer in enumerate(tiling.layers, start=1):
            why = f"{layer.cycles_per_step} cycles a step: Cx {layer.cx}, Ch {layer.ch}, latency {layer.latency}"
            yield Row("layers", f"layer {number}", f"{layer.ep} x {layer.vp}", why)
    if isinstance(tiling, RnnCpuTiling):
        for number, part in enumerate(tiling.layers, start=1):
            p, r = part.product, part.recurrence
            yield Row(
                "layers", f"layer {number}", f"{r.ep} x {r.vp}", f"x part {p.form}, {p.mr} x {p.nr}; {r.threads} cores"
            )
    if isinstance(tiling, LevelsTiling):
        for cut in tiling.levels:
            shown.add(cut.reason)
            blocks = f"{cut.left[0]} x {cut.right[1]} x {cut.left[1]}"
            yield Row("levels", cut.name, blocks, tiling.why(cut.reason))
    for reason in tiling.reasons:
        if reason.field not in shown:
            yield Row("also", reason.field, _text(reason.field, reason.value), reason.why)


def _parts(section: str, value: Any, why: str) -> Iterator[Row]:
    """The fields of a record within a decision; the reason stands beside the first."""
    for field in fields(value):
        yield Row(section, field.name, _text(field.name, getattr(value, field.name)), why)
        why = ""


def headline(tiling: Decision) -> str:
    """What kind of decision this is, and whether it fits."""
    fits = not isinstance(tiling, GemmTiling) or tiling.feasible
    return f"{tiling.op} tiling, mode {tiling.mode}" + ("" if fits else ": DOES NOT FIT the buffers")


def explain_tiling(tiling: Decision) -> str:
    """The decision as text: what was chosen, why, and the predicted traffic and utilisation."""
    lines = [headline(tiling)]
    for section, rows in itertools.groupby(explained(tiling), key=lambda row: row.section):
        lines.append(f"  {section}")
        lines.extend(f"    {row.name:<17} {row.value:<12} {row.why}".rstrip() for row in rows)
    return "\n".join(lines)


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name in ("outer_order", "inner_order"):
        return _ORDERS.get(str(value), str(value))
    if name == "loop_order" and isinstance(value, tuple):
        return " < ".join(value)
    if name == "utilisation" and isinstance(value, float):
        return f"{value:.1%}"
    if name == "seed_gap" and isinstance(value, float):
        return f"{value:.3g}"
    if name == "predicted_seconds" and isinstance(value, float):
        return f"{value:.3g} s"
    if name in ("cycles", "cycles_per_step") and isinstance(value, float):
        return f"{value:.0f}"
    if name in ("load_a", "load_b"):
        return "once" if value == 1 else f"{value} times"
    if isinstance(value, tuple):
        return " + ".join(map(str, value))
    return str(value)
