"""No model accesses memory outside of its tensors or ends its process: random indices, coordinates and divisors."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from families import WALLED

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="protects pages as Linux does")
FOLDER = Path(__file__).parent
CASES = {"indices": 2, "coordinates": 2, "integers": 2}  # tests/slow/test_random_cases_10k.py runs thousands

WITHOUT_BOUNDS = """
import numpy as np
from guarded_memory import WalledModel
from tvm import relax, topi
from tvm_tiling.model.passes import legalise
from tvm_tiling.schedule import hardware_of

legalise.bounded = lambda func: func
builder = relax.BlockBuilder()
x, i = relax.Var("x", relax.TensorType((16,), "float32")), relax.Var("i", relax.TensorType((1,), "int64"))
with builder.function("main", [x, i]):
    with builder.dataflow():
        output = builder.emit_output(builder.emit_te(topi.take, x, i, 0, mode="fast"))
    builder.emit_func_output(output)
model = WalledModel(builder.get(), hardware_of("llvm"))
print(model.run([np.arange(16, dtype="float32"), np.array([{index}])], at_end={at_end})[0])
"""


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=900, cwd=FOLDER)


@pytest.mark.parametrize("family", WALLED)
def test_no_process_is_ended(family):
    done = run("run_family.py", family, "3", str(CASES[family]))
    assert done.returncode == 0, f"{done.stdout[-600:]}\n{done.stderr[-3000:]}"


@pytest.mark.parametrize(("index", "at_end"), [(16, True), (-1, False)])
def test_a_kernel_without_bounds_is_noticed(index, at_end):
    assert run("-c", WITHOUT_BOUNDS.format(index=index, at_end=at_end)).returncode == -signal.SIGSEGV
