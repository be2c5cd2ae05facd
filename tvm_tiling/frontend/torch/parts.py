"""Division of a program into translatable parts: their nodes, and each part as a model.

PyTorch's own partitioner makes parts as large as possible without cyclic dependencies. Nodes with values known at
compile time belong to no part: each part contains the constants that it reads.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from ..imported import ImportedModel
from .operators import CONVERTERS
from .refusals import Refusal, full_name, unsupported
from .user_values import user_inputs, user_outputs
from .walk import Walk

# Minimum work of a part: below this, a call costs about as much as PyTorch needs for its nodes.
LEAST_WORK = 4
# Operators that alone are enough work.
_HEAVY = (
    *("mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "convolution"),
    *("scaled_dot_product_attention", "lstm", "gru", "rnn_tanh", "rnn_relu"),
)


@dataclass(frozen=True)
class Judgement:
    """The translatable nodes of a program. `refused`: nodes that cannot be translated. `constants`: nodes with values
    known at compile time."""

    refused: Mapping[torch.fx.Node, Refusal]
    constants: frozenset[torch.fx.Node]


@dataclass(frozen=True)
class Part:
    """Nodes in graph order, the nodes whose values they read at run time, and the nodes whose values are read by
    others."""

    nodes: tuple[torch.fx.Node, ...]
    inputs: tuple[torch.fx.Node, ...]
    outputs: tuple[torch.fx.Node, ...]


def judged(program: torch.export.ExportedProgram, where: str) -> Judgement:
    """Determine which nodes of a program in core ATen operators can be translated, by translating each."""
    walk = Walk(program, CONVERTERS)
    inputs = [given.node for given in user_inputs(program, where)]
    walk.function(inputs, program.graph.nodes, [given.node for given in user_outputs(program)])
    return Judgement(walk.refused, frozenset(walk.constant_nodes()))


def divided(program: torch.export.ExportedProgram, judgement: Judgement) -> list[Part]:
    """The translatable parts."""
    support = _Support(judgement)
    partitioner = CapabilityBasedPartitioner(program.graph_module, support, allows_single_node_partition=True)
    order = {node: place for place, node in enumerate(program.graph.nodes)}
    found = [sorted(partition.nodes, key=order.__getitem__) for partition in partitioner.propose_partitions()]
    return [part_of(nodes, judgement) for nodes in found]


class _Support(OperatorSupportBase):
    def __init__(self, judgement: Judgement) -> None:
        self._judgement = judgement

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: torch.fx.Node) -> bool:
        known = node in self._judgement.refused or node in self._judgement.constants
        return node.op == "call_function" and not known


def part_of(nodes: Sequence[torch.fx.Node], judgement: Judgement) -> Part:
    """A part of these nodes, in graph order."""
    own = set(nodes)
    inputs: dict[torch.fx.Node, None] = {}
    for node in nodes:
        for source in node.all_input_nodes:
            if source not in own and source not in judgement.constants:
                inputs[source] = None
    outputs = tuple(node for node in nodes if any(user not in own for user in node.users))
    return Part(tuple(nodes), tuple(inputs), outputs)


def halves(part: Part, judgement: Judgement) -> list[Part]:
    """Two parts of about half the nodes each, keeping the elements of a multi-output node with it; empty for a single
    node."""
    groups: list[list[torch.fx.Node]] = []
    place: dict[torch.fx.Node, list[torch.fx.Node]] = {}
    for node in part.nodes:
        giver = node.args[0] if node.target is operator.getitem else None
        if isinstance(giver, torch.fx.Node) and giver in place:
            group = place[giver]
        else:
            groups.append(group := [])
        group.append(node)
        place[node] = group
    if len(groups) < 2:
        return []
    order = {node: number for number, node in enumerate(part.nodes)}
    middle = len(groups) // 2
    return [
        part_of(sorted((node for group in half for node in group), key=order.__getitem__), judgement)
        for half in (groups[:middle], groups[middle:])
    ]


def pays(part: Part) -> bool:
    """Return whether a part has enough work for its own call."""
    return sum(map(_work, part.nodes)) >= LEAST_WORK


def _work(node: torch.fx.Node) -> int:
    target = node.target
    if (
        not isinstance(target, torch._ops.OpOverload)
        or node.meta.get("val") is None
        or getattr(target, "is_view", False)
    ):
        return 0
    return LEAST_WORK if full_name(target).removeprefix("aten::").split(".")[0] in _HEAVY else 1


def part_model(program: torch.export.ExportedProgram, part: Part, judgement: Judgement, where: str) -> ImportedModel:
    """A part as a model. Raises UnsupportedOperator if it cannot be translated in isolation."""
    wanted = set(part.nodes) | _constants_of(part.nodes, judgement)
    walk = Walk(program, CONVERTERS)
    module = walk.function(part.inputs, [node for node in program.graph.nodes if node in wanted], part.outputs)
    if module is None:
        raise unsupported(walk.refused.values(), where)
    return ImportedModel(
        module=module,
        input_names=tuple(node.name for node in part.inputs),
        input_shapes=tuple(tuple(map(int, node.meta["val"].shape)) for node in part.inputs),
        input_dtypes=tuple(str(variable.ty.dtype) for variable in module["main"].params),
        output_names=tuple(node.name for node in part.outputs),
        source="torch",
    )


def _constants_of(nodes: Iterable[torch.fx.Node], judgement: Judgement) -> set[torch.fx.Node]:
    """The constant nodes from which these are computed."""
    found: set[torch.fx.Node] = set()
    waiting = [source for node in nodes for source in node.all_input_nodes if source in judgement.constants]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return found
