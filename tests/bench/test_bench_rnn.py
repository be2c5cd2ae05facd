"""Recurrent layers and their peers: outputs compared first, one entry for each peer; two models at once."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from benchmarks import rnn

SMALL = ("lstm-16-b2-s3", "gru-16-b1-s4")


def test_layers_are_compared_with_every_peer(tmp_path, capsys):
    path = tmp_path / "rnn.json"
    assert rnn.main([*SMALL, "--json", str(path), "--seconds", "0.1"]) == 0
    entries = json.loads(path.read_text())["layers"]
    assert [entry["network"] for entry in entries] == list(SMALL)
    for entry in entries:
        assert set(entry["peers"]) == {"onnxruntime", "torch"} and 0 <= entry["difference"] < 1e-5
    assert "geometric mean of 2" in capsys.readouterr().out


def test_two_models_at_once(tmp_path, capsys):
    assert rnn.main([SMALL[0], "--many", "2", "--json", str(tmp_path / "many.json"), "--seconds", "0.1"]) == 0
    assert "by run_many" in capsys.readouterr().out


def test_the_suite_has_the_sizes_of_the_comparison():
    assert {layer.hidden for layer in rnn.SHORT} == {128, 256, 512, 1024}
    assert {layer.batch for layer in rnn.FULL} == {1, 8, 32}
    assert {layer.cell for layer in rnn.FULL} == {"lstm", "gru"}


def test_what_is_no_layer_is_refused(capsys):
    assert all(rnn.layer_of(layer.name) == layer for layer in (*rnn.FULL, *rnn.MANY))
    with pytest.raises(SystemExit):
        rnn.main(["rnn-128-b1-s50"])
    assert "no layer 'rnn-128-b1-s50'; expected a name like gru-384-b8-s50" in capsys.readouterr().err
