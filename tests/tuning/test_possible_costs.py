"""Plausible costs: possible ones, before and after in one session, and reports of a busy machine."""

from __future__ import annotations

import dataclasses
import zlib

import pytest
from shapes import CPU

import tvm_tiling as tt
from tvm_tiling.decide.configs.config import Config
from tvm_tiling.decide.configs.neighbourhood import neighbourhood
from tvm_tiling.figures import scaled
from tvm_tiling.tuning.least_cost import least_cost, possible_anywhere, possible_seconds
from tvm_tiling.tuning.measuring.incumbents import Incumbents, TrialFailed
from tvm_tiling.tuning.measuring.measurer import Job, Measured, SideBySide
from tvm_tiling.tuning.measuring.paired_benchmark import Alone, PairedResult
from tvm_tiling.tuning.shapes import database as shape_database
from tvm_tiling.tuning.shapes.database import ShapeDatabase
from tvm_tiling.tuning.shapes.entries import Entry, put_entries
from tvm_tiling.tuning.shapes.fingerprint import fingerprint_of
from tvm_tiling.tuning.tune import tune

WORKLOAD = tt.GemmWorkload(m=192, n=320, k=256)
SPACE = neighbourhood(WORKLOAD, CPU)
FIRST, SECOND, THIRD = (Job(workload=WORKLOAD, config=config, hardware=CPU) for config in list(SPACE.configs(3)))
DESCRIBED = least_cost(WORKLOAD, CPU, SPACE.start)


class Bench:
    """Answers in the given order; `least` is the lower bound by the machine's measured peak."""

    def __init__(self, *answers, least=0.0):
        self.answers, self.least, self.asked = list(answers), least, []

    def __call__(self, candidate, incumbent, thorough):
        self.asked.append((candidate, incumbent, thorough))
        found = self.answers.pop(0)
        if isinstance(found, str):
            raise TrialFailed(found)
        if incumbent is None:
            assert isinstance(found, float)
            return Alone(seconds=found, uncertainty=0.01, least=self.least if thorough else 0.0)
        return found


def pair(ratio: float, seconds: float = 1.0, disturbed: float = 0.0) -> PairedResult:
    return PairedResult(ratio=ratio, uncertainty=0.001, seconds=seconds, pairs=20, disturbed=disturbed)


# ---- impossible costs ------------------------------------------------------------------------------------------------


def test_an_impossible_cost_is_measured_again():
    bench = Bench(DESCRIBED / 10, 3 * DESCRIBED, least=DESCRIBED / 2)
    found = Incumbents().measured(FIRST, bench)
    assert (found.cost, found.reason) == (3 * DESCRIBED, None)
    assert bench.asked == [(FIRST, None, False), (FIRST, None, True)]


def test_a_cost_that_stays_impossible_is_a_failure_that_says_why():
    bench = Bench(DESCRIBED / 10, DESCRIBED / 9, least=DESCRIBED / 2)
    incumbents = Incumbents()
    found = incumbents.measured(FIRST, bench)
    assert found.cost is None and incumbents.of(FIRST) is None
    first, again, least = (scaled(DESCRIBED / part, "s", 4) for part in (10, 9, 2))
    assert f"impossible cost: {first}, measured again {again}, but" in found.reason
    assert f"take at least {least} at" in found.reason
    assert (
        f"{WORKLOAD.macs} multiply-accumulates and {WORKLOAD.bytes} bytes of algorithm '{FIRST.config.form}'"
        in found.reason
    )


def test_a_clock_above_the_described_one_makes_costs_possible():
    """Measured peaks determine the bound; they are requested once."""
    bench = Bench(0.8 * DESCRIBED, 0.8 * DESCRIBED, pair(1.1), pair(1.1), least=DESCRIBED / 2)
    incumbents = Incumbents()
    assert incumbents.measured(FIRST, bench).cost == 0.8 * DESCRIBED
    assert incumbents.measured(SECOND, bench).cost == pytest.approx(0.8 * DESCRIBED / 1.1)
    assert [thorough for _, incumbent, thorough in bench.asked if incumbent is None] == [False, True]


def test_a_chain_of_ratios_that_leads_below_what_is_possible_is_left():
    """Each ratio belongs to a moment; their product may be an impossible cost for the machine."""
    bench = Bench(2 * DESCRIBED, pair(8.0), pair(8.0), 1.5 * DESCRIBED, least=DESCRIBED / 2)
    incumbents = Incumbents()
    incumbents.measured(FIRST, bench)
    assert incumbents.measured(SECOND, bench).cost == 1.5 * DESCRIBED
    assert incumbents.of(FIRST) == SECOND


def test_another_cost_of_the_same_machine_is_as_ever():
    bench = Bench(3 * DESCRIBED, pair(1.5), pair(1.5), pair(0.5))
    incumbents = Incumbents()
    costs = [incumbents.measured(job, bench).cost for job in (FIRST, SECOND, THIRD)]
    assert costs == pytest.approx([3 * DESCRIBED, 2 * DESCRIBED, 4 * DESCRIBED])
    assert all(incumbent is not None for _, incumbent, _ in bench.asked[1:])


def test_a_disturbed_session_is_held_again():
    bench = Bench(pair(1.2, 1.0, 0.9), pair(1.3, 1.0, 0.6), pair(1.1, 1.0, 0.1))
    found = Incumbents().side_by_side(FIRST, SECOND, bench)
    assert found == SideBySide(before=1.1, after=1.0, spread=0.001, disturbed=0.1)
    assert bench.asked == [(SECOND, FIRST, True)] * 3
    busy = Bench(*[pair(1.2, 1.0, 0.9)] * 3)
    assert Incumbents().side_by_side(FIRST, SECOND, busy).disturbed == 0.9


def test_sessions_that_fail_say_why():
    assert Incumbents().side_by_side(FIRST, SECOND, Bench("killed by SIGSEGV")) == "killed by SIGSEGV"
    impossible = Bench(pair(1.2, DESCRIBED / 10), DESCRIBED / 9, least=DESCRIBED / 2)
    assert Incumbents().side_by_side(FIRST, SECOND, impossible).startswith("impossible cost")
    once = Bench(pair(1.2, DESCRIBED / 10), 3 * DESCRIBED, least=DESCRIBED / 2)
    assert "in the comparison, but" in Incumbents().side_by_side(FIRST, SECOND, once)


# ---- what is added by hand, or imported -----------------------------------------------------------------------------


def entry(cost: float, workload=WORKLOAD, config=SPACE.start) -> Entry:
    return Entry(workload=workload, config=config, cost=cost)


def test_a_bound_of_any_machine_is_below_that_of_a_machine():
    here = possible_seconds(WORKLOAD, SPACE.start, CPU.cpu)
    assert 0 < possible_anywhere(WORKLOAD, SPACE.start, CPU.cpu.cores) <= here < DESCRIBED
    # 192 * 320 * 256 multiply-accumulates, two cores with two vectors of 16 at 6.5 GHz, and a margin of 15 percent
    assert possible_anywhere(WORKLOAD, SPACE.start, 2) == pytest.approx(0.85 * 192 * 320 * 256 / (2 * 2 * 16 * 6.5e9))
    assert possible_anywhere(WORKLOAD, SPACE.start, 0) > 0  # a fingerprint of another program may say so
    unknown = dataclasses.replace(CPU.cpu, assumed=("fma_units",))
    assert possible_seconds(WORKLOAD, SPACE.start, unknown) == possible_anywhere(WORKLOAD, SPACE.start, unknown.cores)
    layer = tt.ConvWorkload(n=1, h=56, w=56, ci=64, co=64, kh=3, kw=3, padding=(1, 1, 1, 1))
    forms = [Config.of("conv", "direct", {}), Config.of("conv", "winograd", {"m": 4})]
    direct, winograd = (possible_anywhere(layer, form, 2) for form in forms)
    assert winograd == pytest.approx(direct / 4, rel=0.05)


def test_a_cost_that_the_cpu_cannot_have_is_not_added(database):
    least = possible_seconds(WORKLOAD, SPACE.start, CPU.cpu)
    with pytest.raises(tt.DatabaseError, match=r"cost = \S+ s is impossible; expected at least \S+ s, which 15728640"):
        database.add(WORKLOAD, SPACE.start, 0.9 * least, target=CPU)
    with pytest.raises(tt.DatabaseError, match="impossible"):
        database.add_many([entry(1.0), entry(0.9 * least)], target=CPU)
    assert list(database.entries()) == []
    database.add(WORKLOAD, SPACE.start, 1.1 * least, target=CPU)
    assert database.check().ok


def exported(tmp_path, cost: float):
    """A file of one entry with that cost, by any writer."""
    path = tmp_path / "shapes.jsonl"
    with ShapeDatabase(f"sqlite:///{tmp_path / 'other.db'}") as other:
        other.add(WORKLOAD, SPACE.start, 1.0, target=CPU)
        other.export(path)
    path.write_text(path.read_text().replace('"cost":1.0', f'"cost":{cost!r}'))
    return path


def test_a_cost_that_no_such_cpu_can_have_is_not_imported(database, tmp_path):
    path = exported(tmp_path, 0.9 * possible_anywhere(WORKLOAD, SPACE.start, CPU.cpu.cores))
    with pytest.raises(tt.DatabaseError, match=r"shapes.jsonl, line 3: cost = \S+ s is impossible"):
        database.import_(path)
    assert list(database.entries()) == []


def test_of_this_machine_imports_know_more(database, tmp_path, monkeypatch):
    path = exported(tmp_path, 1.1 * possible_anywhere(WORKLOAD, SPACE.start, CPU.cpu.cores))
    slow = dataclasses.replace(CPU.cpu, fma_units=1)  # which fingerprints do not contain
    monkeypatch.setattr(shape_database, "_this_cpu", lambda: {fingerprint_of(CPU).digest: slow})
    with pytest.raises(tt.DatabaseError, match="impossible"):
        database.import_(path)
    monkeypatch.setattr(shape_database, "_this_cpu", lambda: {})
    assert database.import_(path) == 1


def test_an_impossible_cost_that_is_kept_already_is_named_by_check(database):
    database.store.write(lambda connection: put_entries(connection, [entry(1e-9)], CPU))
    (problem,) = database.check().problems
    assert problem.startswith("entry 1: cost = 1e-09 s is impossible")


# ---- what a search makes of it ---------------------------------------------------------------------------------------


class Told:
    """A measurer that returns given figures; `session` are before, after, spread and disturbed of a comparison."""

    def __init__(self, cost, session=None, disturbed=0.0):
        self.cost, self.session, self.disturbed = cost, session, disturbed
        self.jobs, self.compared = [], []

    def measure(self, jobs):
        for job in jobs:
            self.jobs.append(job)
            yield Measured(job=job, cost=self.cost(job, len(self.jobs)), disturbed=self.disturbed, seconds_spent=0.1)

    def close(self):
        raise AssertionError("whoever made it closes it")


class Comparing(Told):
    def compare(self, first, second):
        self.compared.append((first.config, second.config))
        if isinstance(self.session, str):
            return self.session
        before, after, spread, disturbed = self.session
        return SideBySide(before=before, after=after, spread=spread, disturbed=disturbed)


def by_text(job, _count=0) -> float:
    """Costs that cannot be predicted; the decision's is the highest."""
    if job.config == SPACE.start:
        return 9e-3
    return 1e-3 * (1 + zlib.crc32(str(job.config).encode()) % 1009 / 300)


@pytest.fixture
def database(tmp_path):
    with ShapeDatabase(f"sqlite:///{tmp_path / 'shapes.db'}") as opened:
        yield opened


def searched(database, told, trials=8, **more):
    return tune(WORKLOAD, CPU, database=database, trials=trials, runner=told, progress=False, **more)


def test_nothing_impossible_is_kept_whatever_measures(database):
    told = Told(lambda job, count: 1e-9)
    report = searched(database, told, trials=3)
    assert (report.best, report.cost_after) == (None, None)
    ((reason, times),) = report.failures
    assert times == 3 and reason.startswith("impossible cost: 1.000 ns, measured again 1.000 ns")
    assert len(told.jobs) == 6
    assert list(database.entries()) == [] and database.match(WORKLOAD, target=CPU) is None


def test_a_measurer_that_was_wrong_once_is_asked_again(database):
    report = searched(database, Told(lambda job, count: 1e-9 if count == 1 else 2e-3), trials=1)
    assert (report.cost_after, report.failures) == (2e-3, ())


def test_before_and_after_are_of_one_session_and_kept(database):
    told = Comparing(by_text, session=(5.5e-3, 5e-3, 0.01, 0.2))
    report = searched(database, told)
    assert told.compared == [(SPACE.start, report.best)]
    assert (report.cost_before, report.cost_after, report.gain) == (5.5e-3, 5e-3, pytest.approx(1.1))
    entry = database.match(WORKLOAD, target=CPU).entry
    assert (entry.config, entry.cost, entry.decided_cost, entry.disturbed) == (report.best, 5e-3, 5.5e-3, 0.2)
    assert not entry.doubtful and "busy" not in str(report)


def test_the_same_command_with_no_new_trials_says_the_same(database):
    first = searched(database, Comparing(by_text, session=(5.5e-3, 5e-3, 0.01, 0.8)))
    silent = Comparing(None, session="nobody is to be asked")
    again = [searched(database, silent) for _ in range(2)]
    assert silent.jobs == silent.compared == [] and again[0].trials == 0
    for name in ("best", "cost_before", "cost_after", "gain", "roofline", "stopped", "doubtful"):
        assert {getattr(report, name) for report in (first, *again)} == {getattr(first, name)}, name


def test_a_search_that_was_killed_before_its_session_has_it_the_next_time(database):
    searched(database, Told(by_text))  # which cannot compare, and keeps costs of different times
    told = Comparing(None, session=(5.5e-3, 5e-3, 0.01, 0.0))
    report = searched(database, told)
    assert (report.trials, len(told.compared), report.cost_after) == (0, 1, 5e-3)
    searched(database, told)
    assert len(told.compared) == 1


def test_a_best_that_loses_in_turns_is_not_the_best(database):
    told = Comparing(by_text, session=(4e-3, 5e-3, 0.01, 0.0))
    report = searched(database, told)
    assert told.compared[0][1] != SPACE.start
    assert (report.best, report.cost_before, report.cost_after) == (SPACE.start, 4e-3, 4e-3)
    assert database.match(WORKLOAD, target=CPU).entry.config == SPACE.start
    assert searched(database, told).best == SPACE.start
    level = Comparing(by_text, session=(5e-3, 5e-3, 0.01, 0.0))
    assert searched(database, level, resume=False).best != SPACE.start


def test_the_decision_as_the_best_is_compared_with_nothing(database):
    told = Comparing(lambda job, _: 1e-3 if job.config == SPACE.start else 2e-3, disturbed=0.7)
    report = searched(database, told)
    assert (told.compared, report.gain, report.disturbed) == ([], 1.0, 0.7)


def test_a_busy_machine_is_reported_and_kept(database):
    report = searched(database, Comparing(by_text, session=(5.5e-3, 5e-3, 0.3, 0.8), disturbed=0.6))
    assert report.doubtful and report.disturbed_trials == 8
    said = (
        "before and after are doubtful, because other work kept threads off their cores; disturbed trials: 8 of 8; "
        "repeat this on an idle machine"
    )
    assert said in str(report)
    plain = report.to_dict()
    assert (plain["doubtful"], plain["disturbed"], plain["disturbed_trials"]) == (True, 0.8, 8)
    assert database.match(WORKLOAD, target=CPU).entry.doubtful
    quiet = searched(database, Comparing(by_text, session=(5.5e-3, 5e-3, 0.3, 0.5), disturbed=0.5), resume=False)
    assert not quiet.doubtful and "busy" not in str(quiet)


def test_a_session_that_could_not_be_held_is_reported(database):
    report = searched(database, Comparing(by_text, session="killed by SIGSEGV while running"))
    assert "before and after were measured at different times: killed by SIGSEGV while running" in str(report)
    assert database.match(WORKLOAD, target=CPU).entry.disturbed is None


def test_ctrl_c_leaves_a_session(database):
    def cost(job, count):
        if count > 5:
            raise KeyboardInterrupt
        return by_text(job)

    report = searched(database, Comparing(cost, session=(5.5e-3, 5e-3, 0.01, 0.0)))
    assert (report.stopped, report.trials, report.cost_after) == ("interrupted", 5, 5e-3)


def test_shares_out_of_range_are_refused(database):
    searched(database, Comparing(by_text, session=(5.5e-3, 5e-3, 0.01, 0.2)))
    ((_, entry),) = database.entries()
    for share in (-0.1, 1.5, "all", float("nan")):
        with pytest.raises(tt.DatabaseError, match="expected None or a fraction, 0 to 1"):
            dataclasses.replace(entry, disturbed=share)
