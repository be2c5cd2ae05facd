"""This package as a named Relax pipeline: tvm.compile(mod, target, relax_pipeline="tvm_tiling").

TVM calls register() when it is imported (entry point group "tvm.backends"), so nothing else is loaded before the
pipeline is used.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ..decide.conv.winograd import TOLERANCE
from ..errors import HardwareError, UnsupportedOperator, attempted

if TYPE_CHECKING:
    import tvm

    from ..hardware.description import Hardware

NAME = "tvm_tiling"


def register() -> None:
    """Register the pipeline with TVM by its name; idempotent. Has no effect if only TVM's runtime is installed."""
    pipeline = sys.modules.get("tvm.relax.pipeline")
    if pipeline is not None and NAME not in pipeline.PIPELINE_MAP:
        pipeline.register_pipeline(NAME)(relax_pipeline)


def relax_pipeline(*, winograd: bool = True, tolerance: float | None = None) -> tvm.transform.Pass:
    """A pass that lowers a Relax module for the virtual machine, for the target it is used under.

    A single function of static shapes is compiled as by compile(), with constant weights packed. In any other module
    operators are fused, and those supported by schedule rules are scheduled. `winograd` and `tolerance` as in
    tiling_schedule. Raises HardwareError with the name of an unsupported target.
    """
    import tvm
    from tvm import relax

    from ..schedule import Options, hardware_of
    from .passes.machine_calls import machine_calls

    _errors_keep_their_class()
    options = Options(winograd=winograd, tolerance=TOLERANCE if tolerance is None else tolerance)

    @tvm.transform.module_pass(opt_level=0, name="tvm_tiling.relax_pipeline")
    def lowered(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        hardware = hardware_of(tvm.target.Target.current(allow_none=True) or "llvm")
        mod = relax.backend.DispatchSortScan()(relax.backend.DispatchSampling()(mod))
        return machine_calls(_whole(mod, hardware, options) or _by_operator(mod, hardware, options))

    return lowered


def _errors_keep_their_class() -> None:
    """TVM raises an error of a pass as a RuntimeError, except for classes registered with it."""
    from tvm_ffi import register_error

    for kind in (HardwareError, UnsupportedOperator):
        register_error(kind.__name__, kind)


def _whole(mod: tvm.IRModule, hardware: Hardware, options: Any) -> tvm.IRModule | None:
    """`mod` lowered by the graph passes; None if it is not a single straight-line function of static shapes."""
    import tvm
    from tvm import relax

    from .pipeline import lower

    functions = {v: f for v, f in mod.functions.items() if isinstance(f, relax.Function)}
    if len(functions) != 1:
        return None
    ((variable, func),) = functions.items()
    if not _fixed(func):
        return None
    # The graph passes expect the model under the name "main".
    others = {v: f for v, f in mod.functions.items() if v not in functions}
    renamed = tvm.IRModule({tvm.ir.GlobalVar("main"): func.with_attr("global_symbol", "main"), **others}, mod.attrs)
    lowered = attempted(lower, relax.transform.Normalize()(renamed), hardware, options)
    if isinstance(lowered, UnsupportedOperator):
        return None
    scheduled = lowered[0]
    rest = {v: f for v, f in scheduled.functions.items() if v.name_hint != "main"}
    name = variable.name_hint
    return tvm.IRModule({tvm.ir.GlobalVar(name): scheduled["main"].with_attr("global_symbol", name), **rest}, mod.attrs)


def _fixed(func: tvm.relax.Function) -> bool:
    """Return whether all shapes of the function are static."""
    from tvm import relax

    return not relax.analysis.defined_symbolic_vars(func) and not relax.analysis.free_symbolic_vars(func)


def _by_operator(mod: tvm.IRModule, hardware: Hardware, options: Any) -> tvm.IRModule:
    """`mod` legalised and fused, with operators scheduled as far as schedule rules support them."""
    import tvm
    from tvm import tirx

    from ..schedule import schedule_operator
    from ..schedules.fallback import schedule_fallback
    from .passes.fuse import fused_operators
    from .passes.legalise import legalised
    from .passes.open_extents import refuse_unproved

    refuse_unproved(mod)
    mod = fused_operators(legalised(mod))
    updated = tvm.IRModule(dict(mod.functions), attrs=mod.attrs)
    for variable, func in mod.functions.items():
        if not isinstance(func, tirx.PrimFunc):
            continue
        supported = attempted(schedule_operator, func, variable.name_hint, hardware, options)
        if isinstance(supported, UnsupportedOperator):
            main = schedule_fallback(func, variable.name_hint, hardware)
        else:
            main = supported.main
        updated.update_func(variable, main.without_attr("global_symbol"))
    return updated
