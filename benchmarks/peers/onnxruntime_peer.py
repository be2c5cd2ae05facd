"""onnxruntime, on a model of one MatMul."""

from __future__ import annotations

from typing import Any

import numpy as np

from tvm_tiling.lowering.threads import usable_core_count
from tvm_tiling.workload import GemmWorkload

from ..operands import Operands
from .base import Peer, Prepared

OPSET = 17
IR_VERSION = 9


class OnnxRuntime(Peer):
    """A session with inputs and output bound, so that a run copies nothing. A packed B is an initializer, which the
    session lays out anew when it is made."""

    name = "onnxruntime"
    needs = ("onnxruntime", "onnx")

    def refuses(self, workload: GemmWorkload, packed: bool) -> str | None:
        if (workload.lda, workload.ldb, workload.ldc) != (workload.k, workload.n, workload.n):
            return "has no leading dimensions"
        return None

    def prepare(self, operands: Operands, packed: bool) -> Prepared:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = usable_core_count()
        options.add_session_config_entry("session.force_spinning_stop", "1")  # as benchmarks/__init__.py says
        session = ort.InferenceSession(_model(operands, packed), options, providers=["CPUExecutionProvider"])
        out = operands.output()
        binding = session.io_binding()
        for name, array in (("a", operands.a), *([] if packed else [("b", operands.b)])):
            binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        binding.bind_output("c", "cpu", 0, out.dtype, out.shape, out.ctypes.data)
        return Prepared(lambda: session.run_with_iobinding(binding), lambda: out)


def _model(operands: Operands, packed: bool) -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    kinds: dict[str, Any] = {"float32": TensorProto.FLOAT, "int8": TensorProto.INT8, "int32": TensorProto.INT32}
    w = operands.workload
    operator = "MatMulInteger" if w.dtype == "int8" else "MatMul"
    inputs = [helper.make_tensor_value_info("a", kinds[w.dtype], [w.m, w.k])]
    constants = []
    if packed:
        constants = [numpy_helper.from_array(np.ascontiguousarray(operands.b), "b")]
    else:
        inputs.append(helper.make_tensor_value_info("b", kinds[w.dtype], [w.k, w.n]))
    output = helper.make_tensor_value_info("c", kinds[str(w.acc_dtype)], [w.m, w.n])
    node = helper.make_node(operator, ["a", "b"], ["c"])
    graph = helper.make_graph([node], "product", inputs, [output], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    return model.SerializeToString()
