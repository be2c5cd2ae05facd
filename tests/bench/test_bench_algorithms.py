"""Comparison of convolution algorithms: the evaluation by hand, and the driver on stand-in kernels."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import ClassVar

import pytest

from benchmarks import algorithms
from benchmarks.peers.base import Peer, Prepared
from benchmarks.suite import SuiteError
from tvm_tiling.measure import Paired, Timing
from tvm_tiling.workload import ConvWorkload, GemmWorkload


def measured(ratio, uncertainty=0.01, seconds=1.0, predicted=1.0):
    return {
        "status": "ok",
        "reason": "",
        "ratio": ratio,
        "uncertainty": uncertainty,
        "seconds": seconds,
        "predicted_seconds": predicted,
    }


REFUSED = {"status": "refused", "reason": "groups"}


def test_judgement_by_hand():
    wrong = algorithms.judged("direct", {"direct": measured(1.0), "gemm": measured(0.8), "wfold": REFUSED})
    assert (wrong["fastest"], wrong["right"], wrong["compared"]) == ("gemm", False, True)
    assert wrong["loss"] == pytest.approx(0.25)
    right = algorithms.judged("direct", {"direct": measured(1.0), "gemm": measured(1.2)})
    assert (right["fastest"], right["right"], right["loss"]) == ("direct", True, 0.0)
    within = algorithms.judged("direct", {"direct": measured(1.0), "gemm": measured(0.97, uncertainty=0.04)})
    assert (within["fastest"], within["right"], within["loss"]) == ("direct", True, 0.0)
    assert not algorithms.judged("direct", {"direct": measured(1.0), "wfold": REFUSED})["compared"]


def test_summary_by_hand():
    layers = [
        algorithms.judged("direct", {"direct": measured(1.0, seconds=2.0), "gemm": measured(0.8, seconds=4.0)}),
        algorithms.judged("direct", {"direct": measured(1.0, seconds=8.0), "gemm": measured(1.5)}),
        algorithms.judged("gemm", {"gemm": measured(1.0), "wfold": REFUSED}),
        {"status": "failed", "reason": "no kernel"},
    ]
    found = algorithms.summarize(layers)
    assert (found["layers"], found["compared"], found["right"], found["share_right"]) == (4, 2, 1, 0.5)
    assert found["mean_loss"] == found["worst_loss"] == pytest.approx(0.25)
    direct = found["measured_over_predicted"]["direct"]
    assert (direct["layers"], direct["mean"]) == (2, pytest.approx(4.0))
    assert direct["spread"] == pytest.approx(3 / 5)
    assert set(found["measured_over_predicted"]) == {"direct", "gemm"}
    assert algorithms.summarize([])["share_right"] is None


class Standin(Peer):
    """A stand-in kernel whose algorithm determines its time; "broken" raises, "wrong" returns a wrong result."""

    supports = (ConvWorkload, GemmWorkload)
    seconds: ClassVar = {None: 2.0, "gemm": 1.0, "wrong": 1.0}

    def __init__(self, name="ours", form=None):
        self.name, self.form = name, form

    def prepare(self, operands, packed):
        assert packed
        if self.form == "broken":
            raise RuntimeError("no such algorithm")
        answer = operands.expected + (self.form == "wrong")
        return Prepared(lambda: self.seconds[self.form], lambda: answer)


def _told(side):
    return Timing(seconds=(side.run(),) * 3)


@pytest.fixture
def kernels(monkeypatch):
    """Every layer is decided as "direct"; the other algorithms are compared with it."""
    candidates = (
        ("direct", 1e-3, "least traffic"),
        ("gemm", 2e-3, "more traffic"),
        ("wrong", 3e-3, ""),
        ("broken", 4e-3, ""),
        ("wfold", None, "channels are many"),
    )
    asked = []

    def packed_kernel(workload):
        asked.append(workload)
        return SimpleNamespace(tiling=SimpleNamespace(form="direct", candidates=candidates))

    monkeypatch.setattr(algorithms, "packed_kernel", packed_kernel)
    monkeypatch.setattr(algorithms, "Ours", Standin)
    monkeypatch.setattr(algorithms, "timed", lambda side, *_: _told(side))
    monkeypatch.setattr(algorithms, "paired", lambda ours, peer, *_: Paired(ours=_told(ours), peer=_told(peer)))
    return asked


def settings(path, *more):
    return algorithms.parse(["--filter", "depthwise 14x14x384->384 k3", "--json", str(path), *more])


def test_every_algorithm_is_compared_with_the_chosen_one_or_has_a_reason(kernels, tmp_path, capsys):
    path = tmp_path / "algorithms.json"
    (layer,) = algorithms.run(settings(path))
    assert {name: found["status"] for name, found in layer["algorithms"].items()} == {
        "direct": "ok",
        "gemm": "ok",
        "wrong": "wrong result",
        "broken": "failed",
        "wfold": "refused",
    }
    assert layer["algorithms"]["wfold"]["reason"] == "channels are many"
    assert (layer["algorithms"]["gemm"]["ratio"], layer["algorithms"]["gemm"]["seconds"]) == (0.5, 1.0)
    assert layer["algorithms"]["gemm"]["predicted_seconds"] == 2e-3
    assert (layer["chosen"], layer["fastest"], layer["right"]) == ("direct", "gemm", False)
    assert layer["loss"] == 1.0
    written = json.loads(path.read_text())
    assert written["layers"] == json.loads(json.dumps([layer]))
    assert written["summary"]["right"] == 0
    algorithms.print_entries([layer])
    told = capsys.readouterr().out
    assert "fastest chosen in 0 of 1 layers" in told
    assert "1000 / 2000000" in told
    assert "2000 / 1000000" in told


def test_resume_keeps_what_was_measured_and_repeats_what_failed(kernels, tmp_path):
    path = tmp_path / "algorithms.json"
    algorithms.run(settings(path))
    assert len(kernels) == 1
    assert len(algorithms.run(settings(path, "--resume"))) == 1
    assert len(kernels) == 1
    written = json.loads(path.read_text())
    written["layers"][0]["algorithms"]["gemm"]["doubtful"] = True
    path.write_text(json.dumps(written))
    algorithms.run(settings(path, "--resume"))
    assert len(kernels) == 2
    written["layers"][0] = {"case": written["layers"][0]["case"], "status": "failed", "reason": "x"}
    path.write_text(json.dumps(written))
    (again,) = algorithms.run(settings(path, "--resume"))
    assert again["status"] == "ok"
    path.write_text(json.dumps({**written, "format": "tvm-tiling-bench"}))
    with pytest.raises(SuiteError, match="another --json file"):
        algorithms.run(settings(path, "--resume"))


def test_a_layer_that_cannot_be_decided_is_a_result_too(monkeypatch, tmp_path, capsys):
    def refuse(workload):
        raise ValueError("not served")

    monkeypatch.setattr(algorithms, "packed_kernel", refuse)
    (layer,) = algorithms.run(settings(tmp_path / "algorithms.json"))
    assert (layer["status"], layer["reason"]) == ("failed", "ValueError: not served")
    algorithms.print_entries([layer])
    assert "not served" in capsys.readouterr().out


def test_a_suite_of_gemms_has_no_convolution_algorithms(tmp_path, capsys):
    assert algorithms.main(["--suite", "gemm", "--short", "--json", str(tmp_path / "algorithms.json")]) == 1
    assert "has no convolutions" in capsys.readouterr().err
