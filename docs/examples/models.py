"""A whole model: compile, run, time, save to one file and load again."""

import numpy as np
from tvm import relax

import tvm_tiling as tt

builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((1, 3, 64, 64), "float32"))
kernels = relax.const(np.random.rand(16, 3, 3, 3).astype("float32"))
with builder.function("main", [x]):
    with builder.dataflow():
        convolved = builder.emit(relax.op.nn.conv2d(x, kernels, padding=1))
        result = builder.emit_output(relax.op.nn.relu(convolved))
    builder.emit_func_output(result)
exe = tt.compile(builder.finalize())  # or "model.onnx", an onnx.ModelProto, a torch.export.ExportedProgram

image = np.random.rand(1, 3, 64, 64).astype("float32")
output = exe.run(image)
exe.benchmark(image, seconds=0.2)
print(exe.report())  # each operator: algorithm, predicted and measured time, share; then memory and compile time
exe.save("model.tar")
assert np.array_equal(tt.load("model.tar").run(x=image), output)
