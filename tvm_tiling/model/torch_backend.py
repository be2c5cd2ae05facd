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
# Of an input that is free: a number, or the shape and type of a tensor.
Kind: TypeAlias = Any


def backend(graph: Any, examples: Sequence[Any]) -> Callable[..., Any]:
    """The graph as a callable on tensors. UnsupportedOperator where it is to be differentiated, or holds an operator
    that is not served; where sizes are open, that is said at the call."""
    import torch

    if torch.is_grad_enabled() and any(getattr(example, "requires_grad", False) for example in examples):
        raise UnsupportedOperator("torch.compile: gradients are asked for; accepted: inference, under torch.no_grad()")
    static = {i: examples[i] for i in _static_inputs(graph, examples)}
    free, numbers = [i for i in range(len(examples)) if i not in static], _numbers(graph)

    def kinds_of(inputs: Sequence[Any]) -> dict[int, Kind]:
        values = ((i, inputs[i].item() if i in numbers else inputs[i]) for i in free)
        return {i: (tuple(v.shape), v.dtype) if isinstance(v, torch.Tensor) else v for i, v in values}

    @lru_cache(maxsize=KEPT)
    def specialised(kinds: tuple[tuple[int, Kind], ...]) -> Callable[..., tuple[Any, ...]]:
        return _compiled(graph, static, dict(kinds))

    def call(*inputs: Any) -> tuple[Any, ...]:
        kinds = kinds_of(inputs)
        return specialised(tuple(kinds.items()))(*(inputs[i] for i, kind in kinds.items() if isinstance(kind, tuple)))

    if numbers or _has_open_sizes(graph, examples):
        return call
    executable = _compiled(graph, static, kinds_of(examples))
    return lambda *inputs: executable(*(inputs[i] for i in free))


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


def _compiled(graph: Any, static: dict[int, Any], kinds: dict[int, Kind]) -> Callable[..., tuple[Any, ...]]:
    """The graph for free inputs of these kinds: a callable on those of them that are tensors, returning all outputs."""
    import torch

    outputs: list[Any] = []  # as torch traces them: what is no tensor is a number by then

    class Frozen(torch.nn.Module):
        """The graph with constants for its static inputs and its numbers, and tensors alone as outputs."""

        def __init__(self) -> None:
            super().__init__()
            self.graph = graph
            for i, value in static.items():
                self.register_buffer(f"static_{i}", value.detach())

        def forward(self, *tensors: Any) -> Any:
            given = iter(tensors)
            free = {i: next(given) if isinstance(kind, tuple) else kind for i, kind in kinds.items()}
            inputs = {i: getattr(self, f"static_{i}") for i in static} | free
            outputs[:] = self.graph(*(inputs[i] for i in range(len(inputs))))
            return tuple(output for output in outputs if isinstance(output, torch.Tensor))

    tensors = tuple(torch.zeros(kind[0], dtype=kind[1]) for kind in kinds.values() if isinstance(kind, tuple))
    try:
        with torch.no_grad():
            program = torch.export.export(Frozen().eval(), tensors)
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
