"""Building and timing kernels imports little of TVM, and gives the same kernels; the rest is loaded on request."""

from __future__ import annotations

import subprocess
import sys

UNUSED = ("torch", "tvm.relax", "tvm.s_tir.meta_schedule", "tvm.s_tir.dlight")

PROGRAM = f"""
import sys
from tvm_tiling.tuning.measuring.lean_tvm import lean_tvm
lean_tvm()
import tvm_tiling.tuning.measuring.building, tvm_tiling.tuning.measuring.timing
import tvm_tiling as tt, tvm
from tvm_tiling.tuning.measuring.building import build
from tvm_tiling.tuning.measuring.measurer import Job
from pathlib import Path
hardware = tt.Hardware.detect()
product = tt.GemmWorkload(m=24, n=40, k=16)
config = tt.neighbourhood(product, hardware).start
build(Job(workload=product, config=config, hardware=hardware), Path(sys.argv[1]))
# A module that waits has none of its own submodules, one that was imported many.
unused = [name for name in {UNUSED} if any(loaded.startswith(name + ".") for loaded in sys.modules)]
assert not unused, unused
assert not [name for name in sys.modules if name.startswith("tvm_tiling.accel.record")]
assert tvm.relax.op.add.__name__ == "add"  # what waits is imported when it is used
"""


def test_building_imports_what_it_uses_and_the_rest_when_asked(tmp_path):
    subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], check=True)
    assert list(tmp_path.iterdir())
