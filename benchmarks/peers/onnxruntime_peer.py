"""onnxruntime, on a model of one operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tvm_tiling.runtime.threads import default_thread_count
from tvm_tiling.workload import ConvWorkload, GemmWorkload

from ..operands import ConvOperands, GemmOperands
from .base import Peer, Prepared
from .onnx_model import model

OPSET = 17
CONV_OPSET = 13
ZERO_POINT = 128  # onnxruntime's fast int8 convolution is the one with unsigned inputs and outputs


class OnnxRuntime(Peer):
    """A session with bound inputs and output, so that a run copies nothing.

    A packed operand is an initializer, which the session lays out when it is created. Activations of a convolution are
    NCHW, the only layout that ONNX has; the session may change it within a run.
    """

    name = "onnxruntime"
    needs = ("onnxruntime", "onnx")
    supports = (GemmWorkload, ConvWorkload)

    def refuses(self, workload: GemmWorkload | ConvWorkload, packed: bool) -> str | None:
        if workload.dtype == "bfloat16":
            return "has no bfloat16 kernels for CPUs"
        if isinstance(workload, ConvWorkload):
            return "int8 convolution kernels must be constant" if workload.dtype == "int8" and not packed else None
        if (workload.lda, workload.ldb, workload.ldc) != (workload.k, workload.n, workload.n):
            return "does not support leading dimensions"
        return None

    def prepare(self, operands: GemmOperands | ConvOperands, packed: bool) -> Prepared:
        if isinstance(operands, GemmOperands):
            return _product(operands, packed)
        return _quantised(operands) if operands.workload.dtype == "int8" else _convolution(operands, packed)


def _product(operands: GemmOperands, packed: bool) -> Prepared:
    operator = "MatMulInteger" if operands.workload.dtype == "int8" else "MatMul"
    inputs, constants = {"a": operands.a}, {"b": operands.b}
    if not packed:
        inputs, constants = inputs | constants, {}
    out = operands.output()
    run = _session(model(operator, inputs, constants, out, ["a", "b"], OPSET), inputs, out)
    return Prepared(run, lambda: out)


def _convolution(operands: ConvOperands, packed: bool) -> Prepared:
    inputs, constants = {"x": _nchw(operands.x)}, {"w": _oihw(operands)}
    if not packed:
        inputs, constants = inputs | constants, {}
    out = _nchw(operands.output())
    made = model("Conv", inputs, constants, out, ["x", "w"], CONV_OPSET, **_attributes(operands.workload))
    return Prepared(_session(made, inputs, out), lambda: out.transpose(0, 2, 3, 1), "NCHW")


def _quantised(operands: ConvOperands) -> Prepared:
    """QLinearConv: its sums are divided by a scale, rounded and stored in 8 bits.

    ConvInteger, which would return the sums, is 20 times slower.
    """
    scale = float(np.max(np.abs(operands.expected))) / 127 or 1.0
    x = (_nchw(operands.x).astype(np.int16) + ZERO_POINT).astype(np.uint8)
    out = _nchw(operands.output()).astype(np.uint8)
    zero, one = np.array(ZERO_POINT, np.uint8), np.array(1, np.float32)
    constants = {"w": _oihw(operands), "one": one, "zero": zero, "w_zero": np.array(0, np.int8)}
    constants["scale"] = np.array(scale, np.float32)
    order = ["x", "one", "zero", "w", "one", "w_zero", "scale", "zero"]
    made = model("QLinearConv", {"x": x}, constants, out, order, CONV_OPSET, **_attributes(operands.workload))
    run = _session(made, {"x": x}, out)

    def sums() -> Any:
        return (out.astype(np.float64) - ZERO_POINT).transpose(0, 2, 3, 1) * scale

    return Prepared(run, sums, "NCHW, u8, result of 8 bits", rounding=0.501 * scale)


def _nchw(array: Any) -> Any:
    return np.ascontiguousarray(array.transpose(0, 3, 1, 2))


def _oihw(operands: ConvOperands) -> Any:
    return np.ascontiguousarray(operands.kernels.transpose(3, 2, 0, 1))


def _attributes(w: ConvWorkload) -> dict[str, Any]:
    return {
        "kernel_shape": [w.kh, w.kw],
        "pads": list(w.padding),
        "strides": list(w.stride),
        "dilations": list(w.dilation),
        "group": w.groups,
    }


def session_options() -> Any:
    """Return options for as many threads as this package uses, which spin for 1 ms after a run, like those of all peers
    (benchmarks/__init__.py): awake for the next run of a sample, asleep in our turn. By default they spin for 40 ms;
    without spinning, or with spinning stopped at the end of a run, LSTM 128 took 1.3 to 1.5 times as long."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = default_thread_count()
    options.add_session_config_entry("session.intra_op.spin_duration_us", "1000")
    return options


@dataclass(frozen=True)
class _Session:
    """A session that is called without arguments. `arrays` keeps the memory alive that the binding holds by address
    only."""

    session: Any
    binding: Any
    arrays: tuple[Any, ...]

    def __call__(self) -> None:
        self.session.run_with_iobinding(self.binding)


def _session(made: bytes, inputs: dict[str, Any], out: Any) -> _Session:
    """Return a session on all cores that reads `inputs` and writes `out`."""
    import onnxruntime as ort

    session = ort.InferenceSession(made, session_options(), providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
    binding.bind_output("out", "cpu", 0, out.dtype, out.shape, out.ctypes.data)
    return _Session(session, binding, (*inputs.values(), out))
