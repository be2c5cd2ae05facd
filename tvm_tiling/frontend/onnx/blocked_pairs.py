"""Block-quantised weights that a model dequantises before a matrix multiplication, kept as they are stored.

DequantizeLinear of a constant with scales for blocks along the reduction axis, and the MatMul that follows, possibly
after a transposition, become one MatMulNBits. All other DequantizeLinear nodes of constants are folded to floats.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import onnx

from ...lowering.weight_panels import row_bytes
from .graph import OnnxGraph

_DOMAIN = "com.microsoft"
_BITS = {"int4": 4, "uint4": 4, "int8": 8, "uint8": 8}


@dataclass(frozen=True)
class _Pair:
    """Nodes that are fused: the dequantisation, an optional transposition, the matrix multiplication."""

    source: onnx.NodeProto
    turned: onnx.NodeProto | None
    product: onnx.NodeProto


def keep_blocks(graph: OnnxGraph) -> None:
    """Replace each such pair by a MatMulNBits."""
    sources = [node for node in graph.graph.node if node.op_type == "DequantizeLinear" and not node.domain]
    if not any(attribute_of(node, "block_size", 0) for node in sources):
        return
    constants = graph.constants()
    users: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.graph.node:
        for name in set(node.input):
            users.setdefault(name, []).append(node)
    returned = Counter(value.name for value in graph.graph.output)
    made: dict[str, onnx.NodeProto] = {}  # by the first output of the matrix multiplication
    for source in sources:
        for pair in _pairs(source, users, returned):
            node = _joined(graph, pair, constants)
            if node is not None:
                made[pair.product.output[0]] = node
    if not made:
        return
    nodes = [made.get(node.output[0], node) if node.output else node for node in graph.graph.node]
    graph.replace_nodes(_used(nodes, set(returned)))
    if not any(entry.domain == _DOMAIN for entry in graph.proto.opset_import):
        graph.proto.opset_import.append(onnx.helper.make_opsetid(_DOMAIN, 1))


def _pairs(source: onnx.NodeProto, users: dict[str, list[onnx.NodeProto]], returned: Counter[str]) -> list[_Pair]:
    """Return the matrix multiplications by what a node dequantises; empty if anything else uses it."""
    found = []
    if source.output[0] in returned:
        return []
    for user in users.get(source.output[0], []):
        turned, behind = None, [user]
        if user.op_type == "Transpose" and not user.domain and user.output[0] not in returned:
            turned, behind = user, users.get(user.output[0], [])
        by = (turned or source).output[0]
        for node in behind:
            if node.op_type != "MatMul" or node.domain or node.input[1] != by or node.input[0] == by:
                return []
            found.append(_Pair(source, turned, node))
    return found


def _joined(graph: OnnxGraph, pair: _Pair, constants: dict[str, np.ndarray]) -> onnx.NodeProto | None:
    """Return the fused node; None if the weights have another form."""
    given = [constants.get(name) if name else None for name in pair.source.input]
    data, scales, zeros = [*given, None][:3]
    block, axis = attribute_of(pair.source, "block_size", 0), attribute_of(pair.source, "axis", 1)
    if data is None or scales is None or (len(pair.source.input) > 2 and pair.source.input[2] and zeros is None):
        return None
    bits = _BITS.get(data.dtype.name)
    turned = pair.turned is not None and list(_perm(pair.turned)) in ([1, 0], [])
    if bits is None or data.ndim != 2 or (pair.turned is not None and not turned):
        return None
    summed = 1 if turned else 0
    if axis % 2 != summed or block < 16 or block & (block - 1) or scales.dtype not in (np.float32, np.float16):
        return None
    if not turned:
        data, scales, zeros = data.T, scales.T, None if zeros is None else zeros.T
    n, k = data.shape
    blocks = -(-k // block)
    if scales.shape != (n, blocks) or (zeros is not None and zeros.shape != (n, blocks)):
        return None
    values = np.zeros((n, blocks * block), np.uint8)
    values[:, :k] = unsigned(data, bits)
    operands = {"values": row_bytes(values, bits).reshape(n, blocks, block * bits // 8), "scales": scales}
    if zeros is not None or not data.dtype.name.startswith("int"):
        stored = np.zeros((n, blocks), np.uint8) if zeros is None else unsigned(zeros, bits)
        operands["zeros"] = row_bytes(np.pad(stored, ((0, 0), (0, -blocks % (8 // bits)))), bits)
    names = []
    for called, value in operands.items():
        name = graph.fresh_name(f"{pair.source.input[0]}_{called}")
        graph.add_constant(name, np.ascontiguousarray(value))
        names.append(name)
    return onnx.helper.make_node(
        "MatMulNBits",
        [pair.product.input[0], *names],
        list(pair.product.output),
        name=pair.product.name,
        domain=_DOMAIN,
        K=k,
        N=n,
        bits=bits,
        block_size=block,
    )


def unsigned(values: np.ndarray, bits: int) -> np.ndarray:
    """Return values as integers from 0, in the same order."""
    start = 1 << (bits - 1) if values.dtype.name.startswith("int") else 0
    return (values.astype(np.int16) + start).astype(np.uint8)


def _used(nodes: list[onnx.NodeProto], returned: set[str]) -> list[onnx.NodeProto]:
    """Return `nodes` without dequantisations and transpositions that are no longer used."""
    needed, kept = set(returned), []
    inner = {name for node in nodes for entry in node.attribute for name in _names_in(entry)}
    for node in reversed(nodes):
        droppable = node.op_type in ("DequantizeLinear", "Transpose")
        if not droppable or any(name in needed or name in inner for name in node.output):
            kept.append(node)
            needed.update(node.input)
    return kept[::-1]


def _names_in(entry: onnx.AttributeProto) -> set[str]:
    """Return the tensors that graphs in an attribute may read."""
    graphs = [entry.g, *entry.graphs] if entry.HasField("g") else list(entry.graphs)
    found = set[str]()
    for graph in graphs:
        found |= {value.name for value in graph.output}
        for node in graph.node:
            found |= set(node.input)
            for inner in node.attribute:
                found |= _names_in(inner)
    return found


def attribute_of(node: onnx.NodeProto, name: str, usual: int) -> int:
    """Return an integer attribute of a node, or its default."""
    return next((int(entry.i) for entry in node.attribute if entry.name == name), usual)


def _perm(node: onnx.NodeProto) -> list[int]:
    return next((list(entry.ints) for entry in node.attribute if entry.name == "perm"), [])
