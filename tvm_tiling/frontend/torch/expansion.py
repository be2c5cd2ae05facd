"""Rewrites a program, node by node, to operators that have converters.

run_decompositions() retraces the whole program, and PyTorch's tracing takes seconds for a network, half of the
compilation time. Here an operator with a converter stays, and every other one is replaced by the result of PyTorch's
own rules for it alone; equal calls are traced once. In-place operators become their functional versions where all
aliases of a tensor's memory are known:

- aliases of the whole tensor refer to its latest value (x.relu_(), x.add_(y));
- writes into parts of a constant, such as a mask, are evaluated now, by PyTorch.

expanded() returns None for every other program: mutation of inputs or through views, dynamic shapes, higher-order
operators, random numbers, and operators that remain without a converter. Those take run_decompositions().
"""

from __future__ import annotations

import copy
import dataclasses
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch.export.graph_signature import InputKind, TensorArgument
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from .walk import held_tensor, is_open

# The result of rewriting a node: a node, several, a number, or a constant.
Made: TypeAlias = Any
Rules: TypeAlias = Mapping[Any, Callable[..., Any]]

_LARGEST_CONSTANT = 1 << 20  # elements
_DROPOUTS = frozenset(
    f"{kind}dropout{place}" for kind in ("", "feature_", "alpha_", "feature_alpha_") for place in ("", "_")
)
# Tensors created from the shape of other tensors.
_LIKE: dict[str, Any] = {"new_zeros": 0, "new_ones": 1, "zeros_like": 0, "ones_like": 1}
# Node metadata that replacements keep: its source.
_KEPT = ("stack_trace", "nn_module_stack", "source_fn_stack")


class _NotExpanded(Exception):
    """Raised to leave a program to run_decompositions()."""


@dataclasses.dataclass(eq=False)
class _Constant:
    """A tensor that is evaluated now, and may still be written to."""

    value: torch.Tensor


def expanded(
    program: torch.export.ExportedProgram, rules: Rules, converts: Callable[[Any], bool]
) -> torch.export.ExportedProgram | None:
    """The program in operators for which `converts` returns true; None if it is not one of the programs above. `rules`:
    PyTorch's decompositions by operator."""
    try:
        return _Expansion(program, rules, converts).made()
    except _NotExpanded:
        return None


class _Expansion:
    """The rewriting of one program to a new graph."""

    def __init__(self, program: torch.export.ExportedProgram, rules: Rules, converts: Callable[[Any], bool]) -> None:
        self._program, self._rules, self._converts = program, rules, converts
        self._written, self._fixed = _constants(program)
        self._graph = torch.fx.Graph()
        self._made: dict[torch.fx.Node, Made] = {}
        self._shared: set[torch.fx.Node] = set()  # nodes whose memory has aliases
        self._later: dict[torch.fx.Node, torch.fx.Node] = {}  # the node that overwrote each node's value
        self._traced: dict[Any, torch.fx.GraphModule] = {}
        self._held: dict[str, torch.Tensor] = {}

    def made(self) -> torch.export.ExportedProgram:
        for node in self._program.graph.nodes:
            if node.op == "output":
                return self._finished(node)
            self._made[node] = self._one(node)
        raise _NotExpanded

    # ---- one node ---------------------------------------------------------------------------------------------------

    def _one(self, node: torch.fx.Node) -> Made:
        if is_open(node.meta.get("val")):
            raise _NotExpanded
        if node.op == "placeholder":
            made = self._graph.node_copy(node)
            made.name = node.name  # including "input", which FX would rename to avoid Python's function
            return made
        if node.op != "call_function":
            raise _NotExpanded
        if node.target is operator.getitem:
            several = self._made[node.args[0]]  # type: ignore[index]
            if isinstance(several, tuple | list):
                return several[node.args[1]]  # type: ignore[index]
            args, kwargs = map_arg((node.args, node.kwargs), self._latest)
            return self._call(node.target, args, kwargs, node)
        if not isinstance(node.target, torch._ops.OpOverload):
            raise _NotExpanded
        if _is_idle_dropout(node):
            return self._made[node.args[0]]  # type: ignore[index]
        if torch.Tag.nondeterministic_seeded in node.target.tags and not self._converts(node.target):
            raise _NotExpanded
        if node in self._written:
            return _Constant(self._computed(node))
        args, kwargs = map_arg((node.args, node.kwargs), self._latest)
        if not node.target._schema.is_mutable:
            made = self._functional_call(node.target, args, kwargs, node)
            for source in map(self._latest, _aliased(node)):  # even where a rule copies memory that the operator shares
                if source is not made:
                    self._shared.update(pytree.tree_leaves((source, made)))
            return made
        written = args[0] if args else None
        target = _functional(node.target)
        if not isinstance(written, torch.fx.Node) or not self._is_alone(written) or _promotes(args, kwargs):
            raise _NotExpanded
        made = self._functional_call(target, args, kwargs, node)
        if not isinstance(made, torch.fx.Node):
            raise _NotExpanded
        if made is not written:
            self._later[written] = made
        return made

    def _functional_call(self, target: Any, args: Any, kwargs: Any, node: torch.fx.Node) -> Made:
        if self._converts(target):
            return self._call(target, args, kwargs, node)
        return self._replaced(target, args, kwargs, node)

    def _is_alone(self, node: torch.fx.Node) -> bool:
        """Return whether no other node shares the memory of a node of the new graph."""
        return node.op == "call_function" and node not in self._shared

    def _latest(self, node: torch.fx.Node) -> Made:
        """The current value of a node."""
        made = self._made[node]
        if isinstance(made, _Constant):
            return self._constant_node(made.value.clone(), node.meta["val"])
        return pytree.tree_map_only(torch.fx.Node, self._now, made)

    def _constant_node(self, value: torch.Tensor, record: torch.Tensor | None = None) -> torch.fx.Node:
        name = f"constant_{len(self._held)}"
        self._held[name] = value
        node = self._graph.get_attr(name)
        node.meta["val"] = value if record is None else record
        return node

    def _now(self, made: torch.fx.Node) -> torch.fx.Node:
        while made in self._later:
            made = self._later[made]
        return made

    def _call(self, target: Any, args: Any, kwargs: Any, node: torch.fx.Node) -> torch.fx.Node:
        """Create a call in place of `node`, with its name and metadata."""
        made = self._graph.create_node("call_function", target, args, kwargs, name=node.name.removesuffix("_"))
        made.meta = dict(node.meta)
        self._note(made)
        return made

    def _note(self, made: torch.fx.Node) -> None:
        """Record whose memory a new node shares, by the schema of its operator; composite operators are already
        replaced."""
        if made.target is operator.getitem:
            if made.args[0] in self._shared:
                self._shared.add(made)
            return
        for source in _aliased(made):
            self._shared.update((made, source))

    def _computed(self, node: torch.fx.Node) -> torch.Tensor:
        """The value of a node computed only from constants."""
        if node.op == "placeholder":
            targets = {spec.arg.name: spec.target for spec in self._program.graph_signature.input_specs}
            held = held_tensor(self._program, targets[node.name])
            if not isinstance(held, torch.Tensor):
                raise _NotExpanded
            return held
        record: torch.Tensor = node.meta["val"]
        if _packet(node) in _LIKE:
            return torch.full(record.shape, _LIKE[_packet(node)], dtype=record.dtype)
        args, kwargs = map_arg((node.args, node.kwargs), self._value)
        with torch.no_grad():
            result: torch.Tensor = node.target(*args, **kwargs)  # type: ignore[operator]
        return result

    def _value(self, node: torch.fx.Node) -> torch.Tensor:
        """The current value of a constant."""
        made = self._made[node]
        if isinstance(made, _Constant):
            return made.value
        if node not in self._fixed:
            raise _NotExpanded
        return self._computed(node)

    # ---- by PyTorch's rules -----------------------------------------------------------------------------------------

    def _replaced(self, target: Any, args: Any, kwargs: Any, node: torch.fx.Node) -> Made:
        """Insert the graph that PyTorch's rules produce for one call."""
        leaves, form = pytree.tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.fx.Node)]
        records = [tensor.meta.get("val") for tensor in tensors]
        if not all(isinstance(record, torch.Tensor) for record in records):
            raise _NotExpanded
        graph = self._trace(target, leaves, form, records)
        values: dict[torch.fx.Node, Made] = {}
        given = iter(tensors)
        for part in graph.graph.nodes:
            if part.op == "placeholder":
                values[part] = next(given)
            elif part.op == "output":
                return _named(pytree.tree_map_only(torch.fx.Node, values.__getitem__, part.args[0]), node, tensors)
            elif part.op == "get_attr":  # a number, as a tensor
                values[part] = self._constant_node(getattr(graph, str(part.target)))
            elif part.target is not operator.getitem and not self._converts(part.target):
                raise _NotExpanded
            else:
                values[part] = self._graph.node_copy(part, values.__getitem__)
                values[part].meta.update({key: node.meta[key] for key in _KEPT if key in node.meta})
                self._note(values[part])
        raise _NotExpanded

    def _trace(self, target: Any, leaves: Sequence[Any], form: Any, records: Sequence[torch.Tensor]) -> Any:
        """The graph of one call, with a placeholder for each tensor."""
        key = (target, repr(form), *(_key(leaf) for leaf in leaves))  # PyTorch 2.6 cannot hash tree specs
        found = self._traced.get(key)
        if found is None:
            mode: Any = next((record.fake_mode for record in records if hasattr(record, "fake_mode")), None)
            if mode is None:
                raise _NotExpanded

            def call(*tensors: torch.Tensor) -> Any:
                given = iter(tensors)
                args, kwargs = pytree.tree_unflatten(
                    [next(given) if isinstance(leaf, torch.fx.Node) else leaf for leaf in leaves], form
                )
                return target(*args, **kwargs)

            try:
                with mode, torch.no_grad():
                    found = make_fx(call, decomposition_table=self._rules)(*records)
            except Exception as error:
                raise _NotExpanded from error
            self._traced[key] = found
        return found

    # ---- the program ------------------------------------------------------------------------------------------------

    def _finished(self, output: torch.fx.Node) -> torch.export.ExportedProgram:
        (returned,) = map_arg(output.args, self._latest)
        self._graph.output(returned)
        self._graph.eliminate_dead_code()
        signature = copy.copy(self._program.graph_signature)
        names = {
            before.name: after.name
            for before, after in zip(output.args[0], returned, strict=True)  # type: ignore[arg-type]
            if isinstance(before, torch.fx.Node)
        }
        signature.output_specs = [
            dataclasses.replace(spec, arg=TensorArgument(names[spec.arg.name]))
            if isinstance(spec.arg, TensorArgument)
            else spec
            for spec in signature.output_specs
        ]
        made = copy.copy(self._program)
        made._graph_module = torch.fx.GraphModule(self._held, self._graph)
        made._graph_signature = signature
        return made


# ---- memory ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(eq=False)
class _Memory:
    """Aliases of one memory that contains only constants. `read`: nodes outside may alias it, too. `admitted`: it is
    written to, and no other node observes that."""

    names: list[torch.fx.Node]
    read: bool = False
    admitted: bool | None = None


def _constants(program: torch.export.ExportedProgram) -> tuple[set[torch.fx.Node], set[torch.fx.Node]]:
    """The nodes whose memory contains only constants, results on constants and tensors created from the shape of
    others: those that are written to without other nodes observing it, and those that are never written to."""
    own = (spec for spec in program.graph_signature.input_specs if spec.kind is InputKind.CONSTANT_TENSOR)
    names = {spec.arg.name for spec in own}
    memory: dict[torch.fx.Node, _Memory] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in names:
            memory[node] = _Memory([node], read=True)
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        is_constant = _is_constant(node, memory)
        if is_constant:
            memory[node] = _Memory([node])
        # A composite operator may return its argument, whatever its schema says.
        sources = node.all_input_nodes if is_constant and node.target._can_decompose() else list(_aliased(node))
        for held in [memory[source] for source in sources if source in memory]:
            if not is_constant:
                held.read = True
            elif _packet(node) not in _LIKE and held is not memory[node]:
                joined = memory[node]
                joined.names += held.names
                joined.read |= held.read
                joined.admitted = held.admitted if joined.admitted is None else joined.admitted and held.admitted
                memory.update(dict.fromkeys(held.names, joined))
        if node.target._schema.is_mutable and node.args[0] in memory:
            held = memory[node.args[0]]  # type: ignore[index]
            held.admitted = is_constant and not held.read and held.admitted is not False
    return (
        {node for node, held in memory.items() if held.admitted},
        {node for node, held in memory.items() if held.admitted is None},
    )


def _is_constant(node: torch.fx.Node, known: Mapping[torch.fx.Node, Any]) -> bool:
    """Return whether a node's result is computed only from constants, and small."""
    record = node.meta.get("val")
    if not isinstance(record, torch.Tensor) or is_open(record) or record.numel() > _LARGEST_CONSTANT:
        return False
    if torch.Tag.nondeterministic_seeded in node.target.tags:  # type: ignore[union-attr]
        return False
    sources = node.all_input_nodes
    return _packet(node) in _LIKE or (bool(sources) and all(source in known for source in sources))


def _aliased(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """The arguments whose memory a node's result aliases, by the schema of its operator."""
    for number, argument in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
        if argument.alias_info is not None:
            value = node.args[number] if number < len(node.args) else node.kwargs.get(argument.name)
            yield from (leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.fx.Node))


def _promotes(args: Any, kwargs: Any) -> bool:
    """Return whether operands have several types: the functional version may then return another type than the in-place
    one writes."""
    leaves = pytree.tree_leaves((args, kwargs))
    return len({leaf.meta["val"].dtype for leaf in leaves if isinstance(leaf, torch.fx.Node)}) > 1


# ---- operators ------------------------------------------------------------------------------------------------------


def _packet(node: torch.fx.Node) -> str:
    """The name of an operator without its overload, such as new_zeros."""
    schema = getattr(node.target, "_schema", None)
    return "" if schema is None else schema.name.removeprefix("aten::")


def _is_idle_dropout(node: torch.fx.Node) -> bool:
    """Return whether a node is a dropout in inference, which returns its argument."""
    return _packet(node) in _DROPOUTS and len(node.args) == 3 and node.args[2] is False


def _functional(target: Any) -> Any:
    """The functional version of the in-place operator `target`."""
    schema = target._schema
    packet = getattr(torch.ops.aten, schema.name.removeprefix("aten::").removesuffix("_"), None)
    found = getattr(packet, schema.overload_name or "default", None)
    if not schema.name.endswith("_") or found is None or found._schema.is_mutable:
        raise _NotExpanded
    names = [[argument.name for argument in each._schema.arguments] for each in (target, found)]
    if names[0] != names[1]:
        raise _NotExpanded
    return found


def _named(made: Made, node: torch.fx.Node, given: Sequence[torch.fx.Node]) -> Made:
    """The replacement of `node`, renamed to it if it is a single new node."""
    if isinstance(made, torch.fx.Node) and made not in given and made.op == "call_function":
        made._rename(node.name.removesuffix("_"))
    return made


def _key(leaf: Any) -> Any:
    """The properties of an argument that determine the trace of its call."""
    if isinstance(leaf, torch.fx.Node):
        record = leaf.meta["val"]
        return (tuple(record.shape), tuple(record.stride()), record.dtype, record.requires_grad)
    return (type(leaf), repr(leaf))
