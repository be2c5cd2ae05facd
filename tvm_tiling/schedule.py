"""From an operator to a scheduled kernel: match it, decide, write the decision as TIR."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import tvm
from tvm import s_tir, te, tirx
from tvm.te.tensor import Operation

from .decide.conv_cpu import Source, as_product, decide_conv_on_cpu
from .decide.conv_tiling import ConvTiling
from .decide.dot_engine import DotEngine, dot_engine
from .decide.gemm_cpu import decide_on_cpu
from .decide.levels import LevelsTiling
from .decide.tiling import GemmTiling
from .decide.wfold import Mode
from .decide.winograd import TOLERANCE
from .errors import HardwareError, UnsupportedOperator
from .hardware.description import Cpu, Hardware
from .lowering.prim_func import DECISION, ScheduledOperator, copying, write_packed, write_plain
from .lowering.threads import use_all_cores
from .match import ConvProgram, GemmProgram, match, match_gemm, prim_func_of
from .schedules.accel import schedule_for_accelerator
from .schedules.conv import conv_nest
from .schedules.gemm import GemmNest
from .schedules.gemv import StreamNest
from .target import vsim_hardware

Target: TypeAlias = str | Hardware | tvm.target.Target
Operator: TypeAlias = te.Tensor | Operation | tirx.PrimFunc | tvm.IRModule


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a caller may settle instead of the decision.

    `mode` is the decision's, on accelerators. `form` and `microkernel` force a kernel and its register tile, `ahead`
    says that weights arrive packed, `winograd` and `tolerance` whether and how inaccurately Winograd's form may be
    taken.
    """

    form: str | None = None
    microkernel: tuple[int, int] | None = None
    mode: Mode = "best"
    ahead: bool = False
    winograd: bool = True
    tolerance: float = TOLERANCE


@functools.lru_cache(maxsize=1)
def this_cpu() -> Hardware:
    """The machine this process runs on, detected once."""
    return Hardware.detect()


def hardware_of(target: Target) -> Hardware:
    """The machine that a target means: "llvm" is this CPU, "vsim/<preset>" and "vsim/<file.toml>" an accelerator, the
    TVM targets of these names likewise; a Hardware is itself. HardwareError for anything else."""
    if isinstance(target, Hardware):
        return target
    if isinstance(target, str | tvm.target.Target) and (machine := vsim_hardware(target)) is not None:
        return machine
    kind = str(target.kind.name) if isinstance(target, tvm.target.Target) else target
    if kind == "llvm":
        return this_cpu()
    raise HardwareError(
        f"target {kind!r} is not served; accepted: 'llvm', a Hardware, 'vsim/<preset>', 'vsim/<file.toml>', or a "
        "tvm.target.Target of kind llvm"
    )


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
    mode: Mode = "best",
    microkernel: tuple[int, int] | None = None,
    weights: str = "plain",
    winograd: bool = True,
    tolerance: float = TOLERANCE,
) -> s_tir.Schedule:
    """A schedule of `op`, decided from formulas and ready for tvm.compile.

    op: a te.Tensor or its operation, a tirx.PrimFunc, or an IRModule of PrimFuncs: matrix products and convolutions.
    `form` forces a kernel: of a product "normal", "inline", "nocopy", "pack" or "stream" (page 03), of a convolution
    "direct", "gemm", "depthwise", "winograd", "stride_fold" or "wfold" (page 05). `mode` "seed" takes the formulas as
    printed, on accelerators. `microkernel` = (rows, vectors) is a product's register tile. `weights="packed"`: the
    second operand is expected packed, by a second function `<name>_pack` of the same module. `winograd=False` leaves
    that form out; it is taken only where its predicted error is at most `tolerance` beside the largest output. The
    decision stands in the attribute "tvm_tiling.decision" of each function.

    Raises UnsupportedOperator for what no rule serves, HardwareError for a target or form that is not possible.
    """
    hardware = hardware_of(target)
    if weights not in ("plain", "packed"):
        raise UnsupportedOperator(f"weights = {weights!r}, accepted: 'plain', 'packed'")
    options = Options(
        form=form,
        microkernel=microkernel,
        mode=mode,
        ahead=weights == "packed",
        winograd=winograd,
        tolerance=tolerance,
    )
    functions: dict[str, tirx.PrimFunc] = {}
    for name, func in _functions(op).items():
        scheduled = schedule_operator(func, name, hardware, options)
        functions[name] = scheduled.main
        if scheduled.pack is not None:
            functions[f"{name}_pack"] = scheduled.pack
    return s_tir.Schedule(tvm.IRModule(functions))


def _functions(op: Operator) -> dict[str, tirx.PrimFunc]:
    if not isinstance(op, tvm.IRModule):
        return {"main": prim_func_of(op)}
    functions = {g.name_hint: f for g, f in op.functions.items() if isinstance(f, tirx.PrimFunc)}
    if not functions:
        raise UnsupportedOperator("the IRModule holds no PrimFunc; accepted: one or more PrimFuncs of scheduled TIR")
    return functions


def schedule_operator(
    func: tirx.PrimFunc, name: str, hardware: Hardware, options: Options | None = None
) -> ScheduledOperator:
    """Decide and write one operator, a product or a convolution."""
    options = options or Options()
    if hardware.cpu is None:
        if options.ahead or options.microkernel is not None:
            raise HardwareError(f"{hardware.name} has no cpu; accepted for it: no packed weights and no microkernel")
        return schedule_for_accelerator(func, name, hardware, mode=options.mode, form=options.form)
    if options.mode != "best":
        raise HardwareError(f"mode = {options.mode!r} is for accelerators, {hardware.name} has a cpu; accepted: 'best'")
    return _schedule(_matched(func, name, options.ahead), hardware, options)


def schedule_for_weights(
    func: tirx.PrimFunc, name: str, hardware: Hardware, options: Options, known: Callable[[tirx.Var], bool]
) -> tuple[ScheduledOperator, GemmProgram | ConvProgram]:
    """The same, packed ahead where `known` says of the weights, a parameter of `func`, that they can be."""
    program = _matched(func, name, True)
    weights = weights_of(program)
    if weights is None or not known(weights) or program.reads(weights) > 1:
        program, options = _matched(func, name, False), replace(options, ahead=False)
    else:
        options = replace(options, ahead=True)
    return _schedule(program, hardware, options), program


def weights_of(program: GemmProgram | ConvProgram) -> tirx.Var | None:
    """The parameter that may be packed ahead: a convolution's kernels, a product's second operand."""
    return program.w if isinstance(program, ConvProgram) else program.b.buffer


def _matched(func: tirx.PrimFunc, name: str, ahead: bool) -> GemmProgram | ConvProgram:
    # The operand that is packed ahead is the source's second one, so it has to stay in its place.
    return match(func, name, may_swap=not ahead, keep_taps=True)


def _schedule(program: GemmProgram | ConvProgram, hardware: Hardware, options: Options) -> ScheduledOperator:
    cpu = hardware.cpu
    if cpu is None:
        raise HardwareError(f"{hardware.name} has no cpu; operators are scheduled for CPUs")
    if isinstance(program, ConvProgram):
        return _schedule_conv(program, hardware, cpu, options)
    return _schedule_product(program, hardware, cpu, options)


# ---- products --------------------------------------------------------------------------------------------------------


def _schedule_product(program: GemmProgram, hardware: Hardware, cpu: Cpu, options: Options) -> ScheduledOperator:
    ahead, name, second = options.ahead, program.name, program.b.buffer
    if ahead:
        second = _packable(program, second, "the second operand")
        if program.workload.n == 1 and not second.strides:
            # One column: the other operand is the large one, and a vector needs no layout.
            return _packed_as_it_is(match_gemm(program.func, name), second, hardware, cpu, options)
    tiling = decide_on_cpu(
        program.workload,
        hardware,
        form=options.form,
        microkernel=options.microkernel,
        packing="ahead" if ahead else "run",
        plain_a=program.a.buffer is not None,
        plain_b=program.b.buffer is not None,
        accumulates_in_output=program.out_dtype == program.workload.acc_dtype,
    )
    return write_product(program, tiling, dot_engine(program.workload, cpu))


def _packable(program: GemmProgram | ConvProgram, weights: tirx.Var | None, called: str) -> tirx.Var:
    """The operand that is to be packed ahead, if it can be."""
    if weights is None:
        raise UnsupportedOperator(f"{program.name}: {called} is computed, only a plain one can be packed ahead")
    if program.reads(weights) > 1:
        raise UnsupportedOperator(f"{program.name}: {called} is also read elsewhere, so it cannot be packed ahead")
    return weights


def _packed_as_it_is(
    program: GemmProgram, weights: tirx.Var, hardware: Hardware, cpu: Cpu, options: Options
) -> ScheduledOperator:
    """A product whose weights the kernel reads as they are: packing copies them."""
    plain = _schedule_product(program, hardware, cpu, replace(options, ahead=False))
    shape = tuple(int(extent) for extent in weights.shape)
    pack = copying(weights, program.name)
    return replace(plain, pack=pack, packed_shape=shape, packed_dtype=str(weights.dtype))


def write_product(program: GemmProgram, tiling: GemmTiling, engine: DotEngine) -> ScheduledOperator:
    """The product as TIR, cut as `tiling` says."""
    if tiling.form == "stream":
        return write_plain(program, tiling, StreamNest(program, tiling, engine).emit)
    nest = GemmNest(program, tiling, engine)
    if tiling.pack_b != "ahead":
        return write_plain(program, tiling, lambda: nest.emit(None))
    assert program.b.buffer is not None
    return write_packed(program, tiling, program.b.buffer, nest, engine.operand)


# ---- convolutions ----------------------------------------------------------------------------------------------------


def _schedule_conv(program: ConvProgram, hardware: Hardware, cpu: Cpu, options: Options) -> ScheduledOperator:
    weights = _packable(program, program.w, "the kernel") if options.ahead else None
    if options.microkernel is not None:
        raise HardwareError(f"microkernel = {options.microkernel!r} is a matrix product's, not a convolution's")
    # Matched again as a product only where the convolution is one.
    product = _product_of(program) if as_product(program.workload) is not None else None
    tiling = decide_conv_on_cpu(
        program.workload,
        hardware,
        form=options.form,
        packing="ahead" if options.ahead else "run",
        source=_source(program, product is not None),
        winograd=options.winograd,
        tolerance=options.tolerance,
    )
    if tiling.form == "gemm":
        assert product is not None
        plain = replace(options, form=None)
        # With channels last the kernels are the right operand and may be packed; else they are the left, read in place.
        if weights is None or product.b.buffer is None or not product.b.buffer.same_as(weights):
            scheduled = (
                _schedule_product(product, hardware, cpu, plain)
                if weights is None
                else _packed_as_it_is(product, weights, hardware, cpu, plain)
            )
        else:
            scheduled = _schedule_product(product, hardware, cpu, plain)
        assert isinstance(scheduled.tiling, GemmTiling)
        decided = replace(tiling, product=scheduled.tiling)
        return replace(scheduled, tiling=decided, main=scheduled.main.with_attr(DECISION, decided.to_json()))
    engine = dot_engine(program.workload, cpu)
    nest = conv_nest(program, tiling, engine, cpu)
    if weights is None:
        return write_plain(program, tiling, lambda: nest.emit(None))
    return write_packed(program, tiling, weights, nest, engine.operand)


def _product_of(program: ConvProgram) -> GemmProgram | None:
    """The matrix product that a convolution is, operands read as matrices; None where it is none."""
    found = match(program.func, program.name)
    return found if isinstance(found, GemmProgram) else None


def _source(program: ConvProgram, matrix: bool) -> Source:
    workload, strides = program.workload, program.x_strides
    adjacent = strides is not None and (strides[4] == 1 or workload.ci == 1)
    return Source(
        channel_run=program.channel_run,
        output_run=program.out_run,
        pitch=strides[3] if strides is not None and adjacent else None,
        dense=strides is not None and adjacent and strides[3] == workload.ci and workload.groups == 1,
        accumulates=program.out_dtype == workload.acc_dtype,
        matrix=matrix,
    )


class PackedOperator:
    """A compiled operator whose weights are packed ahead: `pack` them once, then call with what that returned."""

    def __init__(self, scheduled: ScheduledOperator, module: Any, name: str) -> None:
        self.tiling: GemmTiling | ConvTiling | LevelsTiling = scheduled.tiling
        self._scheduled = scheduled
        self._main, self._pack = module[name], module[f"{name}_pack"]

    def pack(self, weights: tvm.runtime.Tensor) -> tvm.runtime.Tensor:
        """The weights as the kernel wants them."""
        packed = tvm.runtime.empty(self._scheduled.packed_shape, self._scheduled.packed_dtype)
        self._pack(weights, packed)
        return packed

    def __call__(self, *arguments: tvm.runtime.Tensor) -> None:
        """Run on the operator's arguments in its own order, weights packed."""
        self._main(*arguments)


def packed_operator(
    op: te.Tensor | Operation | tirx.PrimFunc,
    target: Target = "llvm",
    *,
    form: str | None = None,
    microkernel: tuple[int, int] | None = None,
    winograd: bool = True,
    tolerance: float = TOLERANCE,
) -> PackedOperator:
    """Compile an operator for constant weights, to be packed once by the result's `pack`; options as tiling_schedule.

    The weights are a convolution's kernels, or a product's second operand.
    """
    hardware = hardware_of(target)
    options = Options(form=form, microkernel=microkernel, ahead=True, winograd=winograd, tolerance=tolerance)
    scheduled = schedule_operator(prim_func_of(op), "main", hardware, options)
    module = tvm.IRModule({"main": scheduled.main, "main_pack": scheduled.pack})
    return PackedOperator(scheduled, tvm.compile(module, target=llvm_target(hardware)), "main")


@tvm.transform.module_pass(opt_level=0, name="tvm_tiling.ApplyTiling")
class ApplyTiling:
    """A pass that schedules every PrimFunc it serves and leaves the others; `target` as in tiling_schedule."""

    def __init__(self, target: Target = "llvm") -> None:
        self.hardware = hardware_of(target)

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        updated = tvm.IRModule(dict(mod.functions), attrs=mod.attrs)
        for variable, func in mod.functions.items():
            if not isinstance(func, tirx.PrimFunc) or DECISION in (func.attrs or {}):
                continue
            try:
                scheduled = schedule_operator(func, variable.name_hint, self.hardware)
            except UnsupportedOperator:
                continue
            main = scheduled.main
            if not (func.attrs and "global_symbol" in func.attrs):
                main = main.without_attr("global_symbol")
            updated.update_func(variable, main)
        return updated
