"""A decision as text: every choice with its value and its reason."""

from __future__ import annotations

from dataclasses import fields

from .tiling import GemmTiling

_ORDERS = {"mn": "m outside n", "nm": "n outside m"}
_CUT = ("partition_m", "partition_n", "partition_k", "tile_m", "tile_n", "outer_order", "inner_order")
_SPLIT = ("split_k", "need_acc_buffer", "acc_bytes")
_PREDICTED = ("load_a", "load_b", "utilisation", "predicted_seconds")
_HEADLINE = ("mode", "feasible", "reasons")
_CPU = tuple(f.name for f in fields(GemmTiling) if f.name not in (*_CUT, *_SPLIT, *_PREDICTED, *_HEADLINE))
_SECTIONS = (("cut", _CUT), ("split-K", _SPLIT), ("CPU", _CPU), ("predicted", _PREDICTED))


def explain_gemm(tiling: GemmTiling) -> str:
    """Every choice of the decision, what it is and why, and the predicted traffic and utilisation.

    Fields that are None are left out; reasons for anything else stand at the end.
    """
    lines = [f"gemm tiling, mode {tiling.mode}" + ("" if tiling.feasible else ": DOES NOT FIT the buffers")]
    shown = set()
    for title, names in _SECTIONS:
        present = [name for name in names if getattr(tiling, name) is not None]
        shown.update(present)
        if present:
            lines.append(f"  {title}")
            lines.extend(_line(name, _text(name, getattr(tiling, name)), tiling.why(name)) for name in present)
    further = [reason for reason in tiling.reasons if reason.field not in shown]
    if further:
        lines.append("  also")
        lines.extend(_line(reason.field, _text(reason.field, reason.value), reason.why) for reason in further)
    return "\n".join(lines)


def _line(name: str, value: str, why: str) -> str:
    return f"    {name:<17} {value:<12} {why}".rstrip()


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
