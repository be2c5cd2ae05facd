"""`tvm-tiling db`: output, and errors in one sentence."""

from __future__ import annotations

import json
import sqlite3

import pytest
from command_line import run

import tvm_tiling as tt
from tvm_tiling.decide.configs.config import Config
from tvm_tiling.hardware import Hardware
from tvm_tiling.tuning.measuring.measurer import Measured
from tvm_tiling.tuning.shapes.entries import Entry

VTA = Hardware.load("vta")
CONFIG = Config.of("gemm", "matrix", {"tile_m": 16})


def failed(capsys, *words):
    code, out, err = run(capsys, *words)
    assert (code, out) == (1, "") and err.startswith("error: ") and err.count("\n") == 1 and "defect" not in err
    return err


def gemm(m, n, k, dtype="int8"):
    return tt.GemmWorkload(m=m, n=n, k=k, dtype=dtype)


@pytest.fixture
def url(tmp_path, monkeypatch):
    """Create x.db in the working folder: two entries of VTA."""
    monkeypatch.chdir(tmp_path)
    with tt.ShapeDatabase("x.db") as db:
        db.add(gemm(64, 64, 64), CONFIG, 1000, target=VTA, energy_pj=5.0)
        db.add(gemm(32, 32, 32), CONFIG, 200, target=VTA, kind="boundary")
    return "x.db"


def test_list_and_show(capsys, url):
    code, out, err = run(capsys, "db", "list", url)
    assert (code, err) == (0, "") and "vsim vta" in out
    (machine,) = json.loads(run(capsys, "db", "list", url, "--json")[1])
    assert (machine["machine"], machine["initial"], machine["boundary"]) == ("vta", 1, 1)
    code, out, err = run(capsys, "db", "show", url)
    assert (code, err) == (0, "") and "gemm k=64 m=64 n=64 int8" in out and "1000 cycles" in out
    shown = json.loads(run(capsys, "db", "show", url, "--json", "--kind", "initial", "--hardware", "vta")[1])
    assert [(entry["cost"], entry["energy_pj"], entry["tiling"]) for entry in shown] == [
        (1000.0, 5.0, CONFIG.to_dict())
    ]
    assert len(json.loads(run(capsys, "db", "show", url, "--json", "--limit", "1")[1])) == 1
    assert json.loads(run(capsys, "db", "show", url, "--json", "--hardware", "neartile")[1]) == []


def test_a_cost_of_a_busy_machine_is_marked(capsys, url):
    with tt.ShapeDatabase(url) as db:
        entry = Entry(workload=gemm(96, 96, 96), config=CONFIG, cost=7000, decided_cost=8000, disturbed=0.75)
        db.add_many([entry], target=VTA)
    _, out, _ = run(capsys, "db", "show", url)
    assert out.count("unreliable") == 1 and "7000 cycles, unreliable" in out
    shown = json.loads(run(capsys, "db", "show", url, "--json")[1])
    assert [(e["decided_cost"], e["disturbed"]) for e in shown if e["cost"] == 7000] == [(8000, 0.75)]
    words = ("db", "match", url, "gemm", "96", "96", "96", "dtype=int8", "--hardware", "vta")
    assert "7000 cycles, unreliable" in run(capsys, *words)[1]


def test_match(capsys, url):
    words = ("db", "match", url, "gemm", "128", "64", "64", "dtype=int8", "--hardware", "vta")
    code, out, err = run(capsys, *words)
    assert (code, err) == (0, "") and "matching step 3, estimated 2000 cycles" in out and "m per tile 16" in out
    hit = json.loads(run(capsys, *words, "--json")[1])["hit"]
    assert (hit["step"], hit["estimate"], hit["entry"]["cost"]) == (3, 2000.0, 1000.0)
    with tt.ShapeDatabase(url) as db:
        db.add(gemm(32, 32, 32), CONFIG, 100, target=VTA, kind="boundary")
    hit = json.loads(run(capsys, *words, "--json", "--order", "estimate")[1])["hit"]
    assert (hit["step"], hit["estimate"]) == (4, 1600.0)
    code, out, _ = run(capsys, "db", "match", url, "gemm", "8", "8", "8", "dtype=int8", "--hardware", "vta")
    assert code == 0 and "no matching entry; the tiling is chosen analytically" in out


def test_prepacked_weights_are_asked_for_also_by_the_old_name(capsys, url):
    machine, product = "icelake-server-2c", gemm(64, 64, 64, "float32")
    hardware = Hardware.load(machine)
    config = tt.config_of(tt.decide(product, hardware), product, hardware)
    with tt.ShapeDatabase(url) as db:
        db.add(product, config, 3e-6, target=hardware)
        db.add(product, config, 2e-6, target=hardware, prepacked=True)
    words = ("db", "match", url, "gemm", "64", "64", "64", "--hardware", machine, "--json")
    _, plain, _ = run(capsys, *words)
    code, prepacked, err = run(capsys, *words, "--prepacked")
    assert (code, err) == (0, "")
    assert [json.loads(out)["hit"]["entry"]["cost"] for out in (plain, prepacked)] == [3e-6, 2e-6]
    assert run(capsys, *words, "--ahead") == (0, prepacked, "warning: --ahead is deprecated; use --prepacked\n")
    for command in (("db", "match"), ("db", "generate"), ("tune",)):
        code, out, _ = run(capsys, *command, "--help")
        assert code == 0 and "--prepacked" in out and "--ahead" not in out


def test_the_fingerprint_of_another_machine(capsys, url):
    err = failed(capsys, "db", "match", url, "gemm", "128", "64", "64", "dtype=int8", "--hardware", "neartile")
    assert "has no entries of vsim neartile" in err and "expected one of vsim vta" in err


def test_export_import_and_check(capsys, url, tmp_path):
    assert run(capsys, "db", "export", url, "x.jsonl") == (0, "2 entries written to x.jsonl\n", "")
    assert "already exists" in failed(capsys, "db", "export", url, "x.jsonl")
    code, out, _ = run(capsys, "db", "import", "y.db", "x.jsonl", "--json")
    assert (code, json.loads(out)) == (0, {"path": "x.jsonl", "entries": 2})
    code, out, err = run(capsys, "db", "check", "y.db")
    assert (code, err) == (0, "") and out.startswith("y.db: ok, 2 entries of 1 key on 1 machine")
    assert json.loads(run(capsys, "db", "check", "y.db", "--json")[1])["ok"]
    (tmp_path / "z.jsonl").write_text((tmp_path / "x.jsonl").read_text()[:-20])
    assert "z.jsonl, line 4: invalid JSON" in failed(capsys, "db", "import", "y.db", "z.jsonl")
    assert "cannot be read" in failed(capsys, "db", "import", "y.db", "none.jsonl")


def test_check_of_a_database_with_a_wrong_row(capsys, url):
    with sqlite3.connect(url) as connection:
        connection.execute("UPDATE entries SET cost = 3 WHERE id = 2")
    connection.close()
    code, out, err = run(capsys, "db", "check", url)
    assert (code, out) == (1, "") and "error: entry 2: rate" in err
    code, out, _ = run(capsys, "db", "check", url, "--json")
    assert code == 1 and not json.loads(out)["ok"]


@pytest.mark.parametrize("command", ["list", "show", "check"])
def test_databases_that_are_none(capsys, url, tmp_path, command):
    assert "none.db does not exist" in failed(capsys, "db", command, "none.db")
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "bad.db").write_bytes(b"nothing that SQLite wrote, and longer than its header is " * 40)
    before = (tmp_path / "bad.db").read_bytes()
    assert "corrupted or not a SQLite database" in failed(capsys, "db", command, "bad.db")
    assert (tmp_path / "bad.db").read_bytes() == before
    with sqlite3.connect(url) as connection:
        connection.execute("UPDATE tvm_tiling_about SET schema = 77")
    connection.close()
    assert "schema 77, written by a newer tvm-tiling" in failed(capsys, "db", command, url)


def test_places_that_cannot_be_written(capsys, url, tmp_path):
    assert "cannot be written" in failed(capsys, "db", "export", url, "no folder/x.jsonl")
    assert "cannot be written" in failed(capsys, "db", "import", "no folder/x.db", "x.jsonl")
    assert "mysql" in failed(capsys, "db", "list", "mysql://host/name")


class Proportional:
    """Costs a tenth of a nanosecond per multiply-accumulate."""

    def measure(self, jobs):
        for job in jobs:
            yield Measured(job=job, cost=job.workload.macs * 1e-10)

    def close(self):
        pass


def test_generate(capsys, url, monkeypatch):
    monkeypatch.setattr("tvm_tiling.tuning.shapes.database.measurer_for_shapes", lambda hardware: Proportional())
    words = ("db", "generate", url, "--shape", "gemm 64 64 64", "--hardware", "icelake-server-2c", "--limit", "3")
    words = (*words, "--threshold", "0", "--candidates", "2")
    code, out, err = run(capsys, *words)
    assert (code, err) == (0, "") and "1 shapes on icelake-server-2c: 1 stored with 3 boundary shapes" in out
    report = json.loads(run(capsys, *words, "--json")[1])
    assert (report["earlier"], report["measured"], report["boundary"]) == (1, 0, 3)
    code, out, _ = run(capsys, *words, "--random", "2", "--json")
    assert code == 0 and json.loads(out)["shapes"] == 5
    assert "there are no shapes to measure" in failed(capsys, "db", "generate", url)
    assert run(capsys, *words, "--factor", "1")[::2] == (
        2,
        "error: --factor 1: expected at least 2; see tvm-tiling db generate --help\n",
    )
    assert "word 2" in failed(capsys, "db", "generate", url, "--shape", "gemm x")


def test_the_shapes_of_a_model(capsys, url, tmp_path, monkeypatch):
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    import numpy as np

    weights = onnx.numpy_helper.from_array(np.ones((32, 16, 3, 3), "float32"), "w")
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node], "g", [value("x", 1, [1, 16, 14, 14])], [value("y", 1, [1, 32, 14, 14])], [weights]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, tmp_path / "m.onnx")
    monkeypatch.setattr("tvm_tiling.tuning.shapes.database.measurer_for_shapes", lambda hardware: Proportional())
    words = ("--model", "m.onnx", "--limit", "0", "--threshold", "0", "--candidates", "1", "--prepacked")
    code, _, err = run(capsys, "db", "generate", "new.db", *words)
    assert (code, err) == (0, "")
    with tt.ShapeDatabase("new.db") as db:
        ((_, entry),) = db.entries()
    w = entry.workload
    assert (w.h, w.w, w.ci, w.co, w.kh, w.dtype, entry.prepacked) == (14, 14, 16, 32, 3, "float32", True)


def test_the_command_line_reports_intervals_and_neighbours(capsys, tmp_path):
    url = str(tmp_path / "new.db")
    with tt.ShapeDatabase(url) as db:
        db.generate(target=VTA, shapes=[gemm(64, 64, 64)], limit=2, candidates=2, threshold=None)
    words = ("db", "match", url, "gemm", "50", "70", "30", "dtype=int8", "--hardware", "vta")
    code, out, _ = run(capsys, *words)
    assert code == 0 and "no matching entry" in out and "analytical tiling: estimated" in out and " to " in out
    told = json.loads(run(capsys, *words, "--json")[1])
    assert told["hit"] is None and told["formulas"]["interval"][0] < told["formulas"]["estimate"]
    served = ("db", "match", url, "gemm", "64", "64", "64", "dtype=int8", "--hardware", "vta", "--json")
    hit = json.loads(run(capsys, *served)[1])["hit"]
    assert hit["chosen"] == "entry" and hit["interval"][0] <= hit["estimate"] <= hit["interval"][1]


def test_a_budget_chooses_shapes_and_seconds_end_a_generation_that_goes_on_later(capsys, tmp_path):
    url = str(tmp_path / "new.db")
    words = ("db", "generate", url, "--random", "6", "--budget", "4", "--limit", "0", "--candidates", "1")
    words += ("--threshold", "0", "--hardware", "vta")
    code, out, err = run(capsys, *words, "--seconds", "1e-9")
    assert code == 0 and "measuring 4 shapes, which cover" in err and "4 remaining: repeat" in out
    code, out, _ = run(capsys, *words, "--json")
    report = json.loads(out)
    assert (code, report["shapes"], report["initial"], report["left"]) == (0, 4, 4, 0)
