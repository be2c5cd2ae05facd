"""`tvm-tiling explain` and its notation for operators."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import command_line
import pytest

import tvm_tiling as tt
from tvm_tiling.cli import explain
from tvm_tiling.cli.operator_text import OperatorTextError, parse_operator, parse_product

STEM = "conv n=1 h=224 w=224 ci=3 co=64 kh=7 kw=7 stride=2,2 padding=3,3,3,3"


def run(capsys, *words):
    return command_line.run(capsys, "explain", *words)


def test_bare_sizes_are_m_k_n():
    assert parse_operator("gemm 2 3 5") == tt.GemmWorkload(m=2, k=3, n=5)
    assert parse_operator("gemm n=5 k=3 m=2") == tt.GemmWorkload(m=2, k=3, n=5)


def test_every_kind_of_key():
    text = "gemm m=64 k=16384 n=48 dtype=int8 trans_b=1 trans_a=No batch=4 lda=16400 ldc=64 memory_b=internal"
    assert parse_operator(text) == tt.GemmWorkload(
        m=64, k=16384, n=48, dtype="int8", trans_b=True, batch=4, lda=16400, ldc=64, memory_b="internal"
    )
    assert parse_operator("gemm 8 8 8 batch=2") == tt.GemmWorkload(m=8, k=8, n=8, batch=2)


def test_convolutions():
    stem = tt.ConvWorkload(n=1, h=224, w=224, ci=3, co=64, kh=7, kw=7, stride=(2, 2), padding=(3, 3, 3, 3))
    assert parse_operator(STEM) == stem
    assert parse_operator(STEM.replace("2,2", "2").replace("3,3,3,3", "3")) == stem
    assert parse_operator("conv n=1 h=9 w=9 ci=1 co=1 kh=3 kw=3 stride=1,2 padding=0,1,2,3").padding == (0, 1, 2, 3)


def test_recurrent_layers():
    text = "rnn cell=gru steps=50 input_size=256 hidden_size=512 layers=2 bidirectional=yes linear_before_reset=0"
    assert parse_operator(text) == tt.RnnWorkload(
        cell="gru", steps=50, input_size=256, hidden_size=512, layers=2, bidirectional=True, linear_before_reset=False
    )
    assert parse_operator(text.replace("rnn cell=gru", "gru")) == parse_operator(text)
    for word in ("rnn", "lstm"):
        with pytest.raises(OperatorTextError, match=f"word 1, '{word}': recurrent layers are not tuned"):
            parse_product(f"{word} steps=1 input_size=1 hidden_size=1")


def test_machines_of_page_04(capsys):
    code, out, err = run(capsys, "rnn steps=100 input_size=256 hidden_size=640 layers=2", "--hardware", "rnn16k")
    assert (code, err) == (0, "")
    head, _, *text = out.splitlines()
    assert (
        head
        == "rnn lstm of 640 units on 256 inputs, 100 steps, batch 1, float32 accumulated in float32, layers 2: 1.11 Gop"
    )
    workload = tt.RnnWorkload(steps=100, input_size=256, hidden_size=640, layers=2)
    assert "\n".join(text[1:]) == tt.decide(workload, tt.Hardware.load("rnn16k")).explain()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", 'the operator is empty; expected "gemm 1024 1024 1024" (m k n)'),
        ("gem 1 2 3", "word 1, 'gem', is not an operator; did you mean 'gemm'? expected conv, gemm, gru, lstm, rnn"),
        ("gru cell=lstm steps=1", "gru: word 2, 'cell=lstm': 'gru' sets cell already; use 'rnn' with cell=..."),
        (
            "lstm steps=1",
            "lstm: input_size, hidden_size are missing; expected steps=... input_size=...",
        ),
        ("gemm", "gemm: m, k, n are missing; expected m=... k=... n=..."),
        ("gemm 1 2", "gemm: n is missing"),
        ("gemm 1 x 3", "gemm: word 3, 'x': k is an integer"),
        ("gemm 1 2.0 3", "gemm: word 3, '2.0': k is an integer"),
        (f"gemm 1 {'9' * 5000} 3", "k is an integer; expected up to 18 digits"),
        ("gemm 1 2 3 4", "gemm: word 5, '4' is one size too many; expected 3: m k n"),
        ("gemm 1 2 3 dtyp=int8", "word 5, 'dtyp=int8': unknown key 'dtyp'; did you mean 'dtype'? expected acc_dtype"),
        ("gemm 1 2 3 m=4", "word 5, 'm=4': m is given twice"),
        ("gemm 1 2 3 trans_b=maybe", "word 5, 'trans_b=maybe': trans_b is a boolean; expected one of 1, true"),
        ("gemm 1 2 3 trans", "word 5, 'trans' is not key=value; did you mean 'trans_b'?"),
        ("conv 1 2", "conv: word 2, '1' is not key=value"),
        ("conv n=1 h=9 w=9 ci=1", "conv: co, kh, kw are missing"),
        (f"{STEM} dilation=1,1,1", "dilation has 3 numbers; expected 2, or 1 for all"),
        (f"{STEM} dilation=1,,1", "dilation is an integer"),
    ],
)
def test_a_bad_word_is_named_with_its_place(text, said):
    with pytest.raises(OperatorTextError) as refused:
        parse_operator(text)
    assert said in str(refused.value)


def test_machines_of_page_01(capsys):
    code, out, err = run(capsys, "gemm 4096 2048 1024 dtype=float16", "--hardware", "neartile")
    assert (code, err) == (0, "")
    head, machine, blank, *text = out.splitlines()
    assert head == "gemm 4096 x 2048 x 1024 (m x k x n), float16 accumulated in float32: 17.2 Gop"
    assert machine.startswith("on neartile, decided in ") and blank == ""
    workload = tt.GemmWorkload(m=4096, k=2048, n=1024, dtype="float16")
    assert "\n".join(text) == tt.decide(workload, tt.Hardware.load("neartile")).explain()


def test_convolution_with_quotation_marks_left_out(capsys):
    code, out, _ = run(capsys, *STEM.split(), "--hardware", "neartile")
    assert code == 0
    assert "1 x 224 x 224 x 3 with 64 kernels of 7 x 7 to 112 x 112" in out and "stride 2 x 2" in out
    assert "predicted" in out


def test_machines_of_page_05(capsys):
    code, out, err = run(capsys, f"{STEM} dtype=int8", "--hardware", "wfold16", "--algorithm", "wfold")
    assert (code, err) == (0, "")
    tiling = tt.decide(parse_operator(f"{STEM} dtype=int8"), tt.Hardware.load("wfold16"))
    assert out.split("\n\n", 1)[1].strip() == tiling.explain()
    code, out, _ = run(capsys, f"{STEM} dtype=int8", "--hardware", "wfold16", "--mode", "seed", "--json")
    decision = json.loads(out)["decision"]
    assert code == 0 and (decision["op"], decision["pci"], decision["stride_fold"]) == ("conv", 16, 2)


def test_options_reach_the_decision(capsys):
    def decision(*words):
        code, out, _ = run(capsys, *words, "--json")
        assert code == 0
        return json.loads(out)["decision"]

    assert decision("gemm 512 512 512", "--algorithm", "pack", "--hardware", "zen4-server-8c")["form"] == "pack"
    assert decision("gemm 512 512 512", "--mode", "seed", "--hardware", "neartile")["mode"] == "seed"
    product = "gemm 200 200 256 dtype=int8"
    bytes_first = decision(product, "--prefer", "traffic", "--hardware", "vta")
    machine, workload = tt.Hardware.load("vta"), parse_operator(product)
    assert bytes_first == json.loads(tt.decide(workload, machine, prefer="traffic").to_json())
    assert bytes_first != json.loads(tt.decide(workload, machine).to_json())


def test_json_is_workload_machine_and_decision(capsys):
    code, out, err = run(capsys, "gemm 64 16384 64", "--json")
    result = json.loads(out)
    here = tt.Hardware.detect()
    assert (code, err) == (0, "")
    assert result["workload"] == tt.GemmWorkload(m=64, k=16384, n=64).to_dict()
    assert result["hardware"] == {"name": here.name, "fingerprint": here.fingerprint()}
    assert result["decision"]["partition_k"] <= 16384
    assert 0 < result["decision_seconds"] < 10


def test_a_file_describes_the_machine(capsys, tmp_path):
    (tmp_path / "mine.toml").write_text(tt.Hardware.load("neoverse-v1-16c").to_toml())
    code, out, _ = run(capsys, "gemm 256 256 256", "--hardware", str(tmp_path / "mine.toml"))
    assert code == 0 and "on neoverse-v1-16c" in out


def test_a_terminal_gets_a_table_that_fits(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    code, out, _ = run(capsys, "gemm 512 512 4096 dtype=int8", "--hardware", "neartile")
    assert code == 0
    table = re.sub(r"\x1b\[[0-9;]*m", "", out).split("gemm tiling\n")[1]
    assert max(map(len, table.splitlines())) <= 60
    assert "m per block" in table and "split-K" in table and table.count("predicted") == 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("gemm 1 2 3 dtype=float23",), "did you mean 'float32'?"),
        (("gemm 0 2 3",), "gemm: m = 0; expected a whole number of at least 1"),
        (("gemm 1 2 3 lda=1",), "lda = 1; expected at least 2, the length of a row"),
        (("gemm 8 8 8", "--hardware", "neartle"), "did you mean 'neartile'?"),
        (("gemm 8 8 8", "--hardware", "no/such.toml"), "cannot be read"),
        (
            ("gemm 8 8 8", "--hardware", "neartile", "--mode", "worst"),
            "--mode worst is not supported; expected best",
        ),
        (
            ("gemm 8 8 8", "--hardware", "neartile", "--prefer", "speed"),
            "--prefer speed is not supported; expected edp",
        ),
        (
            ("gemm 8 8 8", "--hardware", "neartile", "--algorithm", "pack"),
            "--algorithm pack does not apply to a gemm on neartile",
        ),
        (("gemm 8 8 8", "--hardware", "zen4-server-8c", "--mode", "seed"), "expected 'best'"),
        (("gemm 8 8 8", "--hardware", "zen4-server-8c", "--prefer", "traffic"), "expected 'utilisation'"),
        (("gemm 8 8 8", "--hardware", "zen4-server-8c", "--algorithm", "fast"), "expected normal, nocopy"),
        (
            (STEM, "--hardware", "zen4-server-8c", "--algorithm", "gemm"),
            "requires a 1x1 kernel, stride 1, no padding, one group",
        ),
        (("gemm 8 8 8", "--hardware", "rnn16k"), "rnn16k has "),
        ((STEM, "--hardware", "wfold16", "--algorithm", "direct"), "--algorithm direct is not an algorithm on wfold16"),
        ((STEM, "--hardware", "wfold16", "--mode", "worst"), "--mode worst is not supported; expected best"),
        ((f"{STEM} groups=3 co=63".replace(" co=64", ""), "--hardware", "wfold16"), "would interleave groups = 3"),
    ],
)
def test_bad_input_is_one_line_and_code_1(capsys, words, said):
    code, out, err = run(capsys, *words)
    assert (code, out) == (1, "")
    assert err.startswith("error: ") and err.count("\n") == 1
    assert said in err and "defect" not in err


def test_no_operator_is_wrong_usage(capsys):
    code, out, err = run(capsys)
    assert code == 2 and out == "" and "OPERATOR" in err and "Traceback" not in err


def test_help_says_the_order_of_the_sizes(capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0 and "order m k n" in " ".join(out.split())


def test_no_tvm_is_loaded():
    code = (
        "import sys\n"
        "from tvm_tiling.cli import main\n"
        "try: main(['explain', 'gemm 64 64 64'])\n"
        "except SystemExit as left: assert not left.code\n"
        "assert not {name.split('.')[0] for name in sys.modules} & {'tvm', 'tvm_ffi', 'numpy'}\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_only_what_is_unusual_is_in_the_headline():
    assert explain.operator_line(parse_operator("gemm 2 3 5 lda=3 trans_b=0")) == (
        "gemm 2 x 3 x 5 (m x k x n), float32 accumulated in float32: 60 op"
    )
    unusual = explain.operator_line(parse_operator("gemm 2 3 5 lda=4 trans_b=1 batch=7"))
    assert ", batch 7, " in unusual and "B transposed" in unusual and "lda 4" in unusual and "ldb" not in unusual
