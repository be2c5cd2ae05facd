"""The graph of a compiled model: its steps in execution order, with the steps whose results each of them reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..runtime.open_plan import AnyPlan, OpenTensor
from ..runtime.plan import ARENA, CONSTANT, INPUT, PlannedTensor
from ..sizes import Named

PACKED = "_packed"  # suffix of the name of an operator whose kernel takes packed weights


@dataclass(frozen=True)
class GraphStep:
    """One call of an operator's kernel.

    `reads`: numbers of the steps whose results it reads; inputs of the model are -1 (the first one), -2 and so on.
    `shapes`: shapes and types of its results, as text.
    """

    operator: str
    reads: tuple[int, ...]
    shapes: tuple[str, ...]

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> GraphStep:
        """The step for the result of asdict(). Raises KeyError or TypeError for anything else."""
        return cls(str(plain["operator"]), tuple(map(int, plain["reads"])), tuple(map(str, plain["shapes"])))


def graph_of(plan: AnyPlan) -> tuple[GraphStep, ...]:
    """The steps of a plan; empty if the plan does not record which arguments its kernels write, as in files of earlier
    versions."""
    writes = dict(plan.writes)
    if set(writes) != set(plan.kernels):
        return ()
    memory, steps = _LastWriters(), []
    for number, step in enumerate(plan.steps):
        own = writes[step.kernel]
        tensors = [(place, plan.tensors[n]) for place, n in enumerate(step.arguments) if n >= 0]
        given = [tensor for place, tensor in tensors if place not in own and tensor.place != CONSTANT]
        made = [tensor for place, tensor in tensors if place in own]
        reads = tuple(dict.fromkeys(writer for tensor in given for writer in memory.writers(tensor)))
        for tensor in made:
            memory.write(tensor, number)
        steps.append(GraphStep(step.kernel.removesuffix(PACKED), reads, tuple(map(shape_text, made))))
    return tuple(steps)


def shape_text(tensor: PlannedTensor | OpenTensor) -> str:
    """A tensor's extents and type: "1 × 64 × 56 × 56 float32"; dynamic dimensions by name."""
    extents = [extent.name if isinstance(extent, Named) else str(extent) for extent in tensor.shape]
    return f"{' × '.join(extents) or 'scalar'} {tensor.dtype}"


class _LastWriters:
    """The last step that wrote each byte of memory."""

    def __init__(self) -> None:
        self._spans: dict[tuple[int, int], list[tuple[int, int, int]]] = {}  # by memory: (first, end, step)

    def writers(self, tensor: PlannedTensor | OpenTensor) -> Iterator[int]:
        """The steps that wrote the content of this tensor; for an input of the model its number, which is negative."""
        if tensor.place == INPUT:
            yield -1 - _number(tensor)
            return
        memory, first, end = _where(tensor)
        for start, stop, step in self._spans.get(memory, ()):
            if start < end and first < stop:
                yield step

    def write(self, tensor: PlannedTensor | OpenTensor, step: int) -> None:
        """Record that this step wrote the tensor."""
        memory, first, end = _where(tensor)
        self._spans[memory] = [*_without(self._spans.get(memory, ()), first, end), (first, end, step)]


def _without(spans: Sequence[tuple[int, int, int]], first: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The remaining spans after the bytes from `first` to `end` are overwritten."""
    for start, stop, step in spans:
        if start < min(stop, first):
            yield start, min(stop, first), step
        if max(start, end) < stop:
            yield max(start, end), stop, step


def _number(tensor: PlannedTensor | OpenTensor) -> int:
    return tensor.offset if isinstance(tensor, PlannedTensor) else tensor.number


def _where(tensor: PlannedTensor | OpenTensor) -> tuple[tuple[int, int], int, int]:
    """The memory of a tensor, and its first byte and end there.

    A piece of a plan with dynamic shapes, and an output, is a memory of its own, filled by the tensor.
    """
    if isinstance(tensor, PlannedTensor) and tensor.place == ARENA:
        return (ARENA, 0), tensor.offset, tensor.offset + tensor.bytes
    return (tensor.place, _number(tensor)), 0, 1
