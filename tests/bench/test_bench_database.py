"""The driver that compares a database's estimates with costs, on costs whose proportional range is known."""

from __future__ import annotations

import pytest
from html_page import Page

from benchmarks import database
from benchmarks.database import Costs, figures, main
from benchmarks.held_out import held_out, resized, share_within
from tvm_tiling.hardware import Hardware
from tvm_tiling.tuning.measuring.measurer import Job, Measured
from tvm_tiling.tuning.shapes.database import ShapeDatabase
from tvm_tiling.workload import GemmWorkload

VTA = Hardware.load("vta")


class Proportional:
    """A start-up of 100 cycles, then 256 multiply-accumulates per cycle."""

    def __init__(self):
        self.count = 0

    def measure(self, jobs):
        for job in jobs:
            self.count += 1
            yield Measured(job=job, cost=100 + job.workload.macs / 256)

    def close(self):
        pass


@pytest.fixture
def measurer(monkeypatch):
    found = Proportional()
    monkeypatch.setattr(database, "measurer_for_shapes", lambda hardware: found)
    return found


@pytest.fixture
def options(tmp_path):
    kept = ["--database", str(tmp_path / "x.db"), "--measured", str(tmp_path / "costs.json")]
    return [
        "-o",
        str(tmp_path / "page.html"),
        "--target",
        "vsim/neartile",
        "--op",
        "gemm",
        "--shapes",
        "1",
        "--held-out",
        "10",
        *kept,
    ]


def test_a_page_of_plots_and_figures_after_an_end_of_the_time(measurer, options, tmp_path, capsys):
    assert main([*options, "--seconds", "0"]) == 1
    assert "time limit reached" in capsys.readouterr().out and not (tmp_path / "page.html").exists()
    assert main(options) == 0
    out, page = capsys.readouterr().out, (tmp_path / "page.html").read_text()
    assert out.startswith("gemm: 100% of 10 estimates within 5%, median error ")
    assert "multiples of entries in proportion" in out and "fractions of entries in proportion" in out
    assert "cost against size" in page and "measured against estimated" in page and "held-out shapes" in page
    assert not Page(page).outside and not Page(page).open
    count = measurer.count
    assert main(options) == 0
    assert measurer.count == count and capsys.readouterr().out == out  # nothing is measured again


def test_time_up_keeps_the_costs(tmp_path):
    job = Job(workload=GemmWorkload(m=64, n=64, k=64, dtype="int8"), config=None, hardware=VTA)
    measurer = Proportional()
    assert [m.cost for m in Costs(measurer, tmp_path / "c.json", None).measure([job, job])] == [1124, 1124]
    again = Costs(measurer, tmp_path / "c.json", 0)
    assert [m.cost for m in again.measure([job])] == [1124] and measurer.count == 1
    other = Job(workload=GemmWorkload(m=32, n=64, k=64, dtype="int8"), config=None, hardware=VTA)
    with pytest.raises(database.TimeUp):
        list(again.measure([other]))


def test_held_out_shapes_are_multiples_that_are_not_there():
    with ShapeDatabase("sqlite://") as db:
        shape = GemmWorkload(m=512, n=512, k=512, dtype="int8")
        db.generate(target=VTA, shapes=[shape], limit=4, candidates=1, threshold=None, measurer=Proportional())
        found = list(held_out(db, VTA, Proportional(), 8, op="gemm"))
        kept = {entry.workload for _, entry in db.entries()}
        assert len(found) == 8 and not kept & {own.workload for own in found}
        for own in found:
            assert own.hit.proportional and own.error == own.hit.estimate / own.cost - 1
        assert [own.workload for own in held_out(db, VTA, Proportional(), 8, op="gemm")] == [o.workload for o in found]
        assert list(held_out(db, VTA, Proportional(), 8, op="conv")) == []


def test_resized_operands_have_no_gaps():
    assert resized(GemmWorkload(m=8, n=8, k=8, ldb=16), {"n": 32}) == GemmWorkload(m=8, n=32, k=8)


def test_figures_say_how_many_are_within():
    held = [{"error": error} for error in (0.01, -0.2)]
    assert share_within([0.01, -0.2], 0.05) == 0.5
    sizes = {2: 2.02, 4: 5, 0.5: 0.9}
    points = {"a": [{"axes": "m", "size": size, "cost": cost} for size, cost in sizes.items()]}
    told = figures("gemm", points, held, 0.05)
    assert told == (
        "gemm: 50% of 2 estimates within 5%, median error 10.5%, maximum 20.0%; 50% of 2 multiples of entries in "
        "proportion; 0% of 1 fractions of entries in proportion"
    )
