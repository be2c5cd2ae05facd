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
from .errors import HardwareError, ModelFormatError, TilingError, UnsupportedOperator, WorkloadError
from .hardware import Cache, Cpu, Hardware, NearTile, WFold
from .workload import ConvWorkload, GemmWorkload

if TYPE_CHECKING:
    from .model.compile import compile_model as compile
    from .model.executable import Executable, load
    from .schedule import ApplyTiling, PackedOperator, llvm_target, packed_operator, tiling_schedule

__version__ = "0.1.0"

# Names imported on first use, because they bring TVM with them: where they are, and what they are called there.
_WITH_TVM = {
    "ApplyTiling": (".schedule", "ApplyTiling"),
    "Executable": (".model.executable", "Executable"),
    "PackedOperator": (".schedule", "PackedOperator"),
    "compile": (".model.compile", "compile_model"),
    "llvm_target": (".schedule", "llvm_target"),
    "load": (".model.executable", "load"),
    "packed_operator": (".schedule", "packed_operator"),
    "tiling_schedule": (".schedule", "tiling_schedule"),
}

__all__ = [
    "ApplyTiling",
    "Cache",
    "Candidate",
    "ConvTiling",
    "ConvWorkload",
    "Cpu",
    "Executable",
    "GemmTiling",
    "GemmWorkload",
    "Hardware",
    "HardwareError",
    "Microkernel",
    "ModelFormatError",
    "NearTile",
    "PackedOperator",
    "Reason",
    "StrideFold",
    "TilingError",
    "UnsupportedOperator",
    "WFold",
    "WorkloadError",
    "compile",
    "decide",
    "is_bad_leading_dimension",
    "llvm_target",
    "load",
    "microkernel",
    "packed_operator",
    "tiling_schedule",
]


def __getattr__(name: str) -> Any:
    if name not in _WITH_TVM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _WITH_TVM[name]
    return getattr(importlib.import_module(module, __name__), attribute)
