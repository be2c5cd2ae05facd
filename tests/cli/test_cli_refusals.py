"""A hundred wrong command lines: one sentence each, in terms of the command line, with exit code 1 or 2."""

from __future__ import annotations

import re

import numpy as np
import pytest
from command_line import run

import tvm_tiling as tt
from tvm_tiling.decide.configs.config import Config

onnx = pytest.importorskip("onnx")

# What users of the command line cannot act on: arguments and values of Python, names of classes and modules.
PYTHON = re.compile(r"\w=[\[{(]|\bNone\b|\bTrue\b|\bFalse\b|Error\b|tvm_tiling\.|\b\w+ = '|Traceback|defect|\bdict\b")


def model(batch: int | str):
    helper = onnx.helper
    ends = [helper.make_tensor_value_info(name, 1, [batch, 4]) for name in ("x", "y")]
    weights = onnx.numpy_helper.from_array(np.ones((4, 4), "float32"), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "dense")], "g", *[[e] for e in ends], [weights]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Valid and invalid models, inputs, hardware descriptions and databases."""
    folder = tmp_path_factory.mktemp("refused")
    onnx.save(model(2), folder / "net.onnx")
    onnx.save(model("rows"), folder / "open.onnx")
    whole = (folder / "net.onnx").read_bytes()
    files = {
        "short.onnx": whole[:40],
        "text.onnx": b"no model",
        "empty.onnx": b"",
        "text.npz": b"x = 1",
        "text.db": b"no database" * 100,
        "text.vsim": b"no program",
        "text.jsonl": b"no line of an export\n",
        "bad.toml": b"[near_tile]\nbuff_a = 1\n",
        "syntax.toml": b"[near_tile\n",
        "list.json": b"[1, 2]",
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    np.savez(folder / "x.npz", x=np.ones((2, 4), "float32"))
    np.savez(folder / "wide.npz", x=np.ones((2, 5), "float32"))
    np.savez(folder / "other.npz", z=np.ones((2, 4), "float32"))
    np.savez(folder / "double.npz", x=np.ones((2, 4)))
    (folder / "directory").mkdir()
    (folder / "full").mkdir()
    (folder / "full" / "file").write_text("mine")
    with tt.ShapeDatabase(str(folder / "shapes.db")) as db:
        config = Config.of("gemm", "matrix", {"tile_m": 16})
        db.add(tt.GemmWorkload(m=64, n=64, k=64, dtype="int8"), config, 1000, target=tt.Hardware.load("vta"))
    return folder


GEMM = "gemm 64 64 64 dtype=int8"
CONV = "conv n=1 h=9 w=9 ci=4 co=4 kh=3 kw=3"
SWEEP = f"sweep {GEMM} --target vta"
REFUSED = [
    # ---- the frame
    ("compil net.onnx", 2, "unknown command 'compil'; did you mean compile?"),
    ("--nonsense", 2, "unknown option --nonsense"),
    ("compile", 2, "MODEL is missing"),
    ("compile net.onnx second.onnx", 2, "unexpected argument 'second.onnx'"),
    ("compile net.onnx --ouput x", 2, "unknown option --ouput; did you mean --output?"),
    ("compile net.onnx --batch", 2, "--batch needs a value"),
    ("compile net.onnx --block x", 2, "--block x: expected a whole number"),
    ("--model-limit nodes=many explain gemm 8 8 8", 1, "--model-limit nodes=many is not a limit; expected NAME=NUMBER"),
    ("--model-limit size=1 explain gemm 8 8 8", 1, "'size' is not a limit"),
    ("db", 2, "Usage"),
    ("db lst shapes.db", 2, "unknown command 'lst'; did you mean list?"),
    ("fleet stop", 2, "unknown command 'stop'"),
    # ---- files
    ("compile none.onnx", 1, "none.onnx does not exist"),
    ("compile directory", 1, "directory is a directory"),
    ("compile short.onnx", 1, "short.onnx"),
    ("compile text.onnx", 1, "text.onnx"),
    ("compile empty.onnx", 1, "empty.onnx"),
    ("compile net.onnx -o none/model.tar", 1, "directory none does not exist"),
    ("compile net.onnx -o directory", 1, "directory cannot be written"),
    ("compile net.onnx --database none.db", 1, "none.db"),
    ("compile net.onnx --database text.db", 1, "text.db"),
    ("compile net.onnx --params none.params", 1, "none.params"),
    ("run none.onnx", 1, "none.onnx does not exist"),
    ("run directory", 1, "directory is a directory"),
    ("run net.onnx --input none.npz", 1, "none.npz cannot be read"),
    ("run net.onnx --input text.npz", 1, "text.npz has no named arrays"),
    ("run net.onnx --input wide.npz", 1, "shape (2, 5)"),
    ("run net.onnx --input other.npz", 1, "no input 'z'"),
    ("run net.onnx --input double.npz", 1, "float64"),
    ("run net.onnx -o none/y.npz", 1, "directory none does not exist"),
    ("export net.onnx full", 1, "full"),
    ("convert net.onnx", 1, "net.onnx is not a Relay model"),
    ("convert none.relay", 1, "none.relay does not exist"),
    ("report none.json", 1, "'none.json' is neither a file nor an operator"),
    ("report net.onnx -o none/r.html", 1, "directory none does not exist"),
    ("report list.json", 1, "list.json"),
    ("simulate text.vsim", 1, "written by simulate --save"),
    ("simulate none.vsim", 1, "'none.vsim' is neither a file nor an operator"),
    ("bench none.onnx", 1, "none.onnx does not exist"),
    ("demo none.onnx", 1, "none.onnx does not exist"),
    ("generate none.gguf --tokens 1", 1, "none.gguf does not exist"),
    # ---- outputs that would replace inputs
    ("compile net.onnx -o net.onnx", 1, "net.onnx is an input of this command; expected another path for the output"),
    ("compile net.onnx --precision int8 --calibration x.npz -o x.npz", 1, "x.npz is an input of this command"),
    ("run net.onnx --input x.npz -o ./x.npz", 1, "x.npz is an input of this command"),
    ("report net.onnx -o net.onnx", 1, "net.onnx is an input of this command"),
    ("tune net.onnx --html net.onnx", 1, "net.onnx is an input of this command"),
    ("tune gemm 8 8 8 --database shapes.db --html shapes.db", 1, "shapes.db is an input of this command"),
    ("convert net.onnx -o net.onnx", 1, "net.onnx is an input of this command"),
    ("simulate text.vsim --save text.vsim", 1, "text.vsim is an input of this command"),
    (f"simulate {GEMM} --target vta -o page --trace page", 1, "page is given for two outputs"),
    (f"{SWEEP} --field clock_mhz --values 50 --target bad.toml -o bad.toml", 1, "bad.toml is an input of this command"),
    # ---- files of another kind
    ("compile x.npz", 1, "x.npz is a file of arrays, as written by numpy.savez; expected"),
    (
        "compile bad.toml",
        1,
        "bad.toml is not an ONNX model, or is truncated; expected a complete ONNX, TFLite, GGUF or",
    ),
    ("explain directory", 1, "directory is a directory; expected a model"),
    ("convert directory", 1, "directory is a directory; expected a Relay model"),
    ("demo directory", 1, "directory is a directory; expected an ONNX file"),
    ("explain gemm 8 8 8 --target directory", 1, "directory is a directory; expected a preset or a TOML file"),
    ("hardware show net.onnx", 1, "net.onnx is a file whose name does not end in .toml; expected a preset or a TOML"),
    ("db list directory", 1, "directory is a directory; expected the file of a database of shapes"),
    ("generate net.onnx --prompt a --tokenizer none.json", 1, "none.json does not exist; expected a tokenizer.json"),
    # ---- options that contradict each other or that the subject does not have
    ("compile net.onnx --block 64", 1, "--block 64 needs --weights int4 or --weights int8"),
    ("hardware show vta --json --toml", 1, "--json and --toml are two formats; expected one of them"),
    ("tune gemm 8 8 8 --batch 4", 1, "--batch applies to models; an operator states its sizes"),
    ("bench gemm --resume", 1, "--resume needs --output, the file to continue"),
    ("explain gemm 8 8 8 --prefer energy", 1, "which is a CPU; expected 'utilisation'"),
    ("fleet start --key a/b", 1, "--key a/b: expected letters, digits and the characters"),
    ("fleet join rpc://127.0.0.1:9190/cpu --host 300.0.0.1", 1, "--host 300.0.0.1: a worker cannot listen there"),
    # ---- sizes
    ("compile open.onnx --batch x", 1, "--batch x is not a size; expected 4, 1,4,8 or 1..16"),
    ("compile open.onnx --batch 0", 1, "--batch 0 is not a size"),
    ("compile open.onnx --batch -3", 1, "--batch -3 is not a size"),
    ("compile open.onnx --batch 8..2", 1, "--batch 8..2 is not a range of sizes"),
    ("compile open.onnx --batch 99999999999999999999", 1, "is not a size"),
    ("compile open.onnx --dim rows", 1, "--dim rows: expected a name and sizes"),
    ("compile open.onnx --dim rows=", 1, "--dim rows= is not a size"),
    ("compile open.onnx --dim colums=4", 1, "--dim names 'colums'"),
    ("compile open.onnx --dim rows=1..8 --dim rows=4", 1, "--dim rows is given twice"),
    ("compile open.onnx --shape x=2", 1, "--shape x=2"),
    ("compile open.onnx --shape z=2,4", 1, "--shape names 'z'"),
    ("compile net.onnx --batch 1..8", 1, "--batch is given as a range"),
    ("compile open.onnx --dim rows=" + ",".join(map(str, range(1, 99))), 1, "--batch and --dim result in 98"),
    ("compile open.onnx --precision int8 --calibration x.npz", 1, "by --batch, --dim or --shape"),
    ("simulate open.onnx", 1, "--batch N"),
    ("sweep open.onnx --field clock_mhz --values 50", 1, "--batch N"),
    ("simulate gemm 8 8 8 --batch 4", 1, "apply to models"),
    ("explain gemm -1 2 3", 2, "-1 is neither a size nor an option"),
    ("compile net.onnx --precision int8 --calibration x.npz --calibration wide.npz", 1, "--calibration, file 2: input"),
    ("compile net.onnx --shape x=3,5", 1, "--shape x=3,5 does not match input 'x' (2, 4)"),
    ("compile net.onnx --activations int8", 1, "expected a model with such weights, or --weights int4"),
    ("export net.onnx library --name 3x", 1, "--name 3x is not supported; expected letters"),
    ("explain gemm 8 8 8 --dim m=4", 1, "apply to models"),
    ("tune gemm 64 64 64 --dim m=9..3", 1, "--dim m=9..3 is not a range of sizes"),
    ("tune gemm 64 64 64 --dim k=1..8", 1, "--dim names 'k'"),
    # ---- precision
    ("compile net.onnx --precision int4", 1, "--precision int4 is not supported; did you mean 'int8'?"),
    ("compile net.onnx --precision int8", 1, "--precision int8 needs inputs; use --calibration inputs.npz"),
    ("compile net.onnx --precision auto", 1, "--precision auto needs inputs"),
    ("compile net.onnx --precision int8 --calibration other.npz", 1, "no input 'z'"),
    ("compile net.onnx --calibration x.npz", 1, "--calibration has no effect with --precision float32"),
    ("compile net.onnx --tolerance 0.1", 1, "--tolerance 0.1 needs --precision auto"),
    ("compile net.onnx --precision auto --calibration x.npz --tolerance -1", 1, "--tolerance -1"),
    ("compile net.onnx --weights int3", 1, "--weights int3 is not supported"),
    ("compile net.onnx --weights int4 --block 7", 1, "--block 7"),
    ("compile net.onnx --activations int4", 1, "--activations int4 is not supported"),
    ("compile net.onnx --logits first", 1, "--logits first is not supported"),
    ("explain net.onnx --precision int8", 1, "--precision int8 depends on calibration inputs"),
    ("tune gemm 64 64 64 --precision float16", 1, "--precision float16 is not supported here"),
    ("tune net.onnx --calibration x.npz", 1, "--calibration applies to accelerators"),
    ("simulate net.onnx --precision int8", 2, "unknown option --precision"),
    (
        "compile net.onnx --precision auto --calibration x.npz --deterministic",
        1,
        "--deterministic is not supported with",
    ),
    ("compile net.onnx --target vta --deterministic", 1, "--deterministic is not supported on vta"),
    ("explain gemm 8 8 8 --target vta --deterministic", 1, "--deterministic is not supported on vta"),
    ("simulate net.onnx --target vta", 1, "vta does not support float32 matrix multiplication; use --calibration"),
    # ---- hardware
    ("explain gemm 8 8 8 --target vtaa", 1, "unknown hardware preset 'vtaa'; did you mean 'vta'?"),
    ("explain gemm 8 8 8 --target none.toml", 1, "none.toml"),
    ("explain gemm 8 8 8 --target bad.toml", 1, "unknown field 'buff_a'; did you mean 'buf_a'?"),
    ("explain gemm 8 8 8 --target syntax.toml", 1, "syntax.toml"),
    ("explain gemm 8 8 8 --target vta", 1, "vta does not support operands of float32"),
    ("explain gemm 8 8 8 --target rnn16k", 1, "rnn16k"),
    ("explain net.onnx --target vta", 1, "--target vta is an accelerator; use tvm-tiling simulate"),
    ("simulate gemm 8 8 8 --target zen4-server-8c", 1, "--target zen4-server-8c is a CPU; expected an accelerator"),
    ("simulate gemm 8 8 8 --target cpu", 1, "--target cpu is a CPU"),
    ("run net.onnx --target neoverse-v1-16c", 1, "this command runs on x86"),
    ("bench net.onnx --target neartile", 1, "simulated accelerator; use tvm-tiling simulate"),
    ("run net.onnx --threads 999", 1, "--threads 999 is not supported; expected a whole number from 1 to"),
    ("tune gemm 64 64 64 --threads 999", 1, "--threads 999: this process may use"),
    ("run net.onnx --threads 0", 2, "--threads 0: expected at least 1"),
    ("run net.onnx --threads two", 2, "--threads two: expected a whole number"),
    ("hardware show vtaa", 1, "did you mean 'vta'?"),
    ("hardware check bad.toml", 1, "bad.toml"),
    # ---- operators
    ("explain", 2, "OPERATOR|MODEL is missing"),
    ("explain gem 1 2 3", 1, "word 1, 'gem', is not an operator; did you mean 'gemm'?"),
    ("explain gemm 8 8", 1, "n is missing"),
    ("explain gemm 8 8 0", 1, "n = 0"),
    ("explain gemm 8 8 x", 1, "n is an integer"),
    ("explain gemm 8 8 8 dtype=float23", 1, "did you mean 'float32'?"),
    (f"explain {CONV} stride=0", 1, "stride"),
    (f"explain {CONV} groups=3", 1, "groups = 3"),
    (f"explain {CONV} kh=99", 1, "kh is given twice"),
    ("explain gemm 8 8 8 --mode worst", 1, "--mode worst is not supported; expected best, seed"),
    ("explain gemm 8 8 8 --prefer speed", 1, "--prefer speed is not supported"),
    ("explain gemm 8 8 8 --algorithm fast", 1, "--algorithm fast is not a kernel variant"),
    ("explain gemm 8 8 8 --weights sparse", 1, "--weights sparse is not supported"),
    ("explain net.onnx --algorithm direct", 1, "--algorithm and --weights apply to operators"),
    ("simulate lstm steps=2 input_size=8 hidden_size=8 --map", 1, "--map expects a gemm or a conv"),
    ("simulate net.onnx --prefer energy", 1, "--prefer applies to a single gemm or conv"),
    # ---- sweep
    (SWEEP, 2, "--field is missing"),
    (f"{SWEEP} --field clock_mhz", 2, "--values is missing"),
    (f"{SWEEP} --field clock --values 50", 1, "clock"),
    (f"{SWEEP} --field clock_mhz --values 5..", 1, "'5..' is not a value"),
    (f"{SWEEP} --field clock_mhz --values 9..3+1", 1, "is not an increasing range"),
    (f"{SWEEP} --field clock_mhz --values 1..1e12+1", 1, "has more than 4096 values"),
    (f"{SWEEP} --field clock_mhz --values 50 --field clock_mhz --values 60", 1, "--field clock_mhz is given twice"),
    (f"{SWEEP} --field clock_mhz --values 50 --pareto speed", 1, "--pareto speed is not an objective"),
    # ---- tune, db, fleet, generate, bench
    ("tune nothing", 1, "'nothing' is neither a file nor an operator"),
    ("tune directory", 1, "'directory' is a directory; expected a model, or an operator"),
    ("report directory", 1, "'directory' is a directory; expected a model, a program, a result, or an operator"),
    ("simulate directory", 1, "'directory' is a directory; expected a program, a model, or an operator"),
    ("explain lstm steps=0 input_size=8 hidden_size=8", 1, "lstm: steps = 0; expected a whole number of at least 1"),
    (
        "explain rnn cell=gru steps=2 input_size=8 hidden_size=8 activation=relu",
        1,
        "gru: activation 'relu' requires",
    ),
    ("bench gemm --dtype int9", 1, "gemm has no case for --dtype int9"),
    ("bench gemm --short --filter nothing", 1, "gemm has no case for --filter nothing --short"),
    ("tune lstm steps=2 input_size=8 hidden_size=8", 1, "recurrent layers are not tuned"),
    ("tune gemm 64 64 64 --trials 0", 2, "--trials 0: expected at least 1"),
    ("tune gemm 64 64 64 --trials many", 2, "--trials many: expected a whole number"),
    ("tune gemm 64 64 64 --runner ssh://x", 1, "--runner ssh://x"),
    ("tune gemm 64 64 64 --database none/x.db", 1, "none"),
    ("tune gemm 64 64 64 --log none/x.jsonl", 1, "directory none does not exist"),
    ("tune gemm 64 64 64 --html none/x.html", 1, "directory none does not exist"),
    ("db list none.db", 1, "none.db"),
    ("db list text.db", 1, "text.db"),
    ("db show shapes.db --kind small", 1, "--kind small is not supported"),
    ("db show shapes.db --limit 0", 2, "--limit 0: expected at least 1"),
    ("db match shapes.db gemm 8 8 8 --order best", 1, "--order best is not supported"),
    ("db match shapes.db gemm 8 8 8 dtype=int8 --target neartile", 1, "shapes.db has no entries of vsim neartile"),
    ("db generate shapes.db", 1, "there are no shapes to measure; use --shape, --model or --random"),
    ("db generate shapes.db --random 1 --factor 1", 2, "--factor 1: expected at least 2"),
    ("db generate shapes.db --random 1 --seconds -1", 2, "--seconds -1: expected at least 0"),
    ("db export shapes.db text.jsonl", 1, "text.jsonl"),
    ("db import shapes.db text.jsonl", 1, "text.jsonl, line 1"),
    ("fleet start --port 99999", 2, "--port 99999: expected"),
    ("fleet status 127.0.0.1", 1, "127.0.0.1"),
    ("generate net.onnx", 1, "the prompt is missing; use --tokens 1,2,3"),
    ("generate net.onnx --prompt hello", 1, "--prompt needs a tokenizer; use --tokens 1,2,3"),
    ("generate none.gguf --prompt hello", 1, "none.gguf does not exist"),
    ("generate net.onnx --tokens a,b", 1, "--tokens a,b is not a list of token ids"),
    ("generate net.onnx --tokens 1 --prompt hello", 1, "two prompts are given"),
    ("generate net.onnx --tokens 1 --max-new 0", 2, "--max-new 0: expected at least 1"),
    ("bench net.onnx --seconds -1", 2, "--seconds -1: expected at least 0.01"),
    ("bench net.onnx --seconds inf", 1, "--seconds inf: expected a finite number"),
    ("bench nosuch", 1, "'nosuch' is neither a model nor a suite; expected calibration, conv, gemm"),
    ("bench gemm --batch 4 --input x.npz", 1, "--input and --batch apply to models"),
    ("bench net.onnx --short", 1, "net.onnx is a model"),
    ("demo --size 4", 2, "--size 4: expected"),
]


@pytest.mark.parametrize(("line", "code", "said"), REFUSED, ids=[line for line, _, _ in REFUSED])
def test_one_sentence(line, code, said, folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TVM_TILING_CACHE", str(folder / "cache"))
    before = {path.name for path in folder.iterdir()}
    found, out, err = run(capsys, *line.split())
    assert found == code, out + err
    if said != "Usage":
        assert out == "" and err.startswith("error: ") and err.count("\n") == 1, out + err
        assert not PYTHON.search(err), err
    assert said in err, err
    assert {path.name for path in folder.iterdir()} <= {*before, "cache"}


def test_there_are_a_hundred():
    assert len(REFUSED) >= 100 and len({line for line, _, _ in REFUSED}) == len(REFUSED)
