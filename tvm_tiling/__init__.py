"""tvm_tiling: fast TVM kernels without tuning. Tilings are decided from formulas and written as TVM schedules.

Decisions need no TVM: it is imported when a name of the schedule layer is first used. The simulator needs NumPy only.
With TVM, "tvm_tiling" is a Relax pipeline, whichever of the two is imported first.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from .decide.cache_conflict import is_bad_leading_dimension
from .decide.conv_tiling import Candidate, ConvTiling
from .decide.decide import decide
from .decide.microkernel import Microkernel, microkernel
from .decide.stride_fold import StrideFold
from .decide.tiling import GemmTiling, Reason
from .errors import (
    DatabaseError,
    HardwareError,
    ModelFormatError,
    ProgramError,
    SimulationError,
    TilingError,
    UnsupportedOperator,
    WorkloadError,
)
from .hardware import Cache, Cpu, Hardware, NearTile, WFold
from .workload import ConvWorkload, GemmWorkload

if TYPE_CHECKING:
    from .accel.program import Program
    from .accel.report import SimReport
    from .accel.simulate import simulate
    from .model.compile import compile_model as compile
    from .model.executable import Executable, load
    from .schedule import ApplyTiling, PackedOperator, llvm_target, packed_operator, tiling_schedule

__version__ = "0.1.0"

# Names imported on first use, because they bring TVM or NumPy with them: where they are, and their names there.
_ON_FIRST_USE = {
    "ApplyTiling": (".schedule", "ApplyTiling"),
    "Executable": (".model.executable", "Executable"),
    "PackedOperator": (".schedule", "PackedOperator"),
    "compile": (".model.compile", "compile_model"),
    "Program": (".accel.program", "Program"),
    "SimReport": (".accel.report", "SimReport"),
    "llvm_target": (".schedule", "llvm_target"),
    "load": (".model.executable", "load"),
    "packed_operator": (".schedule", "packed_operator"),
    "simulate": (".accel.simulate", "simulate"),
    "tiling_schedule": (".schedule", "tiling_schedule"),
}

__all__ = [
    "ApplyTiling",
    "Cache",
    "Candidate",
    "ConvTiling",
    "ConvWorkload",
    "Cpu",
    "DatabaseError",
    "Executable",
    "GemmTiling",
    "GemmWorkload",
    "Hardware",
    "HardwareError",
    "Microkernel",
    "ModelFormatError",
    "NearTile",
    "PackedOperator",
    "Program",
    "ProgramError",
    "Reason",
    "SimReport",
    "SimulationError",
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
    "simulate",
    "tiling_schedule",
]


def __getattr__(name: str) -> Any:
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _ON_FIRST_USE[name]
    found = getattr(importlib.import_module(module, __name__), attribute)
    _register_pipeline()
    return found


def _register_pipeline() -> None:
    """What TVM does by itself when it is imported, by the entry point group "tvm.backends": where this package is run
    from source, or is imported after TVM."""
    if "tvm" in sys.modules:
        importlib.import_module(".model.relax_pipeline", __name__).register()


_register_pipeline()
