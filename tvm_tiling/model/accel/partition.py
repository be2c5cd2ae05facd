"""Partitioning of a graph: which operators run on an accelerator, and in which segments between CPU work.

An operator runs there if it can be scheduled and recorded as a program for the machine; there is no other criterion.
Operators are taken alternately: all ready operators that can run on the accelerator form a segment, then the CPU
executes what it can, and so on. A segment is one call in the graph, and one program.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import tvm
from tvm import relax, s_tir, tirx

from ...accel.instructions.table import multiplies
from ...accel.program.join import Part, join
from ...accel.program.program import Program
from ...accel.program.tables import Region
from ...errors import HardwareError, UnsupportedOperator
from ...frontend.imported import first_line
from ...frontend.node_names import joined, names_in, nodes_named, numbers_of, without_mark
from ...hardware.description import Hardware
from ...schedule import ConfigSource, Options, schedule_operator
from ..passes.dataflow import is_op, replace_operands, shape_of
from .operator import program_of

SEGMENT = "tvm_tiling.accelerator.segment_"  # followed by a number: the function called by the graph
MOST_SEGMENTS = 1 << 12


@dataclass(frozen=True)
class OnAccelerator:
    """A recorded operator, or the reason why it cannot be recorded."""

    program: Program | None
    why: str


@dataclass(frozen=True)
class Partition:
    """`module`: the graph with calls of segments in place of their operators. `segments`: their programs; inputs and
    outputs of a program are those of the call, in order. `left`: the reason why each remaining PrimFunc runs on the
    CPU, by name."""

    module: tvm.IRModule
    segments: tuple[Program, ...]
    left: dict[str, str]


def partition(
    mod: tvm.IRModule,
    hardware: Hardware,
    first: int = 0,
    *,
    configs: ConfigSource | None = None,
    regions: RegionNames | None = None,
) -> Partition:
    """`mod`, legalised and fused, divided between `hardware` and the CPU; segments are numbered from `first`.

    `configs` provides the configuration of each operator. `regions`: names already used by programs. Raises
    UnsupportedOperator if the graph has too many segments.
    """
    recorded = {
        variable: recorded_operator(func, variable.name_hint, hardware, Options(configs=configs))
        for variable, func in mod.functions.items()
        if isinstance(func, tirx.PrimFunc)
    }
    graph = _Graph(mod, recorded, first, regions or RegionNames())
    module = graph.rebuilt()
    left = {v.name_hint: found.why for v, found in recorded.items() if found.program is None}
    return Partition(module, tuple(graph.programs), left)


def recorded_operator(func: tirx.PrimFunc, name: str, hardware: Hardware, options: Options) -> OnAccelerator:
    """The program of an operator on `hardware`, or the reason why it has none."""
    try:
        found = OnAccelerator(program_of(schedule_operator(func, name, hardware, options).main, name, hardware), "")
    except (UnsupportedOperator, HardwareError) as error:
        found = OnAccelerator(None, without_mark(str(error)))
    except (tvm.error.InternalError, s_tir.ScheduleError) as error:
        # A TVM primitive that does not support this loop nest; the CPU uses another one.
        found = OnAccelerator(None, f"TVM cannot schedule it: {first_line(error)}")
    if found.program is None and options.configs is not None:
        # The epilogue may not leave enough memory for a measured configuration.
        return recorded_operator(func, name, hardware, Options())
    return found


@dataclass(eq=False)
class _Node:
    """A binding of the graph, with its dependencies and placement."""

    variable: relax.Var
    value: relax.Expr
    needs: tuple[relax.Var, ...]
    program: Program | None = None  # its program if it runs on the accelerator
    view: bool = False  # same bytes, different shape


@dataclass(eq=False)
class _Segment:
    """Consecutive nodes with the same placement."""

    accelerated: bool
    nodes: list[_Node] = field(default_factory=list)


class RegionNames:
    """Unique names for the regions of a model's programs. `nodes`: the model nodes computed by each region, if
    known."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self.nodes: dict[str, tuple[str, ...]] = {}

    def fresh(self, name: str, *, numbered: bool) -> str:
        """`name`, with a number appended if `numbered`, or if another region has the name."""
        while True:
            count = self._counts[name] = self._counts.get(name, 0) + 1
            found = f"{name}_{count}" if numbered or count > 1 else name
            if found == name or found not in self._counts:
                self._counts.setdefault(found, 1)
                return found


def with_region_names(program: Program, names: RegionNames, nodes: tuple[str, ...]) -> Program:
    """`program`, which computes these model nodes, with unique region names: that of the first node, or else the
    region's own."""
    regions = []
    for region in program.regions:
        name = names.fresh(nodes[0] if nodes else region.name, numbered=False)
        if nodes:
            names.nodes[name] = nodes
        regions.append(replace(region, name=name))
    return replace(program, regions=tuple(regions))


class _Graph:
    """The function "main" in segments."""

    def __init__(
        self,
        mod: tvm.IRModule,
        recorded: dict[tvm.ir.GlobalVar, OnAccelerator],
        first: int,
        regions: RegionNames,
    ) -> None:
        self.mod, self.recorded, self.first = mod, recorded, first
        self.main = mod["main"]
        self.programs: list[Program] = []
        self.names: dict[relax.Var, str] = {}
        self.taken: set[str] = set()
        self.regions = regions
        self.named: dict[str, _Node] = {}  # node name to the binding whose region has this name
        self.nodes = names_in(mod)

    def rebuilt(self) -> tvm.IRModule:
        """The module whose "main" calls segments."""
        bindings = [b for block in self.main.body.blocks for b in block.bindings]
        if any(isinstance(binding, relax.MatchCast) for binding in bindings):
            return self.mod  # data-dependent shapes: nothing can be recorded
        nodes = [self._node(b) for b in bindings]
        self._settle_names(nodes)
        segments = self._segments(nodes)
        inside = {node.variable: s for s in segments for node in s.nodes if s.accelerated}
        outside: set[relax.Var] = set(relax.analysis.free_vars(self.main.body.body))
        for segment in segments:
            for node in segment.nodes:
                outside |= {need for need in node.needs if inside.get(need) is not segment}
        builder = relax.BlockBuilder()
        renamed: dict[relax.Var, relax.Expr] = {}
        attrs = dict(self.main.attrs) if self.main.attrs else None
        with builder.function("main", list(self.main.params), attrs=attrs):
            with builder.dataflow():
                for segment in segments:
                    if segment.accelerated:
                        self._call(builder, segment, outside, renamed)
                    else:
                        for node in segment.nodes:
                            value = replace_operands(node.value, renamed)
                            renamed[node.variable] = builder.emit(value, joined(node.variable.name))
                output = builder.emit_output(replace_operands(self.main.body.body, renamed))
            builder.emit_func_output(output)
        updated = tvm.IRModule(dict(self.mod.functions), attrs=self.mod.attrs)
        updated.update_func(self.mod.get_global_var("main"), builder.finalize()["main"])
        return relax.transform.DeadCodeElimination(["main"])(updated)

    def _node(self, binding: relax.VarBinding) -> _Node:
        value = binding.value
        node = _Node(binding.var, value, tuple(relax.analysis.free_vars(value)))
        if shape_of(binding.var) is None:
            return node  # several results, or an unknown shape
        if is_op(value, "call_tir") and len(value.args) == 2:
            node.program = self.recorded[value.args[0]].program
        elif is_op(value, "reshape") and isinstance(value.args[0], relax.Var):
            node.view = True
        return node

    # ---- segments ---------------------------------------------------------------------------------------------------

    def _segments(self, nodes: Sequence[_Node]) -> list[_Segment]:
        """The nodes in alternating accelerator and CPU segments, chosen greedily."""
        made = set(self.main.params)
        waiting, segments = list(nodes), []
        accelerated = False
        while waiting:
            segment = _Segment(accelerated)
            left = []
            for node in waiting:  # in order, so one pass includes all that become ready within the segment
                here = node.view or (node.program is not None) == accelerated
                if here and all(need in made for need in node.needs):
                    segment.nodes.append(node)
                    made.add(node.variable)
                else:
                    left.append(node)
            # A view alone does not justify an accelerator segment: it is free on the CPU.
            if accelerated and segment.nodes and all(node.view for node in segment.nodes):
                made -= {node.variable for node in segment.nodes}
                segment, left = _Segment(True), waiting
            if segment.nodes:
                segments.append(segment)
            elif accelerated and len(left) == len(waiting) and not any(self._ready(n, made) for n in waiting):
                raise UnsupportedOperator(
                    "main: its bindings depend on each other; expected a straight sequence of bindings"
                )
            waiting, accelerated = left, not accelerated
        return segments

    def _ready(self, node: _Node, made: set[relax.Var]) -> bool:
        return all(need in made for need in node.needs)

    # ---- accelerator segments ---------------------------------------------------------------------------------------

    def _call(
        self,
        builder: relax.BlockBuilder,
        segment: _Segment,
        outside: set[relax.Var],
        renamed: dict[relax.Var, relax.Expr],
    ) -> None:
        """Create the program of a segment, and emit the call that runs it."""
        if self.first + len(self.programs) >= MOST_SEGMENTS:
            raise UnsupportedOperator(f"main: more than {MOST_SEGMENTS} segments on the accelerator; expected fewer")
        same: dict[relax.Var, relax.Var] = {}  # view -> tensor with its bytes
        parts: list[Part] = []
        constants: dict[str, np.ndarray] = {}
        by_name: dict[str, relax.Var] = {}
        for node in segment.nodes:
            if node.view:
                source = node.value.args[0]
                same[node.variable] = same.get(source, source)
                continue
            assert node.program is not None
            tensors = [t for t in node.program.tensors if t.role in ("input", "output")]
            arguments = [*node.value.args[1].fields, node.variable]
            names = {}
            for tensor, argument in zip(tensors, arguments, strict=True):
                if isinstance(argument, tvm.ir.GenericConst):
                    names[tensor.name] = self._constant(argument, constants)
                else:
                    variable = same.get(argument, argument)
                    names[tensor.name] = self._name(variable)
                    by_name[names[tensor.name]] = variable
            scratch = {t.name: self._fresh(t.name) for t in node.program.tensors if t.role == "scratch"}
            parts.append(Part(node.program, {**names, **scratch}, self._region(node)))
        made = [node.variable for node in segment.nodes if not node.view]
        # A request for a view is a request for its source.
        asked = {same.get(node.variable, node.variable) for node in segment.nodes if node.variable in outside}
        given = [variable for variable in made if variable in asked]
        program = join(parts, [self._name(variable) for variable in given], constants)
        taken = [by_name[tensor.name] for tensor in program.of_role("input")]
        function = f"{SEGMENT}{self.first + len(self.programs)}"
        operands = relax.Tuple([renamed.get(variable, variable) for variable in taken])
        types = [variable.ty for variable in given]
        result = builder.emit(relax.op.call_dps_packed(function, operands, out_ty=types))
        program = _ordered(program, [self._name(variable) for variable in given])
        self.programs.append(program)
        for number, variable in enumerate(given):
            single = result if len(given) == 1 else builder.emit(relax.TupleGetItem(result, number))
            renamed[variable] = single
        for node in segment.nodes:
            if node.view and node.variable in outside:
                source = renamed.get(same[node.variable], same[node.variable])
                renamed[node.variable] = builder.emit(relax.op.reshape(source, shape_of(node.variable)))

    def _region(self, node: _Node) -> tuple[Region, ...]:
        """The operator as a uniquely named region with its decision."""
        assert node.program is not None
        function = node.value.args[0]
        named, short = self._nodes_of(node), function.name_hint.removeprefix("fused_").split("_")[0]
        called = short
        if named:
            alone = self.named[named[0]] is node
            called = named[0] if alone else f"{named[0]}/{short.rstrip('0123456789')}"
        own = node.program.regions[0]
        attributes = self.mod[function].attrs or {}
        workload = own.workload or str(attributes.get("tvm_tiling.workload", ""))
        name = self.regions.fresh(called, numbered=not named)
        if named:
            self.regions.nodes[name] = named
        return (Region(name, workload or function.name_hint, own.decision),)

    def _nodes_of(self, node: _Node) -> tuple[str, ...]:
        """The model nodes computed by a binding."""
        return nodes_named(self.nodes, numbers_of(node.variable.name))

    def _settle_names(self, nodes: Sequence[_Node]) -> None:
        """Determine which operator gets a node's plain name if several start with that node: the first with matrix
        multiplications, or else the first; the others, such as layout changes, append their kind."""
        for node in nodes:
            if node.program is None or not (named := self._nodes_of(node)):
                continue
            known = self.named.setdefault(named[0], node)
            if not _multiplies(known) and _multiplies(node):
                self.named[named[0]] = node

    def _constant(self, argument: tvm.ir.GenericConst, constants: dict[str, np.ndarray]) -> str:
        value = argument.value.numpy()
        for name, known in constants.items():
            if known.dtype == value.dtype and known.shape == value.shape and np.array_equal(known, value):
                return name
        name = self._fresh("constant")
        constants[name] = value
        return name

    def _name(self, variable: relax.Var) -> str:
        if variable not in self.names:
            self.names[variable] = self._fresh(without_mark(variable.name))
        return self.names[variable]

    def _fresh(self, name: str) -> str:
        candidates: Iterator[str] = (f"{name}_{number}" for number in range(1, 1 << 30))
        fresh = name if name not in self.taken else next(c for c in candidates if c not in self.taken)
        self.taken.add(fresh)
        return fresh


def _multiplies(node: _Node) -> bool:
    return node.program is not None and bool(multiplies(node.program.instructions).any())


def _ordered(program: Program, outputs: Sequence[str]) -> Program:
    """The program with its outputs in the given order."""
    place = {name: number for number, name in enumerate(outputs)}
    last = [tensor for tensor in program.tensors if tensor.role == "output"]
    others = [tensor for tensor in program.tensors if tensor.role != "output"]
    last.sort(key=lambda tensor: place[tensor.name])
    return replace(program, tensors=(*others, *last))
