"""`tvm-tiling demo`, on a small network and small matrix multiplications."""

from __future__ import annotations

import functools
import importlib.util
import json
import math
import os
import re
import shlex

import command_line
import numpy as np
import pytest

from tvm_tiling.cli import bench_model, demo, demo_files, demo_network, demo_products, demo_rival
from tvm_tiling.measure import Condition, Paired, Side, Timing
from tvm_tiling.runtime import threads

demo_resnet = pytest.importorskip("tvm_tiling.cli.demo_resnet", reason="onnx writes the demo's network")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The demo writes to the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys, *words):
    return command_line.run(capsys, "demo", *words)


@pytest.fixture
def quick(monkeypatch):
    """Use a few samples of each library, no PyTorch, which takes seconds to load, and a network with few channels."""
    few = demo_products.StopRule(most_pairs=3)
    for module in (demo_products, demo_network):
        monkeypatch.setattr(module, "StopRule", lambda **_: few)
    monkeypatch.setattr(bench_model, "StopRule", lambda **_: few)
    monkeypatch.setattr(demo_network, "MEASURED", 0.01)
    monkeypatch.setattr(demo_products, "_libraries", lambda: {"NumPy": demo_products._numpy})
    monkeypatch.setattr(demo_resnet, "BLOCKS", (1, 1))
    small = functools.partial(demo_resnet.resnet_bytes, image=32, channels=8)
    monkeypatch.setattr(demo_resnet, "resnet_bytes", small)


@pytest.fixture
def without_network(monkeypatch):
    """As on a machine without the onnx package."""
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "onnx" else find(name))


def test_full_size_gemms():
    dense, decoding, primes = demo_products.demo_products(1024)
    assert (dense.m, dense.k, dense.n, dense.dense) == (1024, 1024, 1024, True)
    assert (decoding.m, decoding.k, decoding.n, decoding.dense) == (1, 4096, 4096, False)
    assert (primes.m, primes.k, primes.n) == (1013, 1019, 1021)
    assert dense.flops == 2 * 1024**3


def test_text(capsys, quick, without_network):
    code, out, err = run(capsys, "--size", "48")
    assert code == 0
    assert out.count("tvm-tiling ") == out.count("TVM default ") == out.count("NumPy  ") == 3
    assert "(48 x 48) * (48 x 48), float32, bias and ReLU" in out
    assert "(41 x 43) * (43 x 47)" in out
    assert "GFLOP/s" in out and "without trial runs" in out and " cores; TVM 0." in out
    assert "Geometric mean speedup of the three: " in out and " over NumPy." in out
    assert "prime sizes, 41 x 43 x 47: measuring TVM default\n" in err
    assert "the network was skipped because onnx is not installed" in out


def test_json(capsys, quick, without_network):
    code, out, _ = run(capsys, "--size", "32", "--json")
    result = json.loads(out)
    assert code == 0
    assert {"cpu", "cores", "versions", "date"} <= set(result["machine"])
    assert result["networks"] == []
    sizes = [(p["m"], p["k"], p["n"], p["bias_relu"]) for p in result["products"]]
    assert sizes == [(32, 32, 32, True), (1, 128, 128, False), (23, 29, 31, False)]
    for product in result["products"]:
        assert set(product["runs"]) == {"NumPy", "TVM default"}
        assert product["decision"]["mr"] >= 1 and product["gflops"] > 0
        assert all(0 <= error < 1e-4 for error in product["largest_error"].values())
        assert all(pair["status"] == "ok" and pair["ratio"] > 0 for pair in product["runs"].values())


def test_a_network_given_as_a_file(capsys, quick, folder):
    file = folder / "small.onnx"
    file.write_bytes(demo_resnet.resnet_bytes())
    code, out, err = run(capsys, str(file), "--json", "-o", "kept/here")
    result = json.loads(out)
    names = {"executable": "model.tar", "inputs": "input.npz", "report": "report.html"}
    written = {kind: f"kept/here/{name}" for kind, name in names.items()}
    assert result["files"] == {"model": str(file)} | written
    assert {str(path.relative_to(folder)) for path in folder.glob("kept/here/[!.]*")} == set(written.values())
    assert code == 0 and result["products"] == []
    (network,) = result["networks"]
    assert network["title"] == str(file) and 0 <= network["largest_difference"] <= 1e-3
    assert network["checked_by"] in ("onnxruntime", "TVM default")
    assert {"TVM default"} <= set(network["runs"]) <= {"TVM default", "onnxruntime"}
    assert all(pair["status"] == "ok" and pair["ratio"] > 0 for pair in network["runs"].values())
    convolutions = [o for o in network["report"]["operators"] if o["kind"] == "convolution"]
    assert sum(o["calls"] for o in convolutions) == 6 and all(o["decision"] and o["why"] for o in convolutions)
    assert f"{file}: measuring TVM default\n" in err


def test_a_network_of_its_own_and_the_commands_to_go_on_with(capsys, quick, monkeypatch, folder):
    monkeypatch.setattr(demo, "demo_products", lambda _: [])
    monkeypatch.setattr(demo_network, "_has_onnxruntime", lambda: False)
    monkeypatch.setattr(demo_files, "_program", lambda: ["tvm-tiling"])  # not that of the tests
    code, out, _ = run(capsys)
    assert code == 0
    assert f"{demo.SMALL_RESNET}: " in out and "largest difference from TVM default: " in out
    assert "conv_" in out and "our speedup" in out
    assert demo.SMALL_RESNET in (folder / demo.DIRECTORY / "report.html").read_text()
    commands = [shlex.split(line) for line in out.splitlines()[-3:]]
    assert [words[1] for words in commands] == ["run", "explain", "tune"]
    for words in commands:
        trials = ["--trials", "1"] if words[1] == "tune" else []
        code, out, err = command_line.run(capsys, *words[1:], *trials)
        assert code == 0 and out, err
    assert {"output.npz", "shapes.db"} <= {path.name for path in (folder / demo.DIRECTORY).iterdir()}


def test_files_that_are_not_of_a_demo_are_kept(capsys, folder):
    for name in ("model.onnx", "report.html"):
        (folder / name).write_text("mine")
    code, out, err = run(capsys, "-o", ".")
    assert (code, out) == (1, "") and (folder / "model.onnx").read_text() == "mine"
    assert err == "error: model.onnx exists and is not from an earlier demo; use another directory for -o\n"


def test_the_path_of_the_program_is_printed_where_the_shell_does_not_find_it(monkeypatch, folder):
    program = folder / "tvm-tiling"
    program.write_text("")
    program.chmod(0o755)
    monkeypatch.setattr("sys.argv", [str(program)])
    monkeypatch.setenv("PATH", "/nowhere")
    assert demo_files._program() == [str(program)]
    monkeypatch.setenv("PATH", str(folder))
    assert demo_files._program() == ["tvm-tiling"]
    module = folder / "__main__.py"
    module.write_text("")
    monkeypatch.setattr("sys.argv", [str(module)])
    assert (
        demo_files.DemoFiles.prepare(folder / "demo", "").next_commands()[1].startswith("python -m tvm_tiling explain ")
    )


@pytest.mark.parametrize(
    ("directory", "fault"),
    [
        ("file", "-o file is not a directory; expected a directory to write to"),
        ("/proc/here", "-o /proc/here cannot be created: No such file or directory"),
        ("", "-o is empty; expected a directory to write to"),
    ],
)
def test_a_directory_that_cannot_be_made_is_one_line(capsys, folder, directory, fault):
    (folder / "file").write_text("")
    assert run(capsys, "-o", directory) == (1, "", f"error: {fault}\n")


def test_the_network_is_the_same_every_time():
    bytes_of = functools.partial(demo_resnet.resnet_bytes, image=32, channels=4)
    assert bytes_of() == bytes_of()


def test_other_libraries_get_the_number_of_threads_of_the_variable(capsys, monkeypatch):
    monkeypatch.setattr(threads, "_ASKED_FOR", "1")
    for name in (names := ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")):
        monkeypatch.setenv(name, "unset after the test")
        monkeypatch.delenv(name)
    run(capsys, "missing.onnx")
    assert [os.environ.get(name) for name in names] == ["1", "1"]


def test_a_missing_file_is_one_line(capsys):
    assert run(capsys, "none.onnx") == (1, "", "error: none.onnx does not exist; expected an ONNX file\n")


@pytest.mark.parametrize("size", ["0", "15", "1025"])
def test_a_size_out_of_range_is_one_line_and_code_2(capsys, size):
    code, out, err = run(capsys, "--size", size)
    bounds = "at least 16|at most 1024|16 to 1024"  # the last one by earlier releases of Typer
    assert (code, out) == (2, "")
    assert re.fullmatch(rf"error: --size {size}: expected ({bounds}); see .*\n", err)


def test_a_size_that_is_not_a_number_is_wrong_usage(capsys):
    code, out, err = run(capsys, "--size", "big")
    assert code == 2 and out == "" and "--size" in err and "Traceback" not in err


def test_a_wrong_result_is_never_timed(capsys, quick, without_network, monkeypatch):
    def wrong(arrays):
        rival = demo_products._numpy(arrays)
        return demo_products.Rival("NumPy", rival.side, lambda: rival.output() + 0.5)

    monkeypatch.setattr(demo_products, "_libraries", lambda: {"NumPy": wrong})
    monkeypatch.setattr(demo_products, "paired", lambda *_: pytest.fail("timed"))
    code, out, err = run(capsys, "--size", "16")
    assert (code, out) == (1, "")
    error = err.splitlines()[-1]
    assert error.startswith("error: dense layer, 16 x 16 x 16: NumPy differs from NumPy by 0.5; expected at most")


def test_not_a_number_is_wrong():
    product = demo_products.Product("thing", 1, 4, 1)
    rival = demo_products.Rival("it", Side(lambda: None), lambda: np.full((1, 1), math.nan))
    with pytest.raises(demo_rival.DemoError, match="differs from NumPy by nan"):
        demo_products._error(rival, np.zeros((1, 1)), product)


@pytest.mark.parametrize(("seconds", "pairs"), [(0.6, 2), (5.0, 1)])
def test_a_slow_rival_runs_few_times(monkeypatch, seconds, pairs):
    monkeypatch.setattr(demo_rival, "Condition", lambda: Condition(switches=lambda: 0))  # no sample is disturbed
    calls = []
    ours, slow = (Side(lambda name=name: calls.append(name)) for name in ("ours", "slow"))
    pair = demo_rival.few_pairs(ours, slow, seconds)
    assert calls == ["ours", "slow"] * pairs
    assert len(pair.ours.seconds) == len(pair.peer.seconds) == pairs


def test_the_middle_half_of_one_pair_is_none():
    def pairs(*seconds):
        return Paired(ours=Timing(seconds=(1.0,) * len(seconds)), peer=Timing(seconds=seconds))

    assert demo_rival.middle_half(pairs(2.0)) == "one pair"
    assert demo_rival.middle_half(pairs(1.0, 2.0, 3.0, 4.0, 5.0)) == "2.00 to 4.00"


def test_summary_takes_the_faster_library(monkeypatch):
    def result(numpy, torch, tvm):
        runs = {
            name: Paired(ours=Timing(seconds=(1.0,)), peer=Timing(seconds=(ratio,)))
            for name, ratio in (("NumPy", numpy), ("PyTorch", torch), ("TVM default", tvm))
        }
        return demo_products.Demonstration(demo_products.Product("p", 1, 1, 1), None, 0.0, 0.0, {}, runs)

    monkeypatch.setattr(demo_products, "_libraries", lambda: dict.fromkeys(("NumPy", "PyTorch")))
    assert demo_products._summary([result(2.0, 8.0, 10.0), result(9.0, 4.5, 1000.0)]) == (
        "Geometric mean speedup of the three: 100 over TVM's default pipeline, 3.00 over the faster of NumPy and "
        "PyTorch."
    )
