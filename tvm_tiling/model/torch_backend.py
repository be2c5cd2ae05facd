"""torch.compile(net, backend="tvm_tiling"): inference through this package, one executable for each set of shapes.

Torch finds the backend by the entry point group "torch_dynamo_backends". Graph breaks and guards are torch's. A graph
that is not served, changes its inputs, or is to be differentiated is left to PyTorch, which a LeftToTorch warning says
once; options={"fallback": False} makes it an error instead.

Parameters and buffers that torch hands over as inputs become constants, so that weights can be packed; what is packed
belongs to one set of them (torch_parameters.py). After it has seen a second shape torch asks for a graph that serves
every size, if not told `dynamic=False`. Kernels are of fixed shapes: such a graph is compiled when it is called, for
the sizes and numbers that it is called with, and what was made for the last KEPT of them is kept.

Loading this module lets torch trace LSTM, GRU and RNN (torch._dynamo.config.allow_rnn), which it otherwise runs itself
without a word.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import torch

from ..errors import LeftToTorch, TilingError, UnsupportedOperator
from ..frontend.torch.import_torch import decomposed, import_decomposed
from ..runtime.arrays import torch_array, torch_tensor
from ..schedule import Options, hardware_of
from .build import Libraries
from .compile import compile_imported
from .executable import Executable
from .torch_outputs import Outputs, outputs_of
from .torch_parameters import ParameterSets

KEPT = 16
WHERE = "torch.compile"
# Of an input that is not a parameter: a number, or shape, type and strides of a tensor.
Kind: TypeAlias = Any

torch._dynamo.config.allow_rnn = True


def backend(
    graph: torch.fx.GraphModule, examples: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """The graph as a callable on tensors, for inputs like `examples`.

    options: {"fallback": False} raises UnsupportedOperator for a graph that would be left to PyTorch.
    """
    unknown = sorted(set(options or {}) - {"fallback"})
    if unknown:
        raise UnsupportedOperator(f"{WHERE}: option {unknown[0]!r} does not exist; expected 'fallback'")
    fallback = bool((options or {}).get("fallback", True))
    wanted = [*examples, *graph.parameters()]
    if torch.is_grad_enabled() and any(getattr(value, "requires_grad", False) for value in wanted):
        return _left(graph, "gradients may be asked for; call it under torch.no_grad() for inference", fallback)
    others = {str(v.device) for v in wanted if isinstance(v, torch.Tensor) and v.device.type != "cpu"}
    if others:
        return _left(graph, f"it is on device {sorted(others)[0]!r}; expected 'cpu'", fallback)
    supported = _Graph(graph, examples, fallback)
    return supported if supported.is_open else supported.fixed(examples)


def _left(graph: torch.fx.GraphModule, why: str, fallback: bool) -> Callable[..., Any]:
    """The graph as PyTorch runs it."""
    if not fallback:
        raise UnsupportedOperator(f"{WHERE}: {why}")
    warnings.warn(f"{WHERE}: a graph is left to PyTorch: {why}", LeftToTorch, stacklevel=3)
    run: Callable[..., Any] = graph.forward
    return run


class _Graph:
    """A graph that torch.compile made, called with its inputs."""

    def __init__(self, graph: torch.fx.GraphModule, examples: Sequence[Any], fallback: bool) -> None:
        static = _static_inputs(graph, examples)
        self.graph, self._fallback = graph, fallback
        self._free = [number for number in range(len(examples)) if number not in static]
        self._static = sorted(static)
        self._numbers = _numbers(graph)
        self.is_open = bool(self._numbers) or _has_open_sizes(graph, examples)
        self._libraries = Libraries()
        self._lock = threading.Lock()
        self._made: OrderedDict[tuple[Kind, ...], Callable[..., Any]] = OrderedDict()

    def __call__(self, *inputs: Any) -> Any:
        kinds = tuple(self._kind(number, inputs[number]) for number in self._free)
        with self._lock:
            found = self._made.get(kinds)
            if found is not None:
                self._made.move_to_end(kinds)
        if found is None:
            found = self.fixed(inputs)
            with self._lock:
                self._made[kinds] = found
                while len(self._made) > KEPT:
                    self._made.popitem(last=False)
        return found(*inputs)

    def _kind(self, number: int, value: Any) -> Kind:
        if number in self._numbers:
            return value.item()
        return (tuple(value.shape), value.dtype, value.stride()) if isinstance(value, torch.Tensor) else value

    def fixed(self, inputs: Sequence[Any]) -> Callable[..., Any]:
        """The graph for inputs of the shapes and numbers of these."""
        given = [value.item() if number in self._numbers else value for number, value in enumerate(inputs)]
        try:
            return _Fixed(self.graph, given, self._static, self._libraries)
        except TilingError as error:
            return _left(self.graph, str(error).removeprefix(f"{WHERE}: "), self._fallback)
        except Exception as error:  # a fault of this package is not a reason not to run a model
            if not self._fallback:
                raise
            return _left(self.graph, f"{type(error).__name__}: {error}", True)


class _Fixed:
    """A graph for inputs of fixed shapes."""

    def __init__(
        self, graph: torch.fx.GraphModule, inputs: Sequence[Any], static: Sequence[int], libraries: Libraries
    ) -> None:
        """`static`: numbers of the inputs that are parameters and buffers. Raises TilingError where the graph is not
        served."""
        self._static = static
        self._tensors = [number for number, value in enumerate(inputs) if isinstance(value, torch.Tensor)]
        self._free = [number for number in self._tensors if number not in static]
        # Before PyTorch 2.5 parameters are attributes of the graph's modules, and looked up at every call.
        self._attributes = {
            f"graph.{owner}.{name}" if owner else f"graph.{name}": (held, name)
            for owner, module in graph.named_modules()
            for held in (module._parameters, module._buffers)
            for name, value in held.items()
            if value is not None
        }
        self._run = graph.forward
        self._outputs = outputs_of(graph, inputs)
        self._graph = _with_results(graph, self._outputs)
        self._libraries, self._hardware = libraries, hardware_of("llvm")
        self._examples = [_empty(value) for value in inputs]
        self._program: torch.export.ExportedProgram | None = None
        self._unpacked: Executable | None = None
        self._lock = threading.Lock()
        self._packed = ParameterSets(self._packed_for)
        if self._outputs.results:
            self._executable(inputs)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        computed: tuple[Any, ...] = ()
        if self._outputs.results:
            executable, free = self._executable(inputs)
            if executable is None:
                return tuple(self._run(*inputs))
            result = executable.run(*(torch_array(inputs[number].detach()) for number in free))
            computed = tuple(map(torch_tensor, result if isinstance(result, tuple) else (result,)))
        return self._outputs.made(computed, inputs)

    def _executable(self, inputs: Sequence[Any]) -> tuple[Executable | None, Sequence[int]]:
        """What to run, and the numbers of the inputs that it takes; None for PyTorch itself."""
        held = [*(inputs[number] for number in self._static), *(of[name] for of, name in self._attributes.values())]
        if not held:
            return self._unpacked or self._without_packing(), self._tensors
        packed = self._packed.of(held)
        if packed is not None or self._attributes:  # which cannot be inputs
            return packed, self._free
        return self._without_packing(), self._tensors

    def _packed_for(self, tensors: Sequence[torch.Tensor]) -> Executable:
        """With these parameters as constants."""
        if self._program is None:
            self._program = self._exported(self._static)
        names = [*(f"static_{number}" for number in self._static), *self._attributes]
        with _bound(self._program, dict(zip(names, tensors, strict=True))):
            return self._compiled(self._program)

    def _without_packing(self) -> Executable:
        """With parameters as inputs."""
        with self._lock:
            if self._unpacked is None:
                self._unpacked = self._compiled(self._exported(()))
            return self._unpacked

    def _compiled(self, program: torch.export.ExportedProgram) -> Executable:
        return compile_imported(
            lambda: [import_decomposed(program, where=WHERE)], self._hardware, Options(), libraries=self._libraries
        )

    def _exported(self, static: Sequence[int]) -> torch.export.ExportedProgram:
        """The graph in core ATen operators, with buffers in the place of these inputs."""
        frozen = _Frozen(self._graph, self._examples, static)
        tensors = tuple(self._examples[number] for number in self._tensors if number not in static)
        try:
            # Apart from the trace that Dynamo is in, whose tensors without content are of another kind.
            with torch._guards.tracing(None), torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return decomposed(torch.export.export(frozen.eval(), tensors, strict=False))
        except Exception as error:
            first = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise UnsupportedOperator(f"{WHERE}: the graph cannot be exported: {first}") from error
        finally:
            torch.clear_autocast_cache()  # of weights without content, which PyTorch would compute with afterwards


class _Frozen(torch.nn.Module):
    """A graph as a module: some of its inputs are buffers, numbers are constants, other tensors stay inputs."""

    def __init__(self, graph: torch.fx.GraphModule, inputs: Sequence[Any], static: Sequence[int]) -> None:
        super().__init__()
        self.graph = graph
        self._inputs, self._static = inputs, frozenset(static)
        for number in static:
            self.register_buffer(f"static_{number}", inputs[number])

    def forward(self, *tensors: Any) -> Any:
        given = iter(tensors)

        def value(number: int, example: Any) -> Any:
            if number in self._static:
                return getattr(self, f"static_{number}")
            return next(given) if isinstance(example, torch.Tensor) else example

        return tuple(self.graph(*(value(number, example) for number, example in enumerate(self._inputs))))


def _with_results(graph: torch.fx.GraphModule, outputs: Outputs) -> torch.fx.GraphModule:
    """A copy of the graph that returns what kernels are to compute."""
    copied = torch.fx.Graph()
    nodes: dict[torch.fx.Node, torch.fx.Node] = {}
    copied.graph_copy(graph.graph, nodes)
    copied.output(tuple(nodes[node] for node in outputs.results))
    return torch.fx.GraphModule(graph, copied)


def _empty(value: Any) -> Any:
    """A tensor of the same shape, type and strides, of which no content counts; what is not a tensor as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)


@contextlib.contextmanager
def _bound(program: torch.export.ExportedProgram, tensors: Mapping[str, torch.Tensor]) -> Iterator[None]:
    """The program with these tensors as its buffers and parameters, by name, for a while."""
    before = [(held, name, held[name]) for held in (program.state_dict, program.constants) for name in held]
    for held, name, _ in before:
        if name in tensors:
            held[name] = tensors[name].detach()
    try:
        yield
    finally:
        for held, name, value in before:
            held[name] = value


def _has_open_sizes(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> bool:
    """Whether an input is a number, or by torch's own record a tensor with a symbolic size."""
    values = [node.meta.get("example_value") for node in graph.graph.nodes if node.op == "placeholder"]
    return any(not isinstance(example, torch.Tensor) for example in examples) or any(
        type(size) is not int for value in values for size in getattr(value, "shape", ())
    )


def _static_inputs(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> set[int]:
    """Numbers of the inputs that are a module's parameters or buffers."""
    places = [node for node in graph.graph.nodes if node.op == "placeholder"]
    return {
        number
        for number, (node, example) in enumerate(zip(places, examples, strict=True))
        if isinstance(example, torch.nn.Parameter)
        or node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type") is not None
    }


def _numbers(graph: torch.fx.GraphModule) -> set[int]:
    """Numbers of the inputs that are numbers in tensors, which torch makes of a float once it has seen two values of
    it. The graph takes the numbers as they are from here on."""
    found = set()
    for number, place in enumerate([node for node in graph.graph.nodes if node.op == "placeholder"]):
        users = list(place.users)
        if users and all((user.op, user.target) == ("call_method", "item") for user in users):
            found.add(number)
            for user in users:
                user.replace_all_uses_with(place)
                graph.graph.erase_node(user)
    graph.recompile()
    return found
