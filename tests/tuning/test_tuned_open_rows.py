"""tune() of matrix multiplications with dynamic rows, what it stores, and how it is found; with a measurer that returns
given figures."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from tvm import te

import tvm_tiling as tt
from tvm_tiling.cli import app
from tvm_tiling.decide.configs.open_configs import OpenSpace
from tvm_tiling.decide.configs.record import Config
from tvm_tiling.decide.surroundings import Surroundings
from tvm_tiling.errors import DatabaseError, WorkloadError
from tvm_tiling.sizes import Range
from tvm_tiling.tuning.measuring.measurer import Job, Measured
from tvm_tiling.tuning.measuring.paired_benchmark import PairedResult
from tvm_tiling.tuning.measuring.runner import RunnerError
from tvm_tiling.tuning.open_session import both_ways, sizes_of
from tvm_tiling.tuning.search import Formulas
from tvm_tiling.tuning.shapes.database import ShapeDatabase
from tvm_tiling.tuning.shapes.entries import Entry
from tvm_tiling.tuning.shapes.row_range import RowsMeasured
from tvm_tiling.tuning.tune import tune

HARDWARE = tt.Hardware.detect()
PRODUCT = tt.GemmWorkload(m=1, n=768, k=768)
ROWS = {"m": (1, 512)}
ALL = Range(1, 512)
START = OpenSpace(
    tt.GemmWorkload(m=128, n=768, k=768), HARDWARE, Surroundings(prepacked=True), sizes_of(Range(1, 512), 0)
).start


class Turns:
    """A measurer without a machine: `gain(config, rows)` is the speedup over the decision; None fails."""

    def __init__(self, gain, spread: float = 0.01, until: int | None = None) -> None:
        self.gain, self.spread, self.until = gain, spread, until
        self.jobs: list[Job] = []
        self.sizes: list[tuple[int, ...]] = []
        self.start: Config | None = None

    def over_rows(
        self, candidates: Sequence[Job], incumbent: Job, sizes: Sequence[int], thorough: bool = False
    ) -> Iterator[tuple[Job, tuple[PairedResult, ...] | str]]:
        self.start = self.start or incumbent.config
        for job in candidates:
            if self.until is not None and len(self.jobs) >= self.until:
                raise KeyboardInterrupt
            self.jobs.append(job)
            self.sizes.append(tuple(sizes))
            if job == incumbent:
                gains = [1.0 for _ in sizes]
            elif job.config == self.start:  # instead of the other one
                gains = [1 / self.gain(incumbent.config, rows) for rows in sizes]
            else:
                gains = [self.gain(job.config, rows) for rows in sizes]
            if None in gains:
                yield job, "ValueError: no"
                continue
            seconds = [1e-5 * rows for rows in sizes]
            yield (
                job,
                tuple(
                    PairedResult(ratio=gain, uncertainty=self.spread, seconds=one / gain, pairs=9)
                    for gain, one in zip(gains, seconds, strict=True)
                ),
            )

    def measure(self, jobs: Sequence[Job]) -> Iterator[Measured]:
        for job in jobs:
            yield Measured(job=job, cost=1e-3)

    def close(self) -> None:
        raise AssertionError("whoever made it closes it")


def by_depth(config: Config, rows: int) -> float:
    """A particular tile is fast, with many rows."""
    return 1.2 if config.choice("depth") == 768 // 2 and rows > 8 else 0.9


@pytest.fixture
def database(tmp_path):
    with ShapeDatabase(f"sqlite:///{tmp_path / 'shapes.db'}") as opened:
        yield opened


def search(database, turns, trials: int = 16, **more):
    about = {"dims": ROWS, "prepacked": True, "progress": False, "runner": turns, **more}
    return tune(PRODUCT, database=database, trials=trials, **about)


def found(database, rows: Range = ALL):
    return database.open_config_for(tt.GemmWorkload(m=7, n=768, k=768), HARDWARE, rows, True)


def test_sizes_are_spread_over_the_range():
    assert sizes_of(Range(1, 512), 0)[0] == 1 and sizes_of(Range(1, 512), 0)[-1] == 512
    assert sizes_of(Range(1, 512), 0) == sizes_of(Range(1, 512), 0) != sizes_of(Range(1, 512), 1)
    assert sizes_of(Range(9, 11), 3) in ((9, 10, 11), (9, 11)) and sizes_of(Range(5, 5), 0) == (5,)
    assert sizes_of(Range(1, 10**6), 0)[-1] == 4096 and sizes_of(Range(5000, 9000), 0)[-1] == 9000
    assert sizes_of(Range(200), 0)[-1] == 800 and sizes_of(Range(1), 0)[-1] == 512


def test_what_is_faster_over_the_range_is_kept_and_serves(database):
    turns = Turns(by_depth)
    report = search(database, turns)
    assert turns.jobs[0].config == START and report.trials == len(turns.jobs) - 2 <= 16
    assert turns.sizes[-1] != turns.sizes[0]  # the last one is measured at other sizes than it was chosen by
    assert (
        report.best.choice("depth") == 384
        and report.over_rows.won
        and report.gain == pytest.approx(report.over_rows.gain)
    )
    config, why = found(database)
    assert config == report.best
    assert "from the database: for 1..512 rows speedup 1." in why and "geometric mean of 7 sizes" in why
    ((_, entry),) = database.entries()
    assert (entry.kind, entry.rows.rows, entry.rows.sizes) == ("range", Range(1, 512), turns.sizes[-1])
    assert entry.rows.version and entry.decided_cost / entry.cost == pytest.approx(entry.rows.gain)
    assert "1..512" in str(report) and report.to_dict()["rows"] == [1, 512]
    assert database.check().ok and database.holdings()[0].ranges == 1


@pytest.mark.parametrize(
    "turns",
    [
        Turns(lambda config, rows: 0.97),
        Turns(lambda config, rows: 1.05, spread=0.2),
        Turns(lambda config, rows: None),
    ],
    ids=["slower", "noise", "failed"],
)
def test_what_is_not_faster_beyond_noise_changes_nothing(database, turns):
    report = search(database, turns, trials=6)
    assert report.cost_after == report.cost_before and report.best in (START, None)
    assert list(database.entries()) == [] and found(database) is None
    assert "is kept" in str(report)


def test_what_was_chosen_by_luck_is_not_kept(database):
    """Fast at the sizes of the search only."""
    chosen = sizes_of(Range(1, 512), 0)
    report = search(database, Turns(lambda config, rows: 1.3 if rows in chosen[1:-1] else 0.95), trials=5)
    assert not report.over_rows.won and report.gain == 1
    assert list(database.entries()) == []


def test_what_a_session_favours_is_noise(database):
    """The requested side is the faster one, whichever it is."""
    one = PairedResult(ratio=1.08, uncertainty=0.001, seconds=1.0, pairs=9)
    found = both_ways(one, one)
    assert found.ratio == 1 and found.uncertainty > 0.07
    found = both_ways(one, replace(one, ratio=1 / 1.08))
    assert found.ratio == pytest.approx(1.08) and found.uncertainty < 0.001


def test_within_its_range_an_entry_serves_where_it_is_faster(database):
    search(database, Turns(by_depth))
    assert found(database, Range(9, 300)) is not None
    assert found(database, Range(1, 2)) is None  # slower with few rows, as measured
    assert found(database, Range(1, 513)) is None and found(database, Range(1)) is None
    workload = tt.GemmWorkload(m=7, n=768, k=768)
    assert (
        database.open_config_for(workload, HARDWARE, Range(1, 512), False) is None
    )  # weights that are packed at run time
    assert database.open_config_for(workload, HARDWARE, Range(1, 512), True, "bias+relu") is not None
    assert database.match(workload, target=HARDWARE, prepacked=True) is None  # it matches no fixed size
    assert database.estimate(workload, target=HARDWARE, prepacked=True) is None


def test_the_smaller_range_comes_first(database):
    for last, depth in ((512, 96), (64, 128)):
        measured = RowsMeasured(rows=Range(1, last), sizes=(1, last), gains=(1.1, 1.1), spreads=(0.0, 0.0))
        config = Config.of("gemm", "open", {**dict(START.choices), "depth": depth})
        entry = Entry(workload=PRODUCT, config=config, cost=1.0, kind="range", rows=measured, prepacked=True)
        database.add_many([entry], target=HARDWARE)
    assert found(database, Range(2, 60)) is None  # neither was measured within
    assert found(database, Range(1, 64))[0].choice("depth") == 128
    assert found(database, Range(1, 65))[0].choice("depth") == 96


def test_a_session_that_was_ended_goes_on(database):
    first = Turns(by_depth, until=5)
    assert (search(database, first).stopped, len(first.jobs)) == ("interrupted", 5)
    second = Turns(by_depth)
    again = search(database, second)
    assert again.earlier == 5
    new = [job.config for job in second.jobs if job.config not in {job.config for job in first.jobs}]
    assert len(new) >= again.trials - 1 and again.trials <= 11
    third = Turns(by_depth)
    report = search(database, third)
    assert third.jobs == [] and report.best == again.best and report.over_rows == again.over_rows


def test_what_was_kept_and_is_slower_today_serves_no_more(database):
    search(database, Turns(by_depth))
    assert found(database) is not None
    report = search(database, Turns(lambda config, rows: 0.9), resume=False)
    assert found(database) is None and report.best == START


def test_what_was_kept_stays_where_another_one_was_lucky(database):
    report = search(database, Turns(by_depth))
    chosen = sizes_of(Range(1, 512), 0)[1:-1]

    def lucky(config: Config, rows: int) -> float:
        if config.choice("depth") == 256:
            return 1.5 if rows in chosen else 0.9
        return by_depth(config, rows)

    again = search(database, Turns(lucky), resume=False)
    assert found(database)[0] == report.best == again.best
    assert again.over_rows == report.over_rows


def test_entries_seed_each_other(database):
    search(database, Turns(by_depth))
    turns = Turns(by_depth)
    tune(PRODUCT, database=database, trials=2, dims={"m": (1, 64)}, prepacked=True, progress=False, runner=turns)
    assert turns.jobs[1].config.choice("depth") == 384
    asked: list[Job] = []

    class Told(Turns):
        def measure(self, jobs):
            asked.extend(jobs)
            return super().measure(jobs)

    fixed = tt.GemmWorkload(m=100, n=768, k=768)
    about = {"prepacked": True, "progress": False, "cost_model": Formulas()}
    tune(fixed, database=database, trials=3, runner=Told(by_depth), **about)
    assert asked[1].config.choice("depth") == 384 and asked[1].rows is None


def test_ranges_are_exported_and_imported(database, tmp_path):
    search(database, Turns(by_depth))
    assert database.export(tmp_path / "shapes.jsonl") == 1
    with ShapeDatabase(tmp_path / "other.db") as other:
        assert other.import_(tmp_path / "shapes.jsonl") == 1
        assert [entry for _, entry in other.entries()] == [entry for _, entry in database.entries()]


def test_the_models_of_other_searches_do_not_learn_from_ranges(database):
    search(database, Turns(by_depth))
    fixed = tt.GemmWorkload(m=100, n=768, k=768)
    report = tune(fixed, database=database, trials=2, prepacked=True, progress=False, runner=Turns(by_depth))
    assert report.trials == 2


def test_the_command_finds_and_shows_ranges(database, tmp_path, capsys):
    search(database, Turns(by_depth))
    url = str(tmp_path / "shapes.db")

    def said(*words: str) -> str:
        with pytest.raises(SystemExit):
            app.main(list(words))
        return capsys.readouterr().out

    asked = ("db", "match", url, "gemm", "1", "768", "768", "--prepacked", "--dim")
    assert "the tiling of the entry is used" in said(*asked, "m=1..512")
    assert "the analytical tiling is used" in said(*asked, "m=1..2")
    assert "rows 1..513: no matching entry" in said(*asked, "m=1..513")
    assert json.loads(said(*asked, "m=1..64", "--json"))["hit"]["chosen"] == "entry"
    assert "rows=1..512 packed" in said("db", "show", url, "--kind", "range")
    assert json.loads(said("db", "list", url, "--json"))[0]["ranges"] == 1


@pytest.mark.parametrize("rows", [(0, 8), (9, 8), 8, (1, 2, 3), ("a", 2), Range(0)])
def test_what_is_not_a_range_of_rows(database, rows):
    with pytest.raises(WorkloadError, match=r"rows = .*; expected first and last size of a range"):
        database.match_rows(PRODUCT, rows, target=HARDWARE)
    with pytest.raises(DatabaseError, match="ConvWorkload has no ranges of rows"):
        database.match_rows(tt.ConvWorkload(n=1, h=8, w=8, ci=8, co=8, kh=3, kw=3), (1, 8), target=HARDWARE)


def test_corrupted_ranges_are_reported(database, tmp_path):
    search(database, Turns(by_depth))
    database.close()
    with sqlite3.connect(tmp_path / "shapes.db") as connection:
        connection.execute("UPDATE entries SET measured_rows = '{}'")
    assert "expected a table of first, last" in database.check().problems[0]
    with pytest.raises(DatabaseError, match="expected a table of first, last"):
        found(database)


def function(*, transposed: bool = False, batched: bool = False):
    """relu(a b) of 48 columns with variable rows; of a transposed a, or with a dynamic batch."""
    rows, batch, r = te.var("rows", "int64"), te.var("batch", "int64"), te.reduce_axis((0, 64))
    lead = (batch,) if batched else ()
    a = te.placeholder((*lead, *((64, rows) if transposed else (rows, 64))))
    b = te.placeholder((*lead, 64, 48))

    def total(*at):
        *outer, i, j = at
        return te.sum(a[(*outer, r, i) if transposed else (*outer, i, r)] * b[(*outer, r, j)], axis=r)

    product = te.compute((*lead, rows, 48), total)
    return te.compute((*lead, rows, 48), lambda *at: te.max(product[at], 0.0))


def test_the_rows_of_a_function_are_its_variable(database):
    turns = Turns(lambda config, rows: 0.9)
    report = tune(function(), database=database, dims={"rows": (3, 50)}, trials=2, runner=turns, progress=False)
    assert (report.rows, report.workload.m, turns.jobs[0].epilogue) == (Range(3, 50), 50, "relu")
    report = tune(function(), database=database, trials=2, runner=turns, progress=False)
    assert report.rows == Range(1) and turns.sizes[-1][-1] == 512


@pytest.mark.parametrize("more", [{"transposed": True}, {"batched": True}])
def test_what_no_known_configuration_serves_is_not_searched(database, more):
    with pytest.raises(
        WorkloadError, match="expected of symbolic shapes: a matrix multiplication with only its rows symbolic"
    ):
        tune(function(**more), database=database, trials=2, runner=Turns(by_depth), progress=False)


@pytest.mark.parametrize(
    ("op", "change", "error", "words"),
    [
        (PRODUCT, {"dims": {"k": (1, 8)}}, WorkloadError, "dims names 'k'; expected m"),
        (PRODUCT, {"dims": {"m": 8}}, WorkloadError, r"dims\['m'\] = 8; expected a range of sizes for an operator"),
        (PRODUCT, {"dims": {"m": [1, 8]}}, WorkloadError, "a range of sizes"),
        (tt.GemmWorkload(m=1, n=8, k=8, trans_a=True), {"dims": ROWS}, WorkloadError, "is transposed; expected"),
        (function(), {"dims": {"n": (1, 8)}}, WorkloadError, "dims names 'n'; expected rows"),
        (PRODUCT, {"dims": ROWS, "batch": 3}, WorkloadError, "batch: accepted for a model only"),
        (PRODUCT, {"dims": ROWS, "target": "vsim/vta"}, tt.HardwareError, "static shapes only"),
        (
            PRODUCT,
            {"dims": ROWS, "runner": object()},
            RunnerError,
            "expected 'local', or a Measurer with",
        ),
        (
            tt.ConvWorkload(n=1, h=8, w=8, ci=8, co=8, kh=3, kw=3),
            {"dims": ROWS},
            WorkloadError,
            "dims names 'm'; expected none",
        ),
    ],
)
def test_mistakes_are_said_in_one_sentence(op, change, error, words):
    with pytest.raises(error, match=words) as told:
        tune(op, **{"trials": 2, "progress": False, **change})
    assert "\n" not in str(told.value)


def test_a_gemm_of_open_rows_is_tuned_on_this_machine(database):
    """A short complete run: built, checked and measured at every size."""
    report = tune(
        tt.GemmWorkload(m=1, n=48, k=40),
        database=database,
        dims={"m": (1, 5)},
        trials=2,
        prepacked=True,
        progress=False,
    )
    assert (report.trials, report.failures) == (2, ())
    assert 0 < report.cost_after <= report.cost_before < 1
    assert all(trial.operator.endswith("rows=1..5") for trial in report.log)
