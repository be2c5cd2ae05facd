"""The machine on which figures were measured: processor, caches, measured peaks, versions, date."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..figures import size
from .markup import Html
from .page import table


def machine_table(machine: Mapping[str, Any], peak: Mapping[str, Any] | None) -> Html:
    """Return a row for each item of a `machine_record` and a Peak."""
    name = f", LLVM name {machine['mcpu']}" if machine.get("mcpu") else ""
    rows = [("processor", f"{machine['cpu']}, {machine['cores']} cores used{name}")]
    rows += [
        (
            f"L{c['level']} cache",
            f"{size(c['size'])}, {c['ways']} ways, lines of {c['line']} bytes, shared by {c['cores']}",
        )
        for c in machine.get("caches", ())
    ]
    if machine.get("calibration"):
        rows.append(("constants of the machine", str(machine["calibration"])))
    if peak:
        rows += _peaks(peak)
    versions = machine.get("versions") or {}
    rows += [
        ("versions", ", ".join(f"{package} {version}" for package, version in versions.items())),
        ("date, commit", f"{machine.get('date', '')}, {machine.get('commit') or 'not a checkout'}"),
        ("load at the start", ", ".join(f"{load:.2f}" for load in machine.get("load", ()))),
    ]
    return table(("property", "value"), rows)


def _peaks(peak: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [("float32 peak, measured", f"{peak['gflops']:.0f} GFLOP/s, one core {peak['gflops_one_core']:.0f}")]
    if peak.get("gops_int8"):
        one = peak["gops_int8_one_core"]
        rows.append(("int8 peak, measured", f"{peak['gops_int8']:.0f} giga-operations/s, one core {one:.0f}"))
    rows += [(f"copy in {level['level']}, measured", f"{level['gbytes']:.0f} GB/s") for level in peak["bandwidths"]]
    return rows
