"""The check of tests/nets/torch_models.py on a small module, and its limits; the lists are in tests/slow."""

from __future__ import annotations

import json
import multiprocessing
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

torch = pytest.importorskip("torch")

import torch_models  # noqa: E402
from torch_model_lists import LISTS, Built  # noqa: E402
from torch_model_worker import judge_ways, judged, vary_constants  # noqa: E402


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = torch.nn.Linear(6, 6)

    def forward(self, x, scale):
        return {"out": self.dense(x) * scale, "flag": None}


class Wrong(Net):
    """The compiled function differs from the eager one."""

    def forward(self, x, scale):
        return super().forward(x, 2.0 if torch.compiler.is_compiling() else scale)


class Vectors(Net):
    def forward(self, x, scale):
        out = super().forward(x, scale)["out"]
        return torch.linalg.eigh(out.mT @ out + torch.arange(6.0).diag())[1]


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
        (Vectors, "export", "refused", "aten::_linalg_eigh"),
        (Vectors, "compile", "right", ""),
    ],
)
def test_outcomes(kind, way, outcome, said):
    found = judged(built(kind), way)
    assert found["outcome"] == outcome
    assert said in found["said"]
    if (kind, way) == (Vectors, "compile"):
        assert any("linalg_eigh" in operator for operator in found["left"])


def hungry(source, name, ways, answers):
    """Like judge_ways(), with ways that end the process, or exceed a limit."""
    held = bytearray(64 << 20)
    for way in ways:
        if way == "compile":
            raise SystemExit(3)
        while way == "onnx":
            held[0] = 1
        answers.send({"outcome": "right"})


def test_where_a_way_ends_the_process_the_others_are_evaluated():
    assert list(torch_models.outcomes(hungry, "a", "b", ("export", "compile", "export", "onnx"), 0.5, 8)) == [
        ("export", {"outcome": "right"}),
        ("compile", {"outcome": "died", "said": "exit code 3"}),
        ("export", {"outcome": "right"}),
        ("onnx", {"outcome": "too long"}),
    ]


def test_a_process_that_takes_too_much_is_ended():
    assert list(torch_models.outcomes(hungry, "a", "b", ("onnx",), 60, 0.03)) == [("onnx", {"outcome": "too large"})]


def test_a_net_that_is_terminated_leaves_no_judge(tmp_path):
    """The process writes its id, and then never answers."""
    number = tmp_path / "number"
    program = f"""
import os, sys, time
import torch_models
def judge(*_):
    with open({str(number)!r} + ".new", "w") as file:
        file.write(str(os.getpid()))
    os.rename({str(number)!r} + ".new", {str(number)!r})
    time.sleep(600)
torch_models.imported_judge = lambda: judge
torch_models.jobs = lambda *_: [("list", "net", "compile")]
sys.exit(torch_models.main([]))
"""
    net = subprocess.Popen([sys.executable, "-c", program], cwd=Path(torch_models.__file__).parent)
    try:
        until = time.monotonic() + 60
        while not number.exists() and time.monotonic() < until:
            time.sleep(0.05)
        judge = psutil.Process(int(number.read_text()))
        net.terminate()
        assert net.wait(30) == 128 + signal.SIGTERM
        assert not judge.is_running()
    finally:
        net.kill()


def judged_in_a_process(kind):
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(
        target=judge_ways, args=("nets", "net", ("export", "compile"), theirs)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(LISTS, "nets", lambda: {"net": lambda: built(kind)})
        process.start()
    theirs.close()  # so that the end of a process that sends nothing is an error here
    found = [ours.recv()["outcome"] for _ in range(2)]
    process.join()
    return found


def test_every_way_of_a_model_is_evaluated_in_one_process():
    assert judged_in_a_process(Wrong) == ["wrong", "wrong"]


class Constant(Net):
    def forward(self, x, scale):
        return torch.zeros_like(x)


class Branch(Wrong):
    """Its result is scaled by a parameter that is initially zero."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.zeros(6))

    def forward(self, x, scale):
        return x + self.scale * super().forward(x, scale)["out"]


def test_results_that_tell_nothing():
    assert judged_in_a_process(Constant) == ["not built", "not built"]
    assert judged(built(Branch), "export")["outcome"] == "right"
    assert judged_in_a_process(Branch) == ["wrong", "wrong"]


def test_constant_parameters_and_statistics_are_varied():
    module = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 1), torch.nn.BatchNorm2d(3), torch.nn.Linear(4, 1))
    weight = module[0].weight.detach().clone()
    vary_constants(module)
    assert torch.equal(module[0].weight, weight)
    norm = module[1]
    for values in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
        assert len(set(values.tolist())) == 3
    assert norm.running_var.min() > 0
    assert module[2].bias.numel() == 1


def test_outcomes_are_written_as_lines(monkeypatch, tmp_path):
    def judge(source, name, ways, answers):
        for _ in ways:
            answers.send({"outcome": "wrong" if name == "net1" else "right"})

    out = tmp_path / "out.jsonl"
    monkeypatch.setattr(torch_models, "imported_judge", lambda: judge)
    monkeypatch.setattr(torch_models, "jobs", lambda *_: [("list", f"net{n}", "compile") for n in range(3)])
    assert torch_models.main(["--out", str(out)]) == 1
    assert [json.loads(line)["outcome"] for line in out.read_text().splitlines()] == ["right", "wrong", "right"]
    assert torch_models.main(["--out", str(out), "--skip-done"]) == 0
    assert len(out.read_text().splitlines()) == 3
