"""Whole networks and their peers: equal inputs, outputs compared first, one entry for each peer."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from benchmarks import models, torch_networks

SMALL = {
    "detector": lambda: torch_networks.on_image(lambda: torch_networks.Detector(4, 3), 64, 64),
    "bert_128": lambda: torch_networks.tokens(16, 2, 1, 5, 1),
}


def test_every_torch_network_can_be_made():
    assert set(models.TORCH_NETWORKS) == set(torch_networks.NETWORKS)


def test_a_network_is_compared_with_every_peer(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(torch_networks, "NETWORKS", SMALL)
    path = tmp_path / "models.json"
    assert models.main(["bert_128", "--json", str(path), "--seconds", "0.1"]) == 0
    (entry,) = json.loads(path.read_text())["networks"]
    assert set(entry["peers"]) == {"onnxruntime", "torch"}
    assert 0 <= entry["difference"] <= models.TOLERANCE
    assert "relative to torch" in capsys.readouterr().out


def test_peers_see_the_same_inputs(monkeypatch):
    monkeypatch.setattr(torch_networks, "NETWORKS", SMALL)
    known = models.subject("detector")
    outputs = [run() for run in known.peers.values()]
    for one, other in zip(*outputs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_wrong_result_is_reported_and_not_timed(monkeypatch, tmp_path, capsys):
    def broken(name):
        made = models._from_torch(name)
        return models.Subject(made.model, made.inputs, {"torch": lambda: [o + 1 for o in made.peers["torch"]()]})

    monkeypatch.setattr(torch_networks, "NETWORKS", SMALL)
    monkeypatch.setattr(models, "subject", broken)
    assert models.main(["bert_128", "--json", str(tmp_path / "m.json")]) == 1
    assert "wrong result" in capsys.readouterr().out


def test_unknown_networks_are_refused(capsys):
    with pytest.raises(SystemExit):
        models.main(["resnet51"])
    assert "bert_128" in capsys.readouterr().err
