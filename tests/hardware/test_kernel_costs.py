"""Costs of kernels other than arithmetic and loads: one record with units and measurements, which decisions read."""

import dataclasses

import pytest

import tvm_tiling as tt
from tvm_tiling.decide.gemm.cpu_gemm import decide_on_cpu
from tvm_tiling.hardware.file import from_toml
from tvm_tiling.hardware.kernel_costs import UNITS, KernelCosts

CPU = tt.Hardware.load("icelake-server-2c")


def with_costs(**changes: float) -> tt.Hardware:
    return dataclasses.replace(CPU, cpu=dataclasses.replace(CPU.cpu, costs=KernelCosts(**changes)))


@pytest.mark.parametrize("field", dataclasses.fields(KernelCosts), ids=lambda field: field.name)
def test_every_cost_has_a_unit_and_says_what_was_measured(field):
    assert field.metadata["unit"] in UNITS and len(field.metadata["how"]) > 10
    with pytest.raises(tt.HardwareError, match=f"cpu.costs: {field.name} = -1; expected a finite number above 0"):
        KernelCosts(**{field.name: -1})


def test_a_description_may_state_its_own_costs():
    text = CPU.to_toml() + "\n[cpu.costs]\nparallel_start = 100000.0\n"
    machine = from_toml(tt.Hardware, text, "machine.toml")
    assert machine.cpu.kernel_costs.parallel_start == 100000.0
    assert machine.cpu.kernel_costs.tile_start == KernelCosts().tile_start
    assert from_toml(tt.Hardware, machine.to_toml(), "again.toml") == machine
    assert machine.fingerprint() != CPU.fingerprint()
    with pytest.raises(tt.HardwareError, match=r"machine.toml: .cpu.costs.: unknown field 'tile_strat'.*'tile_start'"):
        from_toml(tt.Hardware, CPU.to_toml() + "\n[cpu.costs]\ntile_strat = 1.0\n", "machine.toml")


def test_costs_that_are_not_stated_leave_fingerprints_as_they_were():
    assert CPU.cpu.costs is None and "costs" not in CPU.to_toml()
    stated = from_toml(tt.Hardware, CPU.to_toml(), "machine.toml")
    assert stated.fingerprint() == CPU.fingerprint()


def test_starts_of_threads_are_times():
    """The same start-up takes more cycles on a faster clock, so that less work is shared."""
    work = tt.GemmWorkload(m=64, n=64, k=64)

    def cores(machine: tt.Hardware) -> int:
        tiling = tt.decide(work, machine)
        return tiling.threads_batch * tiling.threads_m * tiling.threads_n * tiling.threads_k

    assert (cores(with_costs(parallel_start=1.0)), cores(with_costs(parallel_start=1e6))) == (2, 1)
    slow, fast = (dataclasses.replace(CPU.cpu, clock_mhz=mhz) for mhz in (1000.0, 4000.0))
    assert fast.parallel_start == 4 * slow.parallel_start


@pytest.mark.parametrize(
    ("name", "value", "workload"),
    [
        ("exposed_lesser", 1.0, tt.GemmWorkload(m=512, n=512, k=512)),
        ("tile_start", 500.0, tt.GemmWorkload(m=512, n=512, k=512)),
        ("tap_start", 500.0, tt.ConvWorkload(n=1, h=14, w=14, ci=64, co=64, kh=3, kw=3, stride=(2, 2))),
        ("depthwise_tile_end", 500.0, tt.ConvWorkload(n=1, h=14, w=14, ci=64, co=64, kh=3, kw=3, groups=64)),
        ("near_piece", 500.0, tt.GemmWorkload(m=16, n=1024, k=1024)),
        ("whole_page_step", 50.0, tt.GemmWorkload(m=16, n=1024, k=1024)),
        ("function", 500.0, tt.RnnWorkload(steps=10, input_size=64, hidden_size=64)),
    ],
)
def test_a_higher_cost_raises_what_is_predicted(name, value, workload):
    usual, costly = (tt.decide(workload, machine) for machine in (CPU, with_costs(**{name: value})))
    assert costly.predicted_seconds > usual.predicted_seconds


def test_rows_on_pages_of_their_own_share_ways_of_l2():
    """A row of 4096 bytes has its page: of rows read in place, those that fit a share of L2's ways; or B is packed."""
    work = tt.GemmWorkload(m=16, n=1024, k=1280)
    usual, careful = tt.decide(work, CPU), tt.decide(work, with_costs(l2_ways=0.5))
    assert usual.pack_b == careful.pack_b == "none"
    l2 = CPU.cpu.cache(2)
    ways = l2.size // 4096  # rows that fill L2
    assert ways / 2 < usual.partition_k and careful.partition_k <= ways / 2


def test_rows_whole_pages_apart_are_packed_where_no_prefetcher_follows_them():
    costly = with_costs(whole_page_step=20.0)
    packed = {n: tt.decide(tt.GemmWorkload(m=32, n=n, k=1024), costly).pack_b for n in (1000, 1024)}
    assert packed == {1000: tt.decide(tt.GemmWorkload(m=32, n=1000, k=1024), CPU).pack_b, 1024: "pack"}


def test_panels_of_whole_lines_are_preferred():
    """24 floats are a line and a half."""
    machine = tt.Hardware.load("alderlake-desktop-8c")
    costly = dataclasses.replace(
        machine, cpu=dataclasses.replace(machine.cpu, costs=KernelCosts(uneven_piece=1.5), cores=1, threads=1)
    )
    work = tt.GemmWorkload(m=64, n=16384, k=64)
    assert tt.decide(work, costly).nr % 16 == 0
    plain = dataclasses.replace(costly, cpu=dataclasses.replace(costly.cpu, costs=None))
    times = [
        decide_on_cpu(work, described, microkernel=(4, vectors)).predicted_seconds
        for vectors in (2, 3)
        for described in (plain, costly)
    ]
    assert times[0] == times[1] and times[2] < times[3]
