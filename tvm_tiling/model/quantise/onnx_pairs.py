"""ONNX operators on 8-bit integers, written as pairs of DequantizeLinear and QuantizeLinear around the float operator:
the one form in which quantised models are taken for an accelerator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import helper, numpy_helper

MARK = b"QLinear"
PER_CHANNEL = 13  # the first version of operators in which a scale may be one for each channel
# Element-wise operators of two tensors, each with its scale and zero point.
_OF_TWO = {"QLinearAdd": "Add", "QLinearMul": "Mul"}
_OF_ONE = {"QLinearSigmoid": "Sigmoid", "QLinearGlobalAveragePool": "GlobalAveragePool"}


def with_pairs(model: Any) -> Any:
    """The model with its QLinear operators written out; what is not an ONNX model, or has none, as it is given."""
    if isinstance(model, (str, Path)):
        path = Path(model)
        if path.suffix != ".onnx" or not path.is_file() or MARK not in path.read_bytes():
            return model
        try:
            return with_pairs(onnx.load(str(path)))
        except (DecodeError, ValueError, onnx.checker.ValidationError):
            return model  # which the reader of models says more of
    if isinstance(model, bytes):
        try:
            return with_pairs(onnx.ModelProto.FromString(model)) if MARK in model else model
        except DecodeError:
            return model
    if not isinstance(model, onnx.ModelProto) or not any(n.op_type.startswith("QLinear") for n in model.graph.node):
        return model
    written = onnx.ModelProto()
    written.CopyFrom(model)
    versions = {entry.domain: entry.version for entry in model.opset_import}
    writer = _Writer(written.graph, max(versions.get("", 0), versions.get("ai.onnx", 0)))
    nodes = [made for node in model.graph.node for made in writer.nodes(node)]
    del written.graph.node[:]
    written.graph.node.extend(nodes)
    return written


@dataclass
class _Writer:
    """Nodes in the place of others; constants go to the graph."""

    graph: onnx.GraphProto
    version: int
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    count: int = 0

    def __post_init__(self) -> None:
        self.constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in self.graph.initializer}
        self.used = {name for node in self.graph.node for name in (*node.input, *node.output)} | set(self.constants)

    def nodes(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        """What stands for a node; itself where it is none of these, or its scales are of no form that pairs have."""
        inputs = [*node.input, *[""] * (9 - len(node.input))]
        if node.op_type == "QLinearConv":
            x, w, (ys, yz), bias = inputs[0:3], inputs[3:6], inputs[6:8], inputs[8]
            yield from self._around(node, "Conv", [(x, 1), (w, 0)], ys, yz, bias)
        elif node.op_type == "QLinearMatMul":
            yield from self._around(node, "MatMul", [(inputs[0:3], 1), (inputs[3:6], -1)], inputs[6], inputs[7])
        elif node.op_type in _OF_TWO:
            operands = [(inputs[0:3], 1), (inputs[3:6], 1)]
            yield from self._around(node, _OF_TWO[node.op_type], operands, inputs[6], inputs[7])
        elif node.op_type in _OF_ONE and not any(a.name == "channels_last" and a.i for a in node.attribute):
            yield from self._around(node, _OF_ONE[node.op_type], [(inputs[0:3], 1)], inputs[3], inputs[4])
        elif node.op_type == "QLinearConcat":
            triples = [list(node.input[place : place + 3]) for place in range(2, len(node.input), 3)]
            yield from self._around(node, "Concat", [(triple, 1) for triple in triples], inputs[0], inputs[1])
        else:
            yield node

    def _around(
        self,
        node: onnx.NodeProto,
        operator: str,
        operands: Sequence[tuple[Sequence[str], int]],
        scale: str,
        zero: str,
        bias: str = "",
    ) -> Iterator[onnx.NodeProto]:
        """The float operator between what makes its operands real and what makes its result 8 bits again."""
        several = [self._size(names[1]) != 1 for names, _ in operands]
        old = any(several) and self.version < PER_CHANNEL
        if old or self._size(scale) != 1 or not self._bias_known(operands, bias):
            yield node
            return
        floats = []
        for (names, axis), per_channel in zip(operands, several, strict=True):
            floats.append(self._fresh(f"{names[0]}_real"))
            given = [name for name in names if name]
            rank = self.constants[names[0]].ndim if names[0] in self.constants else 1
            attributes: dict[str, Any] = {"axis": axis % rank} if per_channel else {}
            name = self._fresh(f"{floats[-1]}_node")
            yield helper.make_node("DequantizeLinear", given, [floats[-1]], name=name, **attributes)
        if bias:
            floats.append(self._real_bias(operands, bias))
        made = self._fresh(f"{node.output[0]}_real")
        kept = {a.name: helper.get_attribute_value(a) for a in node.attribute if a.name != "channels_last"}
        yield helper.make_node(operator, floats, [made], name=node.name or self._fresh(operator), **kept)
        given = [made, scale, *([zero] if zero else [])]
        yield helper.make_node("QuantizeLinear", given, list(node.output), name=self._fresh(f"{made}_node"))

    def _bias_known(self, operands: Sequence[tuple[Sequence[str], int]], bias: str) -> bool:
        return not bias or all(name in self.constants for name in (bias, *(names[1] for names, _ in operands)))

    def _real_bias(self, operands: Sequence[tuple[Sequence[str], int]], bias: str) -> str:
        """A bias of whole products of scales, as floats."""
        x_scale, w_scale = (self.constants[names[1]].astype(np.float64).reshape(-1) for names, _ in operands)
        factor = x_scale * w_scale
        name = self._fresh(f"{bias}_real")
        values = (self.constants[bias].astype(np.float64) * factor).astype(np.float32)
        self.graph.initializer.append(numpy_helper.from_array(values, name))
        return name

    def _size(self, name: str) -> int:
        """Elements of a constant; 1 for what is none, as the scale of a whole tensor has."""
        return int(self.constants[name].size) if name in self.constants else 1

    def _fresh(self, name: str) -> str:
        while name in self.used:
            self.count += 1
            name = f"{name}_{self.count}"
        self.used.add(name)
        return name
