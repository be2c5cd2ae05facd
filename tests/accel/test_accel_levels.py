"""Matrix multiplications on machines with several storage levels: results, bytes of every level, time and
prediction."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from level_machines import levels
from operators import by_llvm, product, simulated
from tvm import te, tirx

import tvm_tiling as tt
from tvm_tiling.accel.record.function import record
from tvm_tiling.accel.timing.simulate import simulate
from tvm_tiling.hardware.memory import Level

SIZES = [(64, 64, 64), (100, 90, 70), (37, 211, 129), (1, 50, 33), (50, 1, 333), (7, 9, 300), (131, 127, 1)]


@pytest.mark.values
@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("size", [*SIZES, (256, 200, 512)], ids=str)
def test_int8_gemms_are_exact_and_every_level_reads_what_was_decided(count, size):
    m, n, k = size
    hardware = levels(count)
    _, _, program, inputs, result = simulated(product(m, n, k, "int8"), hardware)
    assert np.array_equal(result, inputs["A"].astype(np.int32) @ inputs["B"].astype(np.int32))
    decision = tt.decide(tt.GemmWorkload(m=m, n=n, k=k, dtype="int8"), hardware)
    report = simulate(program)
    assert report.bytes == {"a": decision.load_a * m * k, "b": decision.load_b * n * k, "out": 4 * m * n}
    above = None
    for config in decision.levels:
        # A level receives data once for each group of instances that do not share the axis.
        use = {operand: report.memories[f"{config.name}.{operand}"] for operand in ("a", "b", "out")}
        assert (use["a"].written, use["b"].written) == (
            config.bytes_a * config.across_n,
            config.bytes_b * config.across_m,
        )
        assert (config.bytes_a, config.bytes_b) == (config.load_a * m * k, config.load_b * n * k)
        assert use["out"].read == config.bytes_out == 4 * m * n
        source = {"a": "external", "b": "external"} if above is None else {o: f"{above.name}.{o}" for o in "ab"}
        if above is not None:  # each copy above is read once
            assert report.memories[source["a"]].read == config.bytes_a * above.across_n
            assert report.memories[source["b"]].read == config.bytes_b * above.across_m
        above = config
    assert report.lower_bound <= report.cycles <= report.upper_bound


@pytest.mark.values
@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize(("trans_a", "trans_b", "batch"), [(True, False, None), (False, True, 3), (True, True, 2)])
def test_transposes_and_batches(count, trans_a, trans_b, batch):
    op = product(37, 45, 150, trans_a=trans_a, trans_b=trans_b, batch=batch)
    func, _, _, inputs, result = simulated(op, levels(count))
    np.testing.assert_allclose(result, by_llvm(func, inputs, result.shape, "float32"), rtol=1e-4, atol=1e-4)


@pytest.mark.values
@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("kind", ["float", "int8"])
def test_the_epilogue_of_a_gemm_runs_at_the_innermost_level(count, kind):
    sums = "int32" if kind == "int8" else "float32"
    x = te.placeholder((70, 130), name="x", dtype="int8" if kind == "int8" else "float32")
    w = te.placeholder((50, 130), name="w", dtype=str(x.dtype))
    bias = te.placeholder((50,), name="bias", dtype=sums)
    k = te.reduce_axis((0, 130), name="k")
    dense = te.compute((70, 50), lambda i, j: te.sum(x[i, k].astype(sums) * w[j, k].astype(sums), axis=k), name="dense")

    def behind(i, j):
        total = dense[i, j] + bias[j]
        if kind == "float":
            return tirx.max(total, tirx.const(0.0, "float32"))
        return tirx.max(tirx.min((total + 64) >> 7, 127), -128).astype("int8")

    func, schedule, program, inputs, result = simulated(te.compute((70, 50), behind, name="out"), levels(count))
    expected = by_llvm(func, inputs, result.shape, str(result.dtype))
    scheduled = by_llvm(schedule.mod["main"], inputs, result.shape, str(result.dtype))
    if kind == "int8":
        assert np.array_equal(result, expected) and np.array_equal(scheduled, expected)
        assert len(np.unique(result)) > 20
    else:
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(scheduled, expected, rtol=1e-4, atol=1e-4)
    assert simulate(program).engines["vector"].busy > 0


@pytest.mark.values
@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize(
    ("size", "within"), [((400, 384, 512), 0.05), ((256, 256, 256), 0.1), ((100, 90, 700), 0.1)], ids=str
)
def test_cycles_are_near_the_prediction(count, size, within):
    m, n, k = size
    hardware = levels(count)
    decision = tt.decide(tt.GemmWorkload(m=m, n=n, k=k, dtype="int8"), hardware)
    report = simulate(record(tt.tiling_schedule(product(m, n, k, "int8"), target=hardware).mod, hardware))
    assert report.cycles == pytest.approx(decision.cycles, rel=within)


def test_every_level_has_a_queue_and_moves_while_others_do():
    report = simulate(record(tt.tiling_schedule(product(256, 256, 256, "int8"), target="vsim/dla3").mod, levels(3)))
    names = ["load_cluster", "load_unit", "load_array", "matrix", "store_array", "store_unit", "store_cluster"]
    assert all(report.engines[name].busy > 0 for name in names)
    assert report.overlap > 0.5
    for level in ("cluster", "unit", "array"):
        for operand in "ab":
            use = report.memories[f"{level}.{operand}"]
            assert 0 < use.peak <= use.capacity


def test_an_operator_is_compiled_and_simulated_on_dla3():
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, (100, 60)).astype(np.int8), rng.integers(-9, 9, (60, 90)).astype(np.int8)
    exe = tt.compile(product(100, 90, 60, "int8"), target="vsim/dla3")
    result, sim = exe.simulate(a, b)
    assert np.array_equal(result, a.astype(np.int32) @ b.astype(np.int32))
    text = sim.summary()
    assert all(name in text for name in ("load_unit", "unit.a", "array.b", "cluster.out"))
    assert sim.bytes["out"] == 4 * 100 * 90


def test_a_level_without_room_is_refused_by_name():
    hardware = levels(3)
    program = record(tt.tiling_schedule(product(256, 256, 256, "int8"), target=hardware).mod, hardware)
    small = dataclasses.replace(hardware.levels[0], bytes=4096)
    with pytest.raises(
        tt.HardwareError, match=r"level 'cluster', whose operands share 4096|memory 'cluster\.\w+', which"
    ):
        simulate(program, dataclasses.replace(hardware, levels=(small, *hardware.levels[1:])))


def test_one_level_of_one_instance_is_the_plain_machine():
    plain = tt.Hardware.load("neartile")
    unit = plain.near_tile
    level = Level(name="near", bytes_a=2 * unit.buf_a, bytes_b=2 * unit.buf_b, bytes_out=unit.acc_max)
    levelled = dataclasses.replace(plain, levels=(level,))
    op = product(200, 300, 400, "int8")
    w = tt.GemmWorkload(m=200, n=300, k=400, dtype="int8")
    assert tt.decide(w, levelled) == tt.decide(w, plain)
    first, second = (record(tt.tiling_schedule(op, target=hw).mod, hw) for hw in (plain, levelled))
    assert np.array_equal(first.instructions, second.instructions)
    assert simulate(first).to_dict() == simulate(second).to_dict()


def test_two_instances_of_one_level_share_the_work():
    plain = tt.Hardware.neartile(buf_a=4096, buf_b=4096, acc_max=8192, bw_a=64, bw_b=64, macs_per_cycle=64)
    level = Level(name="array", bytes_a=8192, bytes_b=8192, bytes_out=8192, instances=2)
    one, two = plain, dataclasses.replace(plain, levels=(level,))
    op = product(256, 256, 256, "int8")
    slow, fast = (simulate(record(tt.tiling_schedule(op, target=hw).mod, hw)) for hw in (one, two))
    assert slow.macs == fast.macs
    assert fast.cycles == pytest.approx(slow.cycles / 2, rel=0.1)
