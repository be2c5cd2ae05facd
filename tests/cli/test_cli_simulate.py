"""`tvm-tiling simulate` and `tvm-tiling sweep` on a program file."""

from __future__ import annotations

import json

import pytest
from command_line import run

from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.accel.program.builder import At, ProgramBuilder
from tvm_tiling.accel.program.program import Program
from tvm_tiling.accel.timing.simulate import simulate
from tvm_tiling.cli.sweep import gathered, parse_values
from tvm_tiling.decide.decide import decide
from tvm_tiling.errors import HardwareError
from tvm_tiling.hardware import Hardware
from tvm_tiling.workload import RnnWorkload


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Create p.vsim in the working folder: a load of 4096 bytes."""
    monkeypatch.chdir(tmp_path)
    machine = Hardware.neartile(buf_a=4096, buf_b=64, acc_max=64, bw_a=16, bw_b=16, macs_per_cycle=256, name="mine")
    build = ProgramBuilder(machine)
    near = At("a", 0, (1,), "int8")
    build.append(Opcode.LOAD, "load_a", (4096,), a=At("external", 0, (1,), "int8"), c=near)
    build.build().save("p.vsim")
    return "p.vsim"


def test_a_program_on_its_own_machine_and_on_another(capsys, program):
    code, out, err = run(capsys, "simulate", program)
    assert (code, err) == (0, "") and "mine: 256 cycles" in out and "load_a" in out
    code, out, err = run(capsys, "simulate", program, "--hardware", "neartile", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == json.loads(json.dumps(simulate(Program.load(program), "neartile").to_dict()))


def test_timeline_report_and_program_are_written(capsys, program, tmp_path):
    code, _, err = run(capsys, "simulate", program, "--trace", "t.json", "-o", "r.html", "--save", "q.vsim")
    assert (code, err) == (0, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.vsim", "q.vsim", "r.html", "t.json"]
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert Program.load("q.vsim") == Program.load(program)


def test_recurrent_layers_take_the_cycles_of_their_decision(capsys):
    words = ("steps=9", "input_size=64", "hidden_size=128")
    code, out, err = run(capsys, "simulate", "gru", *words, "--json")
    layer = RnnWorkload(cell="gru", steps=9, input_size=64, hidden_size=128)
    # The weights are loaded first, at 256 bytes per cycle; the last result is stored. Each has a latency of 100.
    weights, result = 4 * 128 * (64 + 128) * 2 // 256 + 100, 1 + 100
    assert (code, err) == (0, "")
    assert json.loads(out)["cycles"] == weights + decide(layer, Hardware.load("rnn16k")).cycles + result
    code, _, err = run(capsys, "simulate", "lstm", *words, "dtype=float32")
    assert code == 1
    assert "float32 accumulated in float32 is not supported on the column engine; expected int16 in int32" in err
    code, _, err = run(capsys, "simulate", "lstm", *words, "--hardware", "vta")
    assert code == 1 and "has no column engine for recurrent layers" in err and err.count("\n") == 1


@pytest.mark.parametrize("command", [("tune",), ("db", "match", "shapes.db")], ids=" ".join)
def test_nothing_is_searched_for_recurrent_layers(capsys, command):
    code, _, err = run(capsys, *command, "lstm steps=9 input_size=64 hidden_size=128")
    assert code == 1 and "'lstm': recurrent layers are not tuned" in err
    assert err.count("\n") == 1


def test_what_is_not_a_program_and_no_operator_is_one_line(capsys, program, tmp_path):
    code, out, err = run(capsys, "simulate", "q.vsim")
    assert (code, out) == (1, "") and "'q.vsim' is neither a file nor an operator" in err and err.count("\n") == 1
    (tmp_path / "bad.vsim").write_bytes(b"no program")
    code, _, err = run(capsys, "simulate", "bad.vsim")
    assert code == 1 and err.startswith("error: ") and "bad.vsim" in err and "defect" not in err
    code, _, err = run(capsys, "simulate", "gemm", "64", "x", "64")
    assert code == 1 and "word 3" in err
    code, _, err = run(capsys, "simulate", program, "--hardware", "zen4-server-8c")
    assert code == 1 and "is a CPU; expected an accelerator" in err


def test_the_map_of_an_operator_is_printed_and_on_the_page(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("simulate", "gemm", "96", "512", "192", "dtype=int8", "--hardware", "dla3", "--map")
    code, out, err = run(capsys, *words, "-o", "m.html")
    assert (code, err) == (0, "")
    assert "multiply-accumulates, in " in out and "MAC per byte" in out and "external to cluster.a" in out
    page = (tmp_path / "m.html").read_text()
    assert ">Map</h2>" in page and "external to cluster.a" in page
    code, out, _ = run(capsys, *words, "--json")
    assert code == 0 and sum(line.get("macs", 0) for line in json.loads(out)["map"]["lines"]) == 96 * 512 * 192
    code, _, err = run(capsys, "simulate", "gru", "steps=3", "input_size=16", "hidden_size=16", "--map")
    assert code == 1 and "--map expects a gemm or a conv" in err


def test_a_sweep_takes_values_in_sequence(capsys, program):
    words = ("sweep", program, "--json", "--field", "near_tile.bw_a", "--values", "8", "16..64*2")
    code, out, err = run(capsys, *words)
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["hardware"], found["fields"]) == ("mine", ["near_tile.bw_a"])
    cycles = [(point["values"]["near_tile.bw_a"], point["report"]["cycles"]) for point in found["points"]]
    assert cycles == [(8, 512), (16, 256), (32, 128), (64, 64)]


def test_a_sweep_prints_a_table_and_writes_a_page(capsys, program, tmp_path):
    words = ("sweep", program, "-o", "s.html", "--hardware", "neartile", "--values", "64", "4096", "--field")
    code, out, err = run(capsys, *words, "near_tile.buf_a")
    assert (code, err) == (0, "") and "near_tile.buf_a" in out
    assert "has 128" in " ".join(out.split())  # the buffers of A are double buffers, and too small
    assert "near_tile.buf_a of neartile" in (tmp_path / "s.html").read_text()


def test_a_sweep_of_two_fields_marks_the_front(capsys, program, tmp_path):
    sizes = ("--field", "near_tile.buf_a", "--values", "2048..8192*2")
    fields = ("--field", "near_tile.bw_a", "--values", "8", "64", *sizes)
    code, out, err = run(capsys, "sweep", program, "--json", "--pareto", "cycles,area", *fields)
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["fields"] == ["near_tile.bw_a", "near_tile.buf_a"] and len(found["points"]) == 6
    # The program stays the same: the smallest buffer suffices, and the area does not depend on the bandwidth.
    assert found["front"] == [{"near_tile.bw_a": 64, "near_tile.buf_a": 2048}]
    code, out, _ = run(capsys, "sweep", program, *fields, "-o", "s.html")
    rows = [line.split() for line in out.splitlines()[2:]]
    assert code == 0 and rows[0][:3] == ["front", "near_tile.bw_a", "near_tile.buf_a"]
    assert [row[1:3] for row in rows if row[0] == "*"] == [["64", "2048"]]
    page = (tmp_path / "s.html").read_text()
    assert "near_tile.bw_a and near_tile.buf_a of mine" in page and "area, mm² against cycles" in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--field", "near_tile.bw_a", "--values", "8", "--pareto", "cycles,power"),
            "--pareto power is not an",
        ),
        (("--field", "near_tile.bw_a", "--field", "near_tile.bw_b", "--values", "8"), "2 --field with 1 --values"),
        (("--field", "clock_mhz", "--values", "8", "--field", "clock_mhz", "--values", "9"), "is given twice"),
        (
            ("--field", "near_tile.bw_a", "--values", "1..1000+1", "--field", "near_tile.bw_b", "--values", "1..999+1"),
            "999000 combinations of values; expected 1 to 100000",
        ),
    ],
)
def test_what_is_not_a_sweep_is_refused(capsys, program, words, said):
    code, _, err = run(capsys, "sweep", program, *words)
    assert code == 1 and said in err and "defect" not in err


def test_a_sweep_in_which_nothing_runs_fails(capsys, program):
    code, out, err = run(capsys, "sweep", program, "--field", "near_tile.buf_a", "--values", "1,2")
    assert code == 1 and "runs on no machine of the sweep" in err and out
    code, _, err = run(capsys, "sweep", program, "--field", "near_tile.buf_c", "--values", "1")
    assert code == 1 and "unknown field 'buf_c'" in err


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,2.5,true,padded", [1, 2.5, True, "padded"]),
        ("8..64*2", [8, 16, 32, 64]),
        ("8..63*2", [8, 16, 32]),
        ("1..2+0.5", [1, 1.5, 2.0]),
        ("4,8..16+4,100", [4, 8, 12, 16, 100]),
    ],
)
def test_values_and_ranges(text, values):
    assert parse_values(text) == values


@pytest.mark.parametrize("text", ["", "1,,2", "8..", "8..64", "64..8*2", "8..64*1", "0..8*2", "1..5+0", "1.2.3..9*2"])
def test_what_is_not_a_value_or_range(text):
    with pytest.raises(HardwareError, match="expected"):
        parse_values(text)


def test_words_after_values_are_gathered_up_to_the_next_option():
    words = ["gemm", "64", "--values", "1", "2", "--json", "x"]
    assert gathered(words) == ["gemm", "64", "--values", "1,2", "--json", "x"]
    assert gathered(["--values", "--json"]) == ["--values", "--json"]
    assert gathered(["gemm"]) == ["gemm"]


def test_an_operator_is_config_and_recorded_for_the_machine(capsys):
    words = ("gemm", "96", "80", "112", "dtype=int8")
    code, out, err = run(capsys, "simulate", *words, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["hardware"], found["macs"]) == ("neartile", 96 * 80 * 112)
    assert found["bytes"] == {"a": 96 * 80, "b": 80 * 112, "out": 96 * 112 * 4}
    assert found["regions"][0]["macs"] == found["macs"]
    further = ("trans_a=1", "trans_b=1", "batch=2")
    code, out, err = run(capsys, "simulate", " ".join((*words, *further)), "--json")
    assert (code, err) == (0, "") and json.loads(out)["macs"] == 2 * found["macs"]


def test_a_sweep_configures_an_operator_again_for_each_value(capsys):
    words = ("sweep", "gemm", "256", "256", "256", "dtype=int8", "--json", "--field", "near_tile.buf_a")
    code, out, err = run(capsys, *words, "--values", "4096..65536*4")
    assert (code, err) == (0, "")
    points = json.loads(out)["points"]
    assert [point["values"]["near_tile.buf_a"] for point in points] == [4096, 16384, 65536]
    peaks = [point["report"]["memories"]["a"]["peak"] for point in points]
    assert all(peak <= size for peak, size in zip(peaks, (2 * 4096, 2 * 16384, 2 * 65536), strict=True))
    assert peaks[0] == min(peaks) < max(peaks)


CONVOLUTION = ("conv", "n=1", "h=14", "w=14", "ci=16", "co=32", "kh=3", "kw=3", "padding=1", "dtype=int8")


@pytest.mark.parametrize("machine", ["vta", "neartile", "wfold16"])
def test_a_convolution_as_text(capsys, machine):
    code, out, err = run(capsys, "simulate", *CONVOLUTION, "--hardware", machine, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["hardware"], found["macs"]) == (machine, 14 * 14 * 32 * 9 * 16)
    # neartile loads blocks of 4 columns, each with its halo, so that the first results leave early.
    columns = 14 + 2 * 3 if machine == "neartile" else 14
    assert found["bytes"] == {"a": 9 * 16 * 32, "b": 14 * columns * 16, "out": 14 * 14 * 32 * 4}
    assert found["lower_bound"] <= found["cycles"] <= found["upper_bound"]


def test_a_convolution_is_configured_again_for_each_value_of_a_sweep(capsys):
    words = ("sweep", *CONVOLUTION, "stride=2", "groups=2", "--hardware", "vta", "--json", "--field")
    code, out, err = run(capsys, *words, "near_tile.buf_b", "--values", "4", "1024", "131072")
    assert (code, err) == (0, "")
    points = json.loads(out)["points"]
    assert points[0]["report"] is None and "near_tile.buf_b" in points[0]["refused"]
    assert points[1]["report"]["bytes"]["b"] >= points[2]["report"]["bytes"]["b"]
    assert points[1]["report"]["memories"]["b"]["peak"] <= 2048


def test_what_is_not_a_convolution_is_one_line(capsys):
    for words, why in (
        ((*CONVOLUTION, "taps=3"), "word 11, 'taps=3': unknown key"),
        ((*CONVOLUTION, "transposed=1"), "two-dimensional convolutions"),
        ((*CONVOLUTION, "groups=3"), "groups"),
        (CONVOLUTION[:4], "co"),
    ):
        code, out, err = run(capsys, "simulate", *words, "--hardware", "vta")
        assert (code, out) == (1, "") and err.startswith("error: ") and why in err and err.count("\n") == 1, err
        assert "defect" not in err


def test_an_operator_that_is_not_recorded_is_one_line(capsys):
    for words, why in (
        (("gemm", "8", "8", "8", "lda=16"), "lda"),
        (("gemm 8 8 8", "--hardware", "zen4-server-8c"), ""),
    ):
        code, out, err = run(capsys, "simulate", *words)
        assert (code, out) == (1, "") and err.startswith("error: ") and why in err and err.count("\n") == 1
        assert "defect" not in err


def test_a_preference_is_simulated_and_of_one_decision_alone(capsys):
    product = ("gemm", "512", "512", "512", "dtype=int8", "--hardware", "dla3", "--json")
    fast, frugal = (json.loads(run(capsys, "simulate", *product, *more)[1]) for more in ((), ("--prefer", "energy")))
    assert frugal["energy_pj"] < fast["energy_pj"] and frugal["cycles"] > fast["cycles"]
    swept = run(capsys, "sweep", *product, "--prefer", "energy", "--field", "clock_mhz", "--values", "1000")[1]
    (point,) = json.loads(swept)["points"]
    assert point["report"]["cycles"] == frugal["cycles"]
    for given, accepted in (
        (
            ("lstm", "steps=2", "input_size=8", "hidden_size=8", "--prefer", "edp"),
            "applies to a single gemm or conv",
        ),
        (("gemm", "8", "8", "8", "--prefer", "speed"), "edp"),
    ):
        code, out, err = run(capsys, "simulate", *given)
        assert (code, out) == (1, "") and err.startswith("error: ") and err.count("\n") == 1 and accepted in err
