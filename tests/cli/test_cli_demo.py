"""`tvm-tiling demo`, on small products."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from tvm_tiling.cli import demo, main
from tvm_tiling.measure import Condition, Paired, Side, Timing


def run(capsys, *words):
    with pytest.raises(SystemExit) as left:
        main(("demo", *words))
    out, err = capsys.readouterr()
    return left.value.code or 0, out, err


@pytest.fixture
def quick(monkeypatch):
    """A few samples of each rival, and no PyTorch, which takes seconds to load."""
    rule = demo.StopRule
    monkeypatch.setattr(demo, "StopRule", lambda **_: rule(most_pairs=3))
    monkeypatch.setattr(demo, "_libraries", lambda: {"NumPy": demo._numpy})


def test_full_size_products():
    dense, decoding, primes = demo.demo_products(1024)
    assert (dense.m, dense.k, dense.n, dense.dense) == (1024, 1024, 1024, True)
    assert (decoding.m, decoding.k, decoding.n, decoding.dense) == (1, 4096, 4096, False)
    assert (primes.m, primes.k, primes.n) == (1013, 1019, 1021)
    assert dense.flops == 2 * 1024**3


def test_text(capsys, quick):
    code, out, err = run(capsys, "--size", "48")
    assert code == 0
    assert out.count("tvm-tiling ") == out.count("TVM default ") == out.count("NumPy  ") == 3
    assert "(48 x 48) * (48 x 48), float32, then bias and ReLU" in out
    assert "(41 x 43) * (43 x 47)" in out
    assert "GFLOP/s" in out and "no trial runs" in out and " cores; TVM 0." in out
    assert "Geometric mean of the three: " in out and " times NumPy." in out
    assert "prime sizes, 41 x 43 x 47: measuring beside TVM default\n" in err


def test_json(capsys, quick):
    code, out, _ = run(capsys, "--size", "32", "--json")
    result = json.loads(out)
    assert code == 0
    assert {"cpu", "cores", "versions", "date"} <= set(result["machine"])
    sizes = [(p["m"], p["k"], p["n"], p["bias_relu"]) for p in result["products"]]
    assert sizes == [(32, 32, 32, True), (1, 128, 128, False), (23, 29, 31, False)]
    for product in result["products"]:
        assert set(product["runs"]) == {"NumPy", "TVM default"}
        assert product["decision"]["mr"] >= 1 and product["gflops"] > 0
        assert all(0 <= error < 1e-4 for error in product["largest_error"].values())
        assert all(pair["status"] == "ok" and pair["ratio"] > 0 for pair in product["runs"].values())


@pytest.mark.parametrize("size", ["0", "15", "1025"])
def test_a_size_out_of_range_is_one_line_and_code_1(capsys, size):
    assert run(capsys, "--size", size) == (1, "", f"error: --size {size}, accepted: 16 to 1024\n")


def test_a_size_that_is_no_number_is_wrong_usage(capsys):
    code, out, err = run(capsys, "--size", "big")
    assert code == 2 and out == "" and "--size" in err and "Traceback" not in err


def test_a_wrong_result_is_never_timed(capsys, quick, monkeypatch):
    def wrong(arrays):
        rival = demo._numpy(arrays)
        return demo.Rival("NumPy", rival.side, lambda: rival.output() + 0.5)

    monkeypatch.setattr(demo, "_libraries", lambda: {"NumPy": wrong})
    monkeypatch.setattr(demo, "paired", lambda *_: pytest.fail("timed"))
    code, out, err = run(capsys, "--size", "16")
    assert (code, out) == (1, "")
    error = err.splitlines()[-1]
    assert error.startswith("error: dense layer, 16 x 16 x 16: NumPy differs from NumPy by 0.5, accepted: 3.81e-06")


def test_not_a_number_is_wrong():
    product = demo.Product("thing", 1, 4, 1)
    rival = demo.Rival("it", Side(lambda: None), lambda: np.full((1, 1), math.nan))
    with pytest.raises(demo.DemoError, match="differs from NumPy by nan"):
        demo._error(rival, np.zeros((1, 1)), product)


@pytest.mark.parametrize(("seconds", "pairs"), [(0.6, 2), (5.0, 1)])
def test_a_slow_rival_runs_few_times(monkeypatch, seconds, pairs):
    monkeypatch.setattr(demo, "Condition", lambda: Condition(switches=lambda: 0))  # no sample is disturbed
    calls = []
    ours, slow = (
        demo.Rival(name, Side(lambda name=name: calls.append(name)), lambda: None) for name in ("ours", "slow")
    )
    pair = demo._few(ours, slow, seconds)
    assert calls == ["ours", "slow"] * pairs
    assert len(pair.ours.seconds) == len(pair.peer.seconds) == pairs


def test_the_middle_half_of_one_pair_is_none():
    def pairs(*seconds):
        return Paired(ours=Timing(seconds=(1.0,) * len(seconds)), peer=Timing(seconds=seconds))

    assert demo._middle_half(pairs(2.0)) == "one pair"
    assert demo._middle_half(pairs(1.0, 2.0, 3.0, 4.0, 5.0)) == "2.00 to 4.00"


def test_summary_takes_the_faster_library(monkeypatch):
    def result(numpy, torch, tvm):
        runs = {
            name: Paired(ours=Timing(seconds=(1.0,)), peer=Timing(seconds=(ratio,)))
            for name, ratio in (("NumPy", numpy), ("PyTorch", torch), ("TVM default", tvm))
        }
        return demo.Demonstration(demo.Product("p", 1, 1, 1), None, 0.0, 0.0, {}, runs)

    monkeypatch.setattr(demo, "_libraries", lambda: dict.fromkeys(("NumPy", "PyTorch")))
    assert demo._summary([result(2.0, 8.0, 10.0), result(9.0, 4.5, 1000.0)]) == (
        "Geometric mean of the three: 100 times TVM's default pipeline, 3.00 times the faster of NumPy and PyTorch."
    )
