"""Print digests of everything that depends on inputs alone: decisions, schedule texts, a program file, a model's bits.

A separate program, started by test_determinism.py with different hash seeds.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

os.environ["TVM_NUM_THREADS"] = "1"

import numpy as np
from networks import Network, conv_bn_relu, op

import tvm_tiling as tt
from tvm_tiling.accel.plain_operator import plain_operator
from tvm_tiling.hardware.file import preset_names

WORKLOADS = (
    tt.GemmWorkload(m=61, n=129, k=257, dtype="float32"),
    tt.GemmWorkload(m=128, n=64, k=64, dtype="int8", batch=2),
    tt.ConvWorkload(n=1, h=14, w=14, ci=32, co=48, kh=3, kw=3, padding=(1, 1, 1, 1), dtype="int8"),
    tt.RnnWorkload(cell="lstm", steps=4, input_size=32, hidden_size=64),
)


def show(name: str, content: bytes) -> None:
    print(name, hashlib.sha256(content).hexdigest()[:16])


def main() -> None:
    for preset in preset_names():
        hardware = tt.Hardware.load(preset)
        for workload in WORKLOADS:
            try:
                found = tt.decide(workload, hardware)
                show(f"decision {preset} {type(workload).__name__}", (found.to_json() + found.explain()).encode())
            except tt.TilingError as error:
                show(f"refused {preset} {type(workload).__name__}", str(error).encode())
    skylake, vta = tt.Hardware.load("skylake-desktop-8c"), tt.Hardware.load("vta")
    for workload in WORKLOADS[:3]:
        schedule = tt.tiling_schedule(plain_operator(workload), skylake)
        show(f"schedule {type(workload).__name__}", schedule.mod.script().encode())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.vsim"
        tt.compile(WORKLOADS[1], target=vta).program.save(path)
        show("program", path.read_bytes())
    net = Network((1, 3, 16, 16))
    module = net.module(lambda net, x: op.mean(conv_bn_relu(net, x, 3, 16), [2, 3]))
    x = net.arrays()[0]
    show("result", np.ascontiguousarray(tt.compile(module, cache=False).run(x)).tobytes())


if __name__ == "__main__":
    main()
