"""A few operators by PyTorch's own samples; the whole list is in tests/slow/test_torch_opinfo_operators.py."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="PyTorch's test suite imports it: pip install expecttest")

from opinfo_judge import different  # noqa: E402
from torch_opinfo import Worker, tallies  # noqa: E402


def test_operators_are_right_after_a_worker_died():
    worker = Worker()
    job = {"name": "no such operator", "dtype": "float32", "seed": 0, "limit": 1, "only": None}
    assert worker.answer(job) is None
    found = list(tallies(worker, ["add", "nn.functional.elu"], ["float32", "bfloat16", "int64"], seed=0, limit=2))
    worker.close()
    assert [(tally.name, tally.dtype) for tally in found] == [
        ("add", "float32"),
        ("add", "bfloat16"),
        ("add", "int64"),
        ("nn.functional.elu", "float32"),
        ("nn.functional.elu", "bfloat16"),
    ]
    for tally in found:
        assert not tally.bad, f"{tally.name} of {tally.dtype}: {tally.bad[0]}"
        assert tally.counts == {"right": 2}


def test_a_wrong_result_is_found():
    value = torch.tensor([1.0, float("nan")])
    assert not different("add", [value], [value.clone()])
    assert "expected" in different("add", [value], [value.double()])
    assert "expected" in different("add", [value[None]], [value])
    assert different("add", [torch.tensor([1.0, 2.0])], [value])
    assert different("add", [value + 0.001], [value])
