"""torch.compile(net, backend="tvm_tiling"): inference through this package, one executable for each set of shapes.

Torch finds the backend by the entry point group "torch_dynamo_backends". Graph breaks and guards are torch's.
Parameters and buffers that torch hands over as inputs are taken as constants, so that weights can be packed: who
changes them afterwards has to call torch.compiler.reset(). Recurrent layers come here only where
torch._dynamo.config.allow_rnn is True; torch runs them itself otherwise.

After it has seen a second shape torch asks for a graph that serves every size, if not told `dynamic=False`. Kernels are
of fixed shapes: such a graph is compiled when it is called, for the sizes and numbers that it is called with, and the
executables of the last KEPT of them are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from ..errors import TilingError, UnsupportedOperator
from .compile import compile_model

KEPT = 16
# What is free in a graph's inputs: a number, or the shape and type of a tensor; None for a constant.
Kind: TypeAlias = Any


def backend(graph: Any, examples: Sequence[Any]) -> Callable[..., Any]:
    """The graph as a callable on tensors. UnsupportedOperator where it is to be differentiated, or holds an operator
    that is not served; where sizes are open, that is said at the call."""
    import torch

    if torch.is_grad_enabled() and any(getattr(example, "requires_grad", False) for example in examples):
        raise UnsupportedOperator("torch.compile: gradients are asked for; accepted: inference, under torch.no_grad()")
    static = {i: examples[i] for i in _static_inputs(graph, examples)}
    numbers = _numbers(graph)

    def kind_of(i: int, value: Any) -> Kind:
        if i in static:
            return None
        if i in numbers:
            return value.item()
        return (tuple(value.shape), value.dtype) if isinstance(value, torch.Tensor) else value

    @lru_cache(maxsize=KEPT)
    def specialised(kinds: tuple[Kind, ...]) -> Callable[..., tuple[Any, ...]]:
        return _compiled(graph, static, kinds)

    def call(*inputs: Any) -> tuple[Any, ...]:
        kinds = tuple(map(kind_of, range(len(inputs)), inputs))
        return specialised(kinds)(*(x for x, kind in zip(inputs, kinds, strict=True) if isinstance(kind, tuple)))

    if not _has_open_sizes(graph, examples):
        specialised(tuple(map(kind_of, range(len(examples)), examples)))
    return call


def _has_open_sizes(graph: Any, examples: Sequence[Any]) -> bool:
    """Whether an input is a number, or by torch's own record a tensor with a symbolic size."""
    import torch

    values = [node.meta.get("example_value") for node in graph.graph.nodes if node.op == "placeholder"]
    return any(not isinstance(example, torch.Tensor) for example in examples) or any(
        type(size) is not int for value in values for size in getattr(value, "shape", ())
    )


def _static_inputs(graph: Any, examples: Sequence[Any]) -> set[int]:
    """Numbers of the inputs that are a module's parameters or buffers."""
    import torch

    places = [node for node in graph.graph.nodes if node.op == "placeholder"]
    return {
        i
        for i, (node, example) in enumerate(zip(places, examples, strict=True))
        if isinstance(example, torch.nn.Parameter)
        or node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type") is not None
    }


def _numbers(graph: Any) -> set[int]:
    """Numbers of the inputs that are numbers in tensors, which torch makes of a float once it has seen two values of
    it. The graph takes the numbers as they are from here on."""
    found = set()
    for i, place in enumerate([node for node in graph.graph.nodes if node.op == "placeholder"]):
        users = list(place.users)
        if users and all((user.op, user.target) == ("call_method", "item") for user in users):
            found.add(i)
            for user in users:
                user.replace_all_uses_with(place)
                graph.graph.erase_node(user)
    graph.recompile()
    return found


def _compiled(graph: Any, static: dict[int, Any], kinds: Sequence[Kind]) -> Callable[..., tuple[Any, ...]]:
    """The graph for inputs of these kinds, as a callable on its free tensors that returns all its outputs."""
    import torch

    outputs: list[Any] = []  # as torch traces them: what is no tensor is a number by then

    class Frozen(torch.nn.Module):
        """The graph with constants for its static inputs and its numbers, and tensors alone as outputs."""

        def __init__(self) -> None:
            super().__init__()
            self.graph = graph
            for i, value in static.items():
                self.register_buffer(f"static_{i}", value.detach())

        def forward(self, *free: Any) -> Any:
            given = iter(free)
            outputs[:] = self.graph(*(self.value(i, kind, given) for i, kind in enumerate(kinds)))
            return tuple(output for output in outputs if isinstance(output, torch.Tensor))

        def value(self, i: int, kind: Kind, given: Any) -> Any:
            if i in static:
                return getattr(self, f"static_{i}")
            return next(given) if isinstance(kind, tuple) else kind

    free = tuple(torch.zeros(kind[0], dtype=kind[1]) for kind in kinds if isinstance(kind, tuple))
    try:
        with torch.no_grad():
            program = torch.export.export(Frozen().eval(), free)
        executable = compile_model(program)
    except TilingError:
        raise
    except Exception as error:
        raise UnsupportedOperator(
            f"torch.compile: the graph cannot be exported: {str(error).splitlines()[0]}"
        ) from None
    numbers = [None if isinstance(output, torch.Tensor) else output for output in outputs]
    is_tensor = [isinstance(output, torch.Tensor) for output in outputs]

    def call(*tensors: Any) -> tuple[Any, ...]:
        result = executable.run(*(tensor.detach().contiguous().numpy() for tensor in tensors))
        results = iter(result if isinstance(result, tuple) else (result,))
        return tuple(
            torch.from_numpy(next(results)) if tensor else number
            for tensor, number in zip(is_tensor, numbers, strict=True)
        )

    return call
