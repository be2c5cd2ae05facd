"""The measurements of a calibration: what is measured, where, and that the machine is idle; kernels are faked, but for
one slow test."""

from __future__ import annotations

import dataclasses

import pytest

import tvm_tiling as tt
from tvm_tiling.hardware import Cache

pytest.importorskip("tvm")

from tvm_tiling.calibrate import calibrate as module
from tvm_tiling.calibrate.arithmetic import measured_rows
from tvm_tiling.calibrate.bench import Bench, Time
from tvm_tiling.calibrate.memory import places
from tvm_tiling.hardware.this_machine import machine_key


@pytest.fixture
def quick(monkeypatch):
    """A machine on which every sample takes 0.1 s at 3 GHz, and on which nothing else runs."""
    monkeypatch.setattr(Bench, "__post_init__", lambda self: None)
    monkeypatch.setattr(Bench, "main", lambda self, function: lambda *arguments: None)
    monkeypatch.setattr(Bench, "time", lambda self, run, seconds=0.15: Time(0.1, 3e8, 0.01, 9, 3e9))
    monkeypatch.setattr(module, "use_all_cores", lambda count: count)
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr("tvm_tiling.calibrate.memory.available_bytes", lambda: 1 << 20)
    work(monkeypatch, 0.0)


def work(monkeypatch, *shares):
    """Other processes take these shares of the cores' time, one after the other."""
    left = list(shares)

    class Work:
        def __enter__(self):
            self.share = left.pop(0) if len(left) > 1 else left[0]
            return self

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(module, "OtherWork", Work)


def test_a_calibration_says_what_it_found_and_what_it_left_out(quick):
    heard = []
    result = module.calibrate(announce=heard.append)
    cores = tt.Hardware.detect().cpu.cores
    assert heard == ["checking that the machine is idle", *(name for name, _ in module.steps(cores))]
    found = result.calibration
    assert found.machine == machine_key(tt.Hardware.detect(calibrated=False).cpu) and found.other_work == 0.0
    assert {"fma_latency", "fma_rate", "l1_read_1", "l2_latency_1", "split_line_l1", "page"} - {
        *found.measured,
        *result.skipped,
    } == set()
    assert all(each.samples == 9 and each.how for each in found.measured.values())
    assert result.hardware.calibration is found
    assert "and 1 MiB are available" in result.skipped["memory"]
    # One start in a third of a second is no unit: the default stays.
    assert "multiply-adds start per cycle" in result.skipped["fma_units"]
    assert result.hardware.cpu.fma_units == tt.Hardware.detect().cpu.fma_units


@pytest.mark.parametrize("shares", [(0.4,), (0.0, 0.4)], ids=["before", "meanwhile"])
def test_a_busy_machine_is_refused_unless_it_is_asked_for(quick, monkeypatch, shares):
    work(monkeypatch, *shares)
    with pytest.raises(module.BusyMachine, match="40% of the cores' time; expected at most 5%"):
        module.calibrate()
    work(monkeypatch, 0.4)
    assert module.calibrate(busy=True).calibration.other_work == 0.4


def test_what_one_core_cannot_have_is_not_measured():
    assert {name for name, _ in module.steps(2)} - {name for name, _ in module.steps(1)} == {
        "cross-core cache-line transfers",
        "start and join of threads",
    }


def test_values_that_no_machine_has_are_left_out(quick):
    bench = Bench(tt.Hardware.detect().cpu, None)
    bench.add("clock", 1e9, "MHz", Time(1.0, 1.0, 0.0, 9), "a chain", "cpu.clock_mhz")
    assert not bench.found and bench.skipped["clock"] == "1e+09 MHz is outside of 100 to 20000"


def test_each_level_is_read_where_its_data_stay():
    cpu = tt.Hardware.load("zen4-server-8c").cpu
    found, skipped = places(cpu, 1 << 30)
    assert [place.name for place in found] == ["l1", "l2", "l3", "memory"] and not skipped
    for place, inner, size in zip(found[1:], cpu.caches, (*cpu.caches[1:], None), strict=False):
        assert place.one > inner.size / inner.cores
        assert size is None or (place.one < size.size and place.every * cpu.cores <= size.size * cpu.cores / size.cores)
    assert found[-1].one >= 1.5 * cpu.caches[-1].size


def test_a_last_level_as_small_as_the_one_before_is_left_out():
    """Skylake-X: 1 MiB of L2 and 1.375 MiB of L3 per core."""
    cpu = tt.Hardware.load("zen4-server-8c").cpu
    last = Cache(level=3, size=11 << 20, ways=11, line=64, cores=8)
    found, _ = places(dataclasses.replace(cpu, caches=(*cpu.caches[:2], last)), 1 << 30)
    assert [(place.name, place.every is None) for place in found if place.name == "l3"] == [("l3", True)]
    small = Cache(level=3, size=1 << 20, ways=16, line=64, cores=8)
    _, skipped = places(dataclasses.replace(cpu, caches=(*cpu.caches[:2], small)), 1 << 30)
    assert "less than three times" in skipped["l3"]


def test_instructions_that_kernels_use_are_measured_once_each():
    def names(preset):
        return [row.name for row in measured_rows(tt.Hardware.load(preset).cpu)]

    assert names("zen4-server-8c") == ["dpbf16ps", "vpdpbusd"]
    assert names("neoverse-n1") == ["sdot", "udot"]
    assert names("skylake-desktop-8c") == []


@pytest.mark.slow
def test_this_machine_can_be_calibrated(monkeypatch):
    """A hundredth of the usual samples, without memory beyond 64 MiB, on a machine that may be busy."""
    monkeypatch.setattr("tvm_tiling.calibrate.memory.available_bytes", lambda: 64 << 20)
    result = module.calibrate(busy=True, scale=0.01)
    found = {name: each.value for name, each in result.calibration.measured.items()}
    assert 100 < found["clock_1"] < 8000 and found["fma_latency"] > 2
    levels = [f"l{cache.level}" for cache in result.hardware.cpu.caches if f"l{cache.level}" not in result.skipped]
    assert {f"{level}_{what}_1" for level in levels for what in ("read", "latency")} <= set(found)
    result.calibration.check(result.hardware.cpu)
