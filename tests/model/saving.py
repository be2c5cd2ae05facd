"""Compile and save networks of every kind: a separate program, so that two processes can be compared.

python saving.py FOLDER LINKED|OBJECTS. OBJECTS is the format without a C compiler.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from networks import Network, attention, conv_bn_relu
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

import tvm_tiling as tt


def odd_convolutions(net: Network, x: relax.Expr) -> relax.Expr:
    """Channels that do not fill a register: packed weights have gaps."""
    return conv_bn_relu(net, conv_bn_relu(net, x, 3, 13), 13, 19, groups=1)


def lstm() -> onnx.ModelProto:
    """One layer with 9 inputs and 11 hidden units."""
    rng = np.random.default_rng(0)
    weights = {"w": (1, 44, 9), "r": (1, 44, 11), "b": (1, 88)}
    graph = helper.make_graph(
        [helper.make_node("LSTM", ["x", "w", "r", "b"], ["", "y"], hidden_size=11)],
        "recurrent",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (5, 2, 9))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 2, 11))],
        [numpy_helper.from_array(rng.uniform(-1, 1, shape).astype("float32"), n) for n, shape in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def integers() -> onnx.ModelProto:
    """A matrix multiplication of 8-bit integers with constant weights of 13 columns."""
    weights = np.random.default_rng(0).integers(-9, 9, (17, 13)).astype("int8")
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "integers",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, (5, 17))],
        [helper.make_tensor_value_info("y", TensorProto.INT32, (5, 13))],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def gated(net: Network, x: relax.Expr) -> relax.Expr:
    """Two matrix multiplications with a softmax between them."""
    return relax.op.matmul(relax.op.nn.softmax(relax.op.matmul(x, net.c(24, 24))), net.c(24, 13))


def accelerated() -> object:
    """Two matrix multiplications on a simulated accelerator, and a softmax on the CPU."""
    net = Network((17, 24))
    module = net.module(gated)
    return tt.compile(module, target="vsim/vta", calibration=[net.arrays()[0]], cache=False)


def decoder() -> onnx.ModelProto:
    """Attention of new tokens over cached and new ones, with dynamic numbers of both."""
    rng = np.random.default_rng(0)
    weights = {name: rng.uniform(-1, 1, (24, 24)).astype("float32") for name in ("q", "k", "v")}
    weights["twice"] = np.array([2, 3])
    nodes = [
        helper.make_node("MatMul", ["x", "q"], ["queries"]),
        helper.make_node("Concat", ["past", "x"], ["all"], axis=1),
        helper.make_node("MatMul", ["all", "k"], ["keys"]),
        helper.make_node("MatMul", ["all", "v"], ["values"]),
        helper.make_node("Transpose", ["keys"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["queries", "turned"], ["scores"]),
        helper.make_node("Add", ["scores", "mask"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["shares"]),
        helper.make_node("MatMul", ["shares", "values"], ["y"]),
        helper.make_node("Tile", ["mask", "twice"], ["z"]),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "decoder",
        [
            value("x", TensorProto.FLOAT, (1, "new", 24)),
            value("past", TensorProto.FLOAT, (1, "old", 24)),
            value("mask", TensorProto.FLOAT, ("new", "old + new")),
        ],
        [value("y", TensorProto.FLOAT, None), value("z", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


KINDS: dict[str, Callable[[], Any]] = {
    "convolutions": lambda: tt.compile(Network((1, 3, 17, 17)).module(odd_convolutions), cache=False),
    "recurrent": lambda: tt.compile(lstm(), cache=False),
    "integers": lambda: tt.compile(integers(), cache=False),
    "encoder": lambda: tt.compile(Network((1, 17, 24)).module(attention), cache=False),
    "decoder": lambda: tt.compile(decoder(), cache=False),
    "accelerated": accelerated,
}
# By format. Object files do not depend on how they are stored, so that the kinds with different packing suffice.
SAVED = {"linked": tuple(KINDS), "objects": ("convolutions", "integers")}


def main(folder: Path, form: str) -> None:
    if form == "objects":  # the program starts with the compiler, which TVM finds by these
        os.environ["PATH"] = ""
        os.environ.pop("CXX", None)
        os.environ.pop("CC", None)
    for name in SAVED[form]:
        KINDS[name]().save(folder / f"{name}.tar")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
