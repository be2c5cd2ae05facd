"""Programs in the operators that have converters, made node by node.

run_decompositions() traces a whole program again, and PyTorch's tracing takes seconds for a network, half of its
compilation. Here an operator that has a converter stays, and each other one is replaced by what PyTorch's own rules
make of it alone; equal calls are traced once. Operators in place become those that return the result, where all names
of a tensor's memory are known:

- names of the whole tensor stand for its latest value (x.relu_(), x.add_(y));
- what is written into parts of a constant, as masks are, is computed now, by PyTorch.

expanded() gives None for every other program: changes of inputs or through views, open sizes, operators on graphs,
random numbers, and operators that stay without a converter. run_decompositions() is for those.
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

# What a node of the program became: a node, several, a number, or a constant.
Made: TypeAlias = Any
Rules: TypeAlias = Mapping[Any, Callable[..., Any]]

_LARGEST_CONSTANT = 1 << 20  # elements
_DROPOUTS = frozenset(
    f"{kind}dropout{place}" for kind in ("", "feature_", "alpha_", "feature_alpha_") for place in ("", "_")
)
# Tensors that are made of others' shapes alone.
_LIKE: dict[str, Any] = {"new_zeros": 0, "new_ones": 1, "zeros_like": 0, "ones_like": 1}
# Metadata of a node that its replacements keep: where it comes from.
_KEPT = ("stack_trace", "nn_module_stack", "source_fn_stack")


class _NotExpanded(Exception):
    """Raised where a program is left to run_decompositions()."""


@dataclasses.dataclass(eq=False)
class _Constant:
    """A tensor that is computed now, and may still be written to."""

    value: torch.Tensor


def expanded(
    program: torch.export.ExportedProgram, rules: Rules, converts: Callable[[Any], bool]
) -> torch.export.ExportedProgram | None:
    """The program in operators that `converts` is true of; None where it is not one of those above. `rules`: PyTorch's
    decompositions by operator."""
    try:
        return _Expansion(program, rules, converts).made()
    except _NotExpanded:
        return None


class _Expansion:
    """A program's nodes as they become those of another one."""

    def __init__(self, program: torch.export.ExportedProgram, rules: Rules, converts: Callable[[Any], bool]) -> None:
        self._program, self._rules, self._converts = program, rules, converts
        self._written, self._fixed = _constants(program)
        self._graph = torch.fx.Graph()
        self._made: dict[torch.fx.Node, Made] = {}
        self._shared: set[torch.fx.Node] = set()  # whose memory has other names
        self._later: dict[torch.fx.Node, torch.fx.Node] = {}  # what has been written over a node's value
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
            made.name = node.name  # also "input", which FX would take for Python's function
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
            for source in map(self._latest, _aliased(node)):  # also where a rule copies what the operator shares
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
        """Whether nothing else shares the memory of a node of the new graph."""
        return node.op == "call_function" and node not in self._shared

    def _latest(self, node: torch.fx.Node) -> Made:
        """What stands for a node's value now."""
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
        """A call in the place of `node`, with its name and metadata."""
        made = self._graph.create_node("call_function", target, args, kwargs, name=node.name.removesuffix("_"))
        made.meta = dict(node.meta)
        self._note(made)
        return made

    def _note(self, made: torch.fx.Node) -> None:
        """Record whose memory a new node shares, by the schema of its operator; composite ones have been replaced."""
        if made.target is operator.getitem:
            if made.args[0] in self._shared:
                self._shared.add(made)
            return
        for source in _aliased(made):
            self._shared.update((made, source))

    def _computed(self, node: torch.fx.Node) -> torch.Tensor:
        """The value of a node that is made of constants alone."""
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
        """The value of a constant now."""
        made = self._made[node]
        if isinstance(made, _Constant):
            return made.value
        if node not in self._fixed:
            raise _NotExpanded
        return self._computed(node)

    # ---- by PyTorch's rules -----------------------------------------------------------------------------------------

    def _replaced(self, target: Any, args: Any, kwargs: Any, node: torch.fx.Node) -> Made:
        """What PyTorch's rules make of one call, in the graph."""
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
        key = (target, repr(form), *(_key(leaf) for leaf in leaves))  # PyTorch 2.6 has no hash of forms
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
    """Names of one memory that constants alone are in. `read`: others may have names of it, too. `admitted`: it is
    written to, and nothing else sees that."""

    names: list[torch.fx.Node]
    read: bool = False
    admitted: bool | None = None


def _constants(program: torch.export.ExportedProgram) -> tuple[set[torch.fx.Node], set[torch.fx.Node]]:
    """The nodes whose memory constants alone are in, results of constants and tensors that are made of others' shapes
    alone: those that are written to, where nothing else sees that, and those that nobody writes to."""
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
        # An operator that is made of others may return what it was given, whatever its schema says.
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
    """Whether a node's result is a tensor of constants, and not large."""
    record = node.meta.get("val")
    if not isinstance(record, torch.Tensor) or is_open(record) or record.numel() > _LARGEST_CONSTANT:
        return False
    if torch.Tag.nondeterministic_seeded in node.target.tags:  # type: ignore[union-attr]
        return False
    sources = node.all_input_nodes
    return _packet(node) in _LIKE or (bool(sources) and all(source in known for source in sources))


def _aliased(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """The arguments whose memory a node's result is on, by the schema of its operator."""
    for number, argument in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
        if argument.alias_info is not None:
            value = node.args[number] if number < len(node.args) else node.kwargs.get(argument.name)
            yield from (leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.fx.Node))


def _promotes(args: Any, kwargs: Any) -> bool:
    """Whether operands are of several types: what an operator returns may be of another than what it writes."""
    leaves = pytree.tree_leaves((args, kwargs))
    return len({leaf.meta["val"].dtype for leaf in leaves if isinstance(leaf, torch.fx.Node)}) > 1


# ---- operators ------------------------------------------------------------------------------------------------------


def _packet(node: torch.fx.Node) -> str:
    """An operator's name without its overload, as in new_zeros."""
    schema = getattr(node.target, "_schema", None)
    return "" if schema is None else schema.name.removeprefix("aten::")


def _is_idle_dropout(node: torch.fx.Node) -> bool:
    """Whether a node is a dropout of inference, which returns its argument."""
    return _packet(node) in _DROPOUTS and len(node.args) == 3 and node.args[2] is False


def _functional(target: Any) -> Any:
    """The operator that returns what `target` writes to its first argument."""
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
    """What takes the place of `node`, with its name where it is one new node."""
    if isinstance(made, torch.fx.Node) and made not in given and made.op == "call_function":
        made._rename(node.name.removesuffix("_"))
    return made


def _key(leaf: Any) -> Any:
    """What one argument of a call means for its trace."""
    if isinstance(leaf, torch.fx.Node):
        record = leaf.meta["val"]
        return (tuple(record.shape), tuple(record.stride()), record.dtype, record.requires_grad)
    return (type(leaf), repr(leaf))
