"""Single layers beside libraries: their models, and one measurement."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from benchmarks.single_layers import LAYERS, main


def test_a_layer_is_measured_beside_a_library_and_kept(tmp_path, capsys):
    result = tmp_path / "layers.json"
    arguments = ["pointwise_512_24", "--peer", "onnxruntime", "--rounds", "1", "--seconds", "0.02"]
    assert main([*arguments, "--json", str(result)]) == 0
    (entry,) = json.loads(result.read_text())["networks"]
    assert entry["libraries"]["ours"]["far"] < 1e-5 and "part" in entry["libraries"]["onnxruntime"]
    assert "pointwise_512_24" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["unknown"])
    assert len(LAYERS) == 17
