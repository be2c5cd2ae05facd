"""The number of iterations of an ONNX Loop whose condition depends only on constants and the iteration number.

The inputs of the condition are computed iteration by iteration: the nodes of the body that it depends on, and those
that the states read by these depend on, such as a counter. All of these values have one element, so that an iteration
takes microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from ...limits import Limits
from .graph import attributes, node_name

_ENDLESS = 2**63 - 1
# Operators whose results have one element if their operands do.
_DECIDING = frozenset(
    [
        *["Abs", "Add", "And", "Cast", "Constant", "Equal", "Greater", "GreaterOrEqual", "Identity", "Less"],
        *["LessOrEqual", "Max", "Min", "Mul", "Neg", "Not", "Or", "Squeeze", "Sub", "Unsqueeze", "Xor"],
    ]
)


def iterations(
    node: onnx.NodeProto, constants: Mapping[str, np.ndarray], opset: int, where: str, limits: Limits
) -> int | None:
    """Return the number of iterations of a Loop, or None if it is not known at compile time.

    LimitError if unrolling the iterations produces too many nodes.
    """
    given = dict(enumerate(node.input))
    most, start = (given.get(place, "") for place in (0, 1))
    if any(name and name not in constants for name in (most, start)):
        return None
    bound = max(0, int(constants[most].reshape(-1)[0])) if most else _ENDLESS
    if bound == 0 or (start and not constants[start].all()):
        return 0
    body = attributes(node)["body"]
    number, condition, *states = (value.name for value in body.input)
    found = _behind(body, constants)
    if found is None:
        return None
    nodes, read, held = found
    used = [place for place, name in enumerate(states) if name in read]
    initial = [constants.get(given.get(2 + place, "")) for place in used]
    if any(value is None or value.size != 1 for value in initial):
        return None
    evaluator = ReferenceEvaluator(
        helper.make_graph(
            nodes,
            "condition",
            [onnx.ValueInfoProto(name=name) for name in (number, condition, *(states[place] for place in used))],
            [onnx.ValueInfoProto(name=body.output[place].name) for place in (0, *(1 + place for place in used))],
            [numpy_helper.from_array(value, name) for name, value in held.items()],
        ),
        opsets={"": opset},
    )
    count, values = 0, list[Any](initial)
    while count < bound:
        fed = {states[place]: value for place, value in zip(used, values, strict=True)}
        try:
            with np.errstate(all="ignore"):
                goes_on, *values = evaluator.run(
                    None, {number: np.array(count, np.int64), condition: np.array(True), **fed}
                )
        except Exception:  # the evaluator lacks versions of operators, and checks no attribute
            return None
        count += 1
        if not np.all(goes_on):
            return count
        if not used and number not in read:
            return bound  # the condition is true in every iteration
        what = f"{where}: the unrolled iterations of node {node_name(node)}"
        limits.require_nodes(what, count * len(body.node))
    return count


def _behind(
    body: onnx.GraphProto, constants: Mapping[str, np.ndarray]
) -> tuple[list[onnx.NodeProto], set[str], dict[str, np.ndarray]] | None:
    """Return the nodes that a Loop's condition depends on, in order, the names that they read, and the constants among
    these; None if it depends on anything else."""
    number, condition, *states = (value.name for value in body.input)
    makers = {name: place for place, node in enumerate(body.node) for name in node.output}
    own = {tensor.name: numpy_helper.to_array(tensor) for tensor in body.initializer}
    left, read, places, held = [body.output[0].name], set[str](), set[int](), dict[str, np.ndarray]()
    while left:
        name = left.pop()
        if not name or name in read:
            continue
        read.add(name)
        if name in makers:
            node = body.node[makers[name]]
            if node.domain or node.op_type not in _DECIDING or not _of_one_element(attributes(node)):
                return None
            places.add(makers[name])
            left += node.input
        elif name in states:
            left.append(body.output[1 + states.index(name)].name)
        elif name not in (number, condition):
            value = own.get(name, constants.get(name))
            if value is None or value.size != 1:
                return None
            held[name] = value
    return [body.node[place] for place in sorted(places)], read, held


def _of_one_element(given: Mapping[str, Any]) -> bool:
    """Return whether a node's attributes contain no tensor with more than one element."""
    tensors = [value for value in given.values() if isinstance(value, onnx.TensorProto)]
    return all(np.prod(tensor.dims) == 1 for tensor in tensors) and not {"value_ints", "value_floats"} & set(given)
