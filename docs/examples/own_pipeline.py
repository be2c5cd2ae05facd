"""One pass in a pipeline of your own: `ApplyTiling` schedules what it supports and leaves other functions unchanged."""

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend import nn

import tvm_tiling as tt


class Layer(nn.Module):
    def __init__(self):
        self.dense = nn.Linear(256, 512)

    def forward(self, x):
        return nn.op.relu(self.dense(x))


module, _ = Layer().export_tvm({"forward": {"x": nn.spec.Tensor((128, 256), "float32")}})
steps = (relax.transform.LegalizeOps, relax.transform.AnnotateTIROpPattern, relax.transform.FuseOps)
pipeline = tvm.transform.Sequential([*(step() for step in steps), relax.transform.FuseTIR(), tt.ApplyTiling("llvm")])
with tt.llvm_target():
    network = relax.VirtualMachine(tvm.compile(pipeline(module), tt.llvm_target()), tvm.cpu())

x, weight, bias = (np.random.rand(*shape).astype("float32") for shape in ((128, 256), (512, 256), (512,)))
out = network["forward"](*map(tvm.runtime.tensor, (x, weight, bias)))
np.testing.assert_allclose(out.numpy(), np.maximum(x @ weight.T + bias, 0), rtol=1e-4)
