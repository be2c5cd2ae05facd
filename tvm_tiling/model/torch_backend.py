"""torch.compile(net, backend="tvm_tiling"): inference through this package, one executable for each set of shapes.

PyTorch finds the backend by the entry point group "torch_dynamo_backends". Graph breaks and guards are PyTorch's. If
some operators of a graph are not supported, they run in PyTorch, and the parts between them in executables of this
package. PyTorch runs the whole graph if it requires gradients or cannot be exported. Either case is reported once by a
LeftToTorch warning; tvm_tiling.torch_report() lists all graphs, and options={"fallback": False} makes it an error.

Parameters and buffers, which torch.compile passes as inputs, become constants, so that weights can be packed; packed
weights belong to one set of them (torch_parameters.py). After a second shape torch.compile requests a graph with
dynamic shapes, unless `dynamic=False`. Kernels have static shapes: such a graph is compiled when it is called, for the
sizes and numbers of the call, and the executables of the last KEPT of them are kept.

Importing this module makes torch.compile trace LSTM, GRU and RNN (torch._dynamo.config.allow_rnn), which otherwise stay
in eager mode without a message.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.export.graph_signature import InputKind
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ..errors import LeftToTorch, TilingError, UnsupportedOperator
from ..frontend import ImportedModel
from ..frontend.torch.import_torch import decomposed, import_decomposed
from ..frontend.torch.node_path import keep_path
from ..frontend.torch.user_values import changed_inputs, changed_state, user_outputs
from ..frontend.torch.walk import held_tensor
from ..schedule import Options, hardware_of
from .build import Libraries
from .compilation import compile_imported
from .executable import Executable
from .torch_division import apart, division, run_on_tensors
from .torch_outputs import Outputs, empty_like, outputs_of
from .torch_parameters import ParameterSets
from .torch_report import GraphReport, left_operators, record, warn_of_part

KEPT = 16
WHERE = "torch.compile"
# For an input that is not a parameter: a number, or shape, type and strides of a tensor.
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
    wanted = [*examples, *graph.parameters(), *graph.buffers()]
    if torch.is_grad_enabled() and any(getattr(value, "requires_grad", False) for value in wanted):
        return _left(graph, "it may require gradients; call it under torch.no_grad() for inference", fallback)
    others = {str(v.device) for v in wanted if isinstance(v, torch.Tensor) and v.device.type != "cpu"}
    if others:
        return _left(graph, f"it is on device {sorted(others)[0]!r}; expected 'cpu'", fallback)
    wrappers = [type(value) for value in wanted if is_traceable_wrapper_subclass(value)]
    if wrappers:
        kind = f"{wrappers[0].__module__.split('.')[0]}.{wrappers[0].__name__}"
        why = f"a tensor is a {kind}, a wrapper of other tensors; expected dense tensors, or the module by torch.export"
        return _left(graph, why, fallback)
    supported = _Graph(graph, examples, fallback)
    return supported if supported.is_open else supported.fixed(examples)


def _left(graph: torch.fx.GraphModule, why: str, fallback: bool) -> Callable[..., Any]:
    """The graph as run by PyTorch."""
    if not fallback:
        raise UnsupportedOperator(f"{WHERE}: {why}")
    warnings.warn(f"{WHERE}: a graph is left to PyTorch: {why}", LeftToTorch, stacklevel=3)
    record(GraphReport(served=0, parts=0, left=(), why=why))
    run: Callable[..., Any] = graph.forward
    return run


class _Graph:
    """A graph made by torch.compile, called with its inputs."""

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
        """The graph for inputs with the shapes and numbers of these."""
        given = [value.item() if number in self._numbers else value for number, value in enumerate(inputs)]
        try:
            return _Fixed(self.graph, given, self._static, self._libraries, self._fallback)
        except TilingError as error:
            return _left(self.graph, str(error).removeprefix(f"{WHERE}: "), self._fallback)
        except Exception as error:  # a defect of this package must not prevent a model from running
            if not self._fallback:
                raise
            return _left(self.graph, f"{type(error).__name__}: {error}", True)


class _Fixed:
    """A graph for inputs of static shapes."""

    def __init__(
        self,
        graph: torch.fx.GraphModule,
        inputs: Sequence[Any],
        static: Sequence[int],
        libraries: Libraries,
        fallback: bool,
    ) -> None:
        """`static`: numbers of the inputs that are parameters and buffers. Raises TilingError if the graph is not
        supported; with `fallback`, only if none of its operators are."""
        self._tensors = [number for number, value in enumerate(inputs) if isinstance(value, torch.Tensor)]
        # If Dynamo does not inline modules, parameters are attributes of the graph and looked up at every call.
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
        self._libraries, self._hardware, self._fallback = libraries, hardware_of("llvm"), fallback
        self._examples = [empty_like(value) for value in inputs]
        self._computes = bool(self._outputs.results or self._outputs.changed)
        self._changed, self._static = self._outputs.changed, list(static)
        self._program = self._with_static() if self._computes else None
        self._free = [number for number in self._tensors if number not in self._static]
        self._unpacked: Runner | None = None
        self._reported = False
        self._lock = threading.Lock()
        self._packed = ParameterSets(self._packed_for)
        if self._computes:
            self._runner(inputs)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        found: Sequence[torch.Tensor] = ()
        if self._computes:
            runner = self._runner(inputs)
            if runner is None or self._shared(inputs):
                return tuple(self._run(*inputs))
            found = runner(inputs)
            for number, value in zip(runner.changed, found[len(self._outputs.results) :], strict=True):
                inputs[number].copy_(value)
        return self._outputs.made(found[: len(self._outputs.results)], inputs)

    def _shared(self, inputs: Sequence[Any]) -> bool:
        """Return whether a modified input shares memory with another one, which changes with it."""
        if not self._changed:
            return False
        places = [inputs[number].untyped_storage().data_ptr() for number in self._tensors]
        changed = [inputs[number].untyped_storage().data_ptr() for number in self._changed]
        return any(places.count(place) > 1 for place in changed)

    def _runner(self, inputs: Sequence[Any]) -> Runner | None:
        """The runner that computes the results; None for PyTorch itself."""
        held = [*(inputs[number] for number in self._static), *(of[name] for of, name in self._attributes.values())]
        if not held:
            return self._unpacked or self._without_packing()
        packed = self._packed.of(held)
        if packed is not None or self._attributes:  # attributes cannot be inputs
            return packed
        return self._without_packing()

    def _with_static(self) -> torch.export.ExportedProgram:
        """The graph with its parameters and buffers as constants, except for modified ones: batch_norm updates its
        statistics without a new version. Removes elements from `_static` and adds them to `_changed`."""
        self._static = [number for number in self._static if number not in self._changed]
        program = self._exported(self._static)
        counted = {f"static_{number}": number for number in self._static}
        if not (state := changed_state(program)):
            return program
        if unknown := [name for name in state if name not in counted]:
            raise UnsupportedOperator(f"the graph changes {', '.join(map(repr, unknown))} in place")
        self._changed |= {counted[name] for name in state}
        return self._with_static()

    def _packed_for(self, tensors: Sequence[torch.Tensor]) -> Runner:
        """The runner with these parameters as constants."""
        assert self._program is not None
        names = [*(f"static_{number}" for number in self._static), *self._attributes]
        with _bound(self._program, dict(zip(names, tensors, strict=True))):
            return self._compiled(self._program, self._free)

    def _without_packing(self) -> Runner:
        """The runner with parameters as inputs."""
        with self._lock:
            if self._unpacked is None:
                self._unpacked = self._compiled(self._exported(()), self._tensors)
            return self._unpacked

    def _compiled(self, program: torch.export.ExportedProgram, numbers: Sequence[int]) -> Runner:
        """`numbers`: the inputs taken by the program."""
        changed = [numbers[place] for place in changed_inputs(program)]
        if not self._changed.issubset(changed):
            raise UnsupportedOperator("PyTorch's export of the graph does not record which inputs it changes")
        self._changed |= set(changed)
        try:
            runner = self._whole(program, numbers, changed)
            served = sum(node.op == "call_function" for node in program.graph.nodes)
            report = GraphReport(served=served, parts=1, left=(), why="")
        except Exception as error:
            if not self._fallback or isinstance(error, MemoryError):
                raise
            runner, report = self._divided(program, numbers, changed)
            if not report.parts:
                raise
        self._report(report)
        return runner

    def _whole(self, program: torch.export.ExportedProgram, numbers: Sequence[int], changed: Sequence[int]) -> Runner:
        executable = self._executable(lambda: [import_decomposed(program, where=WHERE)])
        return Runner(lambda inputs: run_on_tensors(executable, [inputs[number] for number in numbers]), changed)

    def _divided(
        self, program: torch.export.ExportedProgram, numbers: Sequence[int], changed: Sequence[int]
    ) -> tuple[Runner, GraphReport]:
        """The runner with unsupported operators left to PyTorch."""
        outputs = [output.node for output in user_outputs(program)]
        parts = division(program, outputs, self._executable, WHERE)
        sources = self._sources(program, numbers)
        values = [sources[node.name] for node in parts.placeholders]

        def run(inputs: Sequence[Any]) -> tuple[torch.Tensor, ...]:
            given = [value(inputs) for value in values]
            # The casts of autocast are already in the program.
            with torch.no_grad(), torch.autocast("cpu", enabled=False):
                return apart(parts.run(*given), inputs)

        left = left_operators(parts.left)
        return Runner(run, changed), GraphReport(served=parts.served, parts=parts.parts, left=left, why="")

    def _sources(
        self, program: torch.export.ExportedProgram, numbers: Sequence[int]
    ) -> dict[str, Callable[[Sequence[Any]], Any]]:
        """For each placeholder of a program, a function that extracts its value from the inputs of the graph."""
        found: dict[str, Callable[[Sequence[Any]], Any]] = {}
        free = iter(numbers)
        for spec in program.graph_signature.input_specs:
            target = str(spec.target)
            if spec.kind is InputKind.USER_INPUT:
                found[spec.arg.name] = operator.itemgetter(next(free))
            elif target in self._attributes:
                held, name = self._attributes[target]
                found[spec.arg.name] = functools.partial(_entry, held, name)
            elif target.startswith("static_"):
                found[spec.arg.name] = operator.itemgetter(int(target.removeprefix("static_")))
            else:
                found[spec.arg.name] = functools.partial(_always, held_tensor(program, target))
        return found

    def _executable(self, load: Callable[[], list[ImportedModel]]) -> Executable:
        return compile_imported(load, self._hardware, Options(), libraries=self._libraries)

    def _report(self, report: GraphReport) -> None:
        """Record the report once per graph: modified weights are packed again."""
        if not self._reported:
            self._reported = True
            record(report)
            if report.left:
                warn_of_part(WHERE, report, stacklevel=4)

    def _exported(self, static: Sequence[int]) -> torch.export.ExportedProgram:
        """The graph in core ATen operators, with buffers in place of these inputs."""
        frozen = _Frozen(self._graph, self._examples, static)
        tensors = tuple(self._examples[number] for number in self._tensors if number not in static)
        try:
            # Outside the trace in progress in Dynamo, whose fake tensors are of another mode.
            with torch._guards.tracing(None), torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return decomposed(torch.export.export(frozen.eval(), tensors, strict=False))
        except Exception as error:
            first = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise UnsupportedOperator(f"{WHERE}: the graph cannot be exported: {first}") from error
        finally:
            torch.clear_autocast_cache()  # of fake weights, which PyTorch would otherwise compute with afterwards


@dataclass(frozen=True)
class Runner:
    """The function that computes a graph's results from its inputs, followed by the new values of the inputs
    `changed`."""

    run: Callable[[Sequence[Any]], tuple[torch.Tensor, ...]]
    changed: Sequence[int]

    def __call__(self, inputs: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        return self.run(inputs)


def _entry(held: Mapping[str, Any], name: str, _: Sequence[Any]) -> Any:
    """The current value of an attribute of the graph's modules, independent of the inputs."""
    return held[name]


def _always(value: Any, _: Sequence[Any]) -> Any:
    """A constant, independent of the inputs."""
    return value


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

        values = [value(number, example) for number, example in enumerate(self._inputs)]
        with torch.fx.traceback.preserve_node_meta():  # which include the user's source lines
            return tuple(torch.fx.Interpreter(self.graph).run(*values))


def _with_results(graph: torch.fx.GraphModule, outputs: Outputs) -> torch.fx.GraphModule:
    """A copy of the graph that returns the results computed by kernels."""
    copied = torch.fx.Graph()
    nodes: dict[torch.fx.Node, torch.fx.Node] = {}
    copied.graph_copy(graph.graph, nodes)
    for node, copy in nodes.items():
        copy.meta = {key: copy.meta[key] for key in ("stack_trace",) if key in copy.meta}
        keep_path(copy, node)
    copied.output(tuple(nodes[node] for node in outputs.results))
    return torch.fx.GraphModule(graph, copied)


@contextlib.contextmanager
def _bound(program: torch.export.ExportedProgram, tensors: Mapping[str, torch.Tensor]) -> Iterator[None]:
    """Temporarily bind these tensors to the program's buffers and parameters, by name."""
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
    """Return whether an input is a number, or a tensor with a symbolic size according to PyTorch's metadata."""
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
    """Numbers of the inputs that are scalars in tensors, which torch.compile makes of a float after two different
    values. The graph uses the unwrapped numbers from here on."""
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
