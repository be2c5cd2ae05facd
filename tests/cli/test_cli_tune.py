"""`tvm-tiling tune` and `fleet`: output and stored results, Ctrl-C, and errors in one sentence."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time

import pytest
from command_line import run

import tvm_tiling as tt

# Processes that a shell starts in the background ignore Ctrl-C, and so do their children, unless they restore the
# handler.
HEED_CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
COMMAND = (sys.executable, "-c", f"{HEED_CTRL_C}; from tvm_tiling.cli import main; main()")


@contextlib.contextmanager
def started(*words, **options):
    """Run the command as a separate process, which ends with the block at the latest."""
    with subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def test_configs_of_an_accelerator_are_simulated_and_kept(capsys, tmp_path):
    url = str(tmp_path / "shapes.db")
    words = ("tune", "gemm", "64", "256", "64", "dtype=int8", "--target", "vsim/vta", "--database", url)
    code, out, _ = run(capsys, *words, "--trials", "5", "--json")
    report = json.loads(out)
    assert (code, report["unit"], report["failures"]) == (0, "cycles", {})
    assert report["cost_after"] <= report["cost_before"]
    workload = tt.GemmWorkload(m=64, n=64, k=256, dtype="int8")
    with tt.ShapeDatabase(url) as database:
        assert database.match(workload, target="vsim/vta").entry.cost == report["cost_after"]
    code, out, _ = run(capsys, *words, "--trials", "5")
    assert code == 0
    assert f"{report['trials']} more in earlier sessions" in out


def test_trials_are_logged_and_drawn(capsys, tmp_path):
    """`report` reads the log as a table and as a page, and the report's JSON, too."""
    log, page, kept = (str(tmp_path / name) for name in ("trials.jsonl", "tuning.html", "tuning.json"))
    words = ("tune", "gemm", "48", "80", "96", "dtype=int8", "--target", "vsim/vta", "--database", f"{tmp_path}/x.db")
    code, out, err = run(capsys, *words, "--trials", "4", "--log", log, "--html", page, "--json")
    report = json.loads(out)
    assert (code, err) == (0, f"report: {page}\n")
    lines = [json.loads(line) for line in (tmp_path / "trials.jsonl").read_text().splitlines()]
    assert lines[1:] == report["log"] and len(lines) == 1 + report["trials"]
    assert "<polyline" in (tmp_path / "tuning.html").read_text()
    (tmp_path / "tuning.json").write_text(out)
    for source in (log, kept):
        code, out, err = run(capsys, "report", source, "-o", f"{tmp_path}/again.html")
        assert code == 0 and "best so far" in out and f"{report['log'][0]['cost']:.0f} cycles" in out
        assert "<polyline" in (tmp_path / "again.html").read_text()
        code, out, _ = run(capsys, "report", source, "--json")
        assert json.loads(out)["log"] == report["log"]
    code, _, err = run(capsys, *words, "--trials", "5", "--log", log)
    assert (code, err) == (0, "")
    lines = [json.loads(line) for line in (tmp_path / "trials.jsonl").read_text().splitlines()]
    assert [line["number"] for line in lines[1:]] == list(range(1, len(lines)))


@pytest.mark.parametrize(
    ("words", "resume", "seeded", "warned"),
    [
        ((), True, True, ""),
        (("--no-resume", "--no-seeds"), False, False, ""),
        (("--anew",), False, True, "warning: --anew is deprecated; use --no-resume\n"),
        (("--unseeded",), True, False, "warning: --unseeded is deprecated; use --no-seeds\n"),
    ],
)
def test_sessions_that_start_afresh(capsys, monkeypatch, words, resume, seeded, warned):
    asked = []
    monkeypatch.setattr("tvm_tiling.tuning.tune.tune", lambda _, **options: asked.append(options) or sys.exit(0))
    _, _, err = run(capsys, "tune", "gemm", "64", "64", "64", *words)
    assert [(options["resume"], options["seeded"]) for options in asked] == [(resume, seeded)]
    assert err == warned


@pytest.mark.parametrize(("words", "warned"), [(("--prepacked",), False), (("--ahead",), True)])
def test_prepacked_weights_of_an_operator(capsys, monkeypatch, words, warned):
    asked = []
    monkeypatch.setattr("tvm_tiling.tuning.tune.tune", lambda _, **options: asked.append(options) or sys.exit(0))
    _, _, err = run(capsys, "tune", "gemm", "64", "64", "64", *words)
    assert [options["prepacked"] for options in asked] == [True]
    assert err == ("warning: --ahead is deprecated; use --prepacked\n" if warned else "")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("nothing.onnx",), "'nothing.onnx' is neither a file nor an operator; expected a model, or an operator"),
        (("gemm", "64"), "gemm: n is missing"),
        (("gemm", "64", "64", "64", "--target", "cuda"), "unknown hardware preset 'cuda'"),
        (
            ("gemm", "64", "64", "64", "--runner", "ssh://x"),
            "--runner ssh://x is not supported; expected 'local', or 'rpc://",
        ),
        (("gemm", "64", "64", "64", "--batch", "4"), "applies to models"),
        (("gemm", "64", "64", "64", "--database", "/no/such/folder/x.db"), "/no/such/folder"),
        (("gemm", "64", "64", "64", "--log", "/no/such/folder/x.jsonl"), "directory /no/such/folder does not exist"),
        (("gemm", "64", "64", "64", "--html", "/no/such/folder/x.html"), "directory /no/such/folder does not exist"),
        (("gemm", "64", "64", "64", "--log", "."), "cannot be written: it is a directory"),
    ],
)
def test_bad_input_is_one_sentence(capsys, tmp_path, monkeypatch, words, error):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, "tune", *words)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert error in err.replace("k, n are", "n is")
    assert "defect" not in err


def test_ctrl_c_reports_what_was_found_and_keeps_it(tmp_path):
    url = str(tmp_path / "shapes.db")
    words = ("tune", "gemm", "512", "512", "512", "--trials", "60", "--database", url)
    with started(*words, stderr=subprocess.PIPE) as process:
        until = time.monotonic() + 120
        while not _holds_one(url):
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < until
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"")
    assert b"interrupted" in out
    with tt.ShapeDatabase(url, create=False) as database:
        assert database.check().ok
        assert database.match(tt.GemmWorkload(m=512, n=512, k=512), target="llvm").step == 1


def _holds_one(url: str) -> bool:
    try:
        with tt.ShapeDatabase(url, create=False) as database:
            return any(True for _ in database.entries())
    except tt.DatabaseError:
        return False


def test_who_joins_says_what_it_waits_for_and_that_it_came():
    pytest.importorskip("tornado")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    runner = f"rpc://127.0.0.1:{port}/cpu"
    with started("fleet", "join", runner, text=True, stderr=subprocess.PIPE) as joined:
        assert "waiting for a tracker" in (first := joined.stderr.readline()) and str(port) in first
        with started("fleet", "start", "--workers", "0", "--port", str(port), text=True) as fleet:
            assert fleet.stdout.readline().strip() == runner
            lines = iter(joined.stderr.readline, "")
            assert any(f"is registered at {runner}" in line for line in lines)
            joined.send_signal(signal.SIGINT)
            assert joined.wait(60) == 130
            fleet.send_signal(signal.SIGINT)
            assert fleet.wait(60) == 130


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_fleet_is_started_and_ended(how, code):
    pytest.importorskip("tornado")
    with started("fleet", "start", "--workers", "0", "--predicting", "2", "--port", "0", text=True) as process:
        runner = process.stdout.readline().strip()
        from tvm_tiling.tuning.measuring.runner import Address, RunnerError
        from tvm_tiling.tuning.workers.tracker import workers_at

        assert workers_at(Address.parse(runner)) == 2
        process.send_signal(how)
        assert process.wait(60) == code
    with pytest.raises(RunnerError, match="cannot be reached"):
        workers_at(Address.parse(runner))
