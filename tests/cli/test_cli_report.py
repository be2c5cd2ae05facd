"""`tvm-tiling report` on earlier measurements and programs, and its errors."""

from __future__ import annotations

import json

import command_line
import pytest
from report_subjects import comparison, model, program


def run(capsys, *words):
    return command_line.run(capsys, "report", *words)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A model's report, a suite's result, a corrupted one and a program, in the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for name, plain in (
        ("model", model().to_dict()),
        ("suite", comparison()),
        ("bad", {**comparison(), "rows": [{}]}),
        ("other", {}),
    ):
        (tmp_path / f"{name}.json").write_text(json.dumps(plain))
    program().save("p.vsim")
    return tmp_path


@pytest.mark.parametrize(
    ("subject", "told", "shown"),
    [
        ("model.json", "fused_conv2d0_add_relu", "Predicted against measured"),
        ("suite.json", "g0 64x64x64 float32", "Ours against the faster peer"),
        ("p.vsim", "neartile: ", "Where the cycles go"),
    ],
)
def test_in_a_terminal_as_json_and_as_a_page(folder, capsys, subject, told, shown):
    code, out, err = run(capsys, subject, "-o", "r.html")
    assert (code, err) == (0, "report: r.html\n") and told in out
    assert shown in (folder / "r.html").read_text()
    code, out, err = run(capsys, subject, "--json")
    assert (code, err) == (0, "")
    kept = folder / subject
    assert json.loads(out) == json.loads(kept.read_text()) if kept.suffix == ".json" else json.loads(out)["cycles"] > 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("bad.json",), "bad.json is corrupted"),
        (("other.json",), "other.json is not a result; expected a JSON file written by `report --json`"),
        (("none.json",), "'none.json' is neither a file nor an operator"),
        (("suite.json", "--hardware", "vta"), "suite.json is a result; only --output"),
        (("model.json", "--batch", "4"), "model.json is a result"),
        (("model.json", "--against", "p.vsim"), "--against takes two models or two results, and not one of each"),
        (("model.json", "--against", "suite.json"), "suite.json is not the result of a model"),
        (("model.json", "--against", "model.json", "--batch", "4"), "--output and --json apply"),
        (("model.json", "--against", "model.json", "--target", "vta"), "--target vta does not apply"),
        (
            ("gemm", "64", "64", "64", "--hardware", "icelake-server-2c"),
            "is a CPU; operators and programs are simulated",
        ),
        (("p.vsim", "--input", "x.npz"), "apply to models on this CPU"),
        (("p.vsim", "-o", "none/r.html"), "none does not exist"),
    ],
)
def test_what_cannot_be_reported_is_one_line_before_anything_is_done(folder, capsys, words, why):
    code, out, err = run(capsys, *words)
    assert (code, out) == (1, "") and err.startswith("error: ") and why in err and err.count("\n") == 1, err
    assert "defect" not in err and not (folder / "r.html").exists()


def test_two_results_are_compared(folder, capsys):
    slower = model().to_dict()
    slower["seconds"] *= 2
    (folder / "slower.json").write_text(json.dumps(slower))
    code, out, err = run(capsys, "model.json", "--against", "slower.json", "-o", "r.html")
    assert (code, err) == (0, "report: r.html\n")
    assert "speedup 2.00" in out and "difference µs" in out
    assert "What makes the difference" not in out
    assert "one after the other" in (folder / "r.html").read_text()
    code, out, _ = run(capsys, "model.json", "--against", "slower.json", "--json")
    assert code == 0 and json.loads(out)["baseline"]["seconds"] == slower["seconds"]
    (folder / "v.json").write_text(out)
    code, out, _ = run(capsys, "v.json", "-o", "again.html")
    assert code == 0 and "speedup 2.00" in out
    assert (folder / "again.html").read_text() == (folder / "r.html").read_text()
