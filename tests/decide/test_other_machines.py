"""Decisions for other machines: 16 cores, AArch64, one thread. They must be sensible on each."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

import tvm_tiling as tt
from tvm_tiling.hardware.file import preset_names

CPUS = [name for name in preset_names() if tt.Hardware.load(name).cpu is not None]
PRODUCTS = [
    tt.GemmWorkload(m=2048, n=2048, k=2048),
    tt.GemmWorkload(m=64, n=64, k=16384),
    tt.GemmWorkload(m=1, n=4096, k=4096),
    tt.GemmWorkload(m=4096, n=4096, k=1),
    tt.GemmWorkload(m=100, n=300, k=500, dtype="int8"),
    tt.GemmWorkload(m=7, n=5, k=3, dtype="float64"),
]
CONVS = [
    tt.ConvWorkload(n=1, h=56, w=56, ci=64, co=64, kh=3, kw=3, padding=(1, 1, 1, 1)),
    tt.ConvWorkload(n=1, h=224, w=224, ci=3, co=64, kh=7, kw=7, stride=(2, 2), padding=(3, 3, 3, 3)),
    tt.ConvWorkload(n=4, h=14, w=14, ci=96, co=96, kh=3, kw=3, padding=(1, 1, 1, 1), groups=96, layout="NCHW"),
]


def with_cores(name: str, cores: int) -> tt.Hardware:
    hardware = tt.Hardware.load(name)
    return replace(hardware, cpu=replace(hardware.cpu, cores=cores, threads=cores))


def test_there_are_arm_and_intel_machines_of_16_cores():
    found = {(tt.Hardware.load(name).cpu.arch, tt.Hardware.load(name).cpu.cores) for name in CPUS}
    assert {("x86_64", 16), ("aarch64", 16)} <= found


@pytest.mark.parametrize("workload", PRODUCTS, ids=str)
@pytest.mark.parametrize("name", CPUS)
def test_gemms_fit_registers_and_cores(name, workload):
    for cores in (1, 16):
        hardware = with_cores(name, cores)
        cpu, d = hardware.cpu, tt.decide(workload, hardware)
        assert d.threads_batch * d.threads_m * d.threads_n * d.threads_k <= cores
        assert d.mr >= 1 and d.nr >= 1 and 1 <= d.partition_k <= workload.k
        lanes = cpu.lanes(8 if workload.dtype == "float64" else 4)
        vectors = math.ceil(d.nr / lanes)
        assert d.nr % lanes == 0 and d.mr * vectors < cpu.vector_registers
        assert 0 < d.utilisation <= 1 and 0 < d.predicted_seconds < math.inf
        assert d.reasons and d.explain()


@pytest.mark.parametrize("name", CPUS)
def test_more_cores_take_no_longer(name):
    for workload in (*PRODUCTS, *CONVS):
        seconds = [tt.decide(workload, with_cores(name, cores)).predicted_seconds for cores in (1, 4, 16)]
        assert seconds[0] >= seconds[1] >= seconds[2], (workload, seconds)
    one, sixteen = (tt.decide(PRODUCTS[0], with_cores(name, cores)).predicted_seconds for cores in (1, 16))
    assert one / sixteen > 12


@pytest.mark.parametrize("workload", CONVS, ids=str)
@pytest.mark.parametrize("name", CPUS)
def test_convolutions_have_an_algorithm_with_a_predicted_time(name, workload):
    d = tt.decide(workload, with_cores(name, 16))
    times = {c.form: c.predicted_seconds for c in d.candidates if c.predicted_seconds is not None}
    assert times[d.form] == min(times.values()) > 0
    assert 0 < d.utilisation <= 1 and d.explain()
