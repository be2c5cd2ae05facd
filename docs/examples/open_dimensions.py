"""A model with a dynamic dimension: one executable for all sizes."""

import numpy as np
import tvm
from tvm import relax

import tvm_tiling as tt

weights = np.random.rand(64, 32).astype("float32")
builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((tvm.tirx.Var("rows", "int64"), 64), "float32"))
with builder.function("main", [x]):
    with builder.dataflow():
        product = builder.emit_output(relax.op.matmul(x, relax.const(weights)))
    builder.emit_func_output(product)
exe = tt.compile(builder.finalize())  # dims={"rows": (1, 512)} refuses other sizes

for rows in (8, 1, 100):
    x = np.random.rand(rows, 64).astype("float32")
    np.testing.assert_allclose(exe.run(x), x @ weights, rtol=1e-4)
