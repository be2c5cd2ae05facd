"""A convolution with ReLU: the predicted time of every algorithm, and a run of the fastest."""

import numpy as np
import tvm
from tvm import te, topi

import tvm_tiling as tt

image, kernels = te.placeholder((1, 56, 56, 64), name="image"), te.placeholder((3, 3, 64, 64), name="kernels")
layer = topi.nn.relu(topi.nn.conv2d_nhwc(image, kernels, stride=1, padding=1, dilation=1))
conv = tt.packed_operator(layer)
for algorithm, seconds, why in conv.tiling.candidates:
    print(algorithm, seconds, why)

x, weights = np.random.rand(1, 56, 56, 64).astype("float32"), np.random.rand(3, 3, 64, 64).astype("float32")
out = tvm.runtime.empty((1, 56, 56, 64), "float32")
conv(tvm.runtime.tensor(x), conv.pack(tvm.runtime.tensor(weights)), out)
print(conv.tiling.algorithm, out.numpy().max())
