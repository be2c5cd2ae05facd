"""Which configurations are proposed, and when a search ends."""

from __future__ import annotations

import pytest

import tvm_tiling as tt
from tvm_tiling.decide.configs.config import Config
from tvm_tiling.tuning.measuring.measurer import Job, Measured
from tvm_tiling.tuning.search import Search, SearchRules

HARDWARE = tt.Hardware.load("vta")
WORKLOAD = tt.GemmWorkload(m=8, n=8, k=8)


def config(number: int) -> Config:
    return Config.of("gemm", "normal", {"number": number})


class Space:
    """Configurations 0, 1, ...: the first is the decision's. Predictions grow by 1 percent from one to the next."""

    def __init__(self, size: int = 200) -> None:
        self.size, self.start = size, config(0)

    def configs(self, limit=None):
        return [config(number) for number in range(self.size)][:limit]

    def predicted(self, config: Config) -> float:
        return 1.01 ** int(config.choice("number"))


def measured(found: Config, cost: float | None) -> Measured:
    job = Job(workload=WORKLOAD, config=found, hardware=HARDWARE)
    return Measured(job=job, cost=cost, reason=None if cost is not None else "it failed")


def run(search: Search, truth, at_once: int = 4) -> list[int]:
    """Return the numbers of the configurations in the order of their proposal, until the search ends."""
    found: list[int] = []
    while proposed := search.propose(at_once):
        found += [int(config.choice("number")) for config in proposed]
        search.learn([measured(config, truth(int(config.choice("number")))) for config in proposed])
    return found


def noisy(number: int) -> float:
    """Costs that predictions do not reflect."""
    return 1.0 + ((number * 37 + 60) % 101) / 100 * 2


def test_the_start_and_the_seeds_come_first_and_every_config_once():
    search = Search(Space(), [config(150), config(7), config(7)], SearchRules(trials=60, patience=100))
    found = run(search, noisy)
    assert found[:3] == [0, 150, 7]
    assert len(found) == len(set(found)) == 60
    assert search.stopped == "60 trials done"


def test_some_proposals_are_not_the_first_by_prediction():
    search = Search(Space(), [], SearchRules(trials=60, explore=0.25, patience=100))
    found = run(search, noisy)
    assert 25 < sum(number < 60 for number in found) < 60
    assert run(Search(Space(), [], SearchRules(trials=20, explore=0.0, patience=100)), noisy) == list(range(20))


def test_seeds_outside_of_the_space_are_measured_too():
    assert run(Search(Space(3), [config(500)], SearchRules()), noisy) == [0, 500, 1, 2]


def test_the_best_is_the_cheapest_and_failures_are_none():
    search = Search(Space(5), [], SearchRules(explore=0.0))
    run(search, {0: 1.0, 1: None, 2: 0.7, 3: 0.9, 4: None}.get)
    assert (search.best, search.cost, search.done) == (config(2), 0.7, 5)
    assert search.stopped == "every configuration was measured"


def test_it_ends_near_the_least_cost_there_is():
    search = Search(Space(), [], SearchRules(explore=0.0), least=0.98)
    assert run(search, lambda number: 1.0 if number == 6 else 2.0, at_once=1) == list(range(7))
    assert search.stopped == "within 3% of the lower bound on the cost"


def test_it_ends_without_gain_for_long():
    search = Search(Space(), [], SearchRules(trials=150, patience=20, explore=0.0))
    found = run(search, lambda number: 1.0 if number == 9 else noisy(number), at_once=1)
    assert len(found) == 30
    assert search.stopped == "the last 20 trials gained less than 1%"


def test_it_ends_where_predictions_and_their_error_leave_nothing():
    """With predictions within half a percent, a configuration predicted 3 percent slower than the best is not
    measured."""
    search = Search(Space(), [], SearchRules(trials=150, patience=100, explore=0.0))
    found = run(search, lambda number: 1.01**number * (1 + (number % 3 - 1) / 200), at_once=1)
    assert 8 <= len(found) <= 12
    assert search.stopped.startswith("no remaining configuration could gain 1%")


def test_it_goes_on_where_predictions_are_off():
    search = Search(Space(), [], SearchRules(trials=80, patience=100, explore=0.0))
    assert len(run(search, noisy, at_once=1)) == 80


def test_what_earlier_sessions_measured_counts_and_is_not_measured_again():
    past = {config(number): noisy(number) if number % 2 else None for number in range(30)}
    search = Search(Space(), [config(3)], SearchRules(trials=40, patience=100), past=past)
    assert search.cost == min(noisy(number) for number in range(1, 30, 2))
    found = run(search, noisy)
    assert len(found) == 10
    assert min(found) >= 30


def test_a_model_that_learns_leads_the_search():
    class Knowing:
        def __init__(self) -> None:
            self.seen = 0

        def rank(self, space, configs):
            return sorted(configs, key=lambda config: noisy(int(config.choice("number"))))

        def update(self, space, measured):
            self.seen += len(measured)

    model = Knowing()
    search = Search(Space(), [], SearchRules(trials=12, explore=0.0, patience=100), model=model)
    run(search, noisy)
    assert (search.cost, model.seen) == (min(map(noisy, range(200))), 12)


@pytest.mark.parametrize("seed", range(3))
def test_the_same_seed_proposes_the_same(seed):
    first, second = (run(Search(Space(), [], SearchRules(trials=30), seed=seed), noisy) for _ in range(2))
    assert first == second
