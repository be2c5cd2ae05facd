"""A GEMM with bias and ReLU as one kernel: following element-wise operators become its epilogue."""

import numpy as np
import tvm
from tvm import te, tirx

import tvm_tiling as tt

m, k, n = 384, 512, 256
a, b, bias = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B"), te.placeholder((n,), name="bias")
r = te.reduce_axis((0, k), name="k")
c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
layer = te.compute((m, n), lambda i, j: tirx.max(c[i, j] + bias[j], tirx.const(0, "float32")), name="layer")

schedule = tt.tiling_schedule(te.create_prim_func([a, b, bias, layer]))
kernel = tvm.compile(schedule.mod, target=tt.llvm_target())["main"]

arrays = [np.random.rand(*shape).astype("float32") for shape in ((m, k), (k, n), (n,))]
out = tvm.runtime.empty((m, n), "float32")
kernel(*map(tvm.runtime.tensor, arrays), out)
np.testing.assert_allclose(out.numpy(), np.maximum(arrays[0] @ arrays[1] + arrays[2], 0), rtol=1e-4)
