"""One pass in a pipeline of your own: `ApplyTiling` schedules what it supports and leaves other functions unchanged.

The module has a linear layer of Relax, and an operator written as a tensor expression.
"""

import numpy as np
import tvm
from tvm import relax, te, tirx

import tvm_tiling as tt


def scaled_product(x: te.Tensor, weight: te.Tensor, scale: te.Tensor) -> te.Tensor:
    """max(x @ weight * scale, 0): a matrix multiplication with an epilogue."""
    (m, k), n = x.shape, weight.shape[1]
    r = te.reduce_axis((0, k), name="r")
    product = te.compute((m, n), lambda i, j: te.sum(x[i, r] * weight[r, j], axis=r), name="product")
    return te.compute((m, n), lambda i, j: tirx.max(product[i, j] * scale[j], tirx.const(0, "float32")), name="scaled")


SHAPES = {"x": (128, 256), "weight": (512, 256), "second": (512, 64), "scale": (64,)}
builder = relax.BlockBuilder()
x, weight, second, scale = (relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in SHAPES.items())
with builder.function("main", [x, weight, second, scale]):
    with builder.dataflow():
        hidden = builder.emit(relax.op.nn.relu(relax.op.linear(x, weight)))
        result = builder.emit_output(builder.emit_te(scaled_product, hidden, second, scale))
    builder.emit_func_output(result)
module = builder.get()

steps = (relax.transform.LegalizeOps, relax.transform.AnnotateTIROpPattern, relax.transform.FuseOps)
pipeline = tvm.transform.Sequential([*(step() for step in steps), relax.transform.FuseTIR(), tt.ApplyTiling("llvm")])
with tt.llvm_target():
    scheduled = pipeline(module)
    network = relax.VirtualMachine(tvm.compile(scheduled, tt.llvm_target()), tvm.cpu())
for name, function in scheduled.functions.items():
    if "tvm_tiling.decision" in (function.attrs or {}):
        print(f"{name.name_hint} is scheduled by ApplyTiling")

arrays = [np.random.rand(*shape).astype("float32") for shape in SHAPES.values()]
out = network["main"](*map(tvm.runtime.tensor, arrays))
expected = np.maximum(np.maximum(arrays[0] @ arrays[1].T, 0) @ arrays[2] * arrays[3], 0)
np.testing.assert_allclose(out.numpy(), expected, rtol=1e-4)
