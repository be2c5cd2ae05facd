"""Configurations of matrix multiplications with dynamic rows: extracted from decisions and applied again."""

from __future__ import annotations

import pytest

import tvm_tiling as tt
from tvm_tiling.decide.configs.config import Config, tiling_of
from tvm_tiling.decide.configs.open_configs import (
    OpenSpace,
    fixed_config,
    for_open_rows,
    open_config,
    open_tiling_for,
    open_tiling_of,
)
from tvm_tiling.decide.configs.rule import changed
from tvm_tiling.decide.gemm.open_rows import decide_open_rows
from tvm_tiling.decide.options import Options
from tvm_tiling.decide.surroundings import Surroundings
from tvm_tiling.errors import DatabaseError, HardwareError
from tvm_tiling.sizes import Range

AHEAD = Surroundings(prepacked=True)
EIGHT = tt.Hardware.load("zen4-server-8c")


def product(n: int = 768, k: int = 768, **more) -> tt.GemmWorkload:
    return tt.GemmWorkload(m=128, n=n, k=k, **more)


@pytest.mark.parametrize("target", ["zen4-server-8c", "neoverse-v1-16c", "skylake-desktop-8c"])
@pytest.mark.parametrize(
    "workload", [product(), product(3072), product(77, 70), product(1, 33), product(96, 4096, dtype="int8")]
)
def test_a_decision_is_made_again_of_its_configuration(target, workload):
    hardware = tt.Hardware.load(target)
    decision = decide_open_rows(workload, hardware, Options(prepacked=True), AHEAD)
    again = open_tiling_of(open_config(decision), workload, hardware, AHEAD, why="because")
    for name in ("form", "mr", "nr", "partition_k", "pack_a", "pack_b", "keep", "inner_order"):
        assert getattr(again, name) == getattr(decision, name), name
    assert again.partition_n // again.nr == max(1, min(decision.partition_n, workload.n + again.nr) // decision.nr)
    assert [(found.rows, found.threads) for found in again.ranges] == [
        (found.rows, found.threads) for found in decision.ranges
    ]
    assert again.why("config").startswith("because") and again.why("form") == "because"


def test_a_space_begins_with_the_decision_and_holds_what_the_machine_can_do():
    space = OpenSpace(product(), EIGHT, AHEAD, (1, 8, 64, 512))
    configs = list(space.configs())
    assert space.start in configs and len(configs) == len(set(configs)) > 50
    prices = [space.predicted(config) for config in configs]
    assert prices == sorted(prices) and prices[0] > 0
    assert len({config.choice("microkernel") for config in configs}) > 6
    assert len({config.choice("shares") for config in configs}) > 2
    assert all(space.settled(config) == config for config in configs)


def test_shares_of_a_range_are_those_of_its_rows():
    start = OpenSpace(product(), EIGHT, AHEAD, (1, 512)).start
    config = changed(start, rows=(8, 64), shares=(1, 1, 8, 1, 2, 4, 1, 8, 1))
    tiling = open_tiling_of(config, product(), EIGHT, AHEAD)
    assert (tiling.ranges[0].rows, tiling.ranges[0].threads) == (8, (1, 1, 8))
    assert fixed_config(config, 9).choice("threads") == (1, 2, 4, 1)
    assert tiling_of(fixed_config(config, 65), tt.GemmWorkload(m=65, n=768, k=768), EIGHT).threads_m == 8


def test_a_configuration_of_fixed_rows_becomes_one_of_open_rows():
    start = OpenSpace(product(), EIGHT, AHEAD, (1, 512)).start
    fixed = Config.of("gemm", "normal", {"microkernel": (14, 2), "depth": 256, "columns": 96, "threads": (1, 1, 1, 1)})
    opened = for_open_rows(fixed, start)
    assert (opened.choice("microkernel"), opened.choice("depth")) == ((8, 2), 256)
    assert for_open_rows(Config.of("gemm", "stream", {"side": 4}), start) is None


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"microkernel": (8, 4)}, HardwareError, "vector registers"),
        ({"rows": (8, 8)}, DatabaseError, "increasing whole numbers of at least 1"),
        ({"rows": (8,)}, DatabaseError, "shares = .* expected 6 whole numbers"),
        ({"shares": (1, 4, 4)}, HardwareError, "need 16 cores"),
        ({"depth": 0}, DatabaseError, "depth = 0"),
    ],
)
def test_what_cannot_be_is_said_in_one_sentence(change, error, words):
    one_range = changed(OpenSpace(product(), EIGHT, AHEAD, (1,)).start, rows=(), shares=(1, 8, 1))
    config = changed(one_range, **change)
    with pytest.raises(error, match=words) as found:
        open_tiling_of(config, product(), EIGHT, AHEAD)
    assert "\n" not in str(found.value)


def test_a_configuration_of_another_algorithm_is_refused():
    with pytest.raises(DatabaseError, match="algorithm = 'normal' of a gemm for a gemm with dynamic rows"):
        open_tiling_of(Config.of("gemm", "normal", {}), product(), EIGHT, AHEAD)


class Known:
    """A database with one configuration for dynamic rows."""

    def __init__(self, config: Config) -> None:
        self.config, self.asked = config, []

    def config_for(self, workload, hardware, prepacked=False, epilogue=""):
        raise AssertionError("asked for a fixed size")

    def open_config_for(self, workload, hardware, rows, prepacked=False, epilogue=""):
        self.asked.append((rows, prepacked, epilogue))
        return self.config, "measured"


def test_a_source_is_asked_and_what_it_knows_explains_itself():
    start = OpenSpace(product(), EIGHT, AHEAD, (1, 512)).start
    source = Known(changed(start, depth=384))
    options = Options(prepacked=True, configs=source)
    tiling = open_tiling_for(product(), EIGHT, options, AHEAD, Range(1, 512), "bias")
    assert source.asked == [(Range(1, 512), True, "bias")]
    assert tiling.partition_k == 384 and "measured" in tiling.explain()
    with pytest.warns(RuntimeWarning, match="does not apply and is ignored"):
        other = open_tiling_for(
            product(), EIGHT, Options(prepacked=True, configs=Known(changed(start, depth=0))), AHEAD, Range(1, 512)
        )
    assert other == decide_open_rows(product(), EIGHT, Options(prepacked=True), AHEAD)


def test_rows_of_a_transposed_operand():
    workload = product(trans_a=True)
    decision = decide_open_rows(workload, EIGHT, Options(prepacked=True), AHEAD)
    assert open_tiling_of(open_config(decision), workload, EIGHT, AHEAD).mr == decision.mr


def test_ranges():
    assert Range(1, 512).covers(Range(9, 64)) and Range(1).covers(Range(3)) and Range(1).covers(Range(3, 4))
    assert not Range(1, 512).covers(Range(1)) and not Range(2, 512).covers(Range(1, 4))
    assert 512 in Range(1, 512) and 513 not in Range(1, 512) and 10**9 in Range(5)
    assert (str(Range(1, 512)), str(Range(9))) == ("1..512", "9..")
