"""Random loops, scans, branches, functions, sequences and optional values.

Their contents are drawn like graphs: a Body is a graph within a graph, whose nodes may read outer tensors.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx_draws import ANY, DRAWS, clip, compared, data_dependent, kept, smooth
from onnx_generator import LOCAL, Draw, Graph, Node, Value, info, read_by
from onnx_layers import convolution, einsum, gemm, product

_WITHIN: list[Draw] = [
    *[draw for draw in DRAWS if draw is not data_dependent],
    *[smooth, smooth, kept, clip, compared, product, gemm, einsum, convolution],
]


class Body(Graph):
    """A graph within a graph: `given` are its inputs, `outside` outer tensors that it may read by name."""

    def __init__(self, outer: Graph, given: Sequence[Value], outside: Sequence[Value] = ()) -> None:
        self.rng, self.opset, self.plain, self.outer = outer.rng, outer.opset, outer.plain, outer
        self.given = list(given)
        self.values = [*outside, *given]
        self.nodes, self.inputs, self.constants, self.functions = [], [], [], []

    def fresh(self, kind: str) -> str:
        return self.outer.fresh(kind)

    def input(self, array: np.ndarray) -> Value:
        return self._as_value(array)

    def drawn(self, count: int) -> Body:
        """Add some nodes."""
        tries = 0
        while count and tries < 20:
            tries += 1
            held = len(self.nodes)
            nested = not isinstance(self.outer, Body) and self.chance(0.05)
            node = self.one_of((branch, loop, scan) if nested else _WITHIN)(self)
            if node is not None:
                self.add(node)
            count -= len(self.nodes) > held
        return self

    def result(self, like: Value | None = None) -> Value:
        """Return the result of a node of the body: with the shape and type of `like`, or the last one."""
        made = {name for node in self.nodes for name in node.output}
        fitting = [
            value
            for value in self.values
            if value.name in made
            and (like is None or (value.shape == like.shape and value.array.dtype == like.array.dtype))
        ]
        if fitting and self.chance(0.8):
            return fitting[-1]
        source = like if any(value is like for value in self.values) and self.chance(0.5) else None
        array = self.array(like.shape if like else (2,), like.array.dtype.name if like else "float32")
        self.add(Node("Identity", [source or self.constant(array)], exact=True))
        return self.values[-1]

    def graph(self, outputs: Sequence[Value], unshaped: Sequence[Value] = ()) -> onnx.GraphProto:
        """Return the body as a graph with these outputs; `unshaped`: inputs whose shapes are not declared."""
        return helper.make_graph(
            self.nodes,
            self.fresh("body"),
            [info(v.name, v.array, not any(v is other for other in unshaped)) for v in self.given],
            [info(value.name, value.array, shaped=False) for value in outputs],
            self._held(),
        )

    def _held(self) -> list[onnx.TensorProto]:
        read = {name for node in self.nodes for name in read_by(node)}
        return [numpy_helper.from_array(value.array, value.name) for value in self.constants if value.name in read]

    def reads_outside(self) -> list[Value]:
        """Return the outer tensors that it reads."""
        read = {name for node in self.nodes for name in read_by(node)}
        own = {value.name for value in (*self.given, *self.constants)}
        own |= {name for node in self.nodes for name in node.output}
        return [value for value in self.values if value.name in read - own]


def _some(g: Graph, most: int) -> list[Value]:
    """Return tensors of the graph, different ones each time."""
    few = [value for value in g.values if value.array.size <= 600]
    return [few[place] for place in g.rng.permutation(len(few))[:most]]


def _outputs(g: Graph, node: onnx.NodeProto, read: Sequence[Value], outputs: Sequence[Value]) -> None:
    exact = all(value.exact for value in outputs)
    g.add_nodes([node], list({value.name: value for value in read}.values()), list(node.output), exact)


def branch(g: Graph) -> None:
    """Draw an If: with a constant or run-time condition, and branches with several nodes and results."""
    known = g.chance(0.5)
    condition = (g.constant if known else g.input)(np.array(g.chance(0.5)))
    outside, count = _some(g, 3), g.number(1, 2)
    then = Body(g, [], outside).drawn(g.number(1, 4))
    firsts = [then.result() for _ in range(count)]
    other = Body(g, [], outside).drawn(g.number(1, 4))
    seconds = [other.result(None if known and g.chance(0.2) else first) for first in firsts]
    if any(a.array.dtype != b.array.dtype for a, b in zip(firsts, seconds, strict=True)):
        return
    bodies = {"then_branch": then.graph(_apart(then, firsts)), "else_branch": other.graph(_apart(other, seconds))}
    node = helper.make_node("If", [condition.name], [g.fresh("t") for _ in range(count)], **bodies)
    _outputs(g, node, [condition, *then.reads_outside(), *other.reads_outside()], firsts + seconds)


def _apart(body: Body, outputs: Sequence[Value]) -> list[Value]:
    """Return the outputs, without duplicates, each the result of a node of the body."""
    made = {name for node in body.nodes for name in node.output}
    found: list[Value] = []
    for value in outputs:
        if value.name not in made or value in found:
            body.add(Node("Identity", [value], exact=True))
            value = body.values[-1]
        found.append(value)
    return found


def loop(g: Graph) -> None:
    """Draw a Loop, usually with a known number of iterations."""
    states = [value for value in _some(g, 2) if value.kind in "fi"]
    states = [g.constant(value.array) if g.chance(0.2) else value for value in states]
    number, condition = Value(g.fresh("i"), np.array(0)), Value(g.fresh("c"), np.array(True))
    inner = [Value(g.fresh("v"), value.array, value.exact) for value in states]
    body = Body(g, [number, condition, *inner], _some(g, 2))
    if g.chance(0.4) and inner and inner[0].kind == "f":  # the iteration number determines something
        body.add(Node("Cast", [number], {"to": helper.np_dtype_to_tensor_dtype(inner[0].array.dtype)}, exact=True))
        body.add(Node("Mul", [inner[0], body.values[-1]]))
    body.drawn(g.number(1, 4))
    results = [body.result(value) for value in inner]
    grows = bool(results) and g.chance(0.15) and len(results[0].shape) > 0
    if grows:
        body.add(Node("Concat", [inner[0], results[0]], {"axis": 0}, exact=True))
        results[0] = body.values[-1]
    results += [body.result() for _ in range(g.number(0 if states else 1, 2))]
    goes_on = condition
    if g.chance(0.1):  # a computed condition
        bound = body.constant(np.array(g.number(0, 3)))
        body.add(Node("Less", [number, bound], exact=True))
        goes_on = body.values[-1]
    results = _apart(body, [goes_on, *results])
    most = (g.input if g.chance(0.07) else g.constant)(np.array(g.number(0 if g.chance(0.1) else 1, 4)))
    start = g.constant(np.array(g.chance(0.9))) if g.chance(0.5) else None
    made = [g.fresh("t") for _ in results[1:]]
    names = [most.name, start.name if start else "", *(value.name for value in states)]
    node = helper.make_node("Loop", names, made, body=body.graph(results, inner[: int(grows)]))
    _outputs(g, node, [most, *([start] if start else []), *states, *body.reads_outside()], results)


def scan(g: Graph) -> None:
    """Draw a Scan over one or two tensors, along any axes, in both directions."""
    x = g.pick("fi", ranks=(1, 2, 3), least=1)
    axis = g.number(0, len(x.shape) - 1)
    length, scanned, axes = x.shape[axis], [x], [axis]
    if length > 8:
        return
    if g.chance(0.4):
        shape = g.shape(g.number(1, 3))
        axes.append(g.number(0, len(shape) - 1))
        shape[axes[-1]] = length
        scanned.append(g.input(g.array(shape, "float32")))
    states = [value for value in _some(g, g.number(0, 2)) if value.kind in "fi"]
    inner = [Value(g.fresh("v"), value.array, value.exact) for value in states]
    elements = [
        Value(g.fresh("e"), np.take(value.array, 0, axis), value.exact)
        for value, axis in zip(scanned, axes, strict=True)
    ]
    body = Body(g, [*inner, *elements], _some(g, 1)).drawn(g.number(1, 4))
    results = [body.result(value) for value in inner]
    results = _apart(body, [*results, *(body.result() for _ in range(g.number(0 if states else 1, 2)))])
    ranks = [len(value.shape) for value in results[len(states) :]]
    attributes: dict = {"num_scan_inputs": len(scanned)}
    if any(axes) or g.chance(0.3):
        behind = g.opset >= 11 and g.chance(0.4)
        ends = [len(value.shape) if behind else 0 for value in scanned]
        attributes["scan_input_axes"] = [axis - end for axis, end in zip(axes, ends, strict=True)]
    if g.chance(0.4):
        attributes["scan_input_directions"] = g.numbers(len(scanned), 0, 1)
    if ranks and g.chance(0.5):
        attributes["scan_output_axes"] = [g.number(-rank - 1 if g.opset >= 11 else 0, rank) for rank in ranks]
    if ranks and g.chance(0.4):
        attributes["scan_output_directions"] = g.numbers(len(ranks), 0, 1)
    made = [g.fresh("t") for _ in results]
    names = [value.name for value in (*states, *scanned)]
    node = helper.make_node("Scan", names, made, body=body.graph(results), **attributes)
    _outputs(g, node, [*states, *scanned, *body.reads_outside()], results)


def function(g: Graph) -> None:
    """Draw a function of the model; an attribute of the calling node may be one of an inner node, or be omitted if the
    function has a default."""
    x = g.pick("f")
    formal = Value(g.fresh("a"), x.array, x.exact)
    body = Body(g, [formal]).drawn(g.number(1, 4))
    called, defaults, name = {}, [], g.fresh("Function")
    if g.chance(0.4) and body.add(Node("LeakyRelu", [formal], {"alpha": 0.25})):
        entry = body.nodes[-1].attribute[0]
        entry.Clear()
        entry.name, entry.type, entry.ref_attr_name = "alpha", onnx.AttributeProto.FLOAT, "slope"
        if g.chance(0.5):
            called["slope"] = 0.25
        else:
            defaults.append(helper.make_attribute("slope", 0.25))
    result = _apart(body, [body.result()])
    held = [helper.make_node("Constant", [], [tensor.name], value=tensor) for tensor in body._held()]
    opset = [helper.make_opsetid("", g.opset)]
    made = helper.make_function(
        LOCAL, name, [formal.name], [result[0].name], [*held, *body.nodes], opset, list(called), defaults
    )
    node = helper.make_node(name, [x.name], [g.fresh("t")], domain=LOCAL, **called)
    g.add_nodes([node], [x], list(node.output), result[0].exact, [made])


def sequence(g: Graph) -> None:
    """Draw a sequence to which tensors are added, and from which they are taken."""
    x = g.pick(g.one_of(ANY), ranks=(1, 2, 3))
    held, read, nodes = g.fresh("s"), [x], []
    if g.chance(0.5):
        parts = [x, *(g.like(x, x.shape) for _ in range(g.number(0, 2)))]
        read += parts[1:]
        nodes.append(helper.make_node("SequenceConstruct", [value.name for value in parts], [held]))
        length = len(parts)
    else:
        kind = helper.np_dtype_to_tensor_dtype(x.array.dtype)
        nodes.append(helper.make_node("SequenceEmpty", [], [held], dtype=kind))
        length = 0
    for _ in range(g.number(1, 4)):
        changed = g.fresh("s")
        place = g.constant(np.array(g.number(-length, length - 1 if length else 0)), "int64")
        given = [place.name] if g.chance(0.6) and length else []
        read += [place] if given else []
        if length > 1 and g.chance(0.3):
            nodes.append(helper.make_node("SequenceErase", [held, *given], [changed]))
            length -= 1
        else:
            more = g.like(x, x.shape)
            read.append(more)
            nodes.append(helper.make_node("SequenceInsert", [held, more.name, *given], [changed]))
            length += 1
        held = changed
    made, take = g.fresh("t"), g.one_of(("SequenceAt", "ConcatFromSequence", "ConcatFromSequence", "SequenceLength"))
    if take == "SequenceAt":
        place = g.constant(np.array(g.number(-length, length - 1)), "int64")
        read.append(place)
        nodes.append(helper.make_node(take, [held, place.name], [made]))
    elif take == "SequenceLength":
        nodes.append(helper.make_node(take, [held], [made]))
    else:
        fresh = g.number(0, 1)
        rank = len(x.shape) + fresh
        nodes.append(helper.make_node(take, [held], [made], axis=g.number(-rank, rank - 1), new_axis=fresh))
    g.add_nodes(nodes, read, [made], True)


def optional(g: Graph) -> None:
    """Draw an optional value that is present."""
    x = g.pick(g.one_of(ANY))
    held, made = g.fresh("o"), g.fresh("t")
    take = g.one_of(("OptionalGetElement", "OptionalHasElement"))
    nodes = [helper.make_node("Optional", [x.name], [held]), helper.make_node(take, [held], [made])]
    g.add_nodes(nodes, [x], [made], True)


def mapped(g: Graph) -> None:
    """Draw a SequenceMap: a graph for each tensor of a sequence."""
    if g.opset < 17:
        return
    x = g.pick("f", ranks=(1, 2, 3))
    parts = [x, *(g.like(x, x.shape) for _ in range(g.number(0, 2)))]
    formal = Value(g.fresh("e"), x.array, x.exact)
    body = Body(g, [formal]).drawn(g.number(1, 3))
    results = _apart(body, [body.result()])
    held, changed, made = g.fresh("s"), g.fresh("s"), g.fresh("t")
    nodes = [
        helper.make_node("SequenceConstruct", [value.name for value in parts], [held]),
        helper.make_node("SequenceMap", [held], [changed], body=body.graph(results)),
        helper.make_node("ConcatFromSequence", [changed], [made], axis=0, new_axis=1),
    ]
    g.add_nodes(nodes, parts, [made], results[0].exact)


CONTROL: list[Draw] = [branch, branch, loop, loop, loop, scan, scan, function, function, sequence, optional, mapped]
