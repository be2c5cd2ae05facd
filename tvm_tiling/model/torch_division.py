"""A program with some operators in executables of this package and the others in PyTorch, node by node.

The program is functional: no node modifies a tensor, so parts need not share memory. Every output of a part has the
strides recorded by PyTorch, because a node run by PyTorch may depend on them. A part that does not compile is bisected
until the failing operators are found.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import TilingError
from ..frontend import ImportedModel
from ..frontend.imported import first_line
from ..frontend.torch.parts import Judgement, Part, divided, halves, judged, part_model, pays
from ..frontend.torch.refusals import Refusal, refusal
from ..runtime.arrays import torch_array, torch_tensor
from .executable import Executable
from .torch_strides import with_strides

Compile = Callable[[Callable[[], list[ImportedModel]]], Executable]
_SMALL = "the surrounding operators that could run here are too few to be worthwhile"


@dataclass(frozen=True)
class Division:
    """A program in parts.

    run: takes the values of `placeholders` and returns the program's outputs. placeholders: those of the program that
    are read, in order. left: the reasons for the nodes run by PyTorch. parts: number of executables. served: number of
    nodes computed by these.
    """

    run: Callable[..., tuple[Any, ...]]
    placeholders: tuple[torch.fx.Node, ...]
    left: tuple[Refusal, ...]
    parts: int
    served: int


def division(
    program: torch.export.ExportedProgram, outputs: Sequence[torch.fx.Node], compiled: Compile, where: str
) -> Division:
    """The divided program; `outputs` are the nodes whose values it returns. `compiled` makes an executable."""
    judgement = judged(program, where)
    left = dict(judgement.refused)
    made: list[tuple[Part, Executable]] = []
    waiting = divided(program, judgement)
    while waiting:
        part = waiting.pop()
        if not part.outputs:
            continue
        if not pays(part):
            left.update((node, refusal(node, _SMALL, True)) for node in part.nodes if node not in left)
            continue
        try:
            made.append((part, compiled(functools.partial(_models, program, part, judgement, where))))
        except Exception as error:
            if isinstance(error, MemoryError):
                raise
            said = str(error) if isinstance(error, TilingError) else f"{type(error).__name__}: {first_line(error)}"
            smaller = halves(part, judgement)
            waiting += filter(pays, smaller)
            culprits = [node for half in smaller if not pays(half) for node in half.nodes] if smaller else part.nodes
            left.update((node, refusal(node, said.removeprefix(f"{where}: "), False)) for node in culprits)
    graph = _Contracted(program, made, judgement, outputs)
    run = torch.fx.GraphModule({**graph.attributes, **graph.modules}, graph.graph)
    ran = {node for part, _ in made for node in part.nodes}
    return Division(
        run=run.forward,
        placeholders=tuple(graph.placeholders),
        left=tuple(why for node, why in left.items() if node not in ran),
        parts=len(made),
        served=len(ran),
    )


def _models(program: torch.export.ExportedProgram, part: Part, judgement: Judgement, where: str) -> list[ImportedModel]:
    return [part_model(program, part, judgement, where)]


class _Contracted:
    """The graph of a program with one call in place of each part, and without nodes not needed by its outputs."""

    def __init__(
        self,
        program: torch.export.ExportedProgram,
        parts: Sequence[tuple[Part, Executable]],
        judgement: Judgement,
        outputs: Sequence[torch.fx.Node],
    ) -> None:
        self.graph, self.placeholders = torch.fx.Graph(), []
        self.modules: dict[str, torch.nn.Module] = {}
        self.attributes: dict[str, Any] = {}
        self._program, self._constants = program, judgement.constants
        self._parts = {node: (part, executable) for part, executable in parts for node in part.nodes}
        self._made: dict[torch.fx.Node, torch.fx.Node] = {}
        needed = self._needed(outputs)
        for node in program.graph.nodes:
            if node.op == "placeholder" and node in needed:
                self._made[node] = self.graph.placeholder(node.name)
                self.placeholders.append(node)
        # Parts and constants are placed at their first use; PyTorch's nodes keep their order, which determines their
        # random numbers.
        for node in program.graph.nodes:
            if node in needed and node not in self._parts and node not in self._constants:
                self._make(node)
        self.graph.output(tuple(self._make(node) for node in outputs))

    def _needed(self, outputs: Sequence[torch.fx.Node]) -> set[torch.fx.Node]:
        """The nodes required by the outputs, and nodes run by PyTorch for their side effects, such as assertions."""
        found: set[torch.fx.Node] = set()
        acting = [node for node in self._program.graph.nodes if node.op == "call_function" and node.is_impure()]
        waiting = [*outputs, *(node for node in acting if node not in self._parts)]
        while waiting:
            node = waiting.pop()
            if node not in found:
                found.add(node)
                waiting += self._parts[node][0].inputs if node in self._parts else node.all_input_nodes
        return found

    def _make(self, node: torch.fx.Node) -> torch.fx.Node:
        """The node's value in the new graph."""
        if node in self._made:
            return self._made[node]
        if node in self._parts:
            self._call(*self._parts[node])
        else:
            for source in node.all_input_nodes:
                self._make(source)
            if node.op == "get_attr":
                self.attributes[str(node.target)] = _attribute(self._program.graph_module, str(node.target))
            self._made[node] = self.graph.node_copy(node, self._made.__getitem__)
        return self._made[node]

    def _call(self, part: Part, executable: Executable) -> None:
        sources = tuple(self._make(source) for source in part.inputs)
        name = f"part_{len(self.modules)}"
        self.modules[name] = _Call(executable, [node.meta["val"] for node in part.outputs])
        called = self.graph.call_module(name, sources)
        for place, node in enumerate(part.outputs):
            self._made[node] = self.graph.call_function(operator.getitem, (called, place))


class _Call(torch.nn.Module):
    """An executable on tensors. `records`: PyTorch's metadata of its outputs."""

    def __init__(self, executable: Executable, records: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._executable = executable
        self._strides = [tuple(map(int, record.stride())) for record in records]

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return run_on_tensors(self._executable, tensors, self._strides)


def run_on_tensors(
    executable: Executable, tensors: Sequence[torch.Tensor], strides: Sequence[tuple[int, ...]] | None = None
) -> tuple[torch.Tensor, ...]:
    """Outputs of an executable as tensors, with these strides if given."""
    result = executable.run(*(torch_array(tensor.detach()) for tensor in tensors))
    found = tuple(map(torch_tensor, result if isinstance(result, tuple) else (result,)))
    return found if strides is None else tuple(map(with_strides, found, strides))


def apart(results: Sequence[torch.Tensor], inputs: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    """The results, each with memory of its own: a node run by PyTorch may return a view of its input."""
    taken = {value.untyped_storage().data_ptr() for value in inputs if isinstance(value, torch.Tensor)}
    found = []
    for result in results:
        place = result.untyped_storage().data_ptr()
        found.append(result.clone() if place in taken else result)
        taken.add(place)
    return tuple(found)


def _attribute(module: Any, name: str) -> Any:
    for part in name.split("."):
        module = getattr(module, part)
    return module
