"""Unrolling of Loop and Scan nodes whose number of iterations is known at compile time.

That of a Loop is known if constants determine it and its condition; that of a Scan is the extent of what it scans. Each
iteration has its own names; constants of the body are shared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from ...limits import Limits
from .branches import add_own_names, fresh_prefix, own_results, renamed
from .graph import OnnxGraph, attributes, node_name, reported_name
from .loop_counts import iterations

Types = Mapping[str, onnx.ValueInfoProto]
_WITHOUT_BATCH = 9  # the first operator set in which Scan has no batch
_ONES = 13  # the first operator set in which Unsqueeze takes its axes as an input


def unroll_loops(graph: OnnxGraph, types: Types, limits: Limits) -> bool:
    """Replace every Loop and Scan with a known number of iterations by its iterations. Return whether there was any.

    LimitError if they are too many nodes.
    """
    found = False
    for node in list(graph.graph.node):
        if node.domain or node.op_type not in ("Loop", "Scan"):
            continue
        loop = _loop(graph, node, types, limits) if node.op_type == "Loop" else _scan(graph, node, types)
        if loop is None:
            continue
        count = loop.count * loop.batch * len(loop.body.node) + len(graph.graph.node)
        limits.require_nodes(f"{graph.where}: the unrolled iterations of node {node_name(node)}", count)
        nodes = list(graph.graph.node)
        place = nodes.index(node)
        graph.replace_nodes([*nodes[:place], *loop.written_out(), *nodes[place + 1 :]])
        found = True
    return found


class _Unrolled:
    """The iterations of one node during unrolling; `count` for each sequence of a `batch`."""

    batch = 1

    def __init__(self, graph: OnnxGraph, node: onnx.NodeProto, body: onnx.GraphProto, count: int) -> None:
        self.graph, self.node, self.body, self.count = graph, node, body, count
        self.prefix = fresh_prefix(graph, node.op_type.lower())
        self.nodes: list[onnx.NodeProto] = []
        self._held = add_own_names(graph, body, self.prefix)
        self._results = own_results(body)
        self._made = self._iterations = 0

    def iteration(self, given: Mapping[str, str]) -> list[str]:
        """Add the body with its inputs replaced by `given`. Return the names of its outputs."""
        own = {name: f"{self.prefix}{self._iterations}_{name}" for name in self._results}
        self._iterations += 1
        names = {**self._held, **own, **given}
        self.nodes += [renamed(inner, names) for inner in self.body.node]
        return [names.get(output.name, output.name) for output in self.body.output]

    def constant(self, value: np.ndarray) -> str:
        """Add a constant. Return its name."""
        name = self.fresh("constant")
        self.graph.add_constant(name, value)
        return name

    def fresh(self, what: str) -> str:
        self._made += 1
        return f"{self.prefix}{what}_{self._made}"

    def add(self, operator: str, inputs: Sequence[str], output: str = "", **more: Any) -> str:
        """Add a node with one result. Return its name."""
        output = output or self.fresh(operator.lower())
        called = reported_name(self.node)
        self.nodes.append(helper.make_node(operator, list(inputs), [output], output, called, **more))
        return output

    def element(self, source: str, place: int, axis: int) -> str:
        """Add the selection of one element along an axis, which is removed. Return its name."""
        return self.add("Gather", [source, self.constant(np.array(place))], axis=axis)

    def stacked(self, parts: Sequence[str], axis: int, output: str) -> None:
        """Stack `parts` along a new axis, as `output`."""
        lifted = []
        for part in parts:
            if self.graph.opset >= _ONES:
                lifted.append(self.add("Unsqueeze", [part, self.constant(np.array([axis], np.int64))]))
            else:
                lifted.append(self.add("Unsqueeze", [part], axes=[axis]))
        self.add("Concat", lifted, output, axis=axis)


class _Loop(_Unrolled):
    nothing: Mapping[str, np.ndarray]  # scan outputs of a loop without iterations

    def written_out(self) -> list[onnx.NodeProto]:
        """Return the nodes that replace the Loop."""
        number, condition, *states = (value.name for value in self.body.input)
        values, scanned = list(self.node.input[2:]), []
        true = self.constant(np.array(True))
        for step in range(self.count):
            given = {number: self.constant(np.array(step, np.int64)), condition: true}
            _, *outputs = self.iteration({**given, **dict(zip(states, values, strict=True))})
            values = outputs[: len(states)]
            scanned.append(outputs[len(states) :])
        for value, name in zip(values, self.node.output, strict=False):
            if name:
                self.add("Identity", [value], name)
        for name, value in self.nothing.items():
            self.add("Identity", [self.constant(value)], name)
        for parts, name in zip(zip(*scanned, strict=True), self.node.output[len(states) :], strict=False):
            if name:
                self.stacked(parts, 0, name)
        return self.nodes


def _loop(graph: OnnxGraph, node: onnx.NodeProto, types: Types, limits: Limits) -> _Loop | None:
    """Return a Loop with a known number of iterations, or None."""
    body = attributes(node)["body"]
    count = iterations(node, graph.constants(), graph.opset, graph.where, limits)
    if count is None:
        return None
    scanned = [name for name in node.output[len(body.input) - 2 :] if name]
    nothing = {name: _of_no_iteration(types.get(name)) for name in scanned} if count == 0 else {}
    if any(value is None for value in nothing.values()):
        return None
    loop = _Loop(graph, node, body, count)
    loop.nothing = {name: value for name, value in nothing.items() if value is not None}
    return loop


def _of_no_iteration(kind: onnx.ValueInfoProto | None) -> np.ndarray | None:
    """Return the scan output of a loop without iterations, if the type and shape of an element are known."""
    if kind is None or not kind.type.tensor_type.HasField("shape") or not kind.type.tensor_type.elem_type:
        return None
    extents = kind.type.tensor_type.shape.dim[1:]
    if not all(extent.HasField("dim_value") for extent in extents):
        return None
    dtype = helper.tensor_dtype_to_np_dtype(kind.type.tensor_type.elem_type)
    return np.empty((0, *(extent.dim_value for extent in extents)), dtype)


class _Scan(_Unrolled):
    axes: Sequence[int]
    backwards: Sequence[int]
    out_axes: Sequence[int]
    out_backwards: Sequence[int]

    def written_out(self) -> list[onnx.NodeProto]:
        """Return the nodes that replace the Scan."""
        states = len(self.body.input) - len(self.axes)
        values, scanned = self._scanned(self.node.input[:states], self.node.input[states:])
        for value, name in zip(values, self.node.output, strict=False):
            if name:
                self.add("Identity", [value], name)
        for parts, axis, name in zip(scanned, self.out_axes, self.node.output[states:], strict=False):
            if name:
                self.stacked(parts, axis, name)
        return self.nodes

    def _scanned(self, states: Sequence[str], sources: Sequence[str]) -> tuple[list[str], list[list[str]]]:
        """Add all iterations. Return the final states, and the elements of each scan output in order."""
        names = [value.name for value in self.body.input]
        values, scanned = list(states), []
        for step in range(self.count):
            elements = [
                self.element(source, self.count - 1 - step if back else step, axis)
                for source, axis, back in zip(sources, self.axes, self.backwards, strict=True)
            ]
            outputs = self.iteration(dict(zip(names, [*values, *elements], strict=True)))
            values = outputs[: len(states)]
            scanned.append(outputs[len(states) :])
        columns = [list(parts) for parts in zip(*scanned, strict=True)]
        return values, [parts[::-1] if back else parts for parts, back in zip(columns, self.out_backwards, strict=True)]


class _BatchedScan(_Scan):
    """The form of version 8: axis 0 of everything is a batch, whose sequences are scanned one by one."""

    def written_out(self) -> list[onnx.NodeProto]:
        """Return the nodes that replace the Scan."""
        given = self.node.input[1:]
        states = len(given) - len(self.axes)
        found = []
        for sequence in range(self.batch):
            parts = [self.element(name, sequence, 0) for name in given]
            values, scanned = self._scanned(parts[:states], parts[states:])
            for elements in scanned:
                values.append(self.fresh("sequence"))
                self.stacked(elements, 0, values[-1])
            found.append(values)
        for results, name in zip(zip(*found, strict=True), self.node.output, strict=False):
            if name:
                self.stacked(results, 0, name)
        return self.nodes


def _scan(graph: OnnxGraph, node: onnx.NodeProto, types: Types) -> _Scan | None:
    """Return a Scan over tensors of known extents, or None."""
    given = attributes(node)
    body, count = given["body"], int(given["num_scan_inputs"])
    batched = graph.opset < _WITHOUT_BATCH
    states = len(body.input) - count
    outputs = len(body.output) - states
    sources = node.input[len(node.input) - count :]
    axes = [1] * count if batched else list(given.get("scan_input_axes", [0] * count))
    # Other axes may be dynamic.
    lengths = {_extent(types.get(name), axis) for name, axis in zip(sources, axes, strict=True)}
    length = lengths.pop()
    if lengths or not length:
        return None
    scan = (_BatchedScan if batched else _Scan)(graph, node, body, length)
    scan.axes = axes
    scan.backwards = given.get("scan_input_directions", [0] * count)
    scan.out_axes = given.get("scan_output_axes", [0] * outputs)
    scan.out_backwards = given.get("scan_output_directions", [0] * outputs)
    if batched:
        batches, ends = {_extent(types.get(name), 0) for name in sources}, node.input[0]
        batch = batches.pop()
        if batches or not batch:
            return None
        if ends and not np.all(graph.constants().get(ends, -1) == scan.count):
            return None
        scan.batch, scan.axes, scan.backwards = batch, [0] * count, given.get("directions", [0] * count)
    return scan


def _extent(kind: onnx.ValueInfoProto | None, axis: int) -> int | None:
    """Return the extent of a tensor's axis, or None if it is not known."""
    dims = kind.type.tensor_type.shape.dim if kind is not None else ()
    if not -len(dims) <= axis < len(dims) or not dims[axis].HasField("dim_value"):
        return None
    return int(dims[axis].dim_value)
