"""The standard's own inference of the type and shape of one node, which refuses operands and attributes that contradict
each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .graph import SMALL_BYTES
from .node_checks import shape_text

# The classes of errors, in front of the messages.
_CLASS = re.compile(r"^\[\w+\]\s*(\(op_type:.*?\):\s*)?")
_UNSUPPORTED_TYPE = re.compile(r"^(\S+) typestr: .*, has unsupported type: tensor\((\w+)\)")
_OTHER_TYPE = re.compile(r"^(\S+) has inconsistent type tensor\((\w+)\)")
# Operators whose converters check their operands, with messages that say what is expected.
_CHECKED = frozenset({"DequantizeLinear", "Einsum", "QuantizeLinear"})
# Converters take these also where the standard has only float32.
_FLOATS = frozenset({"bfloat16", "float16", "float64"})


def check_inference(
    node: onnx.NodeProto,
    operands: Mapping[str, tuple[str, list[int | None]]],
    values: Mapping[str, np.ndarray],
    opset: int,
    opsets: Iterable[onnx.OperatorSetIdProto],
) -> None:
    """Raise ValueError if the standard refuses the operands of a node. `operands`: element type and shape of all inputs
    by name, with None for dynamic extents; `values`: those of constant inputs."""
    if any(entry.HasField("g") for entry in node.attribute):
        return
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
    except onnx.defs.SchemaError:  # an operator of another domain
        return
    for name, formal in zip(node.input, schema.inputs, strict=False):
        if not name and formal.option != onnx.defs.OpSchema.FormalParameterOption.Optional:
            raise ValueError(f"input {formal.name} is missing")
    if node.op_type == "Einsum" and len({dtype for dtype, _ in operands.values()}) > 1:
        raise ValueError(f"its inputs have types {', '.join(dtype for dtype, _ in operands.values())}; expected one")
    if node.op_type in _CHECKED:
        return
    data = {name: numpy_helper.from_array(value, name) for name, value in values.items() if value.nbytes <= SMALL_BYTES}
    given = list(opsets)

    def inferred(widths: Mapping[str, str]) -> None:
        kinds = {name: _type_of(widths.get(dtype, dtype), shape) for name, (dtype, shape) in operands.items()}
        onnx.shape_inference.infer_node_outputs(schema, node, kinds, data, opset_imports=given)

    try:
        try:
            inferred({})
        except onnx.checker.ValidationError as error:
            if not _UNSUPPORTED_TYPE.match(str(error)) or _FLOATS.isdisjoint(dtype for dtype, _ in operands.values()):
                raise
            inferred(dict.fromkeys(_FLOATS, "float32"))
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError) as error:
        said = _sentence(str(error))
        if said.startswith("Incompatible dimensions"):
            said += f"; its inputs have shapes {', '.join(shape_text(shape) for _, shape in operands.values())}"
        raise ValueError(said) from None


def _sentence(message: str) -> str:
    """Return a message of the standard's inference without the classes of its errors."""
    if found := _UNSUPPORTED_TYPE.match(message):
        return f"input {found[1]} has type {found[2]}, which the standard does not define"
    if found := _OTHER_TYPE.match(message):
        return f"input {found[1]} has type {found[2]}; expected that of the inputs before it"
    return _CLASS.sub("", message).rstrip(".")


def _type_of(dtype: str, shape: list[int | None]) -> onnx.TypeProto:
    extents: list[Any] = shape
    return helper.make_tensor_type_proto(_NUMBERS[dtype], extents)


_NUMBERS = {
    "bfloat16": onnx.TensorProto.BFLOAT16,
    **{
        name: helper.np_dtype_to_tensor_dtype(np.dtype(name))
        for name in (
            *("bool", "float16", "float32", "float64"),
            *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
        )
    },
}
