"""Run models whose inputs and outputs are at the end of accessible memory, and compare with onnxruntime: an access
beyond either end, or a write to an input, is a segmentation fault.

Started as a program by test_in_and_out.py; its argument is a deliberate fault, or nothing.
"""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import tvm_tiling as tt

PROT_NONE = 0
PAGE = mmap.PAGESIZE
_LIBC = ctypes.CDLL(None, use_errno=True)


def protect(address: int, size: int, mode: int) -> None:
    assert _LIBC.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), mode) == 0


class Walled:
    """Return an array between two guard pages, at the end or at the start of the accessible memory. The rest of it is
    poisoned, and must stay so."""

    def __init__(self, shape, dtype, at_end: bool) -> None:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        pages = max(1, -(-size // PAGE))
        self.memory = mmap.mmap(-1, (pages + 2) * PAGE)
        raw = np.frombuffer(self.memory, np.uint8)
        self.start, self.pages = raw.ctypes.data + PAGE, pages
        protect(self.start - PAGE, PAGE, PROT_NONE)
        protect(self.start + pages * PAGE, PAGE, PROT_NONE)
        self.raw = raw[PAGE : (pages + 1) * PAGE]
        self.raw[:] = 0xFF
        self.offset = pages * PAGE - size if at_end else 0
        self.size = size
        self.array = self.raw[self.offset : self.offset + size].view(dtype).reshape(shape)

    def read_only(self) -> None:
        protect(self.start, self.pages * PAGE, mmap.PROT_READ)

    def poisoned(self) -> bool:
        return bool((self.raw[: self.offset] == 0xFF).all() and (self.raw[self.offset + self.size :] == 0xFF).all())


def model(nodes, inputs, outputs, weights):
    kinds = {"float32": TensorProto.FLOAT, "int8": TensorProto.INT8, "bool": TensorProto.BOOL}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kinds[dtype], shape) for name, (shape, dtype) in inputs.items()],
        [helper.make_tensor_value_info(name, kinds[dtype], shape) for name, (shape, dtype) in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def uniform(*shape):
    return np.random.default_rng(sum(shape)).uniform(-0.5, 0.5, shape).astype("float32")


def models():
    node = helper.make_node
    yield (
        "products",
        model(
            [
                node("MatMul", ["x", "w"], ["h"]),
                node("Relu", ["h"], ["r"]),
                node("MatMul", ["r", "v"], ["y"]),
                node("Softmax", ["y"], ["p"], axis=-1),
                node("Identity", ["x"], ["same"]),
            ],
            {"x": ((7, 37), "float32")},
            {"h": ((7, 53), "float32"), "p": ((7, 19), "float32"), "same": ((7, 37), "float32")},
            {"w": uniform(37, 53), "v": uniform(53, 19)},
        ),
    )
    yield (
        "convolutions",
        model(
            [
                node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
                node("Relu", ["c"], ["r"]),
                node("MaxPool", ["r"], ["m"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
                node("Conv", ["m", "v"], ["d"], group=11),
                node("GlobalAveragePool", ["d"], ["a"]),
                node("Flatten", ["a"], ["f"]),
            ],
            {"x": ((1, 3, 29, 31), "float32")},
            {"r": ((1, 11, 15, 16), "float32"), "f": ((1, 11), "float32")},
            {"w": uniform(11, 3, 3, 3), "v": uniform(11, 1, 3, 3)},
        ),
    )
    yield (
        "elements",
        model(
            [
                node("Less", ["a", "b"], ["less"]),
                node("Not", ["less"], ["no"]),
                node("And", ["no", "mask"], ["both"]),
                node("Where", ["both", "a", "b"], ["chosen"]),
                node("Transpose", ["chosen"], ["turned"], perm=[1, 0]),
            ],
            {"a": ((13, 21), "float32"), "b": ((13, 21), "float32"), "mask": ((13, 21), "bool")},
            {"both": ((13, 21), "bool"), "turned": ((21, 13), "float32")},
            {},
        ),
    )
    yield (
        "recurrent",
        model(
            [node("LSTM", ["x", "w", "r"], ["y", "h", "c"], hidden_size=9)],
            {"x": ((5, 1, 7), "float32")},
            {"y": ((5, 1, 1, 9), "float32"), "h": ((1, 1, 9), "float32"), "c": ((1, 1, 9), "float32")},
            {"w": uniform(1, 36, 7), "r": uniform(1, 36, 9)},
        ),
    )


def check(name, proto, at_end: bool, wrong: str) -> None:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(5)
    kinds = {"tensor(float)": "float32", "tensor(bool)": "bool", "tensor(int8)": "int8"}
    given = {i.name: Walled(i.shape, kinds[i.type], at_end) for i in session.get_inputs()}
    taken = {o.name: Walled(o.shape, kinds[o.type], at_end) for o in session.get_outputs()}
    for wall in given.values():
        values = rng.uniform(-1, 1, wall.array.shape)
        wall.array[...] = values > 0 if wall.array.dtype == bool else values
        wall.read_only()
    inputs = {key: wall.array for key, wall in given.items()}
    wanted = session.run(None, inputs)
    executable = tt.compile(proto, cache=False)
    outputs = {key: wall.array for key, wall in taken.items()}
    if wrong == "write an input":
        executable.run(*inputs.values(), out={**outputs, "same": inputs["x"].view()})
    for _ in range(2):
        results = executable.run(*inputs.values(), out=outputs)
        results = results if isinstance(results, tuple) else (results,)
        for result, output, expected in zip(results, outputs.values(), wanted, strict=True):
            assert result is output
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5, err_msg=name)
            result[...] = 0
        assert all(wall.poisoned() for wall in (*given.values(), *taken.values())), name
    results = executable.run(*inputs.values())
    for result, expected in zip(results if isinstance(results, tuple) else (results,), wanted, strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5, err_msg=name)
    if wrong == "read behind":
        wall = next(iter(given.values()))
        ctypes.string_at(wall.start + wall.pages * PAGE, 1)


if __name__ == "__main__":
    for label, proto in models():
        for at_end in (True, False):
            print(label, at_end, flush=True)
            check(label, proto, at_end, sys.argv[1])
