"""Executables: run, time, report, save and load, several threads, and what bad input is told."""

from __future__ import annotations

import io
import tarfile
import threading

import numpy as np
import pytest
from networks import Network, default, residual_network

import tvm_tiling as tt
from tvm_tiling.errors import ModelFormatError, WorkloadError

SHAPE = (1, 3, 33, 33)


@pytest.fixture(scope="module")
def compiled():
    net = Network(SHAPE)
    mod = net.module(residual_network)
    x = net.arrays()[0]
    return tt.compile(mod, cache=False), x, default(mod, [x])


def test_runs_by_order_and_by_name(compiled):
    exe, x, want = compiled
    np.testing.assert_allclose(exe.run(x), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(exe.run(x0=x), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("arrays", "named", "said"),
    [
        ((), {}, "input 'x0' is missing; the model takes 'x0'"),
        ((np.zeros(SHAPE, "float32"),) * 2, {}, "2 inputs are given, the model takes 1: 'x0'"),
        ((), {"y0": np.zeros(SHAPE, "float32")}, "the model has no input 'y0': accepted: x0"),
        ((np.zeros(SHAPE, "float32"),), {"x0": np.zeros(SHAPE, "float32")}, "input 'x0' is given twice"),
        ((np.zeros((1, 3, 32, 33), "float32"),), {}, "has shape (1, 3, 32, 33), the model was compiled for"),
        ((np.zeros(SHAPE, "float64"),), {}, "input 'x0' is float64, the model takes float32"),
    ],
)
def test_bad_input_is_one_sentence(compiled, arrays, named, said):
    with pytest.raises(WorkloadError) as refused:
        compiled[0].run(*arrays, **named)
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_the_report_names_every_operator_its_decision_and_its_share(compiled):
    exe, x, _ = compiled
    measured = exe.benchmark(x, seconds=0.05)
    assert measured.median > 0 and measured.runs >= 5
    report = exe.report()
    shares = [report.share(record) for record in report.operators]
    assert sum(share for share in shares if share is not None) == pytest.approx(1)
    assert {record.name for record in exe.operators} <= {record.name for record in report.operators}
    decided = [record for record in report.operators if record.kind == "convolution"]
    assert decided and all(record.form and record.predicted_seconds and record.decision for record in decided)
    assert all(record.measured_seconds is not None for record in report.operators)
    assert str(report).count("\n") == len(report.operators)


def test_several_threads_at_once(compiled):
    exe, x, want = compiled
    results, failures = [], []

    def work():
        try:
            for _ in range(20):
                results.append(exe.run(x))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and len(results) == 80
    for result in results:
        np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-5)


def test_saved_and_loaded(compiled, tmp_path):
    exe, x, _ = compiled
    exe.save(tmp_path / "model.tar")
    again = tt.load(tmp_path / "model.tar")
    np.testing.assert_array_equal(again.run(x), exe.run(x))
    assert again.operators == exe.operators and again.signature == exe.signature
    again.save(tmp_path / "again.tar")
    np.testing.assert_array_equal(tt.load(tmp_path / "again.tar").run(x), exe.run(x))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again.tar", "model.tar"]


def test_a_save_that_fails_leaves_the_old_file_and_nothing_else(compiled, tmp_path, monkeypatch):
    exe = compiled[0]
    target = tmp_path / "model.tar"
    target.write_bytes(b"old")
    monkeypatch.setattr(tarfile.TarFile, "add", lambda *_: (_ for _ in ()).throw(OSError("no space left")))
    with pytest.raises(OSError, match="no space left"):
        exe.save(target)
    assert target.read_bytes() == b"old" and [p.name for p in tmp_path.iterdir()] == ["model.tar"]


def tar(**members: bytes) -> bytes:
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode="w") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name.replace("_", "."))
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return memory.getvalue()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is no saved executable"),
        (b"\x7fELF" * 300, "is no saved executable"),
        (tar(other=b"x"), "holds no model.json"),
        (tar(model_json=b"{}"), "holds no model.so"),
        (tar(model_json=b"{}", model_so=b"x"), "its description is damaged"),
        (tar(model_json=b'{"format": "tvm-tiling-executable", "version": 9}', model_so=b"x"), "is of version 9"),
    ],
)
def test_what_is_no_executable_is_refused_before_it_is_loaded(content, said, tmp_path):
    path = tmp_path / "bad.tar"
    path.write_bytes(content)
    with pytest.raises(ModelFormatError) as refused:
        tt.load(path)
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ModelFormatError, match=r"none\.tar cannot be read"):
        tt.load(tmp_path / "none.tar")


def test_a_second_compilation_comes_from_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_TILING_CACHE", str(tmp_path))
    net = Network(SHAPE)
    mod, x = net.module(residual_network), net.arrays()[0]
    first = tt.compile(mod)
    (kept,) = tmp_path.iterdir()
    monkeypatch.setattr("tvm_tiling.model.compile._built", lambda *_: pytest.fail("compiled again"))
    second = tt.compile(mod)
    np.testing.assert_array_equal(second.run(x), first.run(x))
    # Other weights, other options: another key.
    monkeypatch.undo()
    monkeypatch.setenv("TVM_TILING_CACHE", str(tmp_path))
    tt.compile(Network(SHAPE, seed=1).module(residual_network))
    tt.compile(mod, winograd=False)
    assert len(list(tmp_path.iterdir())) == 3
    # A damaged file counts as absent, and is replaced.
    kept.write_bytes(kept.read_bytes()[:1000])
    np.testing.assert_array_equal(tt.compile(mod).run(x), first.run(x))
    assert kept.stat().st_size > 1000
