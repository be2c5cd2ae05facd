"""Lower bounds of an operator's cost: counted by hand, by brute force, and never above what is measured here."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from shapes import CPU

import tvm_tiling as tt
from tvm_tiling.decide.configs.config import Config
from tvm_tiling.decide.configs.neighbourhood import neighbourhood
from tvm_tiling.peak import Bandwidth, Peak
from tvm_tiling.tuning.least_cost import SURE, highest_peak, least_cost, least_seconds, work_of
from tvm_tiling.tuning.measuring.local import LocalBench
from tvm_tiling.tuning.measuring.measurer import Job

ONE = Config.of("gemm", "normal", {})
DIRECT = Config.of("conv", "direct", {})


def conv(**changes) -> tt.ConvWorkload:
    return tt.ConvWorkload(**{"n": 1, "h": 9, "w": 7, "ci": 8, "co": 4, "kh": 3, "kw": 3, **changes})


def peak(gflops=100.0, bandwidths=(), **more) -> Peak:
    figures = {"gops_int8_one_core": None, "gops_int8": None, **more}
    return Peak(gflops_one_core=gflops / 2, gflops=gflops, bandwidths=bandwidths, **figures)


@pytest.mark.parametrize(
    "changes",
    [
        {"padding": (1, 1, 1, 1)},
        {"h": 1, "w": 1, "padding": (1, 1, 1, 1)},
        {"stride": (2, 3), "padding": (2, 0, 1, 2)},
        {"kh": 1, "kw": 1, "stride": (2, 2)},
        {"dilation": (3, 2), "padding": (4, 4, 4, 4)},
        {"dilation": (6, 6), "padding": (6, 6, 6, 6), "h": 5, "w": 5},
        {"d": 4, "kd": 3, "padding_d": (1, 1), "stride_d": 2},
        {"stride": (2, 2), "transposed": True, "padding": (1, 1, 1, 1)},
        {"stride": (3, 1), "transposed": True, "padding": (2, 0, 2, 0), "kh": 5},
    ],
)
def test_multiply_adds_are_those_of_taps_within_the_image(changes):
    w = conv(**changes)
    axes = (
        (w.d, w.do, w.kd, w.stride_d, w.padding_d[0], w.dilation_d),
        (w.h, w.ho, w.kh, w.stride[0], w.padding[0], w.dilation[0]),
        (w.w, w.wo, w.kw, w.stride[1], w.padding[1], w.dilation[1]),
    )
    macs, read = w.ci * w.co, w.ci
    for size, points, kernel, stride, before, dilation in axes:
        steps, limit = (size, points) if w.transposed else (points, size)
        met = [
            (step, step * stride + tap * dilation - before)
            for step, tap in itertools.product(range(steps), range(kernel))
            if 0 <= step * stride + tap * dilation - before < limit
        ]
        macs *= len(met)
        read *= len({step if w.transposed else place for step, place in met})
    found = work_of(w, DIRECT)
    assert found.macs == macs <= w.macs
    kernels, result = w.co * w.ci * w.kd * w.kh * w.kw, w.do * w.ho * w.wo * w.co
    assert found.bytes <= 4 * (read + kernels + result)
    assert found.bytes > 4 * (read / 4 + result)


def test_winograd_multiplies_less():
    w = conv(h=32, w=32, padding=(1, 1, 1, 1), ci=64, co=64)
    direct = work_of(w, DIRECT).macs
    for tile, fewer in ((2, 2.25), (4, 4.0), (6, 5.0625)):
        macs = work_of(w, Config.of("conv", "winograd", {"m": tile})).macs
        assert direct / macs == pytest.approx(
            fewer, rel=0.05
        )  # direct convolution saves kernel positions at the edges, too


def test_peak_counts_the_best_instruction_of_the_types():
    two = dataclasses.replace(CPU.cpu, cores=2)
    shape = {"m": 512, "n": 512, "k": 512}
    took = {
        dtype: least_seconds(tt.GemmWorkload(**shape, dtype=dtype), ONE, two, peak()) / SURE
        for dtype in ("float32", "float64", "int8")
    }
    assert took["float32"] == pytest.approx(2 * 512**3 / 100e9)
    assert took["float64"] == pytest.approx(2 * took["float32"])
    faster = 4 if "avx512vnni" in two.features else 2
    assert took["int8"] == pytest.approx(took["float32"] / faster)
    measured = peak(gops_int8=1000.0, gops_int8_one_core=500.0)
    assert least_seconds(tt.GemmWorkload(**shape, dtype="int8"), ONE, two, measured) / SURE == pytest.approx(
        2 * 512**3 / 1000e9
    )


def test_a_clock_alone_counts_for_every_core():
    """One core may run at a higher clock than all of them did when the peak was measured."""
    cpu = dataclasses.replace(CPU.cpu, cores=2)
    one = dataclasses.replace(peak(), gflops_one_core=80.0)
    w = tt.GemmWorkload(m=256, n=256, k=256)
    assert least_seconds(w, ONE, cpu, one) == pytest.approx(least_seconds(w, ONE, cpu, peak(160.0)))


def test_what_caches_hold_need_not_come_from_memory():
    cpu = CPU.cpu
    held = cpu.cores * cpu.l1_bytes + sum(cache.size * max(1, cpu.cores // cache.cores) for cache in cpu.caches[1:])
    far = [Bandwidth(level=f"L{cache.level}", capacity=0.0, gbytes=1e6) for cache in cpu.caches[1:]]
    slow = peak(1e9, tuple([*far, Bandwidth(level="memory", capacity=0.0, gbytes=1e-3)]))
    small, large = (tt.GemmWorkload(m=1, n=n, k=4096) for n in (held // (4 * 4096) - 64, held // (4 * 4096) + 1024))
    assert least_seconds(small, ONE, cpu, slow) < 1e-3
    assert least_seconds(large, ONE, cpu, slow) == pytest.approx(SURE * (large.bytes - held) / 2e6)


def test_of_two_measurements_the_higher_figures_count():
    levels = tuple(Bandwidth(level="memory", capacity=1.0, gbytes=gbytes) for gbytes in (5.0, 7.0))
    first = peak(100.0, levels[:1], gflops_half={"float16": 9.0})
    second = peak(90.0, levels[1:], gops_int8=3.0, gflops_half={"bfloat16": 4.0})
    both = first.or_better(second)
    assert (both.gflops, both.gops_int8, both.gops_int8_one_core) == (100.0, 3.0, None)
    assert both.bandwidths == levels[1:] and both.gflops_half == {"float16": 9.0, "bfloat16": 4.0}


def test_nothing_here_is_below_its_bound():
    """GEMMs, a convolution with few multiply-accumulates and one that is mostly padding, by measured peaks."""
    hardware = tt.Hardware.detect()
    shapes = (
        tt.GemmWorkload(m=384, n=384, k=384),
        tt.GemmWorkload(m=5, n=900, k=33, dtype="int8"),
        conv(h=28, w=28, ci=64, co=64, padding=(1, 1, 1, 1)),
        conv(h=1, w=1, ci=64, co=64, padding=(1, 1, 1, 1)),
    )
    bench = LocalBench()
    try:
        for workload in shapes:
            job = Job(workload=workload, config=neighbourhood(workload, hardware).start, hardware=hardware)
            found = bench.hold(job, None, True)
            assert found.seconds > found.least > 0
            sure = least_seconds(workload, job.config, hardware.cpu, highest_peak(hardware.cpu))
            assert found.seconds > sure
    finally:
        bench.close()


def test_the_described_lower_bound_depends_on_the_algorithm():
    w = conv(h=32, w=32, padding=(1, 1, 1, 1), ci=64, co=64)
    winograd = Config.of("conv", "winograd", {"m": 6})
    assert least_cost(w, CPU, winograd) < least_cost(w, CPU, DIRECT) / 2 < least_cost(w, CPU) / 2
