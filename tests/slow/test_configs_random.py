"""Kernels of random configurations: GEMMs and convolutions of random shapes, with configurations from their whole
spaces."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm

sys.path.insert(0, str(Path(__file__).parents[1] / "numeric"))  # whose operands are used here

from test_configs import by_numpy, operands

from tvm_tiling.accel.plain_operator import plain_operator
from tvm_tiling.decide.configs.config import Config
from tvm_tiling.decide.configs.neighbourhood import Space, neighbourhood
from tvm_tiling.schedule import Options, hardware_of, llvm_target, schedule_operator
from tvm_tiling.workload import ConvWorkload, GemmWorkload, WorkloadError

pytestmark = pytest.mark.slow
SHAPES, CONFIGS = 40, 6


def random_workload(rng: random.Random) -> GemmWorkload | ConvWorkload:
    dtype = rng.choice(("float32", "float32", "int8"))
    if rng.random() < 0.4:
        m, n, k = (rng.choice((1, 3, 16, 31, 64, 100, 257)) for _ in range(3))
        batch = rng.choice((1, 1, 3))
        trans_a, trans_b = (rng.random() < 0.5 for _ in range(2))
        return GemmWorkload(m=m, n=n, k=k, dtype=dtype, batch=batch, trans_a=trans_a, trans_b=trans_b)
    kernel, ci = rng.choice((1, 2, 3, 5)), rng.choice((1, 3, 8, 17, 32))
    depthwise = rng.random() < 0.3
    try:
        return ConvWorkload(
            n=rng.choice((1, 2)),
            h=rng.randint(1, 20),
            w=rng.randint(1, 30),
            ci=ci,
            co=ci if depthwise else rng.choice((1, 7, 16, 40)),
            kh=kernel,
            kw=kernel,
            stride=rng.choice(((1, 1), (2, 2))),
            padding=(kernel // 2,) * 4,
            groups=ci if depthwise else 1,
            dtype=dtype,
            layout=rng.choice(("NHWC", "NHWC", "NCHW")),
        )
    except WorkloadError:
        return random_workload(rng)


def drawn(space: Space, rng: random.Random) -> list[Config]:
    """Configurations of the list, and combinations of single choices."""
    configs = rng.sample(list(space.configs()), min(CONFIGS // 2, len(space)))
    for _ in range(40):
        if len(configs) == CONFIGS:
            break
        combined = space.config({name: rng.choice(values) for name, values in space.options.items()})
        if combined is not None:
            configs.append(combined)
    return configs


@pytest.mark.parametrize("seed", range(SHAPES))
def test_random_configs_compute_what_numpy_does(seed):
    rng, hardware = random.Random(seed), hardware_of("llvm")
    w = random_workload(rng)
    func = plain_operator(w)
    inputs, result = operands(w, func)
    want = by_numpy(w, *(guarded.array for guarded in inputs))
    configs = drawn(neighbourhood(w, hardware), rng)
    functions = {
        f"f{i}": schedule_operator(func, f"f{i}", hardware, Options(config=config)).main
        for i, config in enumerate(configs)
    }
    library = tvm.compile(tvm.IRModule(functions), target=llvm_target(hardware))
    for i, config in enumerate(configs):
        result.array[...] = 0
        library[f"f{i}"](*(guarded.tensor for guarded in inputs), result.tensor)
        assert all(guarded.unchanged() for guarded in inputs) and result.unchanged_around(), (w, config)
        rounded = 1e-3 * max(1.0, np.abs(want).max()) if config.form == "winograd" else 0
        np.testing.assert_allclose(result.array, want, rtol=0, atol=rounded, err_msg=f"{w} {config}")
