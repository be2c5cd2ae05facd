"""A tenth of PyTorch's modules with its own samples, and the check; all: tests/slow/test_torch_moduleinfo_all.py."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="PyTorch's test suite imports it: pip install expecttest")

import torch_sample_judge  # noqa: E402
import torch_sample_net  # noqa: E402
from moduleinfo_samples import a_tenth, modules, samples  # noqa: E402
from torch_sample_judge import judged  # noqa: E402
from torch_samples import Results, sample_of  # noqa: E402


@pytest.mark.parametrize("way", ["export", "compile"])
def test_a_tenth_of_all_modules_is_right(way):
    found = [sample for name in a_tenth() for sample in samples(name, "float32", seed=0, limit=1)]
    assert len(found) >= len(modules()) // 10
    assert not [outcome for outcome in judged(found, way) if outcome.kind != "right"]


class Asking(torch.nn.Module):
    """The traced function differs from the eager one."""

    def forward(self, x):
        return x + 2 if torch.compiler.is_compiling() else x + 1


class Vectors(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.eigh(torch.outer(x, x.exp()))[1]


class Plain(torch.nn.Module):
    def forward(self, x):
        return x.exp()


class Changing(torch.nn.Module):
    def forward(self, x):
        return x.mul_(2).sum()


class Untraced(torch.nn.Module):
    @torch.compiler.disable
    def forward(self, x):
        return x + 1


def sample(kind, size=3, **options):
    return sample_of(kind(**options).eval(), (torch.rand(size),), {}, kind.__name__)


@pytest.mark.parametrize(
    ("kind", "way", "outcome", "said"),
    [
        (Asking, "export", "traced", "sample 0: Asking"),
        (Asking, "compile", "traced", "sample 0: Asking"),
        (Vectors, "export", "refused", "aten::_linalg_eigh"),
        (Vectors, "compile", "left", "linalg_eigh"),
        (Untraced, "compile", "left", "Dynamo"),
    ],
)
def test_outcomes_among_right_samples(kind, way, outcome, said):
    found = judged([sample(Plain), sample(kind), sample(Plain)], way)
    assert [each.kind for each in found] == ["right", outcome, "right"]
    assert said in found[1].said


def test_a_wrong_result_among_right_ones(monkeypatch):
    def ran(samples):
        results = [sample.expected().returned[0] for sample in samples]
        returned = [value + 1 if len(value) == 4 else value for value in results]
        return Results(returned, [sample.tensors[0] for sample in samples]), []

    monkeypatch.setitem(torch_sample_judge.WAYS, "export", ran)
    found = judged([sample(Plain), sample(Plain, size=4), sample(Plain)])
    assert [each.kind for each in found] == ["right", "wrong", "right"]


@pytest.mark.parametrize("way", ["export", "compile"])
def test_changed_inputs_are_compared(way, monkeypatch):
    assert [each.kind for each in judged([sample(Plain), sample(Changing), sample(Plain)], way)] == ["right"] * 3

    def ran(samples):
        return Results(samples[0].expected().returned, [samples[0].tensors[0]]), []

    monkeypatch.setitem(torch_sample_judge.WAYS, way, ran)
    (found,) = judged([sample(Changing)], way)
    assert found.kind == "wrong" and "inputs afterwards" in found.said


def test_an_error_of_another_kind_is_not_a_refusal(monkeypatch):
    for said, outcome in (("ValueError: no", "internal error"), ("it is on device 'meta'", "left")):
        ran = (Results([torch.tensor([1.0])], [torch.zeros(1)]), [said])
        monkeypatch.setitem(torch_sample_judge.WAYS, "compile", lambda _, ran=ran: ran)
        one = sample_of(Plain().eval(), (torch.zeros(1),), {}, "")
        assert [each.kind for each in judged([one], "compile")] == [outcome]


def test_parameters_depend_on_the_seed_and_the_sample_alone():
    every, few = samples("nn.Linear", "float32", 3, None), samples("nn.Linear", "float32", 3, 1)
    assert torch.equal(every[0].function.weight, few[0].function.weight)
    assert not torch.equal(every[0].function.weight, samples("nn.Linear", "float32", 4, 1)[0].function.weight)


def test_the_smallest_sample_of_each_kind_is_printed():
    outcomes = [("left", "a", 5), ("wrong", "b", 9), ("wrong", "c", 2), ("right", "", 1)]
    found = torch_sample_net.Tally("nn", "float32", "export", outcomes).smallest()
    assert list(found.items()) == [("wrong", (2, "c")), ("left", (1, "a"))]


def test_a_process_that_takes_too_long_or_too_much_is_ended(monkeypatch, tmp_path):
    program = tmp_path / "worker.py"
    program.write_text("import time\nheld = bytearray(64 << 20)\ntime.sleep(60)")
    monkeypatch.setattr(torch_sample_net, "WORKER", program)
    for limits, why in (((0.5, 8), "too long"), ((30, 0.03), "too large")):
        worker = torch_sample_net.Worker(*limits)
        with pytest.raises(torch_sample_net.Ended, match=why):
            worker.answer({})
        assert worker.process is None
