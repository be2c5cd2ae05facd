"""tvm_tiling: fast TVM kernels without tuning. Tilings are decided from formulas and written as TVM schedules.

Decisions need no TVM: it is imported when a name of the schedule layer is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .decide.cache_conflict import is_bad_leading_dimension
from .decide.conv_tiling import Candidate, ConvTiling
from .decide.decide import decide
from .decide.microkernel import Microkernel, microkernel
from .decide.stride_fold import StrideFold
from .decide.tiling import GemmTiling, Reason
from .errors import HardwareError, TilingError, UnsupportedOperator, WorkloadError
from .hardware import Cache, Cpu, Hardware, NearTile, WFold
from .workload import ConvWorkload, GemmWorkload

if TYPE_CHECKING:
    from .schedule import ApplyTiling, PackedOperator, llvm_target, packed_operator, tiling_schedule

__version__ = "0.1.0"

# Names of the schedule layer, imported on first use because they bring TVM with them.
_WITH_TVM = ("ApplyTiling", "PackedOperator", "llvm_target", "packed_operator", "tiling_schedule")

__all__ = [
    "ApplyTiling",
    "Cache",
    "Candidate",
    "ConvTiling",
    "ConvWorkload",
    "Cpu",
    "GemmTiling",
    "GemmWorkload",
    "Hardware",
    "HardwareError",
    "Microkernel",
    "NearTile",
    "PackedOperator",
    "Reason",
    "StrideFold",
    "TilingError",
    "UnsupportedOperator",
    "WFold",
    "WorkloadError",
    "decide",
    "is_bad_leading_dimension",
    "llvm_target",
    "microkernel",
    "packed_operator",
    "tiling_schedule",
]


def __getattr__(name: str) -> Any:
    if name not in _WITH_TVM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(".schedule", __name__), name)
    globals()[name] = value
    return value
