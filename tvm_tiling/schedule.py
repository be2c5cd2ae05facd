"""From an operator to a scheduled kernel: match it, decide, write the decision as TIR."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import tvm
from tvm import s_tir, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812
from tvm.te.tensor import Operation

from .decide.dot_engine import DotEngine, dot_engine
from .decide.gemm_cpu import decide_on_cpu
from .decide.tiling import GemmTiling
from .errors import HardwareError, UnsupportedOperator
from .hardware.description import Hardware
from .lowering.threads import use_all_cores
from .match import GemmProgram, match_gemm, prim_func_of
from .schedules.gemm import GemmNest
from .schedules.gemv import StreamNest

Target: TypeAlias = str | Hardware | tvm.target.Target
Operator: TypeAlias = te.Tensor | Operation | tirx.PrimFunc | tvm.IRModule


@dataclass(frozen=True)
class ScheduledProduct:
    """TIR of one product; where B is packed ahead, also the function (B, packed B) that packs it."""

    tiling: GemmTiling
    main: tirx.PrimFunc
    pack: tirx.PrimFunc | None = None
    packed_shape: tuple[int, ...] | None = None
    packed_dtype: str | None = None


@functools.lru_cache(maxsize=1)
def this_cpu() -> Hardware:
    """The machine this process runs on, detected once."""
    return Hardware.detect()


def hardware_of(target: Target) -> Hardware:
    """The machine that a target means: "llvm" is this CPU; a Hardware is itself."""
    if isinstance(target, Hardware):
        return target
    kind = str(target.kind.name) if isinstance(target, tvm.target.Target) else target
    if kind == "llvm":
        return this_cpu()
    raise HardwareError(f"target {kind!r} is not served; accepted: 'llvm', a Hardware, or an llvm tvm.target.Target")


def llvm_target(hardware: Hardware | None = None) -> tvm.target.Target:
    """This CPU (or `hardware`) as a TVM target, with all its cores; the thread pool is set to use them."""
    cpu = (hardware or this_cpu()).cpu
    if cpu is None:
        raise HardwareError(f"{hardware.name if hardware else 'this machine'} has no cpu to compile for")
    if hardware is None or hardware == this_cpu():
        use_all_cores(cpu.cores)
    options: dict[str, Any] = {"kind": "llvm", "num-cores": cpu.cores}
    if cpu.mcpu:
        options["mcpu"] = cpu.mcpu
    else:
        options["mattr"] = [f"+{feature}" for feature in cpu.features]
    return tvm.target.Target(options)


def tiling_schedule(
    op: Operator,
    target: Target = "llvm",
    *,
    form: str | None = None,
    microkernel: tuple[int, int] | None = None,
    weights: str = "plain",
) -> s_tir.Schedule:
    """A schedule of `op`, decided from formulas and ready for tvm.compile.

    op: a te.Tensor or its operation, a tirx.PrimFunc, or an IRModule of PrimFuncs. `form` forces one of page 03's
    kernels ("normal", "inline", "nocopy", "pack", "stream"), `microkernel` = (rows, vectors) its register tile.
    `weights="packed"`: the second operand is expected packed, by a second function `<name>_pack` of the same module.
    The decision stands in the attribute "tvm_tiling.decision" of each function.

    Raises UnsupportedOperator for what no rule serves, HardwareError for a target or form that is not possible.
    """
    hardware = hardware_of(target)
    ahead = _packed(weights)
    functions: dict[str, tirx.PrimFunc] = {}
    for name, func in _functions(op).items():
        scheduled = schedule_product(func, name, hardware, form=form, microkernel=microkernel, ahead=ahead)
        functions[name] = scheduled.main
        if scheduled.pack is not None:
            functions[f"{name}_pack"] = scheduled.pack
    return s_tir.Schedule(tvm.IRModule(functions))


def _packed(weights: str) -> bool:
    if weights not in ("plain", "packed"):
        raise UnsupportedOperator(f"weights = {weights!r}, accepted: 'plain', 'packed'")
    return weights == "packed"


def _functions(op: Operator) -> dict[str, tirx.PrimFunc]:
    if not isinstance(op, tvm.IRModule):
        return {"main": prim_func_of(op)}
    functions = {g.name_hint: f for g, f in op.functions.items() if isinstance(f, tirx.PrimFunc)}
    if not functions:
        raise UnsupportedOperator("the IRModule holds no PrimFunc; accepted: one or more PrimFuncs of scheduled TIR")
    return functions


def schedule_product(
    func: tirx.PrimFunc,
    name: str,
    hardware: Hardware,
    *,
    form: str | None = None,
    microkernel: tuple[int, int] | None = None,
    ahead: bool = False,
) -> ScheduledProduct:
    """Decide and write one product; `ahead`: B arrives packed."""
    if hardware.cpu is None:
        raise HardwareError(f"{hardware.name} has no cpu; products are scheduled for CPUs")
    # The operand that is packed ahead is the source's second one, so it has to stay in its place.
    program = match_gemm(func, name, may_swap=not ahead)
    second = program.b.buffer
    if ahead and second is None:
        raise UnsupportedOperator(f"{name}: the second operand is computed, only a plain one can be packed ahead")
    if ahead and program.reads(second) > 1:
        raise UnsupportedOperator(f"{name}: the second operand is also read elsewhere, so it cannot be packed ahead")
    if ahead and second is not None and program.workload.n == 1 and not second.strides:
        # One column: the other operand is the large one, and a vector needs no layout.
        plain = schedule_product(func, name, hardware, form=form, microkernel=microkernel)
        shape = tuple(int(extent) for extent in second.shape)
        return replace(plain, pack=_copy(second, name), packed_shape=shape, packed_dtype=str(second.dtype))
    tiling = decide_on_cpu(
        program.workload,
        hardware,
        form=form,
        microkernel=microkernel,
        packing="ahead" if ahead else "run",
        plain_a=program.a.buffer is not None,
        plain_b=program.b.buffer is not None,
        accumulates_in_output=program.out_dtype == program.workload.acc_dtype,
    )
    return write_product(program, tiling, dot_engine(program.workload, hardware.cpu))


def write_product(program: GemmProgram, tiling: GemmTiling, engine: DotEngine) -> ScheduledProduct:
    """The product as TIR, cut as `tiling` says."""
    if tiling.form == "stream":
        return ScheduledProduct(
            tiling, _function(program, program.name, tiling, StreamNest(program, tiling, engine).emit)
        )
    nest = GemmNest(program, tiling, engine)
    if tiling.pack_b != "ahead":
        return ScheduledProduct(tiling, _function(program, program.name, tiling, lambda: nest.emit(None)))
    with IRBuilder() as main, T.prim_func(s_tir=True):
        _head(program.name, tiling)
        packed = _arguments(program, nest)
        with T.sblock("root"):
            nest.emit(packed.view(-1))
    with IRBuilder() as pack, T.prim_func(s_tir=True):
        _head(f"{program.name}_pack", None)
        source = program.b.buffer
        assert source is not None
        T.arg(source.name, source)
        packed = T.arg(f"{source.name}_packed", T.Buffer(nest.packed_shape, engine.operand))
        with T.sblock("root"):
            nest.pack_whole(packed.view(-1))
    return ScheduledProduct(tiling, main.get(), pack.get(), nest.packed_shape, engine.operand)


def _function(program: GemmProgram, name: str, tiling: GemmTiling, body: Callable[[], None]) -> tirx.PrimFunc:
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        _head(name, tiling)
        for parameter in program.func.params:
            T.arg(parameter.name, parameter)
        with T.sblock("root"):
            body()
    return builder.get()


def _copy(source: tirx.Var, name: str) -> tirx.PrimFunc:
    """The packing of an operand that the kernel reads as it is."""
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        _head(f"{name}_pack", None)
        T.arg(source.name, source)
        packed = T.arg(f"{source.name}_packed", T.Buffer(source.shape, str(source.dtype)))
        with T.sblock("root"), T.grid(*source.shape) as indices:
            where = list(indices) if len(source.shape) > 1 else [indices]
            T.buffer_store(packed, source[tuple(where)], where)
    return builder.get()


def _arguments(program: GemmProgram, nest: GemmNest) -> tirx.Var:
    """Declare the parameters, with B's in packed form, and return that one."""
    packed = None
    for parameter in program.func.params:
        if parameter.same_as(program.b.buffer):
            packed = T.arg(f"{parameter.name}_packed", T.Buffer(nest.packed_shape, nest.engine.operand))
        else:
            T.arg(parameter.name, parameter)
    assert packed is not None
    return packed


def _head(name: str, tiling: GemmTiling | None) -> None:
    T.func_name(name)
    attributes: dict[str, Any] = {"global_symbol": name, "tirx.noalias": True}
    if tiling is not None:
        attributes["tvm_tiling.decision"] = tiling.to_json()
    T.func_attr(attributes)


class PackedProduct:
    """A compiled product whose second operand is packed ahead: `pack` it once, then call with what that returned."""

    def __init__(self, scheduled: ScheduledProduct, module: Any, name: str) -> None:
        self.tiling = scheduled.tiling
        self._scheduled = scheduled
        self._main, self._pack = module[name], module[f"{name}_pack"]

    def pack(self, b: tvm.runtime.Tensor) -> tvm.runtime.Tensor:
        """B as the kernel wants it."""
        packed = tvm.runtime.empty(self._scheduled.packed_shape, self._scheduled.packed_dtype)
        self._pack(b, packed)
        return packed

    def __call__(self, *arguments: tvm.runtime.Tensor) -> None:
        """Run on the operator's arguments in its own order, B packed."""
        self._main(*arguments)


def packed_matmul(
    op: te.Tensor | Operation | tirx.PrimFunc,
    target: Target = "llvm",
    *,
    form: str | None = None,
    microkernel: tuple[int, int] | None = None,
) -> PackedProduct:
    """Compile a product for a constant second operand, to be packed once by the result's `pack`."""
    hardware = hardware_of(target)
    scheduled = schedule_product(prim_func_of(op), "main", hardware, form=form, microkernel=microkernel, ahead=True)
    module = tvm.IRModule({"main": scheduled.main, "main_pack": scheduled.pack})
    return PackedProduct(scheduled, tvm.compile(module, target=llvm_target(hardware)), "main")


@tvm.transform.module_pass(opt_level=0, name="tvm_tiling.ApplyTiling")
class ApplyTiling:
    """A pass that schedules every PrimFunc it serves and leaves the others; `target` as in tiling_schedule."""

    def __init__(self, target: Target = "llvm") -> None:
        self.hardware = hardware_of(target)

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        updated = tvm.IRModule(dict(mod.functions), attrs=mod.attrs)
        for variable, func in mod.functions.items():
            if not isinstance(func, tirx.PrimFunc) or "tvm_tiling.decision" in (func.attrs or {}):
                continue
            try:
                scheduled = schedule_product(func, variable.name_hint, self.hardware)
            except UnsupportedOperator:
                continue
            main = scheduled.main
            if not (func.attrs and "global_symbol" in func.attrs):
                main = main.without_attr("global_symbol")
            updated.update_func(variable, main)
        return updated
