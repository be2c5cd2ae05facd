"""Recurrent layers on a CPU: register tiles, cores, the order of units."""

from __future__ import annotations

import dataclasses
import json

import pytest

import tvm_tiling as tt
from tvm_tiling.decide.rnn.recurrence import Recurrence, decide_recurrence
from tvm_tiling.hardware import Cache, Cpu

CPU = Cpu(
    arch="x86_64",
    features=("avx512f",),
    vector_bits=512,
    vector_registers=32,
    fma_units=1,
    fma_latency=4,
    cores=2,
    threads=2,
    caches=(
        Cache(level=1, size=32768, ways=8, line=64),
        Cache(level=2, size=1 << 20, ways=8, line=64),
        Cache(level=3, size=32 << 20, ways=16, line=64, cores=2),
    ),
    clock_mhz=3000.0,
)
SMALL = dataclasses.replace(CPU, vector_bits=256, vector_registers=16, fma_units=2)
MACHINE = tt.Hardware(name="host", cpu=CPU)


def lstm(hidden, batch=1, **further):
    return Recurrence(**{"cell": "lstm", "steps": 50, "batch": batch, "hidden": hidden, "order": "ifgo", **further})


@pytest.mark.parametrize("cpu", [CPU, SMALL], ids=["avx512", "avx2"])
@pytest.mark.parametrize("batch", [1, 2, 8, 32])
@pytest.mark.parametrize(("cell", "order"), [("lstm", "ifgo"), ("gru", "rzn"), ("rnn", "h")])
def test_sums_and_weights_fit_the_registers_and_hide_the_latency(cpu, batch, cell, order):
    for hidden in (8, 96, 500):
        found = decide_recurrence(lstm(hidden, batch, cell=cell, order=order), cpu)
        vectors = found.blocks * len(order)
        assert found.vp == vectors * cpu.lanes(4) and 1 <= found.rows <= batch
        assert (found.ep * found.rows + 1) * vectors + 1 <= cpu.vector_registers
        if hidden > 8 and cell != "rnn":
            assert found.ep * found.rows * vectors >= min(cpu.fma_latency * cpu.fma_units, 6)


def test_small_layers_stay_on_one_core_and_large_ones_are_shared():
    assert [decide_recurrence(lstm(hidden), CPU).threads for hidden in (16, 32, 512, 1024)] == [1, 1, 2, 2]
    assert decide_recurrence(lstm(512), CPU, threads=1).threads == 1
    assert decide_recurrence(lstm(512), dataclasses.replace(CPU, cores=1)).threads == 1


def test_cores_divide_the_sequences_while_all_weights_fit_the_second_cache_of_each():
    for batch, hidden, split in ((1, 128, "units"), (8, 128, "sequences"), (8, 512, "units"), (32, 128, "sequences")):
        found = decide_recurrence(lstm(hidden, batch), CPU)
        assert (found.threads, found.split) == (2, split)
        assert ("cores divide", split) in {(row.title, row.value) for row in found.explained()}
    assert decide_recurrence(lstm(128, 8), CPU, any_batch=True).split == "units"
    assert decide_recurrence(lstm(128, 9), CPU).rows == 5


def test_weights_larger_than_the_first_cache_are_taken_from_either_end_in_turn():
    assert [decide_recurrence(lstm(hidden), CPU).turning for hidden in (32, 64, 128, 512)] == [False, True, True, True]
    assert not decide_recurrence(lstm(64), dataclasses.replace(CPU, cores=4, threads=4), threads=4).turning


def test_layers_are_decided_each_with_its_gemm():
    workload = tt.RnnWorkload(steps=50, input_size=96, hidden_size=512, layers=2, bidirectional=True)
    found = tt.decide(workload, MACHINE)
    assert [part.input_size for part in found.layers] == [96, 1024]
    assert (found.ep, found.vp) == (found.layers[0].recurrence.ep, found.layers[0].recurrence.vp)
    parts = sum(part.product.predicted_seconds + part.recurrence.predicted_seconds for part in found.layers)
    assert found.predicted_seconds == 2 * parts
    assert found.cycles_per_step == pytest.approx(found.predicted_seconds * 3e9 / 50)
    assert 0 < found.utilisation < 1
    plain = json.loads(found.to_json())
    assert plain["op"] == "rnn_cpu" and plain["layers"][1]["recurrence"]["threads"] == 2
    text = found.explain()
    for name in ("columns at once (EP)", "rows at once (VP)", "cores", "cycles per step", "layer 2"):
        assert f"    {name} " in text


def test_what_cpus_do_not_serve_is_refused():
    workload = tt.RnnWorkload(steps=5, input_size=8, hidden_size=8, dtype="int8")
    with pytest.raises(tt.HardwareError, match="host: recurrent layers of int8 on a CPU; expected float32"):
        tt.decide(workload, MACHINE)
    with pytest.raises(tt.HardwareError, match="mode = 'seed' does not apply to a rnn on host"):
        tt.decide(tt.RnnWorkload(steps=5, input_size=8, hidden_size=8), MACHINE, mode="seed")
