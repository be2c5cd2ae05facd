"""`tvm-tiling hardware`."""

from __future__ import annotations

import dataclasses
import importlib
import json
from types import SimpleNamespace

import command_line
import pytest

from tvm_tiling.hardware import Hardware
from tvm_tiling.hardware.calibration import Calibration, Measured
from tvm_tiling.hardware.file import preset_names
from tvm_tiling.hardware.this_machine import VARIABLE, machine_key


def run(capsys, *words):
    return command_line.run(capsys, "hardware", *words)


def test_list_names_every_preset(capsys):
    code, out, err = run(capsys, "list")
    assert (code, err) == (0, "")
    assert all(name in out and Hardware.load(name).fingerprint() in out for name in preset_names())
    code, out, _ = run(capsys, "list", "--json")
    assert [machine["name"] for machine in json.loads(out)] == preset_names()


def test_show_has_every_field(capsys):
    code, out, _ = run(capsys, "show", "icelake-server-16c")
    assert code == 0
    cpu = Hardware.load("icelake-server-16c").to_dict()["cpu"]
    assert all(f"cpu.{field}" in out for field in cpu if field != "caches")
    assert "48 KiB, 12 ways, 64 sets, 64-byte lines, one core" in out
    assert "24576 KiB, 12 ways, 32768 sets, 64-byte lines, shared by 16 cores" in out


def test_show_of_page_05s_machine(capsys):
    code, out, _ = run(capsys, "show", "wfold16")
    unit = Hardware.load("wfold16").to_dict()["w_fold"]
    assert code == 0 and "W-fold engine, 16 x 4 units of 64-byte rows" in out
    assert all(f"w_fold.{field}" in out for field, value in unit.items() if value is not None)


def test_show_of_machines_with_many_tables(capsys):
    code, out, _ = run(capsys, "show", "vta")
    assert code == 0 and "vector engine of 16 lanes" in out
    for row in ("near_tile.bandwidth external 8", "memories.external.ports 1", "queues.of_engine load_a load", "clock"):
        assert row in " ".join(out.split())
    code, out, _ = run(capsys, "show", "dla3")
    assert code == 0 and "levels cluster / unit / array" in out and "levels.unit.bytes_a" in out
    code, out, _ = run(capsys, "show", "rnn16k")
    assert code == 0 and "column engine, 1 x 16384 multipliers, a full adder tree" in out


def test_show_json_is_the_description(capsys):
    code, out, _ = run(capsys, "show", "neartile", "--json")
    machine = Hardware.load("neartile")
    assert code == 0
    assert json.loads(out) == json.loads(json.dumps({**machine.to_dict(), "fingerprint": machine.fingerprint()}))


def test_detect_writes_a_file_that_can_be_checked(capsys, tmp_path):
    code, out, _ = run(capsys, "detect", "--toml")
    assert code == 0
    (tmp_path / "mine.toml").write_text(out)
    assert Hardware.load(tmp_path / "mine.toml").fingerprint() == Hardware.detect().fingerprint()
    code, out, err = run(capsys, "check", str(tmp_path / "mine.toml"), "neartile")
    assert (code, err) == (0, "")
    assert out.count(": ok (") == 2


def test_detect_as_table_and_json(capsys):
    code, out, _ = run(capsys, "detect")
    assert code == 0 and "cpu.caches.l1" in out and "cpu.assumed" in out
    code, out, _ = run(capsys, "detect", "--json")
    assert json.loads(out)["cpu"]["cores"] == Hardware.detect().cpu.cores


def test_check_reports_every_wrong_file_and_exits_with_1(capsys, tmp_path):
    (tmp_path / "bad.toml").write_text("[near_tile]\nbuff_a = 1\n")
    code, out, err = run(capsys, "check", str(tmp_path / "bad.toml"), "neartile", "nonsense")
    assert code == 1
    assert out.startswith("neartile: ok (")
    assert [line.startswith("error: ") for line in err.splitlines()] == [True, True]
    assert "bad.toml: [near_tile]: unknown field 'buff_a'; did you mean 'buf_a'?" in err
    code, out, err = run(capsys, "check", "--json", str(tmp_path / "bad.toml"), "neartile")
    assert code == 1
    assert [result["ok"] for result in json.loads(out)] == [False, True]


def test_check_refuses_more_queues_than_an_instruction_can_name(capsys, tmp_path):
    (tmp_path / "m.toml").write_text("[column]\nmultipliers = 4\nengines = 5\n")
    code, _, err = run(capsys, "check", str(tmp_path / "m.toml"))
    assert code == 1 and "m has 9 queues, load_a, load_b, column0" in err


def test_unknown_preset_is_one_line(capsys):
    code, out, err = run(capsys, "show", "neartle")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("error: unknown hardware preset 'neartle'; did you mean 'neartile'?")


@pytest.fixture
def measuring(tmp_path, monkeypatch):
    """A machine whose measurements are done at once; other processes take `busy` of it."""
    module = pytest.importorskip("tvm_tiling.calibrate.calibrate")
    command = importlib.import_module("tvm_tiling.cli.calibrate")
    plain, machine = Hardware.detect(calibrated=False), SimpleNamespace(busy=False)
    found = Measured(value=41.5, unit="bytes/cycle", spread=0.25, samples=9, how="read", field="cpu.l2_bytes_per_cycle")

    def calibrate(*, busy, announce):
        announce("caches and memory")
        if machine.busy and not busy:
            raise module.BusyMachine("other processes take 40% of the cores' time; use busy=True to measure")
        made = Calibration(
            machine=machine_key(plain.cpu),
            date="2026-11-27",
            seconds=20.0,
            other_work=0.4 if machine.busy else 0.0,
            measured={"l2_read_1": found},
        )
        hardware = dataclasses.replace(plain, cpu=made.apply(plain.cpu), calibration=made)
        return module.Result(hardware, {"memory": "there is too little"})

    monkeypatch.setattr(command, "calibrate", calibrate)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)
    return machine


def test_a_calibration_is_kept_and_used(capsys, measuring):
    code, out, err = run(capsys, "--calibrate")
    assert code == 0 and err == "caches and memory\n"
    assert "41.5 bytes/cycle, spread 25%: read; cpu.l2_bytes_per_cycle" in out
    assert "not measured: there is too little" in out and "use it unless TVM_TILING_CALIBRATION is off or" in out
    _, out, _ = run(capsys, "detect")
    assert "calibrated 2026-11-27: " in out and "41.5 bytes/cycle" in out
    _, out, _ = command_line.run(capsys, "explain", "gemm", "64", "64", "64")
    assert ", calibrated 2026-11-27, decided in" in out
    _, out, _ = run(capsys, "detect", "--no-calibration", "--json")
    assert json.loads(out)["fingerprint"] == Hardware.detect(calibrated=False).fingerprint()


def test_a_calibration_may_be_written_to_a_file(capsys, measuring, tmp_path):
    code, out, _ = run(capsys, "--calibrate", "-o", tmp_path / "mine.toml")
    assert code == 0 and f"TVM_TILING_CALIBRATION={tmp_path / 'mine.toml'}" in out
    assert Hardware.load(tmp_path / "mine.toml").calibration and Hardware.detect().calibration is None
    code, _, err = run(capsys, "--calibrate", "-o", tmp_path / "nowhere" / "mine.toml")
    assert code == 1 and "nowhere does not exist" in err and "caches" not in err


def test_a_busy_machine_is_calibrated_only_if_asked_for(capsys, measuring):
    measuring.busy = True
    code, out, err = run(capsys, "--calibrate")
    assert code == 1 and out == "" and err.endswith("use --busy to measure\n")
    code, _, err = run(capsys, "--calibrate", "--busy")
    assert code == 0 and "Doubtful: other processes took 40% of the cores' time" in err


def test_calibration_options_apply_to_calibration(capsys):
    for words, message in (
        (("--busy",), "--busy is supported only with --calibrate"),
        (("--calibrate", "list"), "--calibrate is supported only without a subcommand"),
    ):
        code, _, err = run(capsys, *words)
        assert code == 1 and message in err
    code, out, err = run(capsys)
    assert (code, out) == (2, "") and err.startswith("Usage: tvm-tiling hardware")
