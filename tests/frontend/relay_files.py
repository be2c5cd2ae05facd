"""Relay models in file formats: .params, JSON with nodes, tar archives. Written here byte by byte."""

from __future__ import annotations

import base64
import io
import json
import struct
import tarfile
from collections.abc import Mapping

import numpy as np

CODES = {"i": 0, "u": 1, "f": 2}

DENSE = """#[version = "0.0.5"]
def @main(%x: Tensor[(2, 3), float32] /* ty=Tensor[(2, 3), float32] */, %w: Tensor[(4, 3), float32], \
%b: Tensor[(4), float32]) -> Tensor[(2, 4), float32] {
  %0 = nn.dense(%x, %w, units=4) /* ty=Tensor[(2, 4), float32] */;
  %1 = nn.bias_add(%0, %b, axis=-1) /* ty=Tensor[(2, 4), float32] */;
  nn.relu(%1) /* ty=Tensor[(2, 4), float32] */
}
"""
W = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
B = np.array([1, -1, 0.5, 2], "float32")


def array_bytes(array: np.ndarray, old_boolean: bool = False) -> bytes:
    """Return an array as a params file contains it."""
    code, bits = CODES.get(array.dtype.kind, 6), array.dtype.itemsize * 8
    if old_boolean:
        code, bits = 1, 1
    head = struct.pack("<QQiiiBBH", 0xDD5E40F096B4A13F, 0, 1, 0, array.ndim, code, bits, 1)
    extents = struct.pack(f"<{array.ndim}q", *array.shape)
    return head + extents + struct.pack("<q", array.nbytes) + array.tobytes()


def params_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return a params file."""
    names = [struct.pack("<Q", len(name.encode())) + name.encode() for name in arrays]
    head = struct.pack("<QQQ", 0xF7E58D4F05049CB7, 0, len(arrays)) + b"".join(names)
    return head + struct.pack("<Q", len(arrays)) + b"".join(map(array_bytes, arrays.values()))


def tar_bytes(files: Mapping[str, bytes]) -> bytes:
    """Return a tar archive."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return held.getvalue()


class JsonWriter:
    """Nodes of TVM's old JSON, numbered as they are added; referenced nodes are added first."""

    def __init__(self, release: str = "0.14.0") -> None:
        self.nodes: list[dict] = [{"type_key": ""}]
        self.arrays: list[str] = []
        self.release = release

    def add(self, kind: str, **fields: object) -> str:
        """Add a node with attributes; return the text of its number."""
        node: dict = {"type_key": kind}
        if fields:
            node["attrs"] = {name: str(value) for name, value in fields.items()}
        return self.put(node)

    def put(self, node: dict) -> str:
        self.nodes.append(node)
        return str(len(self.nodes) - 1)

    def text(self, value: str) -> str:
        return self.put({"type_key": "runtime.String", "repr_str": value})

    def op(self, name: str) -> str:
        return self.put({"type_key": "Op", "repr_str": name})

    def array(self, items: list[str]) -> str:
        return self.put({"type_key": "Array", "data": [int(item) for item in items]})

    def number(self, value: float, dtype: str = "int32") -> str:
        return self.add("IntImm" if dtype.startswith(("int", "bool")) else "FloatImm", dtype=dtype, span=0, value=value)

    def numbers(self, values: list[int]) -> str:
        return self.array([self.number(value) for value in values])

    def tensor(self, shape: tuple[int, ...], dtype: str = "float32") -> str:
        return self.add("relay.TensorType", dtype=dtype, shape=self.numbers(list(shape)), span=0)

    def var(self, name: str, kind: str) -> str:
        named = self.add("relay.Id", name_hint=self.text(name))
        return self.add("relay.Var", _checked_type_=kind, span=0, type_annotation=kind, vid=named, virtual_device_=0)

    def constant(self, value: np.ndarray) -> str:
        self.arrays.append(base64.b64encode(array_bytes(value)).decode())
        kind = self.tensor(value.shape, value.dtype.name)
        return self.add("relay.Constant", _checked_type_=kind, data=len(self.arrays) - 1, span=0, virtual_device_=0)

    def call(self, op: str, args: list[str], attrs: str = "0", kind: str = "0") -> str:
        listed = self.array(args)
        return self.add(
            "relay.Call", _checked_type_=kind, args=listed, attrs=attrs, op=op, span=0, type_args=0, virtual_device_=0
        )

    def function(self, params: list[str], body: str) -> str:
        listed = self.array(params)
        return self.add(
            "relay.Function", _checked_type_=0, attrs=0, body=body, params=listed, ret_type=0, span=0, type_params=0
        )

    def module(self, functions: Mapping[str, str]) -> bytes:
        """Return the file, whose root is a module of `functions`."""
        pairs = []
        for name, function in functions.items():
            pairs += [int(self.add("GlobalVar", _checked_type_=0, name_hint=self.text(name), span=0)), int(function)]
        held = self.put({"type_key": "Map", "data": pairs})
        root = self.add("IRModule", attrs=0, functions=held, global_type_var_map_=0, global_var_map_=0, source_map=0)
        return self.file(root)

    def file(self, root: str) -> bytes:
        held = {
            "root": int(root),
            "nodes": self.nodes,
            "b64ndarrays": self.arrays,
            "attrs": {"tvm_version": self.release},
        }
        return json.dumps(held, indent=1).encode()


def dense_json() -> bytes:
    """Return DENSE as JSON."""
    writer = JsonWriter()
    x, w = writer.var("x", writer.tensor((2, 3))), writer.var("w", writer.tensor((4, 3)))
    b, out = writer.var("b", writer.tensor((4,))), writer.tensor((2, 4))
    dense = writer.add("relay.attrs.DenseAttrs", out_dtype="", units=writer.number(4))
    product = writer.call(writer.op("nn.dense"), [x, w], dense, out)
    moved = writer.call(writer.op("nn.bias_add"), [product, b], writer.add("relay.attrs.BiasAddAttrs", axis=-1), out)
    return writer.module({"main": writer.function([x, w, b], writer.call(writer.op("nn.relu"), [moved], "0", out))})


def dense_result(x: np.ndarray) -> np.ndarray:
    return np.maximum(x @ W.T + B, 0)
