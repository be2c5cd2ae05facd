"""Parts of a model: what an output depends on, a single node, and the values of all."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper
from onnx_generator import read_by
from onnx_judge import session_of

Arrays = Mapping[str, np.ndarray]


def needed(model: onnx.ModelProto, given: Arrays) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return the model without nodes that its outputs do not depend on."""
    wanted = {value.name for value in model.graph.output}
    nodes = []
    for node in reversed(model.graph.node):
        if wanted & set(node.output):
            nodes.insert(0, node)
            wanted |= read_by(node)
    graph = helper.make_graph(
        nodes,
        "shrunk",
        [value for value in model.graph.input if value.name in wanted],
        list(model.graph.output),
        [tensor for tensor in model.graph.initializer if tensor.name in wanted],
    )
    made = onnx.ModelProto()
    made.CopyFrom(model)
    made.graph.CopyFrom(graph)
    return made, {name: array for name, array in given.items() if name in wanted}


def only(
    model: onnx.ModelProto, given: Arrays, output: onnx.ValueInfoProto
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return the model with one of its outputs, and what it depends on."""
    alone = onnx.ModelProto()
    alone.CopyFrom(model)
    del alone.graph.output[:]
    alone.graph.output.append(output)
    return needed(alone, given)


def infos(arrays: Arrays) -> list[onnx.ValueInfoProto]:
    return [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in arrays.items()
    ]


def single(
    model: onnx.ModelProto, node: onnx.NodeProto, values: Arrays
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return a single node with its inputs."""
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    known = {tensor.name for tensor in model.graph.initializer}
    more = {name: array for name, array in values.items() if name not in known and name not in node.output}
    del whole.graph.node[:], whole.graph.input[:], whole.graph.output[:]
    whole.graph.node.append(node)
    whole.graph.input.extend(infos(more))
    whole.graph.output.extend(onnx.ValueInfoProto(name=name) for name in node.output if name)
    return needed(whole, more)


def every_value(model: onnx.ModelProto, given: Arrays) -> dict[str, np.ndarray]:
    """Return the results of every node of the graph by onnxruntime, except sequences."""
    every = onnx.ModelProto()
    every.CopyFrom(model)
    del every.graph.output[:]
    names = (name for node in model.graph.node for name in node.output if name)
    every.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    results = zip((value.name for value in every.graph.output), session_of(every).run(None, dict(given)), strict=True)
    return {name: value for name, value in results if isinstance(value, np.ndarray)}
