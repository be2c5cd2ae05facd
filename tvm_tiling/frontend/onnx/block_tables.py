"""Normalisation of the tables of GatherBlockQuantized to the form that its converter reads: two-dimensional bytes, rows
gathered along the first axis, blocks along the last.

Tables of 4-bit types become such bytes. Tables with other axes are converted to floats, with a Gather.
"""

from __future__ import annotations

import numpy as np
import onnx

from ...lowering.weight_panels import row_bytes, values_of
from .blocked_pairs import attribute_of, unsigned
from .graph import OnnxGraph

_FOURS = ("int4", "uint4")


def settle_tables(graph: OnnxGraph) -> None:
    """Replace every other GatherBlockQuantized of constants by a node of that form, or a Gather."""
    nodes = list(graph.graph.node)
    if not any(_is_table(node) for node in nodes):
        return
    constants = graph.constants()
    graph.replace_nodes([(_settled(graph, node, constants) if _is_table(node) else None) or node for node in nodes])


def _is_table(node: onnx.NodeProto) -> bool:
    return node.op_type == "GatherBlockQuantized" and node.domain == "com.microsoft" and len(node.input) > 2


def _settled(graph: OnnxGraph, node: onnx.NodeProto, constants: dict[str, np.ndarray]) -> onnx.NodeProto | None:
    """Return the replacement; None if the node stays, to be converted or refused."""
    data, scales = constants.get(node.input[0]), constants.get(node.input[2])
    named = node.input[3] if len(node.input) > 3 else ""
    zeros = constants.get(named)
    if data is None or scales is None or (named and zeros is None) or data.ndim < 1:
        return None
    fours = data.dtype.name in _FOURS
    if not fours and data.dtype != np.uint8:
        return None
    bits, block = 4 if fours else attribute_of(node, "bits", 4), attribute_of(node, "block_size", 128)
    gathered, blocked = (attribute_of(node, name, usual) for name, usual in (("gather_axis", 0), ("quantize_axis", 1)))
    if bits not in (4, 8) or block < 16 or block & (block - 1):
        return None
    if not all(-data.ndim <= axis < data.ndim for axis in (gathered, blocked)):
        return None
    gathered, blocked = gathered % data.ndim, blocked % data.ndim
    usual = data.ndim == 2 and gathered == 0 and blocked == 1
    if not fours and (usual or gathered or blocked != data.ndim - 1):
        return None
    values = data if fours else _apart(data, bits, data.shape[-1] * 8 // bits)
    extents = [-(-size // block) if axis == blocked else size for axis, size in enumerate(values.shape)]
    if list(scales.shape) != extents:
        return None
    if zeros is not None and not fours:
        zeros = _apart(zeros, bits, extents[-1])
    if zeros is not None and list(zeros.shape) != extents:
        return None
    if usual and values.shape[1] % 2 == 0:
        return _of_bytes(graph, node, values, zeros)
    whole = np.asarray(values).astype(np.float32)
    centre = (
        np.float32(0 if fours else 1 << (bits - 1)) if zeros is None else _of_elements(zeros, block, blocked, whole)
    )
    table = (whole - centre) * _of_elements(scales, block, blocked, whole)
    name = graph.fresh_name(f"{node.input[0]}_table")
    graph.add_constant(name, np.ascontiguousarray(table.astype(scales.dtype)))
    return onnx.helper.make_node("Gather", [name, node.input[1]], list(node.output), name=node.name, axis=gathered)


def _of_bytes(graph: OnnxGraph, node: onnx.NodeProto, values: np.ndarray, zeros: np.ndarray | None) -> onnx.NodeProto:
    """Return the node for a table of bytes with two elements each."""
    signed = values.dtype.name == "int4"
    operands = {"values": row_bytes(unsigned(values, 4), 4)}
    if zeros is not None or not signed:
        stored = np.zeros((len(values), 1), np.uint8) if zeros is None else unsigned(zeros, 4)
        if zeros is None:
            blocks = -(-values.shape[1] // attribute_of(node, "block_size", 128))
            stored = np.repeat(stored, blocks, axis=1)
        operands["zeros"] = row_bytes(np.pad(stored, ((0, 0), (0, stored.shape[1] % 2))), 4)
    names = []
    for called, value in operands.items():
        names.append(graph.fresh_name(f"{node.input[0]}_{called}"))
        graph.add_constant(names[-1], np.ascontiguousarray(value))
    given = [names[0], *node.input[1:3], *names[1:]]
    attributes = {"bits": 4, "block_size": attribute_of(node, "block_size", 128), "gather_axis": 0, "quantize_axis": 1}
    made = onnx.helper.make_node(node.op_type, given, list(node.output), name=node.name, domain=node.domain)
    made.attribute.extend(onnx.helper.make_attribute(name, value) for name, value in attributes.items())
    return made


def _apart(data: np.ndarray, bits: int, count: int) -> np.ndarray:
    """Return the `count` elements that bytes hold along the last axis."""
    return data if bits == 8 else values_of(data, bits)[..., :count]


def _of_elements(parts: np.ndarray, block: int, axis: int, like: np.ndarray) -> np.ndarray:
    """Return the value of each block for each of its elements, as float32; the last block along the axis may be
    partial."""
    repeated = np.repeat(np.asarray(parts).astype(np.float32), block, axis=axis)
    return np.take(repeated, np.arange(like.shape[axis]), axis=axis)
