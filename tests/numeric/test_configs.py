"""Schedules of configurations: those of a search or a database give the same results as the decision."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tvm
from convs import Conv, arrays, topi_conv
from products import Guarded

import tvm_tiling as tt
from tvm_tiling.accel.plain_operator import plain_operator
from tvm_tiling.decide.configs.config import Config, config_of
from tvm_tiling.decide.configs.neighbourhood import Space, neighbourhood
from tvm_tiling.decide.surroundings import Surroundings
from tvm_tiling.errors import HardwareError
from tvm_tiling.schedule import Options, hardware_of, llvm_target, packed_operator, schedule_operator
from tvm_tiling.workload import ConvWorkload, GemmWorkload

MOST = 2  # kernels of a workload
WORKLOADS = {
    "product": GemmWorkload(m=67, n=150, k=533),
    "product transposed": GemmWorkload(m=70, n=90, k=600, trans_a=True, trans_b=True),
    "product of bytes": GemmWorkload(m=50, n=70, k=300, dtype="int8"),
    "few rows": GemmWorkload(m=3, n=300, k=100, batch=2),
    "few rows, dense": GemmWorkload(m=4, n=130, k=200, trans_b=True),
    "convolution": ConvWorkload(n=2, h=19, w=23, ci=17, co=40, kh=3, kw=3, padding=(1, 1, 1, 1)),
    "strided": ConvWorkload(n=1, h=21, w=25, ci=3, co=24, kh=5, kw=5, stride=(2, 2), padding=(2, 2, 2, 2)),
    "pointwise": ConvWorkload(n=1, h=9, w=11, ci=40, co=50, kh=1, kw=1),
    "depthwise": ConvWorkload(n=1, h=15, w=33, ci=40, co=40, kh=3, kw=3, padding=(1, 1, 1, 1), groups=40),
    "depthwise, rows": ConvWorkload(
        n=1, h=15, w=33, ci=6, co=6, kh=3, kw=3, padding=(1, 1, 1, 1), groups=6, layout="NCHW"
    ),
    "convolution of bytes": ConvWorkload(n=1, h=9, w=14, ci=20, co=24, kh=3, kw=3, dtype="int8"),
}


def covering(space: Space, most: int) -> list[Config]:
    """Return a number of configurations that cover as many values of the options as possible."""
    found, seen = [], set()
    for config in space.configs():
        own = set(space.choices(config).items())
        if own - seen:
            found.append((len(own - seen), config))
            seen |= own
    news = sorted(found, key=lambda pair: -pair[0])
    return [config for _, config in news[:most]]


def operands(w: GemmWorkload | ConvWorkload, func) -> tuple[list[Guarded], Guarded]:
    """Return small integers, so that sums are exact, between guards; and space for the result."""
    rng = np.random.default_rng(3)
    shapes = [tuple(int(extent) for extent in p.shape) for p in func.params]
    inputs = [rng.integers(-3, 4, shape).astype(w.dtype) for shape in shapes[:-1]]
    return [Guarded(a.shape, w.dtype).fill(a) for a in inputs], Guarded(shapes[-1], str(w.acc_dtype))


def by_numpy(w: GemmWorkload | ConvWorkload, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    if isinstance(w, ConvWorkload):
        kernels = right.transpose(3, 0, 1, 2) if w.layout == "NHWC" else right.transpose(0, 2, 3, 1)
        images = left if w.layout == "NHWC" else left.transpose(0, 2, 3, 1)
        conv = Conv(
            space=(w.h, w.w),
            kernel=(w.kh, w.kw),
            stride=w.stride,
            before=w.padding[:2],
            behind=w.padding[2:],
            n=w.n,
            ci=w.ci,
            co=w.co,
            groups=w.groups,
        )
        result = conv.result(images.astype(np.float64), kernels.astype(np.float64))
        return result if w.layout == "NHWC" else result.transpose(0, 3, 1, 2)
    a = np.swapaxes(left, -1, -2) if w.trans_a else left
    b = np.swapaxes(right, -1, -2) if w.trans_b else right
    return a.astype(np.float64) @ b.astype(np.float64)


@pytest.mark.parametrize("name", WORKLOADS)
def test_configs_of_the_neighbourhood_compute_what_numpy_does(name):
    w, hardware = WORKLOADS[name], hardware_of("llvm")
    func = plain_operator(w)
    inputs, result = operands(w, func)
    want = by_numpy(w, *(guarded.array for guarded in inputs))
    configs = covering(neighbourhood(w, hardware), MOST)
    assert len(configs) == MOST
    scheduled = [schedule_operator(func, f"f{i}", hardware, Options(config=config)) for i, config in enumerate(configs)]
    library = tvm.compile(
        tvm.IRModule({f"f{i}": each.main for i, each in enumerate(scheduled)}), target=llvm_target(hardware)
    )
    for i, config in enumerate(configs):
        result.array[...] = 0
        library[f"f{i}"](*(guarded.tensor for guarded in inputs), result.tensor)
        assert all(guarded.unchanged() for guarded in inputs) and result.unchanged_around(), config
        rounded = 1e-3 * np.abs(want).max() if config.form == "winograd" else 0
        np.testing.assert_allclose(result.array, want, rtol=0, atol=rounded, err_msg=str(config))
        tiling = scheduled[i].tiling
        assert tiling.why("config")
        if isinstance(w, GemmWorkload):
            assert config_of(tiling, w, hardware) == config


class Known:
    """A database with one configuration for workloads of one operator."""

    def __init__(self, config: Config) -> None:
        self.config, self.asked = config, []

    def config_for(self, workload, hardware, prepacked=False, epilogue=""):
        self.asked.append((workload, hardware.name))
        return self.config if workload.to_dict()["op"] == self.config.op else None


def test_a_pass_asks_a_source_for_configs():
    hardware = hardware_of("llvm")
    w = GemmWorkload(m=100, n=200, k=300)
    space = neighbourhood(w, hardware)
    other = next(
        config for config in space.configs() if config.choice("microkernel") != space.start.choice("microkernel")
    )
    source = Known(other)
    mod = tt.ApplyTiling(hardware, configs=source)(tvm.IRModule({"f": plain_operator(w)}))
    decision = str(mod["f"].attrs["tvm_tiling.decision"])
    assert "from the database" in decision and source.asked == [(w, hardware.name)]
    rows, vectors = other.choice("microkernel")
    assert f'"mr": {rows}' in decision and f'"nr": {vectors * space.tiling(other).lanes}' in decision


def test_a_known_config_that_the_operator_cannot_have_is_left_to_the_formulas():
    hardware = hardware_of("llvm")
    source = Known(Config.of("gemm", "stream", {"side": 4, "threads": (1, 1), "columns": 64}))
    func = plain_operator(GemmWorkload(m=100, n=200, k=300))
    scheduled = schedule_operator(func, "f", hardware, Options(configs=source))
    assert source.asked and scheduled.tiling.form != "stream" and not scheduled.tiling.why("config")
    with pytest.raises(HardwareError, match="algorithm = 'stream' supports at most 4 rows"):
        schedule_operator(func, "f", hardware, Options(config=source.config))


def test_a_config_and_an_algorithm_together_are_refused():
    config = Config.of("gemm", "stream", {})
    with pytest.raises(HardwareError, match="expected a configuration alone"):
        tt.tiling_schedule(plain_operator(GemmWorkload(m=4, n=20, k=30)), algorithm="normal", config=config)


@pytest.mark.parametrize("kernel", [1, 3])
def test_weights_are_packed_as_the_config_has_them(kernel):
    hardware = hardware_of("llvm")
    conv = Conv(space=(12, 14), kernel=(kernel, kernel), n=1, ci=32, co=48)
    source = topi_conv(conv, "NHWC", "HWIO")
    inputs, want = arrays(conv, source)
    space = neighbourhood(conv.workload("NHWC"), hardware, around=Surroundings(prepacked=True))
    first, last = (tvm.runtime.tensor(a) for a in inputs)
    for config in covering(space, 4):
        packed = packed_operator(source.out, hardware, config=config)
        out = tvm.runtime.empty(want.shape, str(source.out.dtype))
        packed(first, packed.pack(last), out)
        rounded = 1e-3 * np.abs(want).max() if config.form == "winograd" else 0
        np.testing.assert_allclose(out.numpy(), want, rtol=0, atol=rounded, err_msg=str(config))


def test_a_known_config_of_a_pointwise_convolution_reaches_the_gemm():
    hardware = hardware_of("llvm")
    w = WORKLOADS["pointwise"]
    space = neighbourhood(w, hardware)
    config = next(
        config for config in space.configs() if config.form == "gemm" and config.choice("threads") == (1, 1, 1, 1)
    )
    for options in (Options(config=config), Options(configs=Known(config))):
        scheduled = schedule_operator(plain_operator(w), "f", hardware, options)
        assert scheduled.tiling.form == "gemm" and scheduled.tiling.why("config")
        product = scheduled.tiling.product
        assert (product.mr, product.nr // product.lanes) == config.choice("microkernel")
    mixed = replace(w, kh=3, kw=3)
    taken = schedule_operator(plain_operator(mixed), "f", hardware, Options(configs=Known(config))).tiling
    assert taken.form != "gemm" and not taken.why("config")
