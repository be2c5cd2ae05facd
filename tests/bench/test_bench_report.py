"""Summaries calculated by hand, the driver on stand-in peers, and the report page."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks import run as driver
from benchmarks.operands import GemmOperands
from benchmarks.peers.base import Peer, Prepared
from benchmarks.result import write_whole
from benchmarks.run import Settings, measure_case
from benchmarks.suite import Case, SuiteError
from benchmarks.summary import geometric_mean, summaries, summarize
from tvm_tiling.measure import Condition, Paired, StopRule, Timing
from tvm_tiling.peak import Bandwidth, Peak
from tvm_tiling.report.comparison_page import comparison_page
from tvm_tiling.report.suite_result import faster_peer, peer_columns, remarks, skipped_peers
from tvm_tiling.workload import ConvWorkload, GemmWorkload

PEAK = Peak(
    gflops_one_core=50.0,
    gflops=100.0,
    gops_int8_one_core=None,
    gops_int8=None,
    bandwidths=(
        Bandwidth(level="L2", capacity=1000.0, gbytes=80.0),
        Bandwidth(level="memory", capacity=float("inf"), gbytes=10.0),
    ),
)


def entry(ratio, status="ok", library=True):
    ok = status == "ok"
    figures = {"gops": 10.0 if ok else None, "ratio": ratio, "spread": 0.0 if ratio else None, "samples": 5}
    return {"status": status, "reason": "" if ok else "because", "note": "", "library": library, **figures}


def row(case, peers, group="g", ours="ok", dtype="float32"):
    return {
        "case": case,
        "group": group,
        "dtype": dtype,
        "packed": False,
        "flops": 2000,
        "bytes": 100,
        "roofline_gops": 100.0,
        "ours": {"status": ours, "reason": "", "gops": 20.0 if ours == "ok" else None, "of_roofline": 0.2},
        "peers": peers,
    }


def test_the_faster_peer_has_the_least_ratio_and_our_own_algorithms_do_not_compete():
    peers = {"numpy": entry(2.0), "torch": entry(0.9), "A": entry(0.5, library=False), "x": entry(None, "failed")}
    assert faster_peer(row("c", peers)) == ("torch", 0.9)
    assert faster_peer(row("c", {"x": entry(None, "skipped")})) is None


def test_summary_by_hand():
    rows = [
        row("c1", {"numpy": entry(4.0)}),
        row("c2", {"numpy": entry(1.0)}),
        row("c3", {"numpy": entry(0.25)}),
        row("c4", {"numpy": entry(None)}, ours="wrong result"),
    ]
    s = summarize("all", rows)
    assert s.geometric_mean == pytest.approx(1.0)
    assert (s.worst, s.worst_case) == (0.25, "c3")
    assert (s.rows, s.compared, s.ours_not_ok) == (4, 3, 1)
    assert s.share_won == pytest.approx(2 / 4)  # the wrong result counts as lost
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)


def test_summaries_by_group_and_type_then_all():
    rows = [row("a", {}, group="x"), row("b", {}, group="x", dtype="int8"), row("c", {}, group="y")]
    assert [s.group for s in summaries(rows)] == ["x, float32", "x, int8", "y, float32", "all"]
    assert summaries([])[-1].geometric_mean is None


def test_networks_count_their_layers():
    def layer(case, group, ratio, seconds, times):
        made = row(case, {"numpy": entry(ratio)}, group=group)
        return {**made, "times": times, "ours": {**made["ours"], "seconds": seconds}}

    rows = [layer("a", "x", 2.0, 1.0, {"net": 3}), layer("b", "y", 0.5, 2.0, {"net": 1, "other": 4})]
    found = {s.group: s for s in summaries([*rows, row("c", {"numpy": entry(9.0)}, group="x")])}
    assert list(found) == ["x, float32", "y, float32", "network net, float32", "network other, float32", "all"]
    net = found["network net, float32"]
    assert (net.rows, net.geometric_mean) == (2, pytest.approx(1.0))
    assert net.time_ratio == pytest.approx((3 * 1.0 * 2.0 + 1 * 2.0 * 0.5) / (3 * 1.0 + 1 * 2.0))
    assert found["network other, float32"].time_ratio == pytest.approx(0.5)
    assert found["all"].time_ratio is None


def test_columns_skipped_and_remarks():
    rows = [row("c1", {"numpy": entry(1.0), "tvm": entry(None, "skipped"), "torch": entry(None, "failed")})]
    assert peer_columns(rows) == ["numpy", "torch"]
    assert skipped_peers(rows) == {"tvm": "because"}
    assert remarks(rows) == ["c1: torch: failed: because"]


def test_roofline_by_hand():
    assert PEAK.roofline(operations=1000, footprint=500, dtype="float32") == 100.0  # 2 per byte at 80 GB/s: 160
    assert PEAK.roofline(operations=500, footprint=500, dtype="float32") == 80.0
    assert PEAK.roofline(operations=10000, footprint=5000, dtype="float32") == 20.0
    assert PEAK.to_dict()["bandwidths"][1]["capacity"] is None


class Standin(Peer):
    """NumPy under another name, with faults on request."""

    def __init__(self, name="ours", fault=""):
        self.name = name
        self.fault = fault

    def available(self):
        return "not installed: it" if self.fault == "missing" else None

    def prepare(self, operands, packed):
        if self.fault == "raises":
            raise RuntimeError("no kernel")
        out = operands.output()

        def run():
            np.matmul(operands.a, operands.b, out=out)
            if self.fault == "wrong":
                out[0, 0] += 1

        return Prepared(run, lambda: out)


CASE = Case(group="g", workload=GemmWorkload(m=4, k=5, n=6), packed=False, short=True)
RULE = StopRule(least_pairs=3, most_pairs=3, most_seconds=1.0)


def measured(monkeypatch, ours="", peer=""):
    monkeypatch.setattr(driver, "Ours", lambda: Standin(fault=ours))
    monkeypatch.setattr(driver, "get_peer", lambda name: Standin(name, peer))
    return measure_case(CASE, ["it"], PEAK, RULE, Condition())


def test_a_row_of_two_that_work(monkeypatch):
    found = measured(monkeypatch)
    assert found["ours"]["status"] == found["peers"]["it"]["status"] == "ok"
    assert found["peers"]["it"]["ratio"] > 0
    assert found["ours"]["of_roofline"] == pytest.approx(found["ours"]["gops"] / found["roofline_gops"])


@pytest.mark.parametrize(("fault", "status"), [("missing", "skipped"), ("raises", "failed"), ("wrong", "wrong result")])
def test_speed_is_not_measured_of_what_is_not_right(monkeypatch, fault, status):
    of_peer = measured(monkeypatch, peer=fault)
    assert (of_peer["peers"]["it"]["status"], of_peer["peers"]["it"]["ratio"]) == (status, None)
    assert of_peer["ours"]["status"] == "ok"
    of_ours = measured(monkeypatch, ours=fault)
    assert (of_ours["ours"]["status"], of_ours["ours"]["gops"]) == (status, None)
    assert of_ours["peers"]["it"]["gops"] > 0


def result(monkeypatch):
    rows = [measured(monkeypatch), measured(monkeypatch, peer="wrong")]
    machine = {"cpu": "a </script> chip", "cores": 2, "mcpu": "", "caches": [], "date": "today", "commit": None}
    return {
        "settings": {"suite": "gemm", "short": True, "cold": False},
        "machine": {**machine, "load": [0.5], "versions": {"numpy": "2"}},
        "peak": PEAK.to_dict(),
        "rows": json.loads(json.dumps(rows)),
        "summary": [s.to_dict() for s in summaries(rows)],
    }


def test_what_the_driver_writes_has_a_page(monkeypatch):
    text = comparison_page(result(monkeypatch))
    assert "a &lt;/script&gt; chip" in text
    assert "differs from the float64 result" in text
    assert "https:" not in text and "src=" not in text


def test_resume_takes_rows_of_its_own_format_only(tmp_path):
    path = tmp_path / "r.json"
    settings = Settings(suite="gemm", json=path, resume=True)
    assert driver._earlier_rows(settings) == []
    write_whole(path, json.dumps({"format": driver.FORMAT, "version": driver.VERSION, "rows": [{"case": "c"}]}))
    assert driver._earlier_rows(settings) == [{"case": "c"}]
    write_whole(path, json.dumps({"format": "other", "version": 1, "rows": []}))
    with pytest.raises(SuiteError, match="another --json file"):
        driver._earlier_rows(settings)
    assert not list(tmp_path.glob("*.part"))


class Answer(Standin):
    """Returns the expected result of any workload."""

    supports = (GemmWorkload, ConvWorkload)

    def prepare(self, operands, packed):
        return Prepared(lambda: None, lambda: operands.expected, rounding=0.0)


def test_a_run_of_convolutions_is_written_and_resumed(monkeypatch, tmp_path):
    asked = []

    def peer(name):
        asked.append(name)
        return Answer(name)

    monkeypatch.setattr(driver, "Ours", Answer)
    monkeypatch.setattr(driver, "get_peer", peer)
    monkeypatch.setattr(driver, "measure_peak", lambda cpu, target: PEAK)
    pair = Paired(ours=Timing(seconds=(1.0,) * 3), peer=Timing(seconds=(2.0,) * 3))
    monkeypatch.setattr(driver, "paired", lambda ours, peer, rule, condition: pair)
    settings = Settings(
        suite="conv", match="squeezenet1.1 13x13x48", peers=("it",), json=tmp_path / "r.json", resume=True
    )
    first = driver.run(settings)
    names = [f"squeezenet1.1 13x13x48->192 {kernel} float32 packed" for kernel in ("k1", "k3 p1")]
    assert [r["case"] for r in first["rows"]] == names
    assert first["rows"][1]["peers"]["it"]["ratio"] == 2.0
    assert first["rows"][1]["times"] == {"squeezenet1.1": 2}
    assert (first["rows"][1]["op"], first["rows"][1]["kh"]) == ("conv", 3)
    assert [s["group"] for s in first["summary"]] == [
        "squeezenet1.1, float32, packed",
        "network squeezenet1.1, float32, packed",
        "all",
    ]
    assert asked == ["it"] * 3  # once for the name, once for each case
    second = driver.run(settings)
    assert asked == ["it"] * 4
    assert second["rows"] == json.loads(json.dumps(first["rows"]))


def test_operands_of_a_case_are_the_same_every_time():
    first, second = GemmOperands.random(CASE.workload), GemmOperands.random(CASE.workload)
    assert np.array_equal(first.a, second.a)
    assert np.array_equal(first.b, second.b)
