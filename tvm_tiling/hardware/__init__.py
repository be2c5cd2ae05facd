"""Hardware descriptions: their classes, the detection of this CPU, and presets.

Names are imported on first use: running a saved model needs the usable processors, but no description.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .area import Area
    from .column import Column
    from .cpu import Cache, Cpu
    from .description import Hardware
    from .energy import Energy
    from .memory import Level, Memory
    from .near_tile import NearTile
    from .queues import Queues
    from .vector import Vector
    from .w_fold import WFold

_MODULES = {
    "Area": ".area",
    "Cache": ".cpu",
    "Column": ".column",
    "Cpu": ".cpu",
    "Energy": ".energy",
    "Hardware": ".description",
    "Level": ".memory",
    "Memory": ".memory",
    "NearTile": ".near_tile",
    "Queues": ".queues",
    "Vector": ".vector",
    "WFold": ".w_fold",
}

__all__ = [
    "Area",
    "Cache",
    "Column",
    "Cpu",
    "Energy",
    "Hardware",
    "Level",
    "Memory",
    "NearTile",
    "Queues",
    "Vector",
    "WFold",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_MODULES[name], __name__), name)
    return found
