"""Loop orders of a cut by the names and flags that presets give them (page 01)."""

from __future__ import annotations

from ...errors import TilingError

ORDERS = {"mn": "mn", 1: "mn", "nm": "nm", 0: "nm"}  # m outside n is the seed's flag 1, n outside m its flag 0


def order_named(option: str, preset: str | int | None, default: str) -> str:
    """The order that a preset names, `default` where there is none; TilingError if it names no order."""
    if preset is None:
        return default
    if preset not in ORDERS:
        raise TilingError(f"decide: {option} = {preset!r}, accepted: 'mn' or 1 (m outside n), 'nm' or 0 (n outside m)")
    return ORDERS[preset]
