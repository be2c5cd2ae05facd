"""Scheduling of every operator in a lowered graph, and packing of constant weights.

A Relax function calls PrimFuncs by call_tir. A PrimFunc whose weights are constant in all calls is scheduled for
prepacked weights; they are packed here, once, and the calls use the packed constants. Blocked low-bit weights are read
from their storage during packing, and calls that read them in the same panels share these.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import tvm
import tvm_ffi
from tvm import relax, tirx

from ..decide.conv.axis_order import FIRST, decide_axis_order
from ..decide.conv.conv_tiling import ConvTiling
from ..decide.gemm.blocked import BlockedTiling
from ..decide.gemm.table_rows import TableRows
from ..decide.rnn.recurrence import RecurrenceTiling
from ..decide.tiling import GemmTiling, Reason
from ..decide.vector.attention import AttentionTiling
from ..decide.vector.cache_append import AppendTiling
from ..decide.vector.cached_attention import CachedAttentionTiling
from ..errors import UnsupportedOperator, attempted
from ..frontend.blocked_weights import RECORDS, Stored, stored_of
from ..frontend.node_names import names_in, nodes_named, numbers_of, without_names
from ..hardware.description import Hardware
from ..lowering.own_extents import with_own_extents
from ..lowering.prim_func import ScheduledOperator, packed_memory
from ..lowering.samples import sampled, samples_beside
from ..lowering.weight_panels import Panels
from ..match import ConvProgram, GemmProgram, epilogue_of
from ..match.access import loads
from ..match.described import description_of
from ..runtime.arrays import ALIGNMENT
from ..runtime.tensors import array_of, largest_of
from ..runtime.threads import set_pool
from ..schedule import Options, is_reduction, schedule_for_weights
from ..schedules.cpu_schedule import rows_of
from ..schedules.described import schedule_described
from ..schedules.fallback import decide_fallback
from ..sizes import Range
from ..workload import ConvWorkload, GemmWorkload
from .build import build_packing
from .kernels import Kernels, Kind, trusted
from .operator_forms import form_of
from .passes.dataflow import Rewriter, is_op, rewrite
from .report import OperatorRecord

_Tiling: TypeAlias = (
    GemmTiling | ConvTiling | AttentionTiling | RecurrenceTiling | BlockedTiling | AppendTiling | CachedAttentionTiling
)


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One PrimFunc of a model: its kind, the number of its calls, and its decision.

    `kind` is "convolution", "gemm", "attention", "recurrence" or "other"; `flops` are those of one call, 0 if they
    are not counted. `form` is what an operator without a decision computes. `workload` is that of a convolution or
    matrix multiplication, `prepacked` whether its weights are packed at compile time, `epilogue` the name of its
    epilogue, `rows` the range of a dynamic number of rows for which a configuration may be known. `nodes`: the model
    nodes computed by its calls, in order.
    """

    name: str
    kind: str
    calls: int
    flops: int = 0
    form: str | None = None
    tiling: _Tiling | None = None
    workload: GemmWorkload | ConvWorkload | None = None
    prepacked: bool = False
    epilogue: str = ""
    rows: Range | None = None
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Call:
    """Constant arguments of one call_tir, or their storage, None for arguments that are not constant; and the numbers
    of the model nodes that it computes."""

    constants: tuple[tvm.ir.GenericConst | Stored | None, ...]
    nodes: tuple[int, ...] = ()


def schedule_operators(
    held: list[tvm.IRModule], hardware: Hardware, options: Options, kernels: Kernels, *, ahead: bool
) -> tuple[tvm.IRModule, list[Operator]]:
    """The single module removed from `held`, legalised and fused, with every PrimFunc scheduled and without node names,
    which move to the operators; and the operators in the order of their first call.

    `kernels` compiles those that pack weights, and with `ahead` immediately also the others, for build(). Packed
    constants are freed one by one if only the module refers to them, and nothing else to the module: it is taken from a
    list because before Python 3.11 a caller holds its arguments until the call returns.
    """
    mod, operators, packed = _scheduled(held.pop(), hardware, options, kernels, ahead)
    if packed:
        packing = _packing(packed, kernels)
        mod, weights = _with_packed(mod, packed)
        _pack(weights, packing)
    return without_names(_with_records(mod)), operators


def _scheduled(
    mod: tvm.IRModule, hardware: Hardware, options: Options, kernels: Kernels, ahead: bool
) -> tuple[tvm.IRModule, list[Operator], dict[tvm.ir.GlobalVar, tuple[int, ScheduledOperator]]]:
    """`mod` with every PrimFunc scheduled except those called with packed weights, the operators, and these PrimFuncs
    with the indices of their weights."""
    calls = _calls(mod["main"])
    given = _given(mod["main"]) if _is_straight(mod) else set(calls)
    updated = tvm.IRModule(dict(mod.functions), attrs=mod.attrs)
    operators: list[Operator] = []
    packed: dict[tvm.ir.GlobalVar, tuple[int, ScheduledOperator]] = {}
    names = names_in(mod)
    kernels.expect(len(calls) if ahead else 0)
    beside: dict[Stored, int] = {}
    for variable, func in _products_first(mod):
        made = calls.get(variable, [])
        func = _with_plain_parameters(func)
        main, operator, scheduled, weights = _schedule(func, variable.name_hint, made, hardware, options, beside)
        operators.append(_with_nodes(operator, made, names))
        if variable in calls and variable not in given:
            main = trusted(main)
        if scheduled is None or weights is None:
            updated.update_func(variable, _private(main))
        else:
            packed[variable] = (weights, replace(scheduled, main=main))
            if scheduled.pack is not None:
                kernels.expect(1)
                kernels.start(trusted(scheduled.pack), Kind.PACKING)
        if ahead:
            kernels.start(main, Kind.SCHEDULED)
    order = {variable.name_hint: place for place, variable in enumerate(calls)}
    operators.sort(key=lambda operator: order.get(operator.name, len(order)))
    return updated, operators, packed


def decide_operators(mod: tvm.IRModule, hardware: Hardware, options: Options) -> list[Operator]:
    """The same operators, without compiling or packing anything."""
    names = names_in(mod)
    return [
        _with_nodes(_schedule(mod[variable], variable.name_hint, made, hardware, options, {})[1], made, names)
        for variable, made in _calls(mod["main"]).items()
    ]


def _products_first(mod: tvm.IRModule) -> list[tuple[tvm.ir.GlobalVar, tirx.PrimFunc]]:
    """The PrimFuncs, with lookups in blocked tables last: they read the panels of a matrix multiplication, if there is
    one."""
    functions = [(variable, func) for variable, func in mod.functions.items() if isinstance(func, tirx.PrimFunc)]
    return sorted(functions, key=lambda each: isinstance(description_of(each[1]), TableRows))


def _with_nodes(operator: Operator, calls: Sequence[_Call], names: Sequence[str]) -> Operator:
    """`operator` with the node names of its calls."""
    return replace(operator, nodes=nodes_named(names, (number for call in calls for number in call.nodes)))


def record_of(operator: Operator) -> OperatorRecord:
    """The record of an operator that an executable keeps."""
    tiling = operator.tiling
    predicted = tiling.predicted_seconds if tiling is not None else None
    return OperatorRecord(
        name=operator.name,
        kind=operator.kind,
        calls=operator.calls,
        flops=operator.flops * operator.calls,
        form=tiling.form if tiling is not None else operator.form,
        why=tiling.why("form") if tiling is not None else "",
        predicted_seconds=None if predicted is None else predicted * operator.calls,
        decision=json.loads(tiling.to_json()) if tiling is not None else None,
        workload=json.loads(json.dumps(operator.workload.to_dict())) if operator.workload is not None else None,
        nodes=operator.nodes,
    )


def _calls(func: relax.Function) -> dict[tvm.ir.GlobalVar, list[_Call]]:
    """The calls of every PrimFunc, in the order of the first one."""
    found: dict[tvm.ir.GlobalVar, list[_Call]] = {}
    stored: dict[relax.Var, Stored] = {}
    for block in func.body.blocks:
        for binding in block.bindings:
            if (weights := stored_of(binding.value)) is not None:
                stored[binding.var] = weights
            if is_op(binding.value, "call_tir"):
                target, arguments = binding.value.args[:2]
                constants = tuple(a if isinstance(a, tvm.ir.GenericConst) else stored.get(a) for a in arguments.fields)
                found.setdefault(target, []).append(_Call(constants, numbers_of(binding.var.name)))
    return found


def _is_straight(mod: tvm.IRModule) -> bool:
    """Return whether "main" is the only Relax function and has no branches, so that _calls() sees all calls of
    PrimFuncs."""
    functions = [func for func in mod.functions.values() if isinstance(func, relax.Function)]
    bindings = (binding for block in mod["main"].body.blocks for binding in block.bindings)
    return len(functions) == 1 and not any(isinstance(binding.value, relax.If | relax.Function) for binding in bindings)


def _given(func: relax.Function) -> set[tvm.ir.GlobalVar]:
    """PrimFuncs called with data of the model's caller: a parameter, or a value derived from one by anything but a
    PrimFunc, such as a view."""
    tainted = set(func.params)
    found: set[tvm.ir.GlobalVar] = set()
    for block in func.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if not tainted.intersection(relax.analysis.free_vars(value)):
                continue
            if is_op(value, "call_tir"):
                found.add(value.args[0])
            else:
                tainted.add(binding.var)
    return found


def _schedule(
    func: tirx.PrimFunc,
    name: str,
    calls: Sequence[_Call],
    hardware: Hardware,
    options: Options,
    beside: dict[Stored, int],
) -> tuple[tirx.PrimFunc, Operator, ScheduledOperator | None, int | None]:
    """(TIR, its operator, and for prepacked weights the scheduled operator and the index of their parameter). `beside`:
    the columns of the panels in which matrix multiplications store their weights, to which it adds."""
    place: int | None = None
    own, quotients = with_own_extents(func)

    def known(weights: tirx.Var) -> bool:
        nonlocal place
        places = (i for f in (func, own) for i, p in enumerate(f.params) if p.same_as(weights))
        place = next(places, None)
        return place is not None and bool(calls) and all(call.constants[place] is not None for call in calls)

    def largest() -> int | None:
        constants = [None if place is None else call.constants[place] for call in calls]
        tensors = [each.value for each in constants if each is not None and not isinstance(each, Stored)]
        return largest_of(tensors) if len(tensors) == len(constants) else None

    read = [each for call in calls for each in call.constants if isinstance(each, Stored)]
    width = next((beside[weights] for weights in read if weights in beside), None)
    described = None
    if hardware.cpu is not None:
        described = schedule_described(func, name, hardware.cpu, known, width, deterministic=options.deterministic)
    if described is not None:
        if described.packing is not None and described.packing.panels is not None:
            beside |= {weights: described.packing.panels.nr for weights in read if weights not in beside}
        operator = Operator(
            name=name,
            kind=described.kind,
            calls=len(calls),
            flops=described.flops,
            tiling=described.tiling,
            workload=described.workload,
            prepacked=described.packing is not None,
        )
        return described.main, operator, described.packing, described.weights
    with samples_beside({variable: sampled(extent) for variable, extent in quotients.items()}):
        supported = attempted(schedule_for_weights, own, name, hardware, options, known, largest)
    if isinstance(supported, UnsupportedOperator) or is_reduction(supported[1], hardware, options):
        main, tiling = decide_fallback(func, name, hardware)
        if tiling is None:
            kind, flops = ("other", 0) if isinstance(supported, UnsupportedOperator) else _kind_of(supported[1])
            return main, Operator(name=name, kind=kind, calls=len(calls), flops=flops, form=form_of(func)), None, None
        flops = tiling.shape.flops
        return main, Operator(name=name, kind="attention", calls=len(calls), flops=flops, tiling=tiling), None, None
    scheduled, program = supported
    assert isinstance(scheduled.tiling, GemmTiling | ConvTiling)
    chosen = scheduled.tiling
    if isinstance(chosen, ConvTiling) and isinstance(program, ConvProgram):
        chosen = _with_order(chosen, program.workload, hardware, options)
    operator = Operator(
        name=name,
        kind="convolution" if isinstance(program, ConvProgram) else "gemm",
        calls=len(calls),
        flops=program.workload.flops,
        tiling=chosen,
        workload=program.workload,
        prepacked=scheduled.pack is not None,
        epilogue=epilogue_of(program),
        rows=rows_of(program),
    )
    if scheduled.pack is None:
        return scheduled.main, operator, None, None
    return scheduled.main, operator, scheduled, place


def _kind_of(program: GemmProgram | ConvProgram) -> tuple[str, int]:
    """The kind and the operations of a sum of products that is computed as a reduction."""
    assert isinstance(program, GemmProgram)
    if program.has_windows:
        return "convolution", program.workload.flops
    left, right = ({load.source for load in loads(operand.expr)} for operand in (program.a, program.b))
    return ("other", 0) if left == right else ("gemm", program.workload.flops)


def _with_order(tiling: ConvTiling, workload: ConvWorkload, hardware: Hardware, options: Options) -> ConvTiling:
    """The decision of a convolution with the reason for its axis order, if passes/lone.py left channels first."""
    if workload.layout != FIRST or workload.d > 1 or workload.transposed or workload.dtype != "float32":
        return tiling
    if options.deterministic:
        return tiling
    order = decide_axis_order(workload, hardware, winograd=options.winograd, tolerance=options.tolerance)
    if order.layout != FIRST:
        return tiling
    return replace(tiling, reasons=(*tiling.reasons, Reason("layout", FIRST, order.why)))


def _with_plain_parameters(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """`func` with parameters named by position: names taken from the graph's tensors seldom match between two models,
    and their kernels would not be equal."""
    names = {parameter: tirx.Var(f"argument_{place}", parameter.ty) for place, parameter in enumerate(func.params)}
    return tvm_ffi.structural_map(func, (tirx.Var, lambda variable: names.get(variable, variable)))


def _private(func: tirx.PrimFunc) -> tirx.PrimFunc:
    return func.without_attr("global_symbol")


@dataclass(frozen=True)
class _Weights:
    """Weights to be packed by the function `pack`, or in `panels`, from `source` to the zero-initialised `packed`."""

    pack: str
    source: tvm.runtime.Tensor | Stored
    packed: tvm.runtime.Tensor
    panels: Panels | None


def _packing(
    packed: dict[tvm.ir.GlobalVar, tuple[int, ScheduledOperator]], kernels: Kernels
) -> dict[str, Callable[..., Any]]:
    """The compiled packing functions by name."""
    functions = {
        f"{variable.name_hint}_pack": trusted(scheduled.pack)
        for variable, (_, scheduled) in packed.items()
        if scheduled.pack is not None
    }
    library = build_packing(functions, kernels) if functions else {}
    return {name: library[name] for name in functions}


def _with_packed(
    mod: tvm.IRModule, packed: dict[tvm.ir.GlobalVar, tuple[int, ScheduledOperator]]
) -> tuple[tvm.IRModule, list[_Weights]]:
    """The calls of `packed` functions with memory for their packed weights, and the list of weights to pack."""
    weights: list[_Weights] = []
    shared: dict[tuple[Stored, Panels], tvm.runtime.Tensor] = {}
    # A function whose parameters change needs a separate variable, which has their types.
    renewed: dict[tvm.ir.GlobalVar, tvm.ir.GlobalVar] = {}

    def pack(rewriter: Rewriter, _: relax.Var, value: relax.Expr) -> relax.Expr | None:
        if not is_op(value, "call_tir") or value.args[0] not in packed:
            return None
        place, scheduled = packed[value.args[0]]
        name = value.args[0].name_hint
        if value.args[0] not in renewed:
            renewed[value.args[0]] = rewriter.builder.add_func(_private(scheduled.main), f"{name}_packed")
        arguments = list(value.args[1].fields)
        assert scheduled.packed_shape is not None and scheduled.packed_dtype is not None
        source = stored_of(rewriter.value(arguments[place])) or arguments[place].value
        panels = scheduled.panels
        if panels is not None and not isinstance(source, Stored):
            source = Stored(RECORDS, (source,), panels.product)
        memory = None if panels is None else shared.get((source, panels))
        if memory is None:
            memory = packed_memory(scheduled.packed_shape, scheduled.packed_dtype)
            weights.append(_Weights(f"{name}_pack", source, memory, panels))
            if panels is not None:
                shared[source, panels] = memory
        arguments[place] = relax.const(memory)
        operands = [renewed[value.args[0]], relax.Tuple(arguments), *value.args[2:]]
        return relax.Call(value.op, operands, value.attrs, value.ty_args)

    return rewrite(mod, pack), weights


def _pack(weights: list[_Weights], packing: dict[str, Callable[..., Any]]) -> None:
    """Pack all weights, the largest first, while the others use no memory yet; each source is freed before the next one
    is packed."""
    set_pool()
    weights.sort(key=lambda made: math.prod(made.packed.shape))
    while weights:
        made = weights.pop()
        source = made.source
        if made.panels is not None:
            held = array_of(made.packed)
            assert isinstance(source, Stored) and held is not None
            made.panels.pack(source.rows(), held)
            continue
        assert not isinstance(source, Stored)
        if source.data_ptr() % ALIGNMENT:  # possible for constants of a caller's Relax module
            source = tvm.runtime.tensor(source.numpy())
        packing[made.pack](source, made.packed)


def _with_records(mod: tvm.IRModule) -> tvm.IRModule:
    """`mod` with constants for the records of stored weights that no kernel has packed."""

    def made(_: Rewriter, __: relax.Var, value: relax.Expr) -> relax.Expr | None:
        weights = stored_of(value)
        return None if weights is None else relax.const(weights.records())

    bindings = (binding for block in mod["main"].body.blocks for binding in block.bindings)
    return rewrite(mod, made) if any(stored_of(binding.value) is not None for binding in bindings) else mod
