"""A GEMM whose second operand is constant: packed once instead of in every call."""

import numpy as np
import tvm
from tvm import te

import tvm_tiling as tt

a, b = te.placeholder((128, 512), name="A"), te.placeholder((512, 256), name="B")
r = te.reduce_axis((0, 512), name="k")
product = tt.packed_operator(te.compute((128, 256), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C"))

x, weight = np.random.rand(128, 512).astype("float32"), np.random.rand(512, 256).astype("float32")
packed = product.pack(tvm.runtime.tensor(weight))
out = tvm.runtime.empty((128, 256), "float32")
product(tvm.runtime.tensor(x), packed, out)
np.testing.assert_allclose(out.numpy(), x @ weight, rtol=1e-4)
