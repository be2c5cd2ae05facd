"""The complete Relax pipeline, by name, for a module that TVM compiles."""

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend import nn

import tvm_tiling as tt

dense, kind = nn.Linear(256, 512), nn.spec.Tensor((128, 256), "float32")
module, _ = dense.export_tvm({"forward": {"x": kind}})
compiled = tvm.compile(module, tt.llvm_target(), relax_pipeline="tvm_tiling")
network = relax.VirtualMachine(compiled, tvm.cpu())

x, weight, bias = (np.random.rand(*shape).astype("float32") for shape in ((128, 256), (512, 256), (512,)))
out = network["forward"](*map(tvm.runtime.tensor, (x, weight, bias)))
np.testing.assert_allclose(out.numpy(), x @ weight.T + bias, rtol=1e-4)
