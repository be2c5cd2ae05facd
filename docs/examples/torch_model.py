"""A PyTorch network: exported and compiled ahead of time, and compiled in place by torch.compile. Needs torch."""

import numpy as np
import torch

import tvm_tiling as tt

network = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 10)).eval()
x = torch.randn(4, 64)

exe = tt.compile(torch.export.export(network, (x,)))  # weights are inside; exe.save("network.tar") keeps them
with torch.no_grad():
    expected = network(x)
    np.testing.assert_allclose(exe.run(x.numpy()), expected.numpy(), rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(torch.compile(network, backend="tvm_tiling")(x), expected, rtol=1e-3, atol=1e-5)
