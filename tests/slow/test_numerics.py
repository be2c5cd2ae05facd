"""Errors of every algorithm against float64 are at most 4 times those of a peer at the same type.

Measured as root mean squares over the output, for normally distributed random numbers. The peer is NumPy for matrix
multiplications, PyTorch, or onnxruntime if that is not installed, for convolutions, and NumPy in float32 for recurrent
layers.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm

sys.path.insert(0, str(Path(__file__).parents[1] / "numeric"))  # whose operators are used here

from convs import Conv, to_layout, topi_conv, topi_depthwise
from products import Product, expected, inputs_of, native, tensors
from recurrent_reference import by_numpy, numbers

import tvm_tiling as tt
from tvm_tiling.decide.rnn.recurrence import Recurrence
from tvm_tiling.schedules.rnn import schedule_recurrence

pytestmark = pytest.mark.slow
TIMES = 4.0
CONV = Conv(space=(28, 28), kernel=(3, 3), before=(1, 1), behind=(1, 1), n=1, ci=64, co=64)


def rms(result: np.ndarray, exact: np.ndarray) -> float:
    return float(np.sqrt(np.mean((result.astype(np.float64) - exact) ** 2)) / np.sqrt(np.mean(exact**2)))


def assert_as_good(name: str, ours: float, peers: float) -> None:
    print(f"{name}: {ours:.2e}, the peer's {peers:.2e}, ratio {ours / peers:.2f}")
    assert ours <= TIMES * peers


@pytest.mark.parametrize("k", [64, 1024, 16384])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gemms(k, dtype):
    p = Product(m=96, n=80, k=k, dtype=dtype)
    left, right = (guarded.array for guarded in inputs_of(p, seed=k))
    # For float64 the exact value is that of longer floats.
    exact = (left.astype(np.longdouble) @ right.astype(np.longdouble)).astype(np.float64)
    *_, result = tensors(p)
    out = tvm.runtime.empty((p.m, p.n), dtype)
    library = tvm.compile(tt.tiling_schedule(result).mod, target=tt.llvm_target())
    library["main"](tvm.runtime.tensor(left), tvm.runtime.tensor(right), out)
    assert_as_good(f"product of {dtype}, k {k}", rms(out.numpy(), exact), rms(left @ right, exact))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gemms_of_narrow_floats(dtype):
    """Accumulate in float32, like a peer that converts first."""
    p = Product(m=64, n=64, k=500, dtype=dtype)
    operands = inputs_of(p)
    value, _, kind = expected(p, [guarded.array for guarded in operands])
    *_, result = tensors(p)
    out = tvm.runtime.empty((p.m, p.n), kind)
    tvm.compile(tt.tiling_schedule(result).mod, target=tt.llvm_target())["main"](*(g.tensor for g in operands), out)
    left, right = (guarded.array.astype("float32") for guarded in operands)
    assert_as_good(f"product of {dtype}", rms(out.numpy(), value), rms(left @ right, value))


def by_peer(conv: Conv, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return the float32 convolution by a peer, [n, y, x, co]."""
    images, kernels = x.transpose(0, 3, 1, 2).copy(), w.transpose(0, 3, 1, 2).copy()
    try:
        import torch
    except ImportError:
        return by_onnxruntime(conv, images, kernels).transpose(0, 2, 3, 1)
    found = torch.nn.functional.conv2d(
        torch.from_numpy(images), torch.from_numpy(kernels), None, conv.stride, conv.before, groups=conv.groups
    )
    return found.numpy().transpose(0, 2, 3, 1)


def by_onnxruntime(conv: Conv, images: np.ndarray, kernels: np.ndarray) -> np.ndarray:
    runtime, onnx = pytest.importorskip("onnxruntime"), pytest.importorskip("onnx")
    values = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", images.shape), ("y", None))
    ]
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"], strides=conv.stride, pads=conv.padding, group=conv.groups)
    weights = [onnx.numpy_helper.from_array(kernels, "w")]
    graph = onnx.helper.make_graph([node], "conv", values[:1], values[1:], weights)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8)
    return runtime.InferenceSession(model.SerializeToString()).run(None, {"x": images})[0]


CASES = [
    ("direct", CONV),
    ("gemm", replace(CONV, kernel=(1, 1), before=(0, 0), behind=(0, 0))),
    ("winograd", CONV),
    ("winograd", replace(CONV, space=(56, 56), ci=128)),
    ("winograd", replace(CONV, space=(14, 14), ci=512)),
    ("winograd", replace(CONV, space=(7, 7), ci=512)),
    ("winograd", replace(CONV, kernel=(2, 2), before=(0, 0), behind=(0, 0))),
    ("winograd", replace(CONV, kernel=(4, 4))),
    ("winograd", replace(CONV, kernel=(5, 5), before=(2, 2), behind=(2, 2))),
    ("depthwise", replace(CONV, groups=64)),
    ("stride_fold", replace(CONV, ci=3, kernel=(7, 7), before=(3, 3), behind=(3, 3), stride=(2, 2))),
    ("wfold", replace(CONV, ci=3, kernel=(7, 7), before=(3, 3), behind=(3, 3), stride=(2, 2))),
]


@pytest.mark.parametrize(("form", "conv"), CASES)
def test_convolutions(form, conv):
    source = topi_conv(conv, "NHWC", "HWIO") if conv.groups == 1 else topi_depthwise(conv, "NHWC")
    rng = np.random.default_rng(1)
    x = rng.standard_normal(conv.shape_x).astype("float32")
    w = rng.standard_normal(conv.shape_w).astype("float32")
    exact = conv.result(x, w)
    mod = tt.tiling_schedule(source.out, algorithm=form).mod
    decision = json.loads(mod["main"].attrs["tvm_tiling.decision"])
    tile = f" of {decision['winograd']['m']} x {decision['winograd']['m']}" if form == "winograd" else ""
    library = tvm.compile(mod, target=tt.llvm_target())
    out = tvm.runtime.empty(exact.shape, "float32")
    stored = [to_layout(x, "NHWC", source.layout), np.ascontiguousarray(source.stored(w))]
    library["main"](*map(tvm.runtime.tensor, stored), out)
    name = f"{form}{tile}, {conv.kernel} of {conv.space} with {conv.ci} channels"
    assert_as_good(name, rms(out.numpy(), exact), rms(by_peer(conv, x, w), exact))


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
def test_recurrent_layers(cell):
    """Compare with NumPy's own float32, step by step."""
    order = {"lstm": "ifgo", "gru": "rzn", "rnn": "h"}[cell]
    r = Recurrence(cell=cell, steps=50, batch=2, hidden=128, order=order)
    values, hardware = numbers(r), native()
    scheduled = schedule_recurrence(r, "layer", hardware.cpu, prepacked=False)
    library = tvm.compile(tvm.IRModule({"layer": scheduled.main}), target=tt.llvm_target(hardware))
    results = {name: tvm.runtime.empty(shape, "float32") for name, shape in r.outputs.items()}
    library["layer"](*map(tvm.runtime.tensor, values.values()), *results.values())
    exact = by_numpy(r, values)["y"]
    rounded = in_float32(r, values)
    assert_as_good(cell, rms(results["y"].numpy(), exact), rms(rounded, exact))


def in_float32(r: Recurrence, values: dict[str, np.ndarray]) -> np.ndarray:
    """Return the states of each step, with every number a float32."""
    sigmoid = lambda a: 1 / (1 + np.exp(-a))  # noqa: E731
    h, c, found = values["h0"], values.get("c0"), []
    for own in values["projected"]:
        back = h @ values["weights"].T
        if r.cell == "lstm":
            i, f, g, o = np.split(own + back, 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        elif r.cell == "gru":
            (x_r, x_z, x_n), (h_r, h_z, h_n) = np.split(own, 3, axis=1), np.split(back, 3, axis=1)
            z = sigmoid(x_z + h_z)
            n = np.tanh(x_n + sigmoid(x_r + h_r) * (h_n + values["bias"]))
            h = n + z * (h - n)
        else:
            h = np.tanh(own + back)
        found.append(h)
    return np.stack(found)
