"""Memory effects of a torch.compile graph: inputs that it modifies, and outputs that share memory.

Kernels write every output into memory of its own. If PyTorch would return an input, a view of one, or several views of
one intermediate result, the caller may modify one and read the other; such views are therefore recreated, with the
strides recorded by PyTorch, from the input or the intermediate result, which becomes an output of the kernels. The new
value of a modified input is an output of the kernels too, and is copied into the input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from ..errors import UnsupportedOperator
from .torch_strides import is_dense, with_strides


@dataclass(frozen=True)
class Computed:
    """A tensor computed by the kernels: the number of their output."""

    number: int


@dataclass(frozen=True)
class Given:
    """The input of this number itself."""

    number: int


@dataclass(frozen=True)
class View:
    """A view of another tensor's memory. `offset`: elements from the first one of `base`."""

    base: Computed | Given
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Plain:
    """A value that is not a tensor."""

    value: Any


Output: TypeAlias = Computed | Given | View | Plain


@dataclass(frozen=True)
class Outputs:
    """`results`: the nodes of the graph computed by the kernels.

    `strides`: their strides in PyTorch, None if known only at run time; `dtypes`: likewise. `returned`: the outputs of
    the graph, made of them. `changed`: numbers of the inputs modified by the graph.
    """

    results: tuple[torch.fx.Node, ...]
    strides: tuple[tuple[int, ...] | None, ...]
    dtypes: tuple[torch.dtype, ...]
    returned: tuple[Output, ...]
    changed: frozenset[int]

    def made(self, found: Sequence[torch.Tensor], inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs of the graph for these inputs, which are already modified, from the results of the kernels."""
        # Under autocast PyTorch's export omits casts within composite operators such as einsum.
        typed = (value.to(dtype) for value, dtype in zip(found, self.dtypes, strict=True))
        computed = tuple(map(with_strides, typed, self.strides))

        def tensor(output: Output) -> Any:
            if isinstance(output, Computed):
                return computed[output.number]
            if isinstance(output, Given):
                return inputs[output.number]
            if isinstance(output, View):
                base = tensor(output.base)
                return base.as_strided(output.shape, output.strides, base.storage_offset() + output.offset)
            return output.value

        return tuple(map(tensor, self.returned))


def outputs_of(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Outputs:
    """The outputs of `graph` for inputs of these shapes, types and strides, determined with fake tensors.

    Raises UnsupportedOperator if it changes an attribute of the graph or the shape or memory of an input, or returns a
    view that cannot be recreated.
    """
    # Inference tensors have no version counter.
    with torch.inference_mode(False), torch.no_grad(), _fake_mode() as mode:
        fakes = [_fake(mode, value) if isinstance(value, torch.Tensor) else value for value in inputs]
        held = dict(graph.named_parameters()) | dict(graph.named_buffers())
        before = [_state(value) for value in (*fakes, *held.values())]
        recorded = _Recorded(graph)
        try:
            returned = recorded.run(*fakes)
        finally:
            torch.clear_autocast_cache()  # of fake weights
        after = [_state(value) for value in (*fakes, *held.values())]
    places = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
    for name, old, new in zip([*places, *held], before, after, strict=True):
        if old[1:] != new[1:]:
            raise UnsupportedOperator(f"the graph changes the shape or the memory of {name!r} in place")
    changed = [number for number, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    if attributes := [name for number, name in enumerate(held, len(fakes)) if number in changed]:
        raise UnsupportedOperator(f"the graph changes {', '.join(map(repr, attributes))} in place")
    for number in changed:
        if not is_dense(fakes[number].shape, fakes[number].stride()) and _overlaps(fakes[number]):
            raise UnsupportedOperator(f"the graph changes {places[number]!r}, whose elements share memory, in place")
    finder = _Finder(graph, fakes, recorded.values)
    outputs = tuple(map(finder.found, returned))
    strides = tuple(_strides(recorded.values[node]) for node in finder.results)
    dtypes = tuple(recorded.values[node].dtype for node in finder.results)
    return Outputs(tuple(finder.results), strides, dtypes, outputs, frozenset(changed))


def _fake_mode() -> FakeTensorMode:
    """A mode in which tensors have no data; their sizes may be data-dependent."""
    return FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)


def _fake(mode: FakeTensorMode, value: torch.Tensor) -> torch.Tensor:
    return mode.from_tensor(empty_like(value), static_shapes=True)


def _strides(value: torch.Tensor) -> tuple[int, ...] | None:
    return tuple(value.stride()) if all(isinstance(stride, int) for stride in value.stride()) else None


def empty_like(value: Any) -> Any:
    """A tensor of the same shape, type and strides with arbitrary content; other values are returned unchanged."""
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)


def _state(value: Any) -> tuple[Any, ...]:
    """The properties that change with a tensor: its version first, then its shape, strides and memory."""
    if not isinstance(value, torch.Tensor):
        return ()
    version = 0 if value.is_inference() else value._version
    return version, tuple(value.shape), value.stride(), value.storage_offset(), _memory(value)


def _overlaps(value: torch.Tensor) -> bool:
    """Return whether two elements may share a location."""
    return any(stride == 0 and size > 1 for size, stride in zip(value.shape, value.stride(), strict=True))


class _Recorded(torch.fx.Interpreter):
    """Runs a graph and keeps the value of every node."""

    def __init__(self, graph: torch.fx.GraphModule) -> None:
        super().__init__(graph, garbage_collect_values=False)
        self.values: dict[torch.fx.Node, Any] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        value = super().run_node(n)
        self.values[n] = value
        return value


class _Finder:
    """Determines the origin of outputs."""

    def __init__(self, graph: torch.fx.GraphModule, inputs: Sequence[Any], values: dict[torch.fx.Node, Any]) -> None:
        self._inputs = inputs
        self._given = {_memory(value): number for number, value in reversed(list(enumerate(inputs))) if _memory(value)}
        # The first node whose value lies in a storage created it.
        self._makers: dict[int, torch.fx.Node] = {}
        for node, value in values.items():
            if node.op not in ("placeholder", "output") and (place := _memory(value)):
                self._makers.setdefault(place, node)
        self._values = values
        returned = next(node for node in graph.graph.nodes if node.op == "output").args[0]
        self._nodes = iter(returned)  # type: ignore[arg-type]
        self._uses: dict[int, set[int]] = {}
        for node in returned:  # type: ignore[union-attr]
            if isinstance(node, torch.fx.Node) and (place := _memory(values[node])):
                self._uses.setdefault(place, set()).add(id(values[node]))
        self.results: list[torch.fx.Node] = []

    def found(self, value: Any) -> Output:
        """How to make the next output, which has this value."""
        node = next(self._nodes)
        if not isinstance(value, torch.Tensor):
            return Plain(value)
        for number, given in enumerate(self._inputs):
            if given is value:
                return Given(number)
        place = _memory(value)
        if place in self._given:
            number = self._given[place]
            return _view(value, self._inputs[number], Given(number))
        maker = self._makers.get(place)
        if maker is not None and maker.op == "get_attr":
            raise UnsupportedOperator(
                f"output {str(node)!r} shares memory with attribute {maker.target!r} of the graph"
            )
        if len(self._uses.get(place, ())) < 2:
            return self._computed(node)
        if maker is None:
            raise UnsupportedOperator(f"output {str(node)!r} shares memory with no tensor of the graph")
        base = self._values[maker]
        if base is value:
            return self._computed(maker)
        if not base.is_contiguous() or base.numel() * base.element_size() != base.untyped_storage().nbytes():
            raise UnsupportedOperator(
                f"output {str(node)!r} shares memory with {maker.name!r}, which is not contiguous"
            )
        return _view(value, base, self._computed(maker))

    def _computed(self, node: torch.fx.Node) -> Computed:
        if node not in self.results:
            self.results.append(node)
        return Computed(self.results.index(node))


def _view(value: torch.Tensor, of: torch.Tensor, base: Computed | Given) -> View:
    if value.dtype != of.dtype or value.is_conj() != of.is_conj() or value.is_neg() != of.is_neg():
        raise UnsupportedOperator("an output is a view with another type than its base")
    return View(base, tuple(value.shape), tuple(value.stride()), int(value.storage_offset() - of.storage_offset()))


def _memory(value: Any) -> int:
    """A value that is equal for tensors that share memory; 0 if `value` is not a dense tensor."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return 0
    try:
        return int(value.untyped_storage()._cdata)
    except NotImplementedError:  # a wrapper of torch.vmap
        return 0
