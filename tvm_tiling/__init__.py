"""tvm_tiling: fast TVM kernels without tuning. Loop tilings are chosen analytically and written as TVM schedules.

Names are imported on first use. Decisions do not require TVM, nor do saved models with an execution plan. The simulator
requires only NumPy.

With TVM, "tvm_tiling" is a Relax pipeline, whichever of the two is imported first.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from .lean_import import tvm_without_torch
from .old_names import deprecated

if TYPE_CHECKING:
    from .accel.program.program import Program
    from .accel.recurrent.task_report import TaskReport
    from .accel.recurrent.tasks import Task
    from .accel.report.report import SimReport
    from .accel.timing.simulate import simulate
    from .decide.configs.config import Config, config_of
    from .decide.configs.neighbourhood import neighbourhood
    from .decide.conv.conv_tiling import Candidate, ConvTiling
    from .decide.conv.stride_fold import StrideFold
    from .decide.decide import decide
    from .decide.gemm.cache_conflict import is_bad_leading_dimension
    from .decide.gemm.microkernel import Microkernel, microkernel
    from .decide.rnn.column import RnnTiling, rnn_cycles
    from .decide.tiling import GemmTiling, Reason
    from .errors import (
        DatabaseError,
        HardwareError,
        LimitError,
        ModelFormatError,
        ProgramError,
        SimulationError,
        TilingError,
        UnsupportedOperator,
        WorkloadError,
    )
    from .hardware import Cache, Cpu, Hardware, NearTile, WFold
    from .limits import Limits
    from .lowering.fold_moves import fold_strides, fold_width
    from .lowering.product_moves import partition, split_k
    from .model.compile import compile_model as compile
    from .model.executable import Executable
    from .model.generate import Generated, generate
    from .model.load import load
    from .model.run_many import run_many
    from .model.session import Session
    from .model.torch_report import torch_report
    from .report.save import save_report
    from .runtime.arrays import aligned_empty
    from .runtime.launcher import use_all_cores
    from .schedule import ApplyTiling, PackedOperator, llvm_target, packed_operator, tiling_schedule
    from .tuning.metaschedule.cost_model import TilingCostModel
    from .tuning.metaschedule.local_builder import local_builder
    from .tuning.metaschedule.rules import primitive_rules, schedule_rules, space_generator
    from .tuning.metaschedule.seeds import seed_database
    from .tuning.metaschedule.simulated_runs import simulator_builder, simulator_runner
    from .tuning.metaschedule.trial_log import trial_log
    from .tuning.shapes.database import ShapeDatabase
    from .tuning.tune import tune
    from .workload import ConvWorkload, GemmWorkload, RnnWorkload

__version__ = "0.1.0"

# Names are imported on first use, so that importing the package takes only some hundredths of a second. Each entry
# gives the module and the name in it.
_ON_FIRST_USE = {
    "Candidate": (".decide.conv.conv_tiling", "Candidate"),
    "ConvTiling": (".decide.conv.conv_tiling", "ConvTiling"),
    "Cache": (".hardware", "Cache"),
    "ConvWorkload": (".workload", "ConvWorkload"),
    "Cpu": (".hardware", "Cpu"),
    "DatabaseError": (".errors", "DatabaseError"),
    "GemmTiling": (".decide.tiling", "GemmTiling"),
    "GemmWorkload": (".workload", "GemmWorkload"),
    "Hardware": (".hardware", "Hardware"),
    "HardwareError": (".errors", "HardwareError"),
    "LimitError": (".errors", "LimitError"),
    "Limits": (".limits", "Limits"),
    "Microkernel": (".decide.gemm.microkernel", "Microkernel"),
    "ModelFormatError": (".errors", "ModelFormatError"),
    "NearTile": (".hardware", "NearTile"),
    "ProgramError": (".errors", "ProgramError"),
    "Reason": (".decide.tiling", "Reason"),
    "RnnTiling": (".decide.rnn.column", "RnnTiling"),
    "RnnWorkload": (".workload", "RnnWorkload"),
    "SimulationError": (".errors", "SimulationError"),
    "StrideFold": (".decide.conv.stride_fold", "StrideFold"),
    "TilingError": (".errors", "TilingError"),
    "UnsupportedOperator": (".errors", "UnsupportedOperator"),
    "WFold": (".hardware", "WFold"),
    "WorkloadError": (".errors", "WorkloadError"),
    "decide": (".decide.decide", "decide"),
    "is_bad_leading_dimension": (".decide.gemm.cache_conflict", "is_bad_leading_dimension"),
    "microkernel": (".decide.gemm.microkernel", "microkernel"),
    "rnn_cycles": (".decide.rnn.column", "rnn_cycles"),
    "ApplyTiling": (".schedule", "ApplyTiling"),
    "Config": (".decide.configs.config", "Config"),
    "Executable": (".model.executable", "Executable"),
    "PackedOperator": (".schedule", "PackedOperator"),
    "aligned_empty": (".runtime.arrays", "aligned_empty"),
    "compile": (".model.compile", "compile_model"),
    "Program": (".accel.program.program", "Program"),
    "ShapeDatabase": (".tuning.shapes.database", "ShapeDatabase"),
    "TilingCostModel": (".tuning.metaschedule.cost_model", "TilingCostModel"),
    "SimReport": (".accel.report.report", "SimReport"),
    "Task": (".accel.recurrent.tasks", "Task"),
    "TaskReport": (".accel.recurrent.task_report", "TaskReport"),
    "config_of": (".decide.configs.config", "config_of"),
    "fold_strides": (".lowering.fold_moves", "fold_strides"),
    "fold_width": (".lowering.fold_moves", "fold_width"),
    "llvm_target": (".schedule", "llvm_target"),
    "load": (".model.load", "load"),
    "local_builder": (".tuning.metaschedule.local_builder", "local_builder"),
    "neighbourhood": (".decide.configs.neighbourhood", "neighbourhood"),
    "packed_operator": (".schedule", "packed_operator"),
    "partition": (".lowering.product_moves", "partition"),
    "primitive_rules": (".tuning.metaschedule.rules", "primitive_rules"),
    "generate": (".model.generate", "generate"),
    "Generated": (".model.generate", "Generated"),
    "run_many": (".model.run_many", "run_many"),
    "Session": (".model.session", "Session"),
    "save_report": (".report.save", "save_report"),
    "schedule_rules": (".tuning.metaschedule.rules", "schedule_rules"),
    "seed_database": (".tuning.metaschedule.seeds", "seed_database"),
    "simulate": (".accel.timing.simulate", "simulate"),
    "simulator_builder": (".tuning.metaschedule.simulated_runs", "simulator_builder"),
    "simulator_runner": (".tuning.metaschedule.simulated_runs", "simulator_runner"),
    "space_generator": (".tuning.metaschedule.rules", "space_generator"),
    "split_k": (".lowering.product_moves", "split_k"),
    "tiling_schedule": (".schedule", "tiling_schedule"),
    "torch_report": (".model.torch_report", "torch_report"),
    "trial_log": (".tuning.metaschedule.trial_log", "trial_log"),
    "tune": (".tuning.tune", "tune"),
    "use_all_cores": (".runtime.launcher", "use_all_cores"),
}

__all__ = [
    "ApplyTiling",
    "Cache",
    "Candidate",
    "Config",
    "ConvTiling",
    "ConvWorkload",
    "Cpu",
    "DatabaseError",
    "Executable",
    "GemmTiling",
    "GemmWorkload",
    "Generated",
    "Hardware",
    "HardwareError",
    "LimitError",
    "Limits",
    "Microkernel",
    "ModelFormatError",
    "NearTile",
    "PackedOperator",
    "Program",
    "ProgramError",
    "Reason",
    "RnnTiling",
    "RnnWorkload",
    "Session",
    "ShapeDatabase",
    "SimReport",
    "SimulationError",
    "StrideFold",
    "Task",
    "TaskReport",
    "TilingCostModel",
    "TilingError",
    "UnsupportedOperator",
    "WFold",
    "WorkloadError",
    "aligned_empty",
    "compile",
    "config_of",
    "decide",
    "fold_strides",
    "fold_width",
    "generate",
    "is_bad_leading_dimension",
    "llvm_target",
    "load",
    "local_builder",
    "microkernel",
    "neighbourhood",
    "packed_operator",
    "partition",
    "primitive_rules",
    "rnn_cycles",
    "run_many",
    "save_report",
    "schedule_rules",
    "seed_database",
    "simulate",
    "simulator_builder",
    "simulator_runner",
    "space_generator",
    "split_k",
    "tiling_schedule",
    "torch_report",
    "trial_log",
    "tune",
    "use_all_cores",
]


# Names of the previous version, and the new ones.
_OLD_NAMES = {"Cut": "Config", "cut_of": "config_of"}


# `decide` is both a function and a subpackage: the first import of the subpackage would rebind the name to the module.
# Importing it here once and deleting the attribute leaves the name to the function.
importlib.import_module(".decide", __name__)
del globals()["decide"]


def __getattr__(name: str) -> Any:
    if name in _OLD_NAMES:
        deprecated(f"{__name__}.{name}", _OLD_NAMES[name])
        name = _OLD_NAMES[name]
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _ON_FIRST_USE[name]
    with tvm_without_torch():
        found = getattr(importlib.import_module(module, __name__), attribute)
        _register_pipeline()
    globals()[name] = found
    return found


def _register_pipeline() -> None:
    """Register with TVM as TVM itself does on import by the entry point group "tvm.backends": required if this package
    is run from source, or is imported after TVM."""
    if "tvm" in sys.modules:
        importlib.import_module(".runtime.interrupt", __name__).register()
        importlib.import_module(".model.relax_pipeline", __name__).register()
        importlib.import_module(".tuning.metaschedule.lower_configs", __name__).register()


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


_register_pipeline()
