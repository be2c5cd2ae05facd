"""The units of an accelerator: refusals and their messages, and round trips through a file."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_tiling.errors import HardwareError
from tvm_tiling.hardware import Area, Column, Energy, Hardware, Level, Memory, NearTile, Queues, Vector, WFold
from tvm_tiling.hardware.file import from_dict
from tvm_tiling.hardware.machine import Machine
from tvm_tiling.hardware.vector_functions import Function

TILE = {"buf_a": 1, "buf_b": 1, "acc_max": 0, "macs_per_cycle": 1, "bw_a": 1, "bw_b": 1}
LEVEL = {"name": "unit", "bytes": 8}


@pytest.mark.parametrize(
    ("make", "fields", "part"),
    [
        (NearTile, {**TILE, "fill": -1}, "near_tile: fill = -1; expected a whole number of at least 0"),
        (NearTile, {**TILE, "block_k": 0}, "near_tile: block_k = 0; expected a whole number of at least 1"),
        (NearTile, {**TILE, "out_bytes": 0}, "near_tile: out_bytes = 0"),
        (NearTile, {**TILE, "bw_out": 0}, "near_tile: bw_out = 0; expected a finite number above 0"),
        (NearTile, {**TILE, "partial_blocks": "paded"}, "did you mean 'padded'? expected padded, skipped"),
        (NearTile, {**TILE, "double_buffer": 1}, "near_tile: double_buffer = 1; expected true or false"),
        (NearTile, {**TILE, "macs_of_bytes": {"3": 1}}, "near_tile.macs_of_bytes: bytes = '3'; expected 1, 2, 4"),
        (NearTile, {**TILE, "macs_of_bytes": {"1": 0}}, "near_tile.macs_of_bytes: 1 = 0; expected a finite number"),
        (NearTile, {**TILE, "dtypes": ["int9"]}, "near_tile: dtypes = 'int9'; did you mean 'int8'?"),
        (NearTile, {**TILE, "dtypes": "int8"}, "near_tile: dtypes = 'int8'; expected a list of strings"),
        (WFold, {"input_reads_per_cycle": 0}, "w_fold: input_reads_per_cycle = 0; expected a finite number above 0"),
        (WFold, {"result_buffer_rows": 0}, "w_fold: result_buffer_rows = 0; expected a whole number of at least 1"),
        (WFold, {"dtypes": [8]}, "w_fold: dtypes = [8]; expected a list of strings"),
        (Vector, {"lanes": 0}, "vector: lanes = 0; expected a whole number of at least 1"),
        (Vector, {"lanes": 1, "latency": -1}, "vector: latency = -1"),
        (Vector, {"lanes": 1, "functions": ["ad"]}, "vector: unknown function 'ad'; did you mean 'add'?"),
        (Column, {"multipliers": 0}, "column: multipliers = 0"),
        (Column, {"multipliers": 64, "tree_inputs": 48}, "column: tree_inputs = 48; expected a power of two of at mo"),
        (Column, {"multipliers": 64, "tree_inputs": 128}, "of at most multipliers = 64"),
        (Column, {"multipliers": 64, "tree_inputs": 16, "tree_tail": 32}, "column: tree_tail = 32; expected a power"),
        (Column, {"multipliers": 64, "tree_tail": 3}, "column: tree_tail = 3; expected a power of two of at most 64"),
        (Column, {"multipliers": 64, "add_latency": -1}, "column: add_latency = -1; expected a whole number"),
        (Memory, {"bytes": 0}, "memory: bytes = 0"),
        (Memory, {"ports": 0}, "memory: ports = 0"),
        (Memory, {"latency": 0.5}, "memory: latency = 0.5; expected a whole number of at least 0"),
        (Memory, {"bytes_per_cycle": 0}, "memory: bytes_per_cycle = 0"),
        (Level, {"name": "a.b", "bytes": 1}, "level: name = 'a.b'; expected a word of letters"),
        (Level, {"name": "u"}, "level 'u': invalid capacities; expected either bytes"),
        (Level, {**LEVEL, "bytes_a": 1}, "level 'unit': invalid capacities; expected either bytes"),
        (Level, {**LEVEL, "instances": 0}, "level 'unit': instances = 0"),
        (Level, {**LEVEL, "byte_pj": -1}, "level 'unit': byte_pj = -1; expected a finite number of at least 0"),
        (Queues, {"depth": 0}, "queues: depth = 0"),
        (Queues, {"token_cycles": -1}, "queues: token_cycles = -1"),
        (Queues, {"of_engine": {"lod_a": "x"}}, "queues.of_engine: engine = 'lod_a'; did you mean 'load_a'?"),
        (Queues, {"of_engine": {"load_a": "x y"}}, "queues.of_engine: load_a = 'x y'; expected a word"),
        (Queues, {"of_engine": []}, "queues: of_engine = []; expected a table"),
        (Energy, {"mac_pj": {"8": 1}}, "energy.mac_pj: key = '8'; expected 1, 2, 4"),
        (Energy, {"byte_pj": {"external": "much"}}, "energy.byte_pj: external = 'much'; expected a finite number"),
        (Hardware.rnn, {"multipliers": 8, "latencies": (1, 2)}, "column: latencies = (1, 2); expected four numbers"),
        (Hardware.rnn, {"multipliers": 8, "latencies": {"mull": 2}}, "latencies = 'mull'; did you mean 'mul'?"),
    ],
)
def test_refusals(make, fields, part):
    with pytest.raises(HardwareError) as caught:
        make(**fields)
    assert part in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"memories": {"extern": Memory()}}, "hardware.memories: memory = 'extern'; did you mean 'external'?"),
        ({"memories": {"a": 3}}, "hardware.memories: a = 3; expected a Memory"),
        ({"memories": []}, "hardware: memories = []; expected a table"),
        ({"levels": [3]}, "hardware: levels = [3]; expected a list of levels"),
        (
            {"levels": [Level(**LEVEL), Level(**LEVEL)]},
            "levels are named ['unit', 'unit']; expected names that no other",
        ),
        (
            {"levels": [Level(name="acc", bytes=1)]},
            "levels are named ['acc']; expected names that no other level or mem",
        ),
        ({"clock_mhz": 0}, "hardware: clock_mhz = 0; expected a finite number above 0"),
        ({"queues": 3}, "hardware: queues = 3; expected a Queues or None"),
        ({"vector": None, "queues": Queues()}, "has no unit; expected at least one of cpu, near_tile, w_fold, column"),
    ],
)
def test_refusals_of_a_machine(fields, part):
    with pytest.raises(HardwareError) as caught:
        Hardware(**{"name": "m", "vector": Vector(lanes=1), **fields})
    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[memories.extern]\n", "hardware.memories: memory = 'extern'; did you mean 'external'?"),
        ("[memories.external]\nport = 1\n", "[memories.external]: unknown field 'port'; did you mean 'ports'?"),
        ("[memories.external]\nports = 0\n", "[memories.external]: memory: ports = 0; expected a whole number"),
        ("memories = 3\n", "[memories]: 3; expected a table of tables"),
        ("[[levels]]\nname = 'u'\nbyte = 3\n", "[levels[0]]: unknown field 'byte'; did you mean 'bytes'?"),
        ("[vectr]\n", "unknown field 'vectr'; did you mean 'vector'?"),
        ("[column]\n", "[column]: missing required field 'multipliers'"),
    ],
)
def test_refusals_of_files(tmp_path, text, part):
    (tmp_path / "m.toml").write_text(text + ("" if "[column]" in text else "[vector]\nlanes = 1\n"))
    with pytest.raises(HardwareError) as caught:
        Hardware.load(tmp_path / "m.toml")
    assert part in str(caught.value) and "m.toml" in str(caught.value)


def test_the_area_of_a_machine_by_hand():
    """VTA: 256 int8 multipliers, 16 lanes, 2 x 16 and 2 x 128 KiB of inputs, 128 of sums, 32 of results."""
    area = Machine(Hardware.load("vta")).area
    assert area == pytest.approx(
        {
            "multipliers": 256 * 419e-6,
            "vector": 16 * 11884e-6,
            "a": 2 * 16384 * 5.5e-6,
            "b": 2 * 131072 * 5.5e-6,
            "acc": 131072 * 5.5e-6,
            "out": 32768 * 5.5e-6,
        }
    )
    other = dataclasses.replace(Hardware.load("vta"), area=Area(mac_um2={"1": 1000.0}, byte_um2=0, lane_um2=0))
    assert Machine(other).area == {"multipliers": pytest.approx(0.256)}
    assert other.fingerprint() == Hardware.load("vta").fingerprint()
    levels = Machine(Hardware.load("dla3")).area  # 4 units in the cluster, an array in each
    assert levels["unit"] == pytest.approx(4 * (131072 + 131072 + 65536) * 5.5e-6)
    assert levels["array"] == pytest.approx(4 * (8192 + 8192 + 4096) * 5.5e-6)
    assert not {"a", "b", "acc"} & set(levels)


def test_energy_that_is_not_given_is_a_published_process():
    energy = Energy(byte_pj={"external": 1.0})
    assert energy.byte_pj["external"] == 1 and energy.byte_pj["internal"] == 12.5
    assert energy.mac_pj == {"1": 0.3, "2": 2.0, "4": 4.6}


def test_peak_depends_on_the_element_size_where_it_is_given():
    unit = NearTile(**{**TILE, "macs_per_cycle": 64, "macs_of_bytes": {"2": 32, "4": 8}})
    assert [unit.macs(size) for size in (1, 2, 4)] == [64, 32, 8]


count, cycles = st.integers(1, 1 << 40), st.integers(0, 1000)
rate = st.none() | st.floats(1e-3, 1e9)
tiles = st.builds(
    NearTile,
    buf_a=count,
    buf_b=count,
    acc_max=cycles,
    macs_per_cycle=count,
    bw_a=st.floats(1, 100),
    bw_b=st.floats(1, 100),
    block_k=count,
    fill=cycles,
    out_bytes=st.none() | count,
    bw_out=rate,
    partial_blocks=st.sampled_from(["skipped", "padded"]),
    double_buffer=st.booleans(),
    dtypes=st.lists(st.sampled_from(["int8", "float32"]), unique=True),
    macs_of_bytes=st.dictionaries(st.sampled_from("124"), st.floats(1, 100)),
)
memories = st.builds(
    Memory, bytes=st.none() | count, bytes_per_cycle=rate, latency=cycles, ports=st.none() | st.integers(1, 9)
)
levels = st.builds(Level, name=st.just("u"), bytes=count, instances=count, bytes_per_cycle=rate, unit_k=count)
machines = st.builds(
    Hardware,
    name=st.just("m"),
    near_tile=st.none() | tiles,
    w_fold=st.none() | st.builds(WFold, result_buffer_rows=st.none() | count),
    column=st.none() | st.builds(Column, multipliers=count, threads=count, mul_latency=cycles),
    vector=st.builds(Vector, lanes=count, functions=st.lists(st.sampled_from(Function.names), unique=True)),
    memories=st.dictionaries(st.sampled_from(["external", "a", "out"]), memories),
    levels=st.lists(levels, max_size=4).map(
        lambda found: [dataclasses.replace(level, name=f"u{i}") for i, level in enumerate(found)]
    ),
    queues=st.none()
    | st.builds(
        Queues,
        depth=st.none() | count,
        of_engine=st.dictionaries(st.sampled_from(["load_a", "vector"]), st.sampled_from(["q", "r"])),
    ),
    energy=st.none() | st.builds(Energy, byte_pj=st.dictionaries(st.sampled_from(["a", "internal"]), st.floats(0, 9))),
    clock_mhz=rate,
)


@given(machines)
@settings(deadline=None)
def test_any_accelerator_comes_back_from_toml_and_from_a_table(tmp_path_factory, machine):
    file = tmp_path_factory.mktemp("toml") / "m.toml"
    file.write_text(machine.to_toml())
    again = Hardware.load(file)
    assert again == machine and again.fingerprint() == machine.fingerprint()
    assert from_dict(Hardware, machine.to_dict(), "table") == machine
    assert hash(again) == hash(machine)
