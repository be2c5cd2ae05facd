"""Random ONNX graphs that onnxruntime runs: each node is run as soon as it is drawn.

Shapes, types and values of all tensors are therefore known, and a node that onnxruntime does not support is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx_judge import session_of
from onnx_versions import in_form_of

OPSETS = (*range(7, 29), *range(16, 27), 22, 23, 24, 24)
MOST_ELEMENTS = 20_000
FLOATS = ("float32", "float32", "float32", "float64", "float16")
INTEGERS = ("int64", "int32", "int64", "int32", "uint8", "int8", "int16", "uint16", "uint32", "uint64")
LOCAL = "local"  # domain of the model's functions


@dataclass(frozen=True)
class Value:
    """A tensor of a graph with its value. `exact`: it is not affected by rounding, so that it may be truncated,
    compared or sorted."""

    name: str
    array: np.ndarray
    exact: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def kind(self) -> str:
        return self.array.dtype.kind


@dataclass
class Node:
    """A drawn node: its inputs, and whether its results are as exact as these. `unnamed`: indices of unused results."""

    operator: str
    inputs: Sequence[Value | None]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    exact: bool = False
    domain: str = ""
    unnamed: Sequence[int] = ()


class Graph:
    """A graph while it is drawn."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.opset = int(self.rng.choice(OPSETS))
        self.values: list[Value] = []
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[Value] = []
        self.constants: list[Value] = []
        self.functions: list[onnx.FunctionProto] = []
        self.count = 0
        self.plain = self.rng.random() < 0.7  # no NaN, no infinities

    # ---- chance ----

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def one_of(self, choices: Sequence[Any]) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def numbers(self, count: int, low: int, high: int) -> list[int]:
        return [self.number(low, high) for _ in range(count)]

    def array(self, shape: Sequence[int], dtype: str) -> np.ndarray:
        """Return values of a type: small integers, floats with few bits where ties are needed."""
        if dtype == "bool":
            return np.asarray(self.rng.random(shape) < 0.5)
        if np.dtype(dtype).kind in "iu":
            return np.asarray(self.rng.integers(0 if dtype[0] == "u" else -9, 10, shape), dtype)
        values = np.asarray(self.rng.normal(size=shape))
        if self.chance(0.3):
            values = np.asarray(np.round(values * 4) / 4)
        if not self.plain and values.size and self.chance(0.5):
            for special in (np.nan, np.inf, -np.inf, 0.0, -0.0):
                if self.chance(0.4):
                    values.reshape(-1)[self.number(0, values.size - 1)] = special
        return np.asarray(values, dtype)

    def shape(self, rank: int | None = None) -> list[int]:
        rank = self.one_of((0, 1, 2, 2, 3, 3, 4)) if rank is None else rank
        extents = [self.one_of((1, 2, 3, 3, 4, 5, 7, 8)) for _ in range(rank)]
        if extents and self.chance(0.03):
            extents[self.number(0, rank - 1)] = 0
        return extents

    # ---- tensors ----

    def fresh(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def input(self, array: np.ndarray) -> Value:
        value = Value(self.fresh("x"), array)
        self.inputs.append(value)
        self.values.append(value)
        return value

    def constant(self, array: Any, dtype: str | None = None) -> Value:
        value = Value(self.fresh("c"), np.asarray(array, dtype))
        self.constants.append(value)
        return value

    def pick(
        self, kinds: str = "f", ranks: Sequence[int] | None = None, exact: bool = False, least: int | None = None
    ) -> Value:
        """Return a tensor of this kind; a new input if there is none. `least`: the smallest extent of any axis."""
        fitting = [
            value
            for value in self.values
            if value.kind in kinds
            and (ranks is None or len(value.shape) in ranks)
            and (value.exact or not exact)
            and (least is None or min(value.shape, default=least) >= least)
        ]
        if fitting and self.chance(0.9):
            return fitting[-1] if self.chance(0.5) else self.one_of(fitting)
        kind = self.one_of(kinds)
        dtype = "bool" if kind == "b" else self.one_of(FLOATS if kind == "f" else INTEGERS)
        shape = self.shape(None if ranks is None else self.one_of(ranks))
        if least is not None:
            shape = [max(extent, least) for extent in shape]
        array = self.array(shape, dtype)
        return self.input(array) if self.chance(0.7) or not self.inputs else self._as_value(array)

    def _as_value(self, array: np.ndarray) -> Value:
        value = self.constant(array)
        self.values.append(value)
        return value

    def like(self, value: Value, shape: Sequence[int]) -> Value:
        """Return a constant or input of the type of a tensor."""
        array = self.array(shape, value.array.dtype.name)
        return self.constant(array) if self.chance(0.6) else self.input(array)

    def axis(self, value: Value) -> int:
        rank = len(value.shape)
        return self.number(-rank, rank - 1)

    # ---- nodes ----

    def add(self, drawn: Node) -> bool:
        """Run a node and keep it if onnxruntime supports it; return whether it was kept."""
        names = ["" if place in drawn.unnamed else self.fresh("t") for place in range(drawn.outputs)]
        arrays = [value.array if value is not None else None for value in drawn.inputs]
        try:
            kept, attributes = in_form_of(self.opset, drawn.operator, drawn.domain, arrays, drawn.attributes)
        except onnx.defs.SchemaError:
            return False
        read = drawn.inputs[:kept]
        inputs = [value.name if value is not None else "" for value in read]
        node = helper.make_node(drawn.operator, inputs, names, domain=drawn.domain, **attributes)
        made = [name for name in names if name]
        return self.add_nodes([node], [value for value in read if value is not None], made, drawn.exact)

    def add_nodes(
        self,
        nodes: Sequence[onnx.NodeProto],
        read: Sequence[Value],
        made: Sequence[str],
        exact: bool,
        functions: Sequence[onnx.FunctionProto] = (),
    ) -> bool:
        """The same for nodes that belong together; `made`: which of their results further nodes may read."""
        given = {value.name: value.array for value in read}
        try:
            results = run_nodes(nodes, given, made, self.opset, [*self.functions, *functions])
        except Exception:
            return False
        if any(result.size > MOST_ELEMENTS or result.dtype.kind not in "fiub" for result in results):
            return False
        exact = exact and all(value.exact for value in read)
        self.nodes += nodes
        self.functions += functions
        self.values += [Value(name, result, exact) for name, result in zip(made, results, strict=True)]
        return True

    def model(self) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
        """Return the graph; tensors that nothing reads are its outputs."""
        read = {name for node in self.nodes for name in read_by(node)}
        made = {name for node in self.nodes for name in node.output}
        outputs = [value for value in self.values if value.name in made and value.name not in read]
        graph = helper.make_graph(
            self.nodes,
            "random",
            [info(value.name, value.array) for value in self.inputs if value.name in read],
            [info(value.name, value.array, shaped=False) for value in outputs],
            [numpy_helper.from_array(value.array, value.name) for value in self.constants if value.name in read],
        )
        model = _model(graph, self.opset, self.functions)
        return model, {value.name: value.array for value in self.inputs if value.name in read}


def info(name: str, array: np.ndarray, shaped: bool = True) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, array.shape if shaped else None)


def read_by(node: onnx.NodeProto) -> set[str]:
    """Return the names that a node reads, including those that its inner graphs read from outside."""
    names = set(node.input)
    for entry in node.attribute:
        if entry.HasField("g"):
            own = {value.name for value in (*entry.g.input, *entry.g.initializer)}
            own |= {name for inner in entry.g.node for name in inner.output}
            names |= {name for inner in entry.g.node for name in read_by(inner)} - own
    return names


def _model(graph: onnx.GraphProto, version: int, functions: Sequence[onnx.FunctionProto]) -> onnx.ModelProto:
    domains = {"com.microsoft"} | ({LOCAL} if functions else set())
    opsets = [helper.make_opsetid("", version), *(helper.make_opsetid(domain, 1) for domain in sorted(domains))]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=functions)


def run_nodes(
    nodes: Sequence[onnx.NodeProto],
    given: dict[str, np.ndarray],
    made: Sequence[str],
    opset: int,
    functions: Sequence[onnx.FunctionProto] = (),
) -> list[np.ndarray]:
    """Return the results of nodes by onnxruntime; inputs that determine shapes are constants."""
    outputs = [onnx.ValueInfoProto(name=name) for name in made]
    weights = [numpy_helper.from_array(array, name) for name, array in given.items()]
    graph = helper.make_graph(nodes, "part", [], outputs, weights)
    model = _model(graph, opset, functions)
    return [np.asarray(result) for result in session_of(model).run(None, {})]


Draw = Callable[[Graph], Node | None]


def random_model(seed: int, draws: Sequence[Draw]) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return a graph of 5 to 25 nodes, and its inputs."""
    return filled(Graph(seed), draws, 5, 25)


def filled(g: Graph, draws: Sequence[Draw], least: int, most: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return a graph with this number of nodes, and its inputs."""
    for _ in range(g.number(1, 3)):
        g.input(g.array(g.shape(), g.one_of((*FLOATS, *FLOATS, *INTEGERS, "bool"))))
    wanted, tries = g.number(least, most), 0
    while len(g.nodes) < wanted and tries < 10 * wanted:
        tries += 1
        drawn = g.one_of(draws)(g)
        if drawn is not None:
            g.add(drawn)
    return g.model()
