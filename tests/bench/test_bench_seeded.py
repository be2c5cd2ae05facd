"""Recorded MetaSchedule results: they cover the suite, and their schedules give the same results as when recorded."""

from __future__ import annotations

import pytest

from benchmarks import searched, seeded
from benchmarks.operands import random_operands
from benchmarks.peers.metaschedule import Found, prepared
from benchmarks.result import earlier_entries
from tvm_tiling.tuning.shapes.key import workload_from_dict


def recorded(path=seeded.RECORDED):
    return earlier_entries(path, searched.FORMAT, searched.VERSION, "searches")


def test_the_record_holds_every_workload():
    found = {workload_from_dict(entry["workload"]) for entry in recorded() if entry["status"] == "ok"}
    assert found == {workload for workload, _ in searched.searches()}


def test_the_record_of_the_longer_searches_holds_them_and_nothing_else():
    found = [(workload_from_dict(entry["workload"]), entry["trials"]) for entry in recorded(seeded.RECORDED_LONGER)]
    assert found == searched.searches(longer_only=True) and len(found) == 4


@pytest.mark.parametrize(
    ("path", "number"),
    [(seeded.RECORDED, 5), (seeded.RECORDED, 6), (seeded.RECORDED, 11), (seeded.RECORDED_LONGER, 1)],
    ids=lambda value: getattr(value, "stem", value),
)
def test_a_recorded_schedule_is_applied_again(path, number):
    entry = recorded(path)[number]
    operands = random_operands(workload_from_dict(entry["workload"]))
    side = prepared(Found(entry["trace"], entry["best_seconds"], entry["ran"], entry["seconds"]), operands, "")
    side.run()
    assert operands.difference(side.output()) == ""


def test_the_database_is_made_of_other_shapes():
    suite = {workload for workload, _ in searched.searches()}
    for workload in suite:
        near = seeded.neighbours(workload)
        assert near and not suite & set(near)


def test_without_a_search_there_is_nothing_to_compare(tmp_path, capsys):
    assert seeded.main(["--searched", str(tmp_path / "none.json"), "--json", str(tmp_path / "out.json")]) == 1
    assert "none.json: no such file; expected one that benchmarks.searched wrote" in capsys.readouterr().err
