"""The study of constants: candidates, and what is made of their times."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("tvm")

import tvm_tiling as tt
from benchmarks.calibration import (
    candidates,
    descriptions,
    form_accuracy,
    judged,
    main,
    printed,
    rank_correlation,
    summary,
    with_constants,
)
from benchmarks.suite import load_suite
from tvm_tiling.decide.configs.neighbourhood import neighbourhood
from tvm_tiling.decide.configs.record import Config

CASE = next(case for case in load_suite("calibration") if case.group == "square")


def test_the_suite_has_forty_shapes_that_no_short_run_measures():
    cases = load_suite("calibration")
    assert len(cases) == len({case.name for case in cases}) == 40 and not any(case.short for case in cases)


def test_constants_of_others_leave_cores_vectors_and_caches():
    here, other = tt.Hardware.load("icelake-server-2c"), tt.Hardware.load("neoverse-v1")
    wrong = with_constants(here, other).cpu
    assert (wrong.fma_units, wrong.l2_bytes_per_cycle) == (other.cpu.fma_units, other.cpu.l2_bytes_per_cycle)
    same = ("arch", "features", "vector_bits", "vector_registers", "cores", "caches", "mcpu")
    assert all(getattr(wrong, name) == getattr(here.cpu, name) for name in same)


def test_choices_of_every_description_are_candidates_and_are_judged():
    machines = descriptions()
    assert list(machines) == ["default", "as zen4-server-8c", "as neoverse-v1"]  # no calibration in tests
    spaces = {name: neighbourhood(CASE.workload, machine, prepacked=CASE.packed) for name, machine in machines.items()}
    found = candidates(spaces, 0)
    assert found == candidates(spaces, 0) and len(found) == len(set(found))
    assert {space.start for space in spaces.values()} <= set(found)
    trials = [[config.to_dict(), [spaces["default"].predicted(config)] * 3] for config in found]
    row = judged({"trials": trials}, CASE, machines)
    assert row["default"]["loss"] == 0 and row["default"]["rank"] == pytest.approx(1)
    table = summary([row])
    assert table["default"]["within"] == 1 and len(list(printed(table))) == 4


def test_ranks():
    assert rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([5.0, 7.0, 6.0])) == pytest.approx(0.5)
    assert math.isnan(rank_correlation(np.array([1.0, 1.0]), np.array([1.0, 2.0])))
    configs = [Config.of("gemm", form, {"number": number}) for number, form in enumerate("aabb")]
    costs = np.array([1.0, 9.0, 2.0, 8.0])
    assert form_accuracy(configs, np.array([3.0, 3.0, 4.0, 1.0]), costs) == 0.0
    assert form_accuracy(configs, np.array([1.0, 3.0, 4.0, 2.0]), costs) == 1.0
    assert math.isnan(form_accuracy(configs[:2], costs[:2], costs[:2]))


def test_a_file_without_shapes_is_refused(tmp_path, capsys):
    assert main(["--judge", "-o", str(tmp_path / "none.json")]) == 1
    assert "has no measured shapes; run without --judge" in capsys.readouterr().err
