"""This package as a named Relax pipeline: tvm.compile(mod, target, relax_pipeline="tvm_tiling").

TVM calls register() when it is imported (entry point group "tvm.backends"), so nothing else is loaded before the
pipeline is asked for.
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
    """Make the pipeline known to TVM by its name; once is enough. Does nothing where TVM is its runtime alone."""
    pipeline = sys.modules.get("tvm.relax.pipeline")
    if pipeline is not None and NAME not in pipeline.PIPELINE_MAP:
        pipeline.register_pipeline(NAME)(relax_pipeline)


def relax_pipeline(*, winograd: bool = True, tolerance: float | None = None) -> tvm.transform.Pass:
    """A pass that takes a Relax module to what the virtual machine runs, for the target it is used under.

    A single function of fixed shapes gets everything that compile() does, weights packed where they are constants. In
    any other module operators are fused, and those scheduled that rules serve. `winograd` and `tolerance` as in
    tiling_schedule. HardwareError names a target that is not served.
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
    """TVM raises what a pass raises as a RuntimeError, but for classes that it knows."""
    from tvm_ffi import register_error

    for kind in (HardwareError, UnsupportedOperator):
        register_error(kind.__name__, kind)


def _whole(mod: tvm.IRModule, hardware: Hardware, options: Any) -> tvm.IRModule | None:
    """`mod` by way of the graph passes; None where it is not one straight function of fixed shapes."""
    import tvm
    from tvm import relax

    from .pipeline import lower

    functions = {v: f for v, f in mod.functions.items() if isinstance(f, relax.Function)}
    if len(functions) != 1:
        return None
    ((variable, func),) = functions.items()
    if not _fixed(func):
        return None
    # The graph passes know the model by the name "main".
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
    """Whether no shape of the function is open."""
    from tvm import relax

    return not relax.analysis.defined_symbolic_vars(func) and not relax.analysis.free_symbolic_vars(func)


def _by_operator(mod: tvm.IRModule, hardware: Hardware, options: Any) -> tvm.IRModule:
    """`mod` legalised and fused, operators scheduled as far as rules serve them."""
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
