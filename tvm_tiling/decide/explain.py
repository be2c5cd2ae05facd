"""A decision as text: every choice with its value and its reason."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import fields
from typing import NamedTuple

from .tiling import GemmTiling

_ORDERS = {"mn": "m outside n", "nm": "n outside m"}
_CUT = ("partition_m", "partition_n", "partition_k", "tile_m", "tile_n", "outer_order", "inner_order")
_SPLIT = ("split_k", "need_acc_buffer", "acc_bytes")
_PREDICTED = ("load_a", "load_b", "utilisation", "predicted_seconds")
_HEADLINE = ("mode", "feasible", "reasons")
_CPU = tuple(f.name for f in fields(GemmTiling) if f.name not in (*_CUT, *_SPLIT, *_PREDICTED, *_HEADLINE))
_SECTIONS = (("cut", _CUT), ("split-K", _SPLIT), ("CPU", _CPU), ("predicted", _PREDICTED))


class Row(NamedTuple):
    """One choice as text: the part of the decision it belongs to, its name, its value and why."""

    section: str
    name: str
    value: str
    why: str


def explained(tiling: GemmTiling) -> Iterator[Row]:
    """Every choice of the decision in reading order. Fields that are None are left out; reasons for anything else come
    last, in the section "also"."""
    shown = set()
    for section, names in _SECTIONS:
        for name in names:
            if getattr(tiling, name) is not None:
                shown.add(name)
                yield Row(section, name, _text(name, getattr(tiling, name)), tiling.why(name))
    for reason in tiling.reasons:
        if reason.field not in shown:
            yield Row("also", reason.field, _text(reason.field, reason.value), reason.why)


def headline(tiling: GemmTiling) -> str:
    """What kind of decision this is, and whether it fits."""
    return f"gemm tiling, mode {tiling.mode}" + ("" if tiling.feasible else ": DOES NOT FIT the buffers")


def explain_gemm(tiling: GemmTiling) -> str:
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
    if name == "utilisation" and isinstance(value, float):
        return f"{value:.1%}"
    if name == "predicted_seconds" and isinstance(value, float):
        return f"{value:.3g} s"
    if name in ("load_a", "load_b"):
        return "once" if value == 1 else f"{value} times"
    return str(value)
