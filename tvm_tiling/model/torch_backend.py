"""torch.compile(net, backend="tvm_tiling"): inference through this package, one executable for each set of shapes.

Torch finds the backend by the entry point group "torch_dynamo_backends". Graph breaks and guards are torch's.
Parameters and buffers that torch hands over as inputs are taken as constants, so that weights can be packed: who
changes them afterwards has to call torch.compiler.reset(). Recurrent layers come here only where
torch._dynamo.config.allow_rnn is True; torch runs them itself otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import TilingError, UnsupportedOperator
from .compile import compile_model


def backend(graph: Any, examples: Sequence[Any]) -> Callable[..., Any]:
    """The graph as a callable on tensors. UnsupportedOperator where it is to be differentiated or has open shapes."""
    import torch

    if any(not isinstance(example, torch.Tensor) for example in examples) or _has_open_sizes(graph):
        raise UnsupportedOperator(
            "torch.compile: an input is a number or has a symbolic size; accepted: tensors, with dynamic=False"
        )
    if torch.is_grad_enabled() and any(example.requires_grad for example in examples):
        raise UnsupportedOperator("torch.compile: gradients are asked for; accepted: inference, under torch.no_grad()")
    static = _static_inputs(graph, examples)
    free = [i for i in range(len(examples)) if i not in static]
    frozen = _frozen(graph, examples, static)
    try:
        program = torch.export.export(frozen, tuple(examples[i].detach() for i in free))
        executable = compile_model(program)
    except TilingError:
        raise
    except Exception as error:
        raise UnsupportedOperator(
            f"torch.compile: the graph cannot be exported: {str(error).splitlines()[0]}"
        ) from None

    def call(*tensors: Any) -> tuple[Any, ...]:
        result = executable.run(*(tensors[i].detach().contiguous().numpy() for i in free))
        outputs = result if isinstance(result, tuple) else (result,)
        return tuple(torch.from_numpy(output) for output in outputs)

    return call


def _has_open_sizes(graph: Any) -> bool:
    """Whether an input is a tensor with a symbolic size, in torch's own record of it."""
    values = [node.meta.get("example_value") for node in graph.graph.nodes if node.op == "placeholder"]
    return any(type(size) is not int for value in values for size in getattr(value, "shape", ()))


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


def _frozen(graph: Any, examples: Sequence[Any], static: set[int]) -> Any:
    """A module of a graph whose static inputs are its own."""
    import torch

    class Frozen(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.graph = graph
            for i in static:
                self.register_buffer(f"static_{i}", examples[i].detach())

        def forward(self, *free: Any) -> Any:
            given = iter(free)
            return self.graph(
                *(getattr(self, f"static_{i}") if i in static else next(given) for i in range(len(examples)))
            )

    return Frozen().eval()
