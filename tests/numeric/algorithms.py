"""A small convolution for each algorithm, and the check of its kernel on a machine that is described."""

from __future__ import annotations

import numpy as np
import tvm

import tvm_tiling as tt
from tvm_tiling.accel.plain_operator import plain_operator
from tvm_tiling.tuning.measuring.operands import Operands

CONV = {"n": 1, "h": 9, "w": 11, "ci": 6, "co": 20, "kh": 3, "kw": 3, "padding": (1, 1, 1, 1)}
CONVOLUTIONS = {
    "direct": CONV,
    "gemm": {**CONV, "kh": 1, "kw": 1, "padding": (0, 0, 0, 0)},
    "winograd": {**CONV, "ci": 16, "co": 24},
    "wfold": {**CONV, "ci": 3},
    "stride_fold": {**CONV, "ci": 3, "stride": (2, 2), "kh": 7, "kw": 7, "padding": (3, 3, 3, 3), "h": 19, "w": 23},
    "depthwise": {**CONV, "ci": 24, "co": 24, "groups": 24},
}


def check_convolution(workload, machine, algorithm):
    """Compile for `machine` and compare with NumPy; returns what was compiled."""
    operands = Operands.random(workload)
    scheduled = tt.tiling_schedule(plain_operator(workload), machine, algorithm=algorithm)
    library = tvm.compile(scheduled.mod, target=tt.llvm_target(machine))
    out = tvm.runtime.tensor(np.zeros(operands.result_shape, workload.acc_dtype))
    library["main"](*(tvm.runtime.tensor(array) for array in operands.arrays), out)
    assert operands.difference(out.numpy()) == ""
    return library
