"""A few operators with PyTorch's own samples; the complete list is in tests/slow/test_torch_opinfo_operators.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="PyTorch's test suite imports it: pip install expecttest")

import torch_sample_net  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402
from torch_sample_judge import different  # noqa: E402
from torch_sample_net import Tally, Worker, tallies  # noqa: E402


def test_operators_are_right_after_a_worker_died():
    worker, dtypes = Worker(), ["float32", "bfloat16", "int64"]
    (died,) = tallies(worker, "opinfo", ["no such operator"], ["float32"], ["export"], seed=0, limit=1)
    assert died.counts == {"died": 1}
    given = worker, "opinfo", ["add", "nn.functional.elu"], dtypes, ["export"]
    found = list(tallies(*given, seed=0, limit=2))
    worker.close()
    kinds = [("add", kind) for kind in dtypes] + [("nn.functional.elu", kind) for kind in dtypes]
    assert sorted((tally.name, tally.dtype) for tally in found) == sorted(kinds)
    for tally in found:
        assert not tally.bad, f"{tally.name} of {tally.dtype}: {tally.bad[0]}"
        taken = (tally.name, tally.dtype) != ("nn.functional.elu", "int64")
        assert tally.counts == ({"right": 2} if taken else {})
    done = {(tally.name, tally.dtype, tally.way) for tally in found}
    assert not list(tallies(*given, seed=0, limit=2, done=done))
    assert sum(tally.seconds for tally in found) > 0
    assert worker.process is None


def test_a_file_of_outcomes_is_gone_on_with(tmp_path, monkeypatch, capsys):
    out, judged = tmp_path / "out.jsonl", []

    def found(worker, source, names, dtypes, ways, seed, limit, only, done):
        for name in names:
            if (name, "int64", "export") not in done:
                judged.append(name)
                yield Tally(name, "int64", "export", [("right", "", 1), ("wrong", "no", 2)], 0.5)

    monkeypatch.setattr(torch_sample_net, "tallies", found)
    for names in ("add", "add,mul"):
        options = ["net", "--names", names, "--out", str(out), "--skip-done"]
        monkeypatch.setattr("sys.argv", options)
        assert torch_sample_net.command("opinfo", "", list, ["int64"], ["export"]) == 1
    assert judged == ["add", "mul"]
    assert "int64, export: 50.0 percent of 4 served; 2 right, 2 wrong" in capsys.readouterr().out


def test_a_tenth_of_all_operators_is_right_or_refused():
    from opinfo_operators import a_tenth

    worker = Worker()
    found = list(tallies(worker, "opinfo", a_tenth(), ["float32"], ["export"], seed=0, limit=1))
    worker.close()
    assert not [(tally.name, tally.bad[0]) for tally in found if tally.bad]
    right = sum(tally.counts["right"] for tally in found)
    assert right >= 0.9 * len(found) > 50, [tally.name for tally in found if not tally.counts["right"]]


def test_a_wrong_result_is_found():
    value = torch.tensor([1.0, float("nan")])
    assert not different([value], [value.clone()])
    assert "expected" in different([value], [value.double()])
    assert "expected" in different([value[None]], [value])
    assert different([torch.tensor([1.0, 2.0])], [value])
    assert different([value + 0.001], [value])


def test_places_of_equal_elements_are_free_unless_the_order_is_stable():
    from opinfo_samples import samples

    data, wanted = torch.tensor([2, 1, 2]), torch.tensor([1, 0, 2])
    sample = replaced(samples("argsort", "int64", 0, 1)[0], data, {})
    stable = replaced(sample, data, {"stable": True})
    swapped, wrong, twice = (torch.tensor(places) for places in ([1, 2, 0], [0, 1, 2], [1, 2, 2]))
    assert not different([swapped], [wanted], sample)
    assert different([swapped], [wanted], stable)
    assert different([wrong], [wanted], sample)
    assert different([twice], [wanted], sample)
    assert different([swapped.int()], [wanted], sample)
    free = replaced(sample, data, {"k": 2, "sorted": False}, "topk")
    pair = [torch.tensor([2, 2]), torch.tensor([0, 2])]
    assert not different([torch.tensor([2, 2]), torch.tensor([2, 0])], pair, free)
    assert different([torch.tensor([2, 2]), torch.tensor([1, 0])], pair, free)


def test_the_exact_sum_is_right_where_pytorch_rounds_at_every_step(monkeypatch):
    import torch_sample_judge
    from opinfo_samples import samples
    from torch_samples import Results

    # 256 + 1 is 256 in bfloat16, in which PyTorch adds one term after the other.
    data = torch.tensor([256.0, *[1.0] * 64], dtype=torch.bfloat16)
    sample = replaced(samples("argsort", "int64", 0, 1)[0], data, {})
    sample = replace(sample, function=lambda x: sum(x.unbind()))
    assert sample.expected().returned[0].item() == 256
    for value, outcome in ((320.0, "right"), (256.0, "right"), (290.0, "wrong")):
        found = [torch.tensor(value).bfloat16()]
        monkeypatch.setitem(
            torch_sample_judge.WAYS, "export", lambda samples, found=found: (Results(found, [data]), [])
        )
        assert torch_sample_judge.judged([sample])[0].kind == outcome


def replaced(sample, tensor, options, name="argsort"):
    """Return the sample with another input, other keyword arguments and the name of another operator."""
    leaves, structure = pytree.tree_flatten(((tensor,), options))
    return replace(sample, leaves=tuple(leaves), structure=structure, tensors=(tensor,), name=name)
