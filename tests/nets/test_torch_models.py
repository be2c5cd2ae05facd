"""The judge of tests/nets/torch_models.py on a small module, and its limits; the lists are in tests/slow."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")

import torch_models  # noqa: E402
from torch_model_lists import Built  # noqa: E402
from torch_model_worker import judged  # noqa: E402


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = torch.nn.Linear(6, 6)

    def forward(self, x, scale):
        return {"out": self.dense(x) * scale, "flag": None}


class Wrong(Net):
    """Compiled it is another function than eagerly."""

    def forward(self, x, scale):
        return super().forward(x, 2.0 if torch.compiler.is_compiling() else scale)


class Airy(Net):
    def forward(self, x, scale):
        return torch.special.airy_ai(super().forward(x, scale)["out"])


def built(kind):
    torch.manual_seed(0)
    return Built(kind().eval(), (torch.randn(3, 6), 1.5))


@pytest.mark.parametrize(
    ("kind", "way", "outcome", "said"),
    [
        (Net, "export", "right", ""),
        (Net, "compile", "right", ""),
        (Wrong, "export", "wrong", "from the exact result"),
        (Wrong, "compile", "wrong", "from the exact result"),
        (Airy, "export", "refused", "airy_ai"),
        (Airy, "compile", "right", ""),
    ],
)
def test_outcomes(kind, way, outcome, said):
    found = judged(built(kind), way)
    assert found["outcome"] == outcome
    assert said in found["said"]
    if (kind, way) == (Airy, "compile"):
        assert any("airy_ai" in operator for operator in found["left"])


def test_a_process_that_takes_too_long_or_too_much_is_ended(monkeypatch, tmp_path):
    program = tmp_path / "worker.py"
    program.write_text("import time\nheld = bytearray(64 << 20)\ntime.sleep(60)")
    monkeypatch.setattr(torch_models, "WORKER", program)
    assert torch_models.judge("a", "b", "export", 0.5, 8) == {"outcome": "too long"}
    assert torch_models.judge("a", "b", "export", 30, 0.03) == {"outcome": "too large"}
    program.write_text("raise SystemExit(3)")
    assert torch_models.judge("a", "b", "export", 30, 8)["outcome"] == "died"


def test_outcomes_are_written_as_lines(monkeypatch, tmp_path):
    program, out = tmp_path / "worker.py", tmp_path / "out.jsonl"
    program.write_text('import sys\nprint("{\\"outcome\\": \\"%s\\"}" % ("wrong" if "net1" in sys.argv else "right"))')
    monkeypatch.setattr(torch_models, "WORKER", program)
    monkeypatch.setattr(torch_models, "jobs", lambda *_: [("list", f"net{n}", "compile") for n in range(3)])
    assert torch_models.main(["--out", str(out)]) == 1
    assert [json.loads(line)["outcome"] for line in out.read_text().splitlines()] == ["right", "wrong", "right"]
    assert torch_models.main(["--out", str(out), "--skip-done"]) == 0
    assert len(out.read_text().splitlines()) == 3
