"""Commands on a model: compile, run, report, bench and explain an ONNX file, and errors for invalid input."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import json
import subprocess
import sys

import numpy as np
import pytest
import typer
from command_line import run

import tvm_tiling as tt
from tvm_tiling.cli import bench_model
from tvm_tiling.cli.model_options import ModelOptions, model_options
from tvm_tiling.decide.configs.neighbourhood import neighbourhood
from tvm_tiling.errors import WorkloadError

onnx = pytest.importorskip("onnx")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """An ONNX model with one convolution and a ReLU, one with a dynamic batch, and inputs."""
    folder = tmp_path_factory.mktemp("models")
    rng = np.random.default_rng(0)
    weights = rng.uniform(-1, 1, (8, 3, 3, 3)).astype("float32")
    helper = onnx.helper

    def model(batch: int | str) -> onnx.ModelProto:
        nodes = [
            helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["y"], ["z"]),
        ]
        kind = onnx.TensorProto.FLOAT
        graph = helper.make_graph(
            nodes,
            "net",
            [helper.make_tensor_value_info("x", kind, [batch, 3, 9, 9])],
            [helper.make_tensor_value_info("z", kind, [batch, 8, 9, 9])],
            [onnx.numpy_helper.from_array(weights, "w")],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)

    onnx.save(model(1), folder / "net.onnx")
    onnx.save(model("batch"), folder / "open.onnx")
    x = rng.uniform(-1, 1, (1, 3, 9, 9)).astype("float32")
    np.savez(folder / "x.npz", x=x)
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    np.save(folder / "want.npy", np.maximum(np.einsum("nchwij,ocij->nohw", windows, weights), 0))
    return folder


def test_compile_then_run_then_report(files, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_TILING_CACHE", str(tmp_path / "cache"))
    compiled = str(tmp_path / "net.tar")
    code, out, err = run(capsys, "compile", str(files / "net.onnx"), "-o", compiled)
    assert (code, err) == (0, "") and "input x: 1 x 3 x 9 x 9 float32" in out
    code, _, _ = run(capsys, "run", compiled, "--input", str(files / "x.npz"), "-o", str(tmp_path / "z.npz"))
    assert code == 0
    with np.load(tmp_path / "z.npz") as outputs:
        np.testing.assert_allclose(outputs["z"], np.load(files / "want.npy"), rtol=1e-4, atol=1e-5)
    code, out, _ = run(capsys, "report", compiled, "--seconds", "0.05", "--json")
    report = json.loads(out[out.index("{") :])
    assert code == 0 and report["seconds"] > 0
    assert any(operator["kind"] == "convolution" and operator["decision"] for operator in report["operators"])


def test_compile_takes_configs_from_a_database_that_is_there(files, capsys, tmp_path):
    class Formulas:
        """A database without configurations that records its queries."""

        def config_for(self, workload, hardware, prepacked=False, epilogue=""):
            asked.append((workload, hardware, prepacked, epilogue))

    asked: list = []
    net, url, compiled = str(files / "net.onnx"), str(tmp_path / "shapes.db"), str(tmp_path / "net.tar")
    tt.compile(net, database=Formulas(), cache=False)
    (workload, hardware, prepacked, epilogue), *_ = asked
    config = list(neighbourhood(workload, hardware, prepacked=prepacked).configs())[3]
    words = ("compile", net, "-o", compiled, "--no-cache", "--database", url)
    assert run(capsys, *words) == (1, "", f"error: {url} does not exist; expected the file of a database of shapes\n")
    with tt.ShapeDatabase(url) as database:
        database.add(workload, config, 1e-6, target=hardware, epilogue=epilogue, prepacked=prepacked)
    assert run(capsys, *words)[0] == 0
    assert [o.why for o in tt.load(compiled).operators if o.kind == "convolution"] == ["from the database"]


def test_open_dimensions_are_given_by_shape(files, capsys, tmp_path):
    target = str(tmp_path / "net.tar")
    code, out, _ = run(capsys, "compile", str(files / "open.onnx"), "-o", target, "--no-cache")
    assert code == 0 and " to 2147483647" in out
    code, out, err = run(capsys, "compile", str(files / "open.onnx"), "-o", target, "--no-cache", "--batch", "4..2")
    assert (code, out) == (1, "") and err.startswith("error: --batch 4..2 is not a range") and err.count("\n") == 1
    code, out, _ = run(capsys, "compile", str(files / "open.onnx"), "-o", target, "--no-cache", "--shape", "x=2,3,9,9")
    assert code == 0 and "input x: 2 x 3 x 9 x 9 float32" in out


def test_without_the_onnx_package_a_model_is_one_line(files):
    code = "import sys\nsys.modules['onnx'] = None\nfrom tvm_tiling.cli import main\nmain(['explain', 'net.onnx'])\n"
    done = subprocess.run([sys.executable, "-c", code], cwd=files, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "error: net.onnx: ONNX models require the onnx package, which is not installed; use pip install "
        "'tvm-tiling[onnx]'\n"
    )


@pytest.mark.parametrize("words", [("run", "none.onnx"), ("compile", "none.onnx"), ("report", "none.tar")])
def test_a_missing_file_is_one_line(words, capsys):
    code, out, err = run(capsys, *words)
    assert (code, out) == (1, "") and words[1] in err and err.count("\n") == 1


@pytest.fixture(scope="module")
def compiled(files):
    """The model with one convolution, compiled and saved."""
    import tvm_tiling as tt

    path = files / "compiled.tar"
    tt.compile(str(files / "net.onnx"), cache=False).save(path)
    return str(path)


def test_compile_reports_time_and_memory(files, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_TILING_CACHE", str(tmp_path / "cache"))
    words = ("compile", str(files / "net.onnx"), "-o", str(tmp_path / "net.tar"))
    code, out, _ = run(capsys, *words)
    assert code == 0 and " compiled in" in out and ", peak memory " in out and "memory: " in out
    code, out, _ = run(capsys, *words)
    assert code == 0 and "from the cache" in out
    code, out, _ = run(capsys, *words, "--json")
    hover = json.loads(out)
    assert code == 0 and hover["peak_memory"] > 1 << 20 and hover["seconds"] > 0 and hover["compile_seconds"] == 0
    (variant,) = hover["variants"]
    assert variant["memory"]["weights"] > 0 and variant["signature"]["input_names"] == ["x"]


def test_precisions_are_compared_and_reported(files, capsys, tmp_path):
    target, inputs = str(tmp_path / "net.tar"), str(files / "x.npz")
    words = ("compile", str(files / "net.onnx"), "-o", target, "--no-cache", "--calibration", inputs)
    code, out, _ = run(capsys, *words, "--precision", "auto", "--tolerance", "0.5")
    assert code == 0 and "precision: " in out and "int8: " in out and "percent from float32" in out
    code, out, _ = run(capsys, *words, "--precision", "int8", "--json")
    told = json.loads(out)["precision"]
    assert code == 0 and told["precision"] == "int8" and 0 < told["error"] < 0.1 and told["inputs"] == 1
    code, out, _ = run(capsys, "report", target, "--json")
    assert code == 0 and json.loads(out)["precision"] == told
    code, out, _ = run(capsys, "explain", str(files / "net.onnx"), "--precision", "bfloat16", "--json")
    (variant,) = json.loads(out)["variants"]
    assert code == 0 and "bfloat16" in {o["workload"]["dtype"] for o in variant["operators"] if o["workload"]}
    code, out, _ = run(capsys, "bench", str(files / "net.onnx"), "--precision", "float16", "--seconds", "0.05")
    assert code == 0 and "precision: float16, error not measured" in out


def test_a_batch_of_several_sizes(files, capsys, tmp_path):
    target = str(tmp_path / "net.tar")
    code, out, _ = run(capsys, "compile", str(files / "open.onnx"), "-o", target, "--no-cache", "--batch", "1,2")
    assert code == 0 and "input x: 1 x 3 x 9 x 9 float32" in out and "input x: 2 x 3 x 9 x 9 float32" in out
    code, out, _ = run(capsys, "run", target, "--input", str(files / "x.npz"), "--json")
    assert code == 0 and json.loads(out)["outputs"][0]["shape"] == [1, 8, 9, 9]
    code, out, _ = run(capsys, "explain", str(files / "open.onnx"), "--dim", "batch=2", "--json")
    assert code == 0 and json.loads(out)["variants"][0]["signature"]["input_shapes"] == [[2, 3, 9, 9]]


def test_report_has_shares_and_memory(compiled, capsys):
    code, out, _ = run(capsys, "report", compiled, "--seconds", "0.02")
    assert code == 0
    assert (
        "outside convolutions and matrix multiplications: " in out and "memory: " in out and "compiled in " not in out
    )


def test_two_builds_are_compared_in_turns(files, compiled, capsys, tmp_path):
    page = tmp_path / "r.html"
    words = ("report", compiled, "--against", str(files / "net.onnx"), "--seconds", "0.1", "--json", "-o", str(page))
    code, out, err = run(capsys, *words)
    assert code == 0, err
    told = json.loads(out)
    assert told["paired"]["pairs"] >= 3 and told["paired"]["ratio"] > 0
    names = [{o["name"] for o in told[side]["operators"]} for side in ("subject", "baseline")]
    assert names[0] == names[1] and "Paired runs" in page.read_text(encoding="utf-8")


def test_bench_beside_onnxruntime(files, capsys):
    pytest.importorskip("onnxruntime")
    code, out, _ = run(capsys, "bench", str(files / "net.onnx"), "--seconds", "0.02", "--json")
    hover = json.loads(out)
    assert code == 0 and hover["seconds"] > 0 and hover["runs"] >= 5
    assert hover["onnxruntime"]["status"] == "ok" and hover["onnxruntime"]["ratio"] > 0
    assert any(operator["measured_seconds"] for operator in hover["operators"])


def test_bench_of_a_compiled_model_has_nobody_beside_it(compiled, capsys):
    code, out, _ = run(capsys, "bench", compiled, "--seconds", "0.02")
    assert (
        code == 0
        and "p50 " in out
        and "p99 " in out
        and " runs/s" in out
        and "onnxruntime: skipped, the file is compiled" in out
    )


def test_bench_where_onnxruntime_is_not_installed(files, capsys, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "onnxruntime" else find(name))
    code, out, _ = run(capsys, "bench", str(files / "net.onnx"), "--seconds", "0.02", "--json")
    assert code == 0 and json.loads(out)["onnxruntime"] == {"status": "skipped", "reason": "it is not installed"}


def test_a_wrong_result_is_never_timed(files, capsys, monkeypatch):
    shape = (1, 8, 9, 9)
    monkeypatch.setattr(bench_model, "onnxruntime_run", lambda *_: lambda: [np.full(shape, np.nan)])
    monkeypatch.setattr(bench_model, "without_onnxruntime", lambda _: "")
    monkeypatch.setattr(bench_model, "paired", lambda *_: pytest.fail("timed"))
    code, out, err = run(capsys, "bench", str(files / "net.onnx"), "--seconds", "0.02")
    assert (code, out) == (1, "") and "error: output 'z' differs from onnxruntime's by nan" in err


def test_explain_needs_no_run(files, compiled, capsys, monkeypatch):
    for name in ("tvm_tiling.model.build.build", "tvm_tiling.model.kernels.object_of"):
        monkeypatch.setattr(name, lambda *_, **__: pytest.fail("compiled"))
    code, out, _ = run(capsys, "explain", str(files / "net.onnx"))
    assert code == 0
    assert "predicted time of convolutions and matrix multiplications: " in out and "s predicted" in out
    assert "algorithm = '" not in out  # the row names it
    assert "decided" in out and "compared" in out and "winograd" in out and "refused" in out
    code, out, _ = run(capsys, "explain", str(files / "net.onnx"), "--hardware", "zen4-server-8c", "--json")
    other = json.loads(out)
    assert code == 0 and other["hardware"] == "zen4-server-8c"
    (variant,) = other["variants"]
    (convolution,) = [operator for operator in variant["operators"] if operator["kind"] == "convolution"]
    assert convolution["decision"]["candidates"] and variant["predicted_seconds"] == convolution["predicted_seconds"]
    # A compiled model contains the decisions for this machine.
    code, out, _ = run(capsys, "explain", compiled, "--json")
    kept = json.loads(out)["variants"]
    code, out, _ = run(capsys, "explain", str(files / "net.onnx"), "--json")
    assert code == 0 and json.loads(out)["variants"] == kept


def test_explain_reports_what_took_time(files, compiled, capsys):
    for model, steps in (
        (str(files / "net.onnx"), ("loading TVM", "reading the model", "choosing tilings")),
        (compiled, ("reading the file",)),
    ):
        _, out, _ = run(capsys, "explain", model)
        assert all(f"{step} " in out.splitlines()[0] for step in steps), out
        found = json.loads(run(capsys, "explain", model, "--json")[1])
        assert tuple(found["steps"]) == steps and sum(found["steps"].values()) <= found["seconds"]


def test_names_of_nodes_stand_before_the_kernels(files, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    _, out, _ = run(capsys, "explain", str(files / "net.onnx"))
    table = out[out.index("\nnodes ") + 1 :].splitlines()
    assert "kernel" in table[0]
    assert any(line.startswith("y, z ") and " fused_" in line for line in table), table


def test_threads_restricts_the_process_and_its_kernels(files):
    code = (
        "import sys\n"
        "from tvm_tiling.cli import main\n"
        "try: main([*sys.argv[1:], '--threads', '1'])\n"
        "except SystemExit as left: assert not left.code\n"
    )
    words = ("explain", "gemm", "512", "512", "512", "--json")
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    decision = json.loads(done.stdout)["decision"]
    assert decision["threads_m"] * decision["threads_n"] * decision["threads_k"] == 1


def test_threads_are_the_cores_of_a_target_and_leave_the_affinity(files, capsys, monkeypatch):
    monkeypatch.setattr("os.sched_setaffinity", lambda *_: pytest.fail("the affinity is changed"))
    words = ("explain", "gemm", "512", "512", "512", "--target", "zen4-server-8c", "--threads", "2", "--json")
    code, out, _ = run(capsys, *words)
    found = json.loads(out)
    assert code == 0 and found["hardware"]["name"] == "zen4-server-2c"
    assert found["decision"]["threads_m"] * found["decision"]["threads_n"] == 2
    code, _, err = run(capsys, "explain", "gemm", "8", "8", "8", "--target", "vta", "--threads", "2")
    assert code == 1 and "vta has no CPU" in err


def test_explain_reports_the_sizes_that_open_ones_are_decided_for(tmp_path, capsys):
    path = tmp_path / "open.onnx"
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    ends = [
        [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", "length", 64])]
        for name in ("x", "y")
    ]
    weights = onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([node], "g", *ends, [weights])), path)
    code, out, _ = run(capsys, "explain", str(path))
    assert code == 0 and "multiplications at batch=1, length=128: " in out
    code, out, _ = run(capsys, "explain", str(path), "--dim", "length=7", "--batch", "2")
    assert code == 0 and "matrix multiplications: " in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("explain", "net.onnx", "--algorithm", "direct"),
            "--algorithm and --weights apply to operators",
        ),
        (("explain", "gemm 4 4 4", "--batch", "2"), "--batch, --dim, --shape and --precision apply to models"),
        (("explain", "net.onnx", "--precision", "int8"), "--precision int8 depends on calibration inputs"),
        (("run", "net.onnx", "--tolerance", "0.1"), "--tolerance 0.1 needs --precision auto"),
        (("run", "net.onnx", "--precision", "int4"), "--precision int4 is not supported; did you"),
        (("run", "net.onnx", "--precision", "int8"), "--precision int8 needs inputs"),
        (("run", "net.onnx", "--precision", "int8", "--calibration", "none.npz"), "none.npz cannot be read"),
        (("run", "compiled.tar", "--precision", "int8"), "compiled.tar is compiled already"),
        (
            ("explain", "net.onnx", "--hardware", "neartile"),
            "--target neartile is an accelerator; use tvm-tiling simulate",
        ),
        (("explain", "compiled.tar", "--hardware", "neartile"), "compiled.tar is compiled already"),
        (("report", "compiled.tar", "--batch", "2"), "compiled.tar is compiled already"),
        (("bench", "net.onnx", "--short"), "net.onnx is a model; --peers"),
        (("bench", "gemm", "--batch", "2"), "applies to models; expected a model, not a suite"),
        (("bench", "none.onnx"), "none.onnx does not exist"),
        (("explain", "none.tar"), "none.tar does not exist"),
    ],
)
def test_what_does_not_go_together_is_one_line(words, said, files, compiled, capsys, monkeypatch):
    monkeypatch.chdir(files)
    code, out, err = run(capsys, *words)
    assert (code, out) == (1, "") and said in err and err.count("\n") == 1


@pytest.mark.parametrize("text", ["x", "x=", "=1,2", "x=1,b", "x=1,0"])
def test_what_is_not_a_shape_is_quoted(text):
    with pytest.raises(WorkloadError, match=f"--shape {text}.* expected .*name=1,3,224,224"):
        ModelOptions(shape=[text]).sizes()
    with pytest.raises(WorkloadError, match=f"--dim {text}.* expected .*seq=128"):
        ModelOptions(dim=[text]).sizes()


@pytest.mark.parametrize("text", ["x", "0", "1,", "-4", "1.5"])
def test_what_is_not_a_batch_is_quoted(text):
    with pytest.raises(WorkloadError, match=f"--batch {text} is not a size; expected 4, 1,4,8"):
        ModelOptions(batch=text).sizes()


def test_sizes_as_compile_takes_them():
    settled = ModelOptions(batch="1,4", dim=["seq=128", "heads=1..8"], shape=["x=1,3,9,9"]).sizes()
    dims = {"seq": [128], "heads": range(1, 9)}
    assert settled == {"batch": [1, 4], "dims": dims, "shapes": {"x": [1, 3, 9, 9]}}


def test_each_option_reaches_its_own_field():
    """Commands that take a model have one place for its options; a name that is exchanged with another shows here."""

    @model_options("logits", block=typer.Option(64))
    def command(model: str, *, options: ModelOptions, last: bool = typer.Option(False)) -> None:
        taken.update(model=model, options=options, last=last)

    taken = {}
    shown = inspect.signature(command).parameters
    assert list(shown)[:3] == ["model", "target", "batch"] and list(shown)[-1] == "last"
    assert "logits" not in shown and shown["block"].default.default == 64
    names = [each.name for each in dataclasses.fields(ModelOptions) if each.name != "logits"]
    command(model="net.onnx", last=True, **{name: f"--{name}" for name in names})
    assert taken.pop("options") == ModelOptions(**{name: f"--{name}" for name in names})
    assert taken == {"model": "net.onnx", "last": True}
