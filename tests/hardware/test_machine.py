"""The accelerator of a description: its parts and defaults."""

from __future__ import annotations

import dataclasses

import pytest

from tvm_tiling.errors import HardwareError
from tvm_tiling.hardware import Column, Hardware, Memory, Queues, Vector
from tvm_tiling.hardware.machine import Machine

TILE = Hardware.neartile(buf_a=100, buf_b=200, acc_max=300, bw_a=4, bw_b=5, macs_per_cycle=64)


def preset(name):
    return Machine(Hardware.load(name))


def changed(machine, unit, **fields):
    return Machine(dataclasses.replace(machine, **{unit: dataclasses.replace(getattr(machine, unit), **fields)}))


def test_near_tile_costs_match_the_analytical_counts():
    machine = Machine(TILE)
    assert machine.engines == machine.queues == ("load_a", "load_b", "matrix", "vector", "store")
    assert [machine.capacity(name) for name in ("a", "b", "acc", "out")] == [200, 400, 300, None]
    assert [machine.rate(memory, "a") for memory in ("external", "internal")] == [4, 4]
    assert (machine.rate("external", "b"), machine.rate("external", "out")) == (5, None)
    assert (machine.issue.depth, machine.issue.issue_cycles, machine.issue.token_cycles) == (None, 0, 0)
    assert machine.vector.lanes == 64 and machine.macs(4) == 64
    assert machine.memory("external") == Memory()


def test_without_double_buffering_the_buffers_are_there_once():
    machine = changed(TILE, "near_tile", double_buffer=False, out_bytes=50, acc_max=0, bw_out=3.0)
    assert [machine.capacity(name) for name in ("a", "b", "acc", "out")] == [100, 200, 0, 50]
    assert machine.rate("internal", "out") == 3


def test_memories_override_what_the_engine_says():
    memories = {"a": Memory(bytes=7, ports=2), "external": Memory(bytes_per_cycle=9, latency=30, ports=1)}
    machine = Machine(dataclasses.replace(TILE, memories=memories))
    assert (machine.capacity("a"), machine.memory("a").ports) == (7, 2)
    assert (machine.rate("external", "a"), machine.rate("external", "out")) == (4, 9)
    assert (machine.memory("external").latency, machine.memory("external").ports) == (30, 1)
    wfold = Machine(dataclasses.replace(Hardware.wfold(), memories={"external": Memory(bytes_per_cycle=16)}))
    assert (wfold.rate("external", "a"), wfold.rate("internal", "b"), wfold.capacity("a")) == (16, None, None)


def test_a_memory_without_bandwidth_is_refused():
    machine = changed(TILE, "near_tile", bandwidth={"external": 64}, bw_a=None, bw_b=None)
    with pytest.raises(HardwareError, match=r"A in memory 'internal' has no bandwidth; expected near_tile.bw_a"):
        machine.rate("internal", "a")


def test_queues_are_shared_where_the_description_says():
    vta = preset("vta")
    assert vta.queues == ("load", "compute", "store")
    assert [vta.queue_of(engine) for engine in vta.engines] == ["load", "load", "compute", "compute", "store"]
    with pytest.raises(HardwareError, match="vta has no engine 'wfold'"):
        vta.queue_of("wfold")


def test_several_column_engines_have_queues_of_their_own():
    two = Machine(Hardware.rnn(multipliers=64, engines=2))
    assert two.queues == ("load_a", "load_b", "column0", "column1", "vector", "store")
    assert two.macs(2) == 128
    shared = Machine(
        dataclasses.replace(Hardware.rnn(multipliers=64, engines=9), queues=Queues(of_engine={"column": "engine"}))
    )
    assert shared.queues == ("load_a", "load_b", "engine", "vector", "store")
    with pytest.raises(HardwareError, match=r"has 9 queues, load_a, .*expected at most 8, engines may share one"):
        Machine(Hardware.rnn(multipliers=64, engines=5))


def test_vta_is_the_well_known_configuration():
    vta = preset("vta")
    unit = vta.hardware.near_tile
    assert (unit.block_m, unit.block_n, unit.block_k) == (1, 16, 16)
    assert vta.macs(1) == 1 * 16 * 16 and unit.dtypes == ("int8",)
    assert [vta.capacity(name) // 1024 for name in ("a", "b", "acc")] == [32, 256, 128]


def test_dla3_has_three_levels():
    machine = preset("dla3")
    assert [level.name for level in machine.hardware.levels] == ["cluster", "unit", "array"]
    assert machine.memories[-3:] == ("array.a", "array.b", "array.out")
    assert [machine.capacity(f"{level}.out") for level in ("cluster", "unit", "array")] == [2 << 20, 65536, 4096]
    assert (machine.memory("unit.a").bytes_per_cycle, machine.memory("unit.a").latency) == (64, 8)
    assert (machine.macs(1), machine.macs(2)) == (4096, 2048)
    assert (machine.byte_pj("unit.b"), machine.byte_pj("external")) == (4.0, 162.5)
    # The array follows from near_tile: its double-buffered blocks fill it.
    assert [machine.capacity(name) for name in ("a", "b", "acc")] == [
        machine.capacity(f"array.{name}") for name in ("a", "b", "out")
    ]


@pytest.mark.parametrize(("name", "multipliers"), [("rnn16k", 16384), ("rnn64k", 65536)])
def test_page_04s_machines(name, multipliers):
    machine = preset(name)
    assert machine.engines == ("load_a", "load_b", "column", "vector", "store")
    assert machine.macs(2) == multipliers and machine.vector.lanes == multipliers // 8
    assert Machine(Hardware.rnn(multipliers=multipliers)).vector_is_tail and not machine.vector_is_tail
    assert machine.hardware.column.column_counts == tuple(1 << power for power in range(multipliers.bit_length()))


def cycles_per_step(column, hidden, columns):
    """Formula for a sequence of an LSTM with as many inputs as hidden units."""
    rows = min(4 * hidden, column.multipliers // columns)
    product = -(-hidden // columns) * -(-4 * hidden // rows)
    return product + max(product, column.latency(columns)), column.latency(columns)


@pytest.mark.parametrize(("name", "wanted"), [("rnn16k", (16, 8, 4)), ("rnn64k", (64, 32, 16))])
def test_page_04s_presets_make_its_worked_examples(name, wanted):
    column = Hardware.load(name).column
    for hidden, best in zip((256, 512, 1024), wanted, strict=True):
        assert min(column.column_counts, key=lambda ep: cycles_per_step(column, hidden, ep)) == best


def test_an_adder_tree_with_a_tail():
    unit = Hardware.rnn(multipliers=4096, tree_inputs=64, tree_tail=4, latencies=(2, 3, 1, 5)).column
    assert unit.column_counts == (16, 32, 64)
    assert [unit.latency(columns) for columns in (1, 2, 16, 64)] == [8, 11, 20, 26]
    assert Hardware.rnn(multipliers=4096, tree_inputs=64).column.column_counts == (64,)
    assert Hardware.rnn(multipliers=8, latencies={"tail": 9}).column == Column(multipliers=8, tail_latency=9)


def test_a_vector_engine_alone_is_a_machine():
    machine = Machine(Hardware(name="v", vector=Vector(lanes=8, functions=["tanh", "add"])))
    assert machine.queues == ("load_a", "load_b", "vector", "store")
    assert machine.vector.functions == ("add", "tanh") and machine.macs(4) == 0
    with pytest.raises(
        HardwareError, match="icelake-server-2c is not an accelerator; expected a description with at lea"
    ):
        preset("icelake-server-2c")


def test_unknown_memories_and_engines_name_the_nearest():
    machine = Machine(TILE)
    with pytest.raises(HardwareError, match="neartile has no memory 'extern'; did you mean 'external'"):
        machine.memory("extern")
    with pytest.raises(HardwareError, match="neartile has no engine 'matrx'; did you mean 'matrix'"):
        machine.queue_of("matrx")
