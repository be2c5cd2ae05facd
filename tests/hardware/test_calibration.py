"""Calibrations: records of measured values, files of them, and what Hardware.detect() does with them."""

from __future__ import annotations

import dataclasses
import math

import pytest

import tvm_tiling as tt
from tvm_tiling.errors import HardwareError
from tvm_tiling.hardware.calibration import Calibration, Measured
from tvm_tiling.hardware.dot_instructions import fastest
from tvm_tiling.hardware.file import from_toml
from tvm_tiling.hardware.this_machine import VARIABLE, calibrations, machine_key

PLAIN = tt.Hardware.detect(calibrated=False)
KEY = machine_key(PLAIN.cpu)


def measured(value: float, unit: str = "bytes/cycle", field: str = "", **changes) -> Measured:
    return Measured(
        **{"value": value, "unit": unit, "spread": 0.02, "samples": 9, "how": "read", "field": field, **changes}
    )


def calibration(**changes) -> Calibration:
    values = {
        "l2_read_1": measured(41.5, field="cpu.l2_bytes_per_cycle"),
        "l2_latency_1": measured(5.1, "ns"),
        "fma_latency": measured(4.1, "cycles", "cpu.fma_latency"),
        "start": measured(900.0, "ns", "cpu.costs.parallel_start"),
    }
    given = {"machine": KEY, "date": "2026-11-27", "seconds": 20.0, "other_work": 0.01, "measured": values}
    return Calibration(**{**given, **changes})


def calibrated(base: tt.Hardware = PLAIN, **changes) -> tt.Hardware:
    made = calibration(**changes)
    return dataclasses.replace(base, cpu=made.apply(base.cpu), calibration=made)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"value": math.nan}, "value = nan; expected a measured number of bytes/cycle from 0.001 to 4096"),
        ({"value": math.inf}, "value = inf; expected"),
        ({"value": 1e9}, "value = 1000000000.0; expected"),
        ({"value": -3.0}, "value = -3.0; expected"),
        ({"value": "fast"}, "value = 'fast'; expected"),
        ({"unit": "furlongs"}, "unit = 'furlongs'"),
        ({"spread": math.nan}, "spread = nan"),
        ({"samples": 0}, "samples = 0"),
        (
            {"unit": "ns", "field": "cpu.l2_bytes_per_cycle"},
            "unit of cpu.l2_bytes_per_cycle = 'ns'; expected 'bytes/cycle'",
        ),
        ({"how": "read\x1b[2J"}, "expected printable text"),
        ({"field": "cpu.cores"}, "field 'cpu.cores' cannot be measured; expected cpu.clock_mhz, "),
    ],
)
def test_impossible_values_are_refused(changes, message):
    with pytest.raises(HardwareError, match=r"^calibration: ") as caught:
        measured(**{"value": 40.0, **changes})
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"machine": "mine"}, "machine = 'mine'; expected 16 hexadecimal digits"),
        ({"date": "yesterday"}, "date = 'yesterday'; expected a date such as 2026-01-31"),
        ({"seconds": math.nan}, "seconds = nan"),
        ({"other_work": 1.5}, "other_work = 1.5; expected a fraction from 0 to 1"),
        ({"measured": {}}, "measured is empty"),
        ({"measured": {"a\x1bb": measured(3.0)}}, "measured has the name 'a\\x1bb'; expected printable text"),
        (
            {
                "measured": {
                    name: measured(value, field="cpu.l2_bytes_per_cycle") for name, value in (("a", 3), ("b", 4))
                }
            },
            "cpu.l2_bytes_per_cycle is measured twice; expected one entry per field",
        ),
        ({"measured": {"clock": 3000.0}}, "measured.clock = 3000.0; expected a Measured"),
    ],
)
def test_impossible_calibrations_are_refused(changes, message):
    with pytest.raises(HardwareError) as caught:
        calibration(**changes)
    assert message in str(caught.value)


def test_measured_values_replace_the_fields_that_they_name():
    guessed = dataclasses.replace(PLAIN.cpu, assumed=("fma_latency", "l3_bytes_per_cycle"))
    cpu = calibration().apply(guessed)
    assert (cpu.l2_bytes_per_cycle, cpu.fma_latency, cpu.kernel_costs.parallel_start) == (41.5, 4, 900.0)
    assert cpu.assumed == ("l3_bytes_per_cycle",)
    assert cpu.kernel_costs.page_step == PLAIN.cpu.kernel_costs.page_step
    assert cpu.l3_bytes_per_cycle == PLAIN.cpu.l3_bytes_per_cycle


def test_values_count_and_their_origin_does_not():
    machine = calibrated()
    assert machine.fingerprint() != PLAIN.fingerprint()
    assert machine.fingerprint() == dataclasses.replace(machine, calibration=None).fingerprint()
    assert machine.label == f"{PLAIN.name}, calibrated 2026-11-27" and PLAIN.label == PLAIN.name


def test_decisions_are_the_same_for_the_same_description(tmp_path):
    (tmp_path / "mine.toml").write_text(calibrated().to_toml())
    work = tt.GemmWorkload(m=200, n=300, k=400)
    first, second = (tt.decide(work, tt.Hardware.load(tmp_path / "mine.toml")) for _ in range(2))
    assert first == second == tt.decide(work, calibrated())


def test_a_file_has_every_value_with_its_origin(tmp_path):
    text = calibrated().to_toml()
    assert "[calibration.measured.l2_read_1]" in text and 'how = "read"' in text and "spread = 0.02" in text
    (tmp_path / "mine.toml").write_text(text)
    assert tt.Hardware.load(tmp_path / "mine.toml") == calibrated()


def test_names_with_dots_and_spaces_are_quoted_in_files():
    rates = dataclasses.replace(PLAIN.cpu, dot_rates={"fma.float32": 0.9})
    made = dataclasses.replace(PLAIN, cpu=rates, calibration=calibration(measured={"a b": measured(3.0)}))
    assert from_toml(tt.Hardware, made.to_toml(), made.name) == made


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("l2_bytes_per_cycle = 41.5", "l2_bytes_per_cycle = 90.0", "cpu.l2_bytes_per_cycle = 90.0 differs from "),
        ("value = 41.5", "value = nan", "calibration: value = nan"),
        ("value = 41.5", "value = 1e12", "calibration: value = 1000000000000.0"),
        ("value = 41.5\n", "", "missing required field 'value'"),
        ("samples = 9", 'samples = "many"', "samples = 'many'"),
        ("[calibration]", "[calibration]\ncolour = 1", "unknown field 'colour'"),
    ],
)
def test_a_damaged_file_is_refused_in_one_sentence(tmp_path, old, new, message):
    text = calibrated().to_toml()
    assert old in text
    (tmp_path / "mine.toml").write_text(text.replace(old, new, 1))
    with pytest.raises(HardwareError) as caught:
        tt.Hardware.load(tmp_path / "mine.toml")
    assert message in str(caught.value) and "mine.toml" in str(caught.value) and "\n" not in str(caught.value)


@pytest.fixture
def stored(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    calibrations().mkdir(parents=True)
    return calibrations() / f"{KEY}.toml"


def test_detect_uses_the_calibration_of_this_machine(stored, monkeypatch):
    assert tt.Hardware.detect() == PLAIN
    stored.write_text(calibrated().to_toml())
    assert tt.Hardware.detect() == calibrated() and tt.Hardware.detect().calibration == calibration()
    assert tt.Hardware.detect(calibrated=False) == PLAIN
    monkeypatch.setenv(VARIABLE, "off")
    assert tt.Hardware.detect() == PLAIN


def test_a_user_without_a_home_has_no_calibration(monkeypatch):
    def fail():
        raise RuntimeError("no home")

    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr("pathlib.Path.home", fail)
    assert tt.Hardware.detect() == PLAIN
    with pytest.raises(HardwareError, match="no home directory; set XDG_CONFIG_HOME"):
        calibrations()


def test_values_that_were_not_measured_stay_those_of_the_package(stored):
    """A file written before a default changed."""
    old = dataclasses.replace(PLAIN.cpu, l3_bytes_per_cycle=1.0, costs=None)
    stored.write_text(calibrated(dataclasses.replace(PLAIN, cpu=old)).to_toml())
    assert tt.Hardware.detect() == calibrated()


def test_a_file_may_be_named(tmp_path, monkeypatch):
    (tmp_path / "mine.toml").write_text(calibrated().to_toml())
    monkeypatch.setenv(VARIABLE, str(tmp_path / "mine.toml"))
    assert tt.Hardware.detect() == calibrated()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nowhere.toml"))
    with pytest.raises(HardwareError, match=r"nowhere.toml cannot be read"):
        tt.Hardware.detect()


def test_another_machines_calibration_is_refused(stored):
    stored.write_text(calibrated(machine="0123456789abcdef").to_toml())
    with pytest.raises(HardwareError, match=f"the calibration of another machine: 0123456789abcdef; expected {KEY}"):
        tt.Hardware.detect()


def test_a_description_without_measurements_is_no_calibration(stored):
    stored.write_text(PLAIN.to_toml())
    with pytest.raises(HardwareError, match=r"has no \[calibration\] table; expected a file written by"):
        tt.Hardware.detect()
    with pytest.raises(HardwareError, match="calibration without a CPU"):
        dataclasses.replace(tt.Hardware.load("neartile"), calibration=calibration())


def test_the_key_is_that_of_processor_cores_and_caches():
    cpu = PLAIN.cpu
    bigger = dataclasses.replace(cpu.caches[0], size=2 * cpu.caches[0].size)
    others = (
        dataclasses.replace(cpu, cores=cpu.cores + 1, threads=cpu.threads + 1),
        dataclasses.replace(cpu, caches=(bigger, *cpu.caches[1:])),
    )
    assert machine_key(dataclasses.replace(cpu, clock_mhz=1234.0, l2_bytes_per_cycle=1.0)) == KEY
    assert all(machine_key(other) != KEY for other in others)


def test_rates_and_latencies_of_dot_instructions_belong_to_the_description():
    cpu = tt.Hardware.load("zen4-server-8c").cpu
    types = "bfloat16", "bfloat16", "float32"
    slow = dataclasses.replace(cpu, dot_rates={"dpbf16ps": 0.25}, dot_latencies={"dpbf16ps": 9.0})
    assert fastest(cpu, *types).name == "dpbf16ps" and fastest(slow, *types).name == "fma.float32"
    slower = dataclasses.replace(cpu, dot_rates={"dpbf16ps": 0.9}, dot_latencies={"dpbf16ps": 9.0})
    assert (fastest(slower, *types).rate, fastest(slower, *types).latency) == (0.9, 9.0)
    with pytest.raises(HardwareError, match=r"cpu.dot_rates: dpbf16ps = 0"):
        dataclasses.replace(cpu, dot_rates={"dpbf16ps": 0})
    with pytest.raises(HardwareError, match=r"'dpbf61ps'.*dpbf16ps"):
        tt.Hardware(name="x", cpu=dataclasses.replace(cpu, dot_rates={"dpbf61ps": 1.0}))


def test_tiles_of_amx_are_described_and_not_used():
    cpu = tt.Hardware.load("icelake-server-2c").cpu
    amx = dataclasses.replace(cpu, features=(*cpu.features, "amx-tile", "amx-bf16", "amx-int8"))
    described = fastest(amx, "bfloat16", "bfloat16", "float32", emitted=False, tiled=True)
    # 512 multiply-adds per cycle: 16 lanes, two multiply-add units
    assert described.name == "tdpbf16ps" and 16 * amx.fma_units * described.speed == 512
    assert 16 * amx.fma_units * fastest(amx, "int8", "int8", "int32", emitted=False, tiled=True).speed == 1024
    for emitted in (True, False):
        assert fastest(amx, "bfloat16", "bfloat16", "float32", emitted=emitted).name == "fma.float32"
        assert fastest(amx, "int8", "int8", "int32", emitted=emitted).name == "vpdpbusd"
    assert fastest(cpu, "int8", "int8", "int32", emitted=False, tiled=True).name == "vpdpbusd"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"neon"', '"neon", "avx512f"', "'avx512f', an extension of x86_64"),
        ("vector_bits = 128", "vector_bits = 384", "vector_bits = 384"),
        ("vector_bits = 128", "vector_bits = 512", "vector_bits = 512"),
    ],
)
def test_fields_of_other_architectures_are_refused_in_one_sentence(old, new, message):
    text = tt.Hardware.load("neoverse-v1").to_toml()
    assert old in text
    with pytest.raises(HardwareError) as caught:
        from_toml(tt.Hardware, text.replace(old, new, 1), "mine.toml")
    assert message in str(caught.value) and "mine.toml" in str(caught.value) and "\n" not in str(caught.value)
