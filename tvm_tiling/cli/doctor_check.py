"""One line of `tvm-tiling doctor`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """`status` is "ok", "warn" (works, but not as well as it could) or "fail"; `remedy` says how to mend it."""

    name: str
    status: str
    found: str
    remedy: str = ""
