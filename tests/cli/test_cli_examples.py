"""The help of every command: it fits 80 columns, and the command lines at its end work."""

from __future__ import annotations

import json
import shlex

import numpy as np
import pytest
import typer
from documented import decoder_bytes, gguf_bytes, tokenizer_bytes

from tvm_tiling.cli import app, main

onnx = pytest.importorskip("onnx")

# Examples that are parsed but not run: they take minutes, never end, or have their own tests.
ELSEWHERE = (
    "tvm-tiling demo",
    "tvm-tiling doctor",
    "tvm-tiling convert",
    "tvm-tiling compile model.onnx --batch",
    "tvm-tiling fleet",
    "tvm-tiling bench gemm",
    "tvm-tiling tune gemm 1024",
    "tvm-tiling tune model.onnx",
    "tvm-tiling db generate shapes.db --model",
)


def leaves():
    """Return (words that call it, command) of every command that is not a group."""
    for row in app.COMMANDS:
        command = typer.main.get_command(app._frame([row.name])).commands[row.name]
        if hasattr(command, "commands"):
            yield from (((row.name, name), own) for name, own in command.commands.items())
        else:
            yield (row.name,), command


LEAVES = dict(leaves())


def examples(command):
    lines = (command.epilog or "").splitlines()
    return [line.strip() for line in lines if line.startswith("  ")]


EXAMPLES = [(words, line) for words, command in LEAVES.items() for line in examples(command)]


def test_every_command_has_an_example_and_a_help_that_fits(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert all(len(row.help) <= app.HELP_WIDTH for row in app.COMMANDS)
    for words, command in LEAVES.items():
        assert examples(command), words
        assert command.help and not command.help.endswith("..."), words
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    assert "..." not in out.replace("[ARGS]...", "") and max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(("words", "line"), EXAMPLES, ids=lambda value: value if isinstance(value, str) else "")
def test_every_example_is_understood(words, line):
    typed = shlex.split(line.partition(" > ")[0])
    assert tuple(typed[1 : 1 + len(words)]) == words and typed[0] == "tvm-tiling"
    LEAVES[words].make_context(" ".join(words), typed[1 + len(words) :])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folder for the examples: model.onnx, a convolution and a ReLU, and its input x.npz; decoders with a tokenizer."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "decoder.onnx").write_bytes(decoder_bytes())
    (folder / "decoder.gguf").write_bytes(gguf_bytes())
    (folder / "tokenizer.json").write_bytes(tokenizer_bytes())
    weights = np.random.default_rng(0).uniform(-1, 1, (16, 16, 3, 3)).astype("float32")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["y"], ["z"])]
    ends = [helper.make_tensor_value_info(name, kind, [1, 16, 9, 9]) for name in ("x", "z")]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], [onnx.numpy_helper.from_array(weights, "w")])

    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, folder / "model.onnx")
    np.savez(folder / "x.npz", x=np.ones((1, 16, 9, 9), "float32"))
    return folder


def test_the_examples_run_in_sequence(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TVM_TILING_CACHE", str(folder / "cache"))
    order = ("compile", "export", "run", "generate", "explain", "bench", "tune", "report", "simulate", "sweep", "db")
    order += ("hardware",)
    examples = [e for e in EXAMPLES if not e[1].startswith(ELSEWHERE)]
    # compile --database reads what tune has written.
    run = sorted(examples, key=lambda e: ("compile" in e[0] and "--database" in e[1], order.index(e[0][0])))
    assert len(run) > 20
    for words, line in run:
        typed, _, kept = line.partition(" > ")
        measured = ("--seconds", "0.05") if words[0] in ("report", "bench") and "model" in typed else ()
        measured = ("--trials", "1") if words[0] == "tune" else measured
        with pytest.raises(SystemExit) as left:
            main([*shlex.split(typed)[1:], *measured])
        out, err = capsys.readouterr()
        assert not left.value.code, f"{line}: {err}"
        assert out.strip(), line
        # Output of a model may end in spaces, output of a command may not.
        assert words[0] == "generate" or not any(text.endswith(" ") for text in out.splitlines()), line
        if kept:
            (folder / kept).write_text(out)
        if "--json" in typed:
            json.loads(out)
    with pytest.raises(SystemExit) as left:
        main(["report", "bench.json", "-o", "bench.html"])
    assert not left.value.code and "onnxruntime" in (folder / "bench.html").read_text()
    made = {path.name for path in folder.iterdir()}
    assert {"model.tar", "y.npz", "report.html", "report.json", "bench.json", "mine.toml", "shapes.jsonl"} <= made


# ---- completion ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("tvm-tiling rep", ["report"]),
        ("tvm-tiling report --sec", ["--seconds"]),
        ("tvm-tiling db gen", ["generate"]),
        ("tvm-tiling simulate --hardware wf", ["wfold16"]),
        ("tvm-tiling compile --target vsim/wf", ["vsim/wfold16"]),
    ],
)
def test_a_shell_completes_commands_options_and_machines(typed, offered, capsys, monkeypatch):
    monkeypatch.setenv(app.COMPLETING, "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
    with pytest.raises(SystemExit) as left:
        main([])
    assert (left.value.code, capsys.readouterr().out.split()) == (0, offered)
