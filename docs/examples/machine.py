"""The tiling of a GEMM for hardware described in npu.toml, next to this file."""

from pathlib import Path

import tvm_tiling as tt

hardware = tt.Hardware.load(Path(__file__).with_name("npu.toml"))
best = tt.decide(tt.GemmWorkload(m=1024, k=4096, n=1024, dtype="int8"), hardware)
print(best.split_k, best.load_a, best.load_b, f"{best.utilisation:.0%}")
