"""Lowers functions annotated with a configuration to the loop nest of that configuration whenever TVM builds them.

TVM calls register() when it is imported (entry point group "tvm.backends"), including in MetaSchedule's build
processes. It prepends the pass to TVM's default TIR pipeline. The pass inspects the root block of each function; the
rest of this package is loaded only if one is annotated.

It also appends a pass for kernels of this package, which stores named values: TVM's code generator takes seconds for
names that refer to each other, such as those of a tile of GELUs (lowering/named_values.py).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ...decide.options import Options

if TYPE_CHECKING:
    import tvm

# The pipeline that TVM uses by default; see tvm.tirx.get_tir_pipeline.
DEFAULT = "s_tir"
_MARK = "tvm_tiling_lowers_cuts"
_DECISION = "tvm_tiling.decision"  # as in lowering/prim_func.py, which is loaded only when a kernel is written


def register() -> None:
    """Add the passes to TVM's default TIR pipeline; idempotent. Does nothing if TVM is runtime-only."""
    compilation = sys.modules.get("tvm.tirx.compilation_pipeline")
    if compilation is None or DEFAULT not in compilation.PIPELINE_MAP:
        return
    original = compilation.PIPELINE_MAP[DEFAULT]
    if getattr(original, _MARK, False):
        return

    def with_configs(**options: Any) -> Any:
        pipeline, host, device = original(**options)
        return _in_front(pipeline), lambda: _behind(host()), device

    setattr(with_configs, _MARK, True)
    compilation.register_tir_pipeline(DEFAULT, with_configs)


def _in_front(pipeline: Any) -> Any:
    import tvm

    @tvm.transform.module_pass(opt_level=0, name="tvm_tiling.default_pipeline")
    def lowered(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return pipeline(lower_configs(mod))

    return lowered


def _behind(host: Any) -> Any:
    import tvm

    @tvm.transform.module_pass(opt_level=0, name="tvm_tiling.stored_names")
    def lowered(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return _with_stored_names(host(mod))

    return lowered


def _with_stored_names(mod: tvm.IRModule) -> tvm.IRModule:
    """Return `mod`, in the form for code generation, with stores in place of the named values of this package's
    kernels."""
    own = [variable for variable, func in mod.functions.items() if func.attrs and _DECISION in func.attrs]
    if not own:
        return mod
    import tvm

    from ...lowering.named_values import without_names

    changed = {variable: without_names(mod[variable]) for variable in own}
    return tvm.IRModule({**mod.functions, **changed}, attrs=mod.attrs)


def lower_configs(mod: tvm.IRModule, target: Any = None) -> tvm.IRModule:
    """Return `mod` with every annotated function replaced by the loop nest of its configuration, and the others
    unchanged.

    `target` is used for functions that do not name their own (default: the current one, or this CPU). Raises the errors
    of tiling_schedule for a configuration that is not possible.
    """
    changed: dict[Any, Any] = {}
    for variable, func in mod.functions.items():
        if _is_annotated(func):
            changed[variable] = _lowered(func, variable.name_hint, target)
    if not changed:
        return mod
    import tvm

    updated = tvm.IRModule(dict(mod.functions), attrs=mod.attrs)
    for variable, func in changed.items():
        updated.update_func(variable, func)
    return updated


def _is_annotated(func: Any) -> bool:
    block = getattr(getattr(func, "body", None), "block", None)
    return block is not None and len(block.annotations) > 0 and "tvm_tiling.space" in block.annotations


def _lowered(func: Any, name: str, target: Any) -> Any:
    import tvm

    from ...schedule import hardware_of, schedule_operator
    from .annotation import picked, plain, root_annotations

    found = picked(root_annotations(func))
    assert found is not None
    named = target or (func.attrs or {}).get("target") or tvm.target.Target.current(allow_none=True) or "llvm"
    scheduled = schedule_operator(plain(func), name, hardware_of(named), Options(config=found[0])).main
    kept = {key: value for key, value in (func.attrs or {}).items() if key not in (scheduled.attrs or {})}
    for key, value in kept.items():
        scheduled = scheduled.with_attr(key, value)
    if "global_symbol" not in (func.attrs or {}) and "global_symbol" in (scheduled.attrs or {}):
        scheduled = scheduled.without_attr("global_symbol")
    return scheduled
