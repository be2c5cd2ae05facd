"""Programs of configurations: those of a search or a database compute the same results as the decision."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tvm_tiling as tt
from tvm_tiling.accel.checks.hazards import check_hazards
from tvm_tiling.accel.functional.run import run
from tvm_tiling.accel.plain_operator import plain_operator
from tvm_tiling.accel.record.function import record
from tvm_tiling.accel.timing.simulate import simulate
from tvm_tiling.decide.configs.config import Config, config_of, tiling_of
from tvm_tiling.decide.configs.neighbourhood import neighbourhood
from tvm_tiling.decide.decide import decide
from tvm_tiling.errors import DatabaseError, HardwareError
from tvm_tiling.hardware.description import Hardware
from tvm_tiling.workload import ConvWorkload, GemmWorkload

MACHINES = {name: Hardware.load(name) for name in ("neartile", "wfold16", "dla3")}
WORKLOADS = {
    "product": GemmWorkload(m=70, n=90, k=200, dtype="int8"),
    "convolution": ConvWorkload(n=1, h=12, w=14, ci=24, co=40, kh=3, kw=3, padding=(1, 1, 1, 1), dtype="int8"),
    "strided": ConvWorkload(n=1, h=13, w=15, ci=8, co=20, kh=3, kw=3, stride=(2, 2), dtype="int8"),
}
# A near-tile machine with small buffers, so that there are many blocks and K is split.
SMALL = Hardware.neartile(buf_a=2048, buf_b=2048, acc_max=4096, bw_a=8, bw_b=8, macs_per_cycle=64, block_m=8, block_n=8)


def spread(configs: list[Config], most: int) -> list[Config]:
    """Return that many of them, from the first to the last."""
    return [configs[round(i * (len(configs) - 1) / (most - 1))] for i in range(most)]


def by_numpy(w, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    left, right = left.astype(np.int64), right.astype(np.int64)
    if isinstance(w, GemmWorkload):
        return left @ right
    top, before, bottom, behind = w.padding
    x = np.pad(left, [(0, 0), (top, bottom), (before, behind), (0, 0)])
    out = np.zeros((w.n, w.ho, w.wo, w.co), np.int64)
    for r in range(w.kh):
        for s in range(w.kw):
            rows = slice(r, r + (w.ho - 1) * w.stride[0] + 1, w.stride[0])
            columns = slice(s, s + (w.wo - 1) * w.stride[1] + 1, w.stride[1])
            out += x[:, rows, columns] @ right[r, s]
    return out


def operands(w) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    shapes = [tuple(int(extent) for extent in p.shape) for p in plain_operator(w).params][:2]
    return [rng.integers(-9, 9, shape).astype(w.dtype) for shape in shapes]


@pytest.mark.values
@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("machine", MACHINES)
def test_configs_of_the_neighbourhood_compute_what_numpy_does(machine, name):
    hardware, w = MACHINES[machine], WORKLOADS[name]
    inputs = operands(w)
    want = by_numpy(w, *inputs)
    configs = list(neighbourhood(w, hardware).configs())
    for config in spread(configs, 5):
        sch = tt.tiling_schedule(plain_operator(w), hardware, config=config)
        program = record(sch.mod, hardware)
        check_hazards(program)
        names = [tensor.name for tensor in program.of_role("input")]
        (result,) = run(program, dict(zip(names, inputs, strict=True)), order=1).values()
        np.testing.assert_array_equal(result, want, err_msg=str(config))
        decision = json.loads(str(sch.mod["main"].attrs["tvm_tiling.decision"]))
        assert ["form", config.form, "as given by the configuration"] in decision["reasons"]


@pytest.mark.values
@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("machine", MACHINES)
def test_a_decision_comes_back_from_its_config(machine, name):
    hardware, w = MACHINES[machine], WORKLOADS[name]
    config = config_of(decide(w, hardware), w, hardware)
    assert Config.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert neighbourhood(w, hardware).start == config == config_of(tiling_of(config, w, hardware), w, hardware)
    plain = tt.tiling_schedule(plain_operator(w), hardware)
    again = tt.tiling_schedule(plain_operator(w), hardware, config=config)
    assert simulate(record(again.mod, hardware)).cycles == simulate(record(plain.mod, hardware)).cycles


@pytest.mark.values
@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("machine", MACHINES)
def test_the_space_is_in_order_and_possible(machine, name):
    hardware, w = MACHINES[machine], WORKLOADS[name]
    space = neighbourhood(w, hardware)
    costs = [space.predicted(config) for config in space.configs()]
    assert costs == sorted(costs) and costs[0] > 0
    assert len(space) > 4
    for config in space.configs(30):
        assert space.config(space.choices(config)) == config
        assert np.isfinite(list(space.features(config).values())).all()


def test_a_gemm_of_a_search_is_split_where_buffers_are_small():
    w = WORKLOADS["product"]
    space = neighbourhood(w, SMALL)
    assert {config.choice("partition_k") == 0 for config in space.configs()} == {True, False}
    assert {config.choice("outer_order") for config in space.configs()} == {"mn", "nm"}


def test_a_multiple_keeps_its_blocks():
    hardware = MACHINES["dla3"]
    w = GemmWorkload(m=256, n=256, k=256, dtype="int8")
    large = GemmWorkload(m=512, n=1024, k=256, dtype="int8")
    config = config_of(decide(w, hardware), w, hardware)
    assert config_of(tiling_of(config, large, hardware), large, hardware) == config
    assert [blocks.level for blocks in config.levels] == [level.name for level in hardware.levels]


@pytest.mark.parametrize(
    ("machine", "choices", "kind", "words"),
    [
        ("neartile", {"partition_k": 0, "partition_m": 1 << 14}, HardwareError, "do not fit the buffers of neartile"),
        ("neartile", {"outer_order": "km"}, DatabaseError, "outer_order = 'km'; expected 'mn', 'nm'"),
        ("wfold16", {"pci": 12}, HardwareError, "pci = 12 bytes on wfold16"),
        ("wfold16", {"co_block": 1 << 12}, HardwareError, "co_block = 4096 output channels are 256 rows"),
        ("dla3", {"across_m": (3, 1, 1)}, HardwareError, "do not cover the instances of"),
        ("dla3", {"orders": "mn km"}, DatabaseError, "expected 'mn' or 'nm' for each"),
    ],
)
def test_what_a_machine_cannot_do_is_refused(machine, choices, kind, words):
    hardware = MACHINES[machine]
    w = GemmWorkload(m=1 << 14, n=1 << 14, k=1 << 13, dtype="int8")
    small = WORKLOADS["product"]
    config = config_of(decide(small, hardware), small, hardware)
    with pytest.raises(kind) as caught:
        tiling_of(Config.of("gemm", config.form, {**dict(config.choices), **choices}), w, hardware)
    assert words in str(caught.value)


class Known:
    """A database with one configuration."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def config_for(self, workload, hardware, prepacked=False, epilogue=""):
        return self.config


def test_an_operator_is_compiled_from_a_known_config():
    hardware = MACHINES["dla3"]
    w = WORKLOADS["product"]
    space = neighbourhood(w, hardware)
    *_, worst = space.configs()
    inputs = operands(w)
    exe = tt.compile(plain_operator(w), hardware, database=Known(worst))
    out, sim = exe.simulate(*inputs)
    np.testing.assert_array_equal(out, by_numpy(w, *inputs))
    assert sim.cycles > tt.compile(plain_operator(w), hardware).simulate(*inputs)[1].cycles
