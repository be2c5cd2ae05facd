"""A configuration made for one shape, applied to a larger and a smaller one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tvm
from test_configs import by_numpy, covering, operands

from tvm_tiling.accel.plain_operator import plain_operator
from tvm_tiling.decide.configs.neighbourhood import neighbourhood
from tvm_tiling.schedule import Options, hardware_of, llvm_target, schedule_operator
from tvm_tiling.workload import ConvWorkload, GemmWorkload

SMALL_PRODUCT = GemmWorkload(m=12, n=40, k=64)
# Narrow images have register tiles of several whole rows.
SMALL_CONV = ConvWorkload(n=1, h=8, w=5, ci=16, co=16, kh=3, kw=3, padding=(1, 1, 1, 1))
DEPTHWISE = ConvWorkload(n=1, h=8, w=12, ci=32, co=32, kh=3, kw=3, padding=(1, 1, 1, 1), groups=32)
PAIRS = {
    "product, larger": (SMALL_PRODUCT, GemmWorkload(m=48, n=160, k=128)),
    "product, smaller": (GemmWorkload(m=200, n=300, k=700), GemmWorkload(m=7, n=20, k=33)),
    "convolution, larger": (SMALL_CONV, replace(SMALL_CONV, n=2, h=16, w=20, ci=32, co=48)),
    "convolution, smaller": (replace(SMALL_CONV, h=30, w=30, ci=64, co=96), SMALL_CONV),
    "depthwise, larger": (DEPTHWISE, replace(DEPTHWISE, h=16, w=36, ci=64, co=64, groups=64)),
    "depthwise, smaller": (replace(DEPTHWISE, h=40, w=70), DEPTHWISE),
}


@pytest.mark.parametrize("name", PAIRS)
def test_it_computes_what_numpy_does(name):
    made_for, w = PAIRS[name]
    hardware, func = hardware_of("llvm"), plain_operator(w)
    inputs, result = operands(w, func)
    want = by_numpy(w, *(guarded.array for guarded in inputs))
    space = neighbourhood(made_for, hardware)
    configs = [config for config in covering(space, 12) if config.form != "wfold" or config.choice("ws") <= w.w][:3]
    scheduled = [schedule_operator(func, f"f{i}", hardware, Options(config=config)) for i, config in enumerate(configs)]
    module = tvm.IRModule({f"f{i}": each.main for i, each in enumerate(scheduled)})
    library = tvm.compile(module, target=llvm_target(hardware))
    for i, config in enumerate(configs):
        result.array[...] = 0
        library[f"f{i}"](*(guarded.tensor for guarded in inputs), result.tensor)
        assert all(guarded.unchanged() for guarded in inputs) and result.unchanged_around(), config
        rounded = 1e-3 * np.abs(want).max() if config.form == "winograd" else 0
        np.testing.assert_allclose(result.array, want, rtol=0, atol=rounded, err_msg=str(config))
    if name == "product, larger":
        tiles = [(each.tiling.mr, each.tiling.nr // each.tiling.lanes) for each in scheduled]
        assert tiles == [config.choice("microkernel") for config in configs]
