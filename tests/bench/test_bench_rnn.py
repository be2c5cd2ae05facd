"""Recurrent layers and their peers: outputs compared first, one entry for each peer; two models at once."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from benchmarks import rnn

SMALL = {layer.name: layer for layer in (rnn.Layer("lstm", 16, 2, 3), rnn.Layer("gru", 16, 1, 4))}


def test_layers_are_compared_with_every_peer(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(rnn, "LAYERS", SMALL)
    path = tmp_path / "rnn.json"
    assert rnn.main([*SMALL, "--json", str(path), "--seconds", "0.1"]) == 0
    entries = json.loads(path.read_text())["layers"]
    assert [entry["network"] for entry in entries] == list(SMALL)
    for entry in entries:
        assert set(entry["peers"]) == {"onnxruntime", "torch"} and 0 <= entry["difference"] < 1e-5
    assert "geometric mean of 2" in capsys.readouterr().out


def test_two_models_at_once(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(rnn, "LAYERS", SMALL)
    (name, *_) = SMALL
    assert rnn.main([name, "--many", "2", "--json", str(tmp_path / "many.json"), "--seconds", "0.1"]) == 0
    assert "by run_many" in capsys.readouterr().out


def test_the_suite_has_the_sizes_of_the_comparison():
    assert {layer.hidden for layer in rnn.SHORT} == {128, 256, 512, 1024}
    assert {layer.batch for layer in rnn.FULL} == {1, 8, 32}
    assert {layer.cell for layer in rnn.FULL} == {"lstm", "gru"}


def test_unknown_layers_are_refused(capsys):
    with pytest.raises(SystemExit):
        rnn.main(["lstm-129-b1-s50"])
    assert "lstm-128-b1-s50" in capsys.readouterr().err
