"""A model on a simulated accelerator: quantisation, bit-exact results, cycles."""

import numpy as np
from tvm import relax

import tvm_tiling as tt

builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((1, 16, 28, 28), "float32"))
kernels = relax.const(np.random.randn(32, 16, 3, 3).astype("float32"))
with builder.function("main", [x]):
    with builder.dataflow():
        result = builder.emit_output(relax.op.nn.relu(builder.emit(relax.op.nn.conv2d(x, kernels, padding=1))))
    builder.emit_func_output(result)

image = np.random.randn(1, 16, 28, 28).astype("float32")
exe = tt.compile(builder.finalize(), target="vsim/vta", calibration=[image])  # quantised to int8
output, sim = exe.simulate(image)
print(sim.cycles, f"{sim.utilisation:.0%}", sim.bytes, sim.stalls, exe.report())
