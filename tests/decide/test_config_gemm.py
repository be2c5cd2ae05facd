"""Configurations of matrix multiplications as data: extracted from decisions, used for other shapes, refused where
invalid."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tvm_tiling.decide.configs.config import Config, config_of, tiling_of
from tvm_tiling.decide.configs.gemm_configs import BlockedConfigs
from tvm_tiling.decide.gemm.cpu_gemm import decide_on_cpu
from tvm_tiling.decide.surroundings import Surroundings
from tvm_tiling.errors import DatabaseError, HardwareError
from tvm_tiling.hardware.description import Hardware
from tvm_tiling.workload import ConvWorkload, GemmWorkload

CPU = Hardware.load("icelake-server-2c")
CHOICES = ("mr", "nr", "keep", "partition_k", "partition_n", "inner_order", "pack_b", "threads_m", "threads_n")
lengths = st.one_of(st.integers(1, 40), st.sampled_from((64, 127, 256, 1000, 1024, 4096)), st.integers(1, 9000))


@st.composite
def products(draw) -> GemmWorkload:
    return GemmWorkload(
        m=draw(lengths),
        n=draw(lengths),
        k=draw(lengths),
        batch=draw(st.sampled_from((1, 1, 3))),
        dtype=draw(st.sampled_from(("float32", "int8"))),
        trans_a=draw(st.booleans()),
        trans_b=draw(st.booleans()),
    )


surroundings = st.builds(
    Surroundings, prepacked=st.booleans(), plain_a=st.booleans(), plain_b=st.booleans(), accumulates=st.booleans()
)


def decided(w: GemmWorkload, around: Surroundings):
    return decide_on_cpu(
        w,
        CPU,
        packing=around.packing,
        plain_a=around.plain_a,
        plain_b=around.plain_b,
        accumulates_in_output=around.accumulates,
    )


@given(products(), surroundings)
@example(GemmWorkload(m=1, n=256, k=262), Surroundings(plain_a=True))  # a block had more columns than a core
@settings(max_examples=80, deadline=None)
def test_a_decision_comes_back_from_its_config(w, around):
    tiling = decided(w, around)
    again = tiling_of(config_of(tiling, w, CPU, around), w, CPU, around)
    assert [getattr(again, name) for name in CHOICES] == [getattr(tiling, name) for name in CHOICES]
    assert again.predicted_seconds == pytest.approx(tiling.predicted_seconds)
    assert again.why("form") == "as given by the configuration"


@given(products(), products(), surroundings)
@settings(max_examples=80, deadline=None)
def test_a_config_serves_any_shape_within_the_machine(w, other, around):
    config = config_of(decided(w, Surroundings()), w, CPU)
    try:
        tiling = tiling_of(config, other, CPU, around)
    except HardwareError as error:
        assert config.form == "stream" and "stream" in str(error)
        return
    assert tiling.mr <= other.m and tiling.nr < other.n + tiling.lanes and tiling.partition_k <= other.k
    assert tiling.threads_batch * tiling.threads_m * tiling.threads_n * tiling.threads_k <= CPU.cpu.cores
    assert (tiling.pack_b == "ahead") == around.prepacked
    assert around.plain_a or tiling.form in ("pack", "stream")
    assert around.plain_b or tiling.pack_b != "none"
    assert around.accumulates or tiling.partition_k == other.k or tiling.threads_k > 1 or tiling.form == "stream"
    clipped = config_of(tiling, other, CPU, around)
    assert config_of(tiling_of(clipped, other, CPU, around), other, CPU, around) == clipped


def test_blocks_stay_and_loop_counts_grow_for_a_multiple():
    w = GemmWorkload(m=512, n=512, k=512)
    config = config_of(decided(w, Surroundings()), w, CPU)
    large = GemmWorkload(m=2048, n=4096, k=1024)
    tiling = tiling_of(config, large, CPU, why="from the database")
    assert config_of(tiling, large, CPU) == config
    assert tiling.why("form") == tiling.why("config") == "from the database"
    assert tiling.load_a == -(-4096 // tiling.threads_n // tiling.partition_n)


def test_a_config_survives_json():
    w = GemmWorkload(m=100, n=1000, k=300, trans_b=True)
    config = config_of(decided(w, Surroundings()), w, CPU)
    read = Config.from_dict(json.loads(json.dumps(config.to_dict())))
    assert (read, hash(read), read.levels) == (config, hash(config), config.levels)
    assert [blocks.level for blocks in read.levels] == ["core", "L2", "L1"]
    assert read.choice("microkernel") == dict(config.choices)["microkernel"]


def test_a_config_is_described_in_words():
    assert blocked().description == (
        "normal, columns per block 256, K per block 128, loops within a block: m outside n, register tile 6 x 4, "
        "B packed: at run time, cores 1 x 1 x 2 x 1"
    )


def blocked(**choices) -> Config:
    own = {"microkernel": (6, 4), "threads": (1, 1, 2, 1), "depth": 128, "columns": 256, "inner_order": "mn"}
    return Config.of("gemm", "normal", {**own, "pack_b": "pack", **choices})


@pytest.mark.parametrize(
    ("config", "kind", "words"),
    [
        (blocked(microkernel=(16, 4)), HardwareError, "16 x 4 needs 69 vector registers, this CPU has 32"),
        (blocked(threads=(1, 4, 2, 1)), HardwareError, "need 8 cores, this CPU has 2"),
        (blocked(depth=0), DatabaseError, "depth = 0; expected a whole number of at least 1"),
        (blocked(inner_order="km"), DatabaseError, "inner_order = 'km'; expected 'mn', 'nm'"),
        (blocked(microkernel=(6,)), DatabaseError, "microkernel = (6,); expected 2 whole numbers"),
        (Config.of("gemm", "normal", {"depth": 3}), DatabaseError, "has no choice 'microkernel'; expected depth"),
        (
            Config.of("gemm", "wfold", {}),
            DatabaseError,
            "algorithm = 'wfold'; expected normal, inline, pack",
        ),
        (Config.of("conv", "direct", {}), DatabaseError, "op = 'conv' does not match the workload; expected 'gemm'"),
        (Config.of("gemm", "stream", {"side": 1}), HardwareError, "here are 64 rows"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(config, kind, words):
    with pytest.raises(kind) as caught:
        tiling_of(config, GemmWorkload(m=64, n=64, k=64), CPU)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"op": "pool", "form": "x", "choices": {}}, "op = 'pool'; expected 'gemm', 'conv'"),
        ({"op": "gemm", "form": "", "choices": {}}, "form = ''; expected the name of a kernel"),
        ({"op": "gemm", "form": "normal", "choices": [1]}, "choices = [1]; expected a table"),
        ({"op": "gemm", "form": "normal", "choices": {"depth": 1.5}}, "depth = 1.5; expected an integer"),
        ({"op": "gemm", "form": "normal", "choices": {"depth": [1, "x"]}}, "depth = [1, 'x']; expected whole numbers"),
        ({"op": "gemm", "form": "normal", "choices": {}, "levels": 3}, "levels = 3; expected a list of blocks"),
        ({"op": "gemm", "form": "normal", "choices": {}, "levels": [{}]}, "expected a table of level, left"),
        ({"op": "gemm", "form": "normal", "choices": {}, "cost": 3}, "expected a table of op, form, choices"),
        ([], "expected a table of op, form, choices and levels"),
    ],
)
def test_a_record_that_is_not_a_config_is_refused(record, words):
    with pytest.raises(DatabaseError) as caught:
        Config.from_dict(record)
    assert words in str(caught.value)


def test_what_is_near_differs_in_one_choice():
    rule = BlockedConfigs(GemmWorkload(m=512, n=2048, k=1024), CPU.cpu, Surroundings())
    config = blocked()
    near = list(rule.near(config))
    assert all(sum(a != b for a, b in zip(config.choices, other.choices, strict=True)) == 1 for other in near)
    assert {other.choice("depth") for other in near} == {64, 128, 256}
    assert {other.choice("columns") for other in near} == {128, 256, 512}
    assert {other.choice("pack_b") for other in near} == {"none", "pack"}


def test_a_convolution_is_not_a_gemm():
    with pytest.raises(DatabaseError, match="op = 'gemm' does not match the workload; expected 'conv'"):
        tiling_of(blocked(), ConvWorkload(n=1, h=8, w=8, ci=8, co=8, kh=3, kw=3), CPU)
