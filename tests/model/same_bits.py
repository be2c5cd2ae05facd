"""Models of one layer, or a few, whose results are compared for several batches and numbers of cores."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tvm_tiling as tt
from tvm_tiling.target import this_cpu

N = "N"  # the batch in a shape


@dataclass
class Layer:
    """Nodes from x, and further inputs, to `outputs`; `axes`: the axis of the batch in each output."""

    shape: Sequence[int | str]
    nodes: list[onnx.NodeProto]
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    further: dict[str, Sequence[int | str]] = field(default_factory=dict)
    outputs: Sequence[str] = ("y",)
    axes: Sequence[int] = (0,)

    @property
    def inputs(self) -> dict[str, Sequence[int | str]]:
        return {"x": self.shape, **self.further}

    def model(self, batch: int | str) -> onnx.ModelProto:
        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch if d == N else d for d in shape])
            for name, shape in self.inputs.items()
        ]
        graph = helper.make_graph(
            self.nodes,
            "layer",
            ends,
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in self.outputs],
            [numpy_helper.from_array(value, name) for name, value in self.weights.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)

    def arrays(self, most: int) -> list[np.ndarray]:
        """Inputs of a batch of `most`, some rows and elements of them zeros."""
        rng = np.random.default_rng(7)
        arrays = [
            rng.standard_normal([most if d == N else d for d in s]).astype("float32") for s in self.inputs.values()
        ]
        for array in arrays:
            array[rng.random(array.shape) < 0.2] = 0.0
        return arrays

    def cut(self, arrays: Sequence[np.ndarray], first: int, count: int) -> list[np.ndarray]:
        """The inputs of some rows of the batch."""
        return [
            np.ascontiguousarray(np.take(array, range(first, first + count), list(shape).index(N)))
            if N in shape
            else array
            for array, shape in zip(arrays, self.inputs.values(), strict=True)
        ]


def on_cores(cores: int) -> tt.Hardware:
    """This CPU as if it had so many cores."""
    found = this_cpu()
    assert found.cpu is not None
    cpu = dataclasses.replace(found.cpu, cores=cores, threads=max(cores, found.cpu.threads))
    return dataclasses.replace(found, name=f"this-{cores}c", cpu=cpu)


def results(
    layer: Layer, batches: Sequence[int], cores: Sequence[int], **options: Any
) -> Iterator[tuple[str, int, list[bytes]]]:
    """(what ran, number of a row, the bytes of that row's outputs) for each row of each batch, of executables for each
    batch and for any, for each number of cores."""
    arrays = layer.arrays(max(batches))
    for count in cores:
        for batch in (*batches, "batch"):
            executable = tt.compile(layer.model(batch), target=on_cores(count), cache=False, **options)
            for rows in batches if batch == "batch" else (batch,):
                for first in sorted({0, max(batches) - rows}):
                    found = executable.run(*layer.cut(arrays, first, rows))
                    found = found if isinstance(found, tuple) else (found,)
                    for row in range(rows):
                        values = [np.take(y, [row], axis) for y, axis in zip(found, layer.axes, strict=True)]
                        yield f"batch {batch}, {rows} rows, {count} cores", first + row, [v.tobytes() for v in values]


def differing(layer: Layer, batches: Sequence[int], cores: Sequence[int], **options: Any) -> set[str]:
    """Executables whose results differ from those of the first one."""
    first: dict[int, list[bytes]] = {}
    found = set()
    for what, row, values in results(layer, batches, cores, **options):
        if first.setdefault(row, values) != values:
            found.add(what)
    return found


# ---- layers ----------------------------------------------------------------------------------------------------------


def random(rng: np.random.Generator, *shape: int, scale: float = 0.1) -> np.ndarray:
    return (rng.standard_normal(shape) * scale).astype("float32")


def dense(k: int, n: int, rng: np.random.Generator) -> Layer:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["s"]), helper.make_node("Add", ["s", "b"], ["y"])]
    return Layer((N, k), nodes, {"w": random(rng, k, n), "b": random(rng, n)})


def conv(ci: int, co: int, k: int, size: int, rng: np.random.Generator, **attributes: Any) -> Layer:
    groups = attributes.get("group", 1)
    node = helper.make_node("Conv", ["x", "w", "b"], ["c"], kernel_shape=[k, k], pads=[k // 2] * 4, **attributes)
    nodes = [node, helper.make_node("Relu", ["c"], ["y"])]
    return Layer((N, ci, size, size), nodes, {"w": random(rng, co, ci // groups, k, k), "b": random(rng, co)})


def recurrent(cell: str, hidden: int, rng: np.random.Generator, inputs: int = 24, steps: int = 5) -> Layer:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[cell]
    weights = {
        "w": random(rng, 1, gates * hidden, inputs),
        "r": random(rng, 1, gates * hidden, hidden),
        "b": random(rng, 1, 2 * gates * hidden),
    }
    node = helper.make_node(cell, ["x", *weights], ["y", "h"], hidden_size=hidden)
    return Layer((steps, N, inputs), [node], weights, outputs=("y", "h"), axes=(2, 1))


def attention(heads: int, rows: int, keys: int, depth: int) -> Layer:
    nodes = [
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["x", "kt"], ["scores"]),
        helper.make_node("Mul", ["scores", "factor"], ["scaled"]),
        helper.make_node("Softmax", ["scaled"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    others: dict[str, Sequence[int | str]] = {"k": (N, heads, keys, depth), "v": (N, heads, keys, depth)}
    return Layer((N, heads, rows, depth), nodes, {"factor": np.float32(depth**-0.5)[None]}, others)


def product(rows: int, k: int, columns: int) -> Layer:
    """A product of two inputs."""
    return Layer((N, rows, k), [helper.make_node("MatMul", ["x", "k"], ["y"])], {}, {"k": (N, k, columns)})


def one(operator: str, *shape: int, weights: dict[str, np.ndarray] | None = None, **attributes: Any) -> Layer:
    node = helper.make_node(operator, ["x", *(weights or {})], ["y"], **attributes)
    return Layer((N, *shape), [node], weights or {})
