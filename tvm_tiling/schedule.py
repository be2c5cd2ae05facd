"""Scheduling of an operator: pattern matching, decision, and code generation as TIR."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import tvm
from tvm import s_tir, te, tirx
from tvm.te.tensor import Operation
from tvm.tirx.buffer import BufferType

from .decide.configs.config import Config
from .decide.conv.winograd import TOLERANCE
from .decide.fold.wfold import Mode
from .decide.gemm.best import Prefer
from .decide.options import ConfigSource, Options
from .decide.recorded import read_decision
from .decide.tiling import Decision
from .errors import HardwareError, UnsupportedOperator, WorkloadError, attempted
from .hardware.description import Hardware
from .hardware.dot_instructions import multiplied, useful_limit
from .hardware.instruction_sets import host_arch
from .lowering.leading_axis import LeadingAxis, leading_axis
from .lowering.named_blocks import without_blocks
from .lowering.prim_func import DECISION, ScheduledOperator, packed_memory
from .lowering.samples import is_open
from .match import ConvProgram, GemmProgram, match, match_gemm, prim_func_of
from .match.function import refuse
from .match.open_conv import OpenConvProgram, match_open_conv
from .old_names import old_arguments
from .operand_types import HALVES
from .runtime import first_kernel
from .runtime.tensors import largest_of
from .schedules.by_primitives import schedule_by_primitives
from .schedules.cpu_schedule import schedule_conv, schedule_open_conv, schedule_product
from .schedules.fallback import decide_fallback
from .target import Target, hardware_of, this_cpu
from .workload import require_positive

__all__ = [
    "ApplyTiling",
    "ConfigSource",
    "Operator",
    "Options",
    "PackedOperator",
    "Target",
    "hardware_of",
    "llvm_target",
    "packed_operator",
    "schedule_for_weights",
    "schedule_operator",
    "this_cpu",
    "tiling_schedule",
    "weights_of",
]

Operator: TypeAlias = te.Tensor | Operation | tirx.PrimFunc | tvm.IRModule


def llvm_target(hardware: Hardware | None = None) -> tvm.target.Target:
    """Return this CPU (or `hardware`) as a TVM target, with all its cores. Code for another architecture is for Linux.

    The first kernel loaded that was compiled for this CPU sets up the threads; use_all_cores sets them up at once.
    Raises HardwareError if `hardware` has no CPU.
    """
    cpu = (hardware or this_cpu()).cpu
    if cpu is None:
        raise HardwareError(f"{hardware.name if hardware else 'this machine'} has no CPU to compile for")
    options: dict[str, Any] = {"kind": "llvm", "num-cores": cpu.cores}
    if cpu.mcpu:
        options["mcpu"] = cpu.mcpu
    else:
        options["mattr"] = [f"+{feature}" for feature in cpu.features]
    if cpu.arch != host_arch():
        options["mtriple"] = f"{cpu.arch}-linux-gnu"
    return tvm.target.Target(options)


def _is_for_this_cpu(target: tvm.target.Target) -> bool:
    """Return whether kernels of this target were compiled for llvm_target(); False before that was called."""
    if not this_cpu.cache_info().currsize or this_cpu().cpu is None:
        return False
    own = llvm_target().attrs
    return all(_plain(target.attrs.get(name)) == _plain(own.get(name)) for name in ("mcpu", "mattr"))


def _plain(attribute: Any) -> str | list[str] | None:
    return attribute if attribute is None or isinstance(attribute, str) else sorted(map(str, attribute))


first_kernel.register(_is_for_this_cpu)


@old_arguments(cut="config", cuts="configs", form="algorithm")
def tiling_schedule(
    op: Operator,
    target: Target = "llvm",
    *,
    algorithm: str | None = None,
    mode: Mode = "best",
    prefer: Prefer = "utilisation",
    microkernel: tuple[int, int] | None = None,
    weights: str = "plain",
    winograd: bool = True,
    tolerance: float = TOLERANCE,
    config: Config | None = None,
    configs: ConfigSource | None = None,
    decision: Decision | str | None = None,
    primitives: bool = False,
) -> s_tir.Schedule:
    """A schedule of `op`, chosen analytically and ready for tvm.compile.

    op: a te.Tensor or its operation, a tirx.PrimFunc, or an IRModule of PrimFuncs: matrix multiplications and
    convolutions.

    `algorithm` forces one: for a matrix multiplication "normal", "inline", "nocopy", "pack" or "stream", for a
    convolution "direct", "gemm", "depthwise", "winograd", "stride_fold", "wfold", "planes" or "grouped". `mode` "seed"
    uses the analytical formulas without search, on accelerators; `prefer` is the objective there, as in decide().
    `microkernel` = (rows, vectors) is the register tile of a matrix multiplication. `weights="packed"`: the second
    operand is expected prepacked, by a second function `<name>_pack` of the same module. `winograd=False` excludes that
    algorithm; it is chosen only if its predicted error is at most `tolerance` relative to the largest output.

    `config`, from a decision, a database or a search, replaces the decision; `configs`, such as a ShapeDatabase, are
    queried for one for each operator. The decision is stored in the attribute "tvm_tiling.decision" of each function;
    passed as `decision`, it generates the same function again, or is rejected if it does not belong to this operator.

    The kernels are written as loops, in named blocks, and the trace is empty. `primitives=True` applies the same
    decision with TVM's schedule primitives only: its trace replays to the same module, and the decision is an
    annotation of the root block; docs/schedules.md describes the cost and the supported operators.

    Raises UnsupportedOperator if no rule supports the operator, and HardwareError for an invalid target, algorithm or
    configuration.
    """
    hardware = hardware_of(target)
    if weights not in ("plain", "packed"):
        raise UnsupportedOperator(f"weights = {weights!r}; expected 'plain', 'packed'")
    options = Options(
        form=algorithm,
        microkernel=microkernel,
        mode=mode,
        prefer=prefer,
        prepacked=weights == "packed",
        winograd=winograd,
        tolerance=tolerance,
        config=config,
        configs=configs,
        decision=read_decision(decision) if isinstance(decision, str) else decision,
    )
    if primitives:
        schedule = s_tir.Schedule(tvm.IRModule(_functions(op)))
        for name in _functions(op):
            schedule_by_primitives(schedule, name, hardware, options)
        return schedule
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
        raise UnsupportedOperator("the IRModule contains no PrimFunc; expected one or more PrimFuncs of scheduled TIR")
    return functions


def schedule_operator(
    func: tirx.PrimFunc, name: str, hardware: Hardware, options: Options | None = None
) -> ScheduledOperator:
    """Decide and generate one operator, a matrix multiplication or a convolution."""
    options = options or Options()
    if hardware.cpu is None:
        if options.prepacked or options.microkernel is not None:
            raise HardwareError(
                f"{hardware.name} has no CPU, so packed weights and microkernel are not supported; expected neither"
            )
        from .schedules.accel import schedule_for_accelerator  # not required for a CPU

        return schedule_for_accelerator(func, name, hardware, options)
    if options.mode != "best":
        raise HardwareError(
            f"mode = {options.mode!r} applies to accelerators, but {hardware.name} has a cpu; expected 'best'"
        )
    if (found := _over_open_images(func, name, hardware, options, lambda _: options.prepacked)) is not None:
        return found[0]
    if (windows := _open_windows(func, name, hardware, options)) is not None:
        return windows
    # A given configuration distinguishes the operands, so they keep their positions.
    program = _matched(func, name, options.prepacked or options.config is not None)
    if options.prepacked:
        program = _bounded(program, hardware, lambda: options.weights_within)
    return _schedule(program, hardware, options)


def schedule_for_weights(
    func: tirx.PrimFunc,
    name: str,
    hardware: Hardware,
    options: Options,
    known: Callable[[tirx.Var], bool],
    largest: Callable[[], int | None] = lambda: None,
) -> tuple[ScheduledOperator, GemmProgram | ConvProgram]:
    """The same without blocks, prepacked if `known` returns True for the weights, a parameter of `func`. `largest`
    returns the largest magnitude of their integers then, None if it is not known."""
    leading = leading_axis(func) if is_open_func(func) else None
    if leading is not None and (found := _for_each_place(leading, name, hardware, options, known, largest)) is not None:
        return found
    if (images := _over_open_images(func, name, hardware, options, known)) is not None:
        return images
    program = _matched(func, name, True)
    weights = weights_of(program)
    if weights is None or not known(weights) or program.reads(weights) > 1:
        program, options = _matched(func, name, False), replace(options, prepacked=False)
    else:
        options = replace(options, prepacked=True)
        program = _bounded(program, hardware, largest)
    with without_blocks():
        return _schedule(program, hardware, options), program


def _bounded(
    program: GemmProgram | ConvProgram, hardware: Hardware, largest: Callable[[], int | None]
) -> GemmProgram | ConvProgram:
    """`program` with the bound of its weights, if an instruction of the CPU is exact for such weights only."""
    types = program.workload.types
    if hardware.cpu is None or useful_limit(hardware.cpu, types.a, types.b, types.acc, 1) is None:
        return program
    found = largest()
    limit = None if found is None else useful_limit(hardware.cpu, types.a, types.b, types.acc, found)
    if limit is None:
        return program
    if isinstance(program, ConvProgram):
        return replace(program, workload=replace(program.workload, b_limit=limit))
    return replace(program, workload=replace(program.workload, b_limit=limit))


def _for_each_place(
    leading: LeadingAxis,
    name: str,
    hardware: Hardware,
    options: Options,
    known: Callable[[tirx.Var], bool],
    largest: Callable[[], int | None],
) -> tuple[ScheduledOperator, GemmProgram | ConvProgram] | None:
    """A convolution of a dynamic number of images, each by the kernel of one; None if it is not a convolution."""
    one, numbers = leading.one, {parameter: n for n, parameter in enumerate(leading.one.params)}
    if not isinstance(attempted(match, one, name, may_swap=False, keep_taps=True), ConvProgram):
        return None
    scheduled, program = schedule_for_weights(
        one, name, hardware, options, lambda weights: known(leading.func.params[numbers[weights]]), largest
    )
    weights = weights_of(program)
    packed = numbers[weights] if scheduled.pack is not None and weights is not None else None
    main = leading.over_all(scheduled.main, packed)
    return None if main is None else (replace(scheduled, main=main), program)


def _over_open_images(
    func: tirx.PrimFunc, name: str, hardware: Hardware, options: Options, known: Callable[[tirx.Var], bool]
) -> tuple[ScheduledOperator, ConvProgram] | None:
    """A convolution of dynamic image sizes for which a matrix multiplication of pixels is not better; None for all
    others."""
    if not is_open_func(func) or hardware.cpu is None:
        return None
    program = attempted(match_open_conv, func, name)
    if not isinstance(program, OpenConvProgram):
        return None
    prepacked = program.w is not None and known(program.w) and program.reads(program.w) == 1
    options = replace(options, prepacked=prepacked)
    scheduled = attempted(schedule_open_conv, program, hardware, hardware.cpu, options)
    return (scheduled, program) if isinstance(scheduled, ScheduledOperator) else None


def _open_windows(func: tirx.PrimFunc, name: str, hardware: Hardware, options: Options) -> ScheduledOperator | None:
    """A depthwise convolution of dynamic image sizes as a reduction, as models have it; None for all others, and if
    `options` request a decision."""
    requested = (options.form, options.microkernel, options.config, options.decision)
    if options.prepacked or any(option is not None for option in requested) or not is_open_func(func):
        return None
    program = attempted(match_gemm, func, name, may_swap=False, may_open=True)
    if not isinstance(program, GemmProgram) or not program.has_windows or not is_reduction(program, hardware, options):
        return None
    return ScheduledOperator(None, decide_fallback(func, name, hardware)[0])


def is_open_func(func: tirx.PrimFunc) -> bool:
    """Return whether a parameter has a dynamic extent."""
    return any(isinstance(p.ty, BufferType) and any(map(is_open, p.shape)) for p in func.params)


def is_reduction(program: GemmProgram | ConvProgram, hardware: Hardware, options: Options) -> bool:
    """Return whether a sum of products is computed as a reduction: independent dot products, each of one result, such
    as sums of squares. A tile of a matrix multiplication would have one row and one column. With a dynamic size, also
    products of matrices by one vector each, such as depthwise convolutions: a tile would have one column.

    Deterministic results exclude what is a matrix multiplication of several rows in another batch.
    """
    if not isinstance(program, GemmProgram) or hardware.cpu is None or program.workload.n > 1:
        return False
    workload, independent = program.workload, not program.a.axes[1] and not program.b.axes[2]
    if not program.is_open:
        return (
            workload.m == 1 and workload.dtype in ("float32", "float64") and (independent or not options.deterministic)
        )
    if workload.batch == 1 or workload.types.out in HALVES:  # sums have the type of the result
        return False
    return independent or not options.deterministic or program.has_windows


def open_variables(func: tirx.PrimFunc) -> list[str]:
    """The names of the variables that are extents of parameters by themselves, in order."""
    shapes = [p.shape for p in func.params if isinstance(p.ty, BufferType)]
    return list(dict.fromkeys(extent.name for shape in shapes for extent in shape if isinstance(extent, tirx.Var)))


def weights_of(program: GemmProgram | ConvProgram) -> tirx.Var | None:
    """The parameter that may be prepacked: a convolution's kernels, a matrix multiplication's second operand."""
    return program.w if isinstance(program, ConvProgram) else program.b.buffer


def _matched(func: tirx.PrimFunc, name: str, in_place: bool) -> GemmProgram | ConvProgram:
    # The operand that is prepacked is the source's second one, so it has to keep its position.
    if is_open_func(func):
        return match_gemm(func, name, may_swap=not in_place, may_open=True)
    program = match(func, name, may_swap=not in_place, keep_taps=True)
    if program.workload.dtype not in multiplied():
        raise refuse(
            name, f"operands of type {program.workload.dtype} are not supported; expected {', '.join(multiplied())}"
        )
    return program


def _schedule(program: GemmProgram | ConvProgram, hardware: Hardware, options: Options) -> ScheduledOperator:
    cpu = hardware.cpu
    if cpu is None:
        raise HardwareError(f"{hardware.name} has no CPU; operators are scheduled for CPUs")
    if isinstance(program, ConvProgram):
        return schedule_conv(program, hardware, cpu, options)
    return schedule_product(program, hardware, cpu, options)


class PackedOperator:
    """A compiled operator with prepacked weights: `pack` them once, then call it with the result."""

    def __init__(self, scheduled: ScheduledOperator, module: Any, name: str, weights_within: int | None = None) -> None:
        self.tiling = scheduled.tiling
        self._scheduled = scheduled
        self._within = weights_within
        self.library = module
        self._main, self._pack = module[name], module[f"{name}_pack"]

    def pack(self, weights: tvm.runtime.Tensor) -> tvm.runtime.Tensor:
        """Return the weights in the layout of the kernel. Raises WorkloadError if one is larger than the kernel was
        compiled for.
        """
        if self._within is not None and (largest := largest_of([weights])) is not None and largest > self._within:
            raise WorkloadError(
                f"weights are too large: {largest}; expected integers from {-self._within} to {self._within}, "
                "as weights_within specified"
            )
        shape, dtype = self._scheduled.packed_shape, self._scheduled.packed_dtype
        assert shape is not None and dtype is not None
        packed = packed_memory(shape, dtype)
        self._pack(weights, packed)
        return packed

    def __call__(self, *arguments: tvm.runtime.Tensor) -> None:
        """Run on the operator's arguments in its own order, with packed weights."""
        self._main(*arguments)


@old_arguments(cut="config", form="algorithm")
def packed_operator(
    op: te.Tensor | Operation | tirx.PrimFunc,
    target: Target = "llvm",
    *,
    algorithm: str | None = None,
    microkernel: tuple[int, int] | None = None,
    winograd: bool = True,
    tolerance: float = TOLERANCE,
    config: Config | None = None,
    weights_within: int | None = None,
) -> PackedOperator:
    """Compile `op`, an operator as accepted by tiling_schedule, for constant weights, to be packed once by the result's
    `pack`. `target`, `algorithm`, `microkernel`, `winograd`, `tolerance` and `config` are as in tiling_schedule, and so
    are the errors.

    The weights are a convolution's kernels, or a matrix multiplication's second operand. `weights_within`: integer
    weights lie between this number and its negative, for which some CPUs have a faster instruction.
    """
    if weights_within is not None:
        require_positive("packed_operator", "weights_within", weights_within)
    hardware = hardware_of(target)
    options = Options(
        form=algorithm,
        microkernel=microkernel,
        prepacked=True,
        winograd=winograd,
        tolerance=tolerance,
        config=config,
        weights_within=weights_within,
    )
    scheduled = schedule_operator(prim_func_of(op), "main", hardware, options)
    module = tvm.IRModule({"main": scheduled.main, "main_pack": scheduled.pack})
    return PackedOperator(scheduled, tvm.compile(module, target=llvm_target(hardware)), "main", weights_within)


@tvm.transform.module_pass(opt_level=0, name="tvm_tiling.ApplyTiling")
class ApplyTiling:
    """A pass that schedules every supported PrimFunc and leaves the others unchanged; `target` as in tiling_schedule.
    `configs`, such as a ShapeDatabase, are queried for each operator; operators they do not contain are decided
    analytically."""

    @old_arguments(cuts="configs")
    def __init__(self, target: Target = "llvm", *, configs: ConfigSource | None = None) -> None:
        self.hardware, self.options = hardware_of(target), Options(configs=configs)

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        updated = tvm.IRModule(dict(mod.functions), attrs=mod.attrs)
        for variable, func in mod.functions.items():
            if not isinstance(func, tirx.PrimFunc) or DECISION in (func.attrs or {}):
                continue
            scheduled = attempted(schedule_operator, func, variable.name_hint, self.hardware, self.options)
            if isinstance(scheduled, UnsupportedOperator):
                continue
            main = scheduled.main
            if not (func.attrs and "global_symbol" in func.attrs):
                main = main.without_attr("global_symbol")
            updated.update_func(variable, main)
        return updated
