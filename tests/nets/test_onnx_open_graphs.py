"""A few random ONNX graphs with dynamic shapes; tests/slow/test_onnx_open_graphs_1000.py runs 1,000."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "frontend"))  # whose checks are used here
sys.path.insert(0, str(Path(__file__).parent))  # and graphs

pytest.importorskip("onnxruntime")

from onnx_judge import newer_judge

SEEDS = (2000, pytest.param(2002, marks=newer_judge), 2005)  # 2002 is of opset 25


@pytest.mark.parametrize("seed", SEEDS)
def test_random_graph(seed):
    from onnx_graphs import BAD
    from onnx_open_graphs import outcome

    said = outcome(seed)["outcome"]
    assert not said.startswith((*BAD, "fixed", "unjudged")), f"seed {seed}: {said}"


def _model(operator):
    import numpy as np
    from onnx import helper
    from onnx_judge import model_of

    x = np.zeros((2, 3), "float32")
    return model_of([helper.make_node(operator, ["x"], ["y"])], {"x": x}, {"y": "float32"})


def test_extents_that_vary_alike_have_one_name():
    import numpy as np
    from onnx_open_graphs import closed, opened

    def shape(model):
        return [dim.dim_param or dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]

    runs = [{"x": np.zeros(extents, "float32")} for extents in ((2, 2, 3), (5, 5, 3))]
    made = opened(_model("Abs"), [{"x": run["x"][0]} for run in runs])
    assert shape(made) == ["n0", 3]
    assert shape(closed(made, {"x": np.zeros((7, 3))})) == [7, 3]
    from onnx import helper
    from onnx_judge import model_of

    square = model_of([helper.make_node("Abs", ["x"], ["y"])], {"x": runs[0]["x"]}, {"y": "float32"})
    assert shape(opened(square, runs)) == ["n0", "n0", 3]


def test_sizes_that_are_refused_in_the_run_are_guarded(monkeypatch):
    import numpy as np
    import onnx_open_graphs
    from onnx_open_graphs import judged, opened

    from tvm_tiling.errors import WorkloadError

    runs = [{"x": np.ones((n, 3), "float32")} for n in (2, 1)]
    model = opened(_model("Abs"), runs)
    assert judged(model, runs[:1]) == "fixed"
    assert judged(model, runs) == "right"

    class Wrong:
        signature = type("Signature", (), {"input_names": ("x",)})

        def run(self, x):
            if len(x) == 1:
                raise WorkloadError("2 rows")
            return np.asarray(x + self.more, "float32")

    executable = Wrong()
    monkeypatch.setattr(onnx_open_graphs, "compile_model", lambda *_, **__: executable)
    executable.more = 0
    assert judged(model, runs) == "guarded: 2 rows"
    executable.more = 1
    assert judged(model, runs).startswith("wrong: y: 2.0 in place of 1.0")
