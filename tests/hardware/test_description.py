"""Hardware descriptions: refusals and their messages, files, presets, fingerprints."""

from __future__ import annotations

import dataclasses
import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_tiling.errors import HardwareError, TilingError
from tvm_tiling.hardware import Cache, Cpu, Hardware, NearTile, WFold
from tvm_tiling.hardware.fields import with_field
from tvm_tiling.hardware.file import preset_names
from tvm_tiling.hardware.kernel_costs import KernelCosts

L1 = Cache(level=1, size=32768, ways=8, line=64)
CPU = {
    "arch": "x86_64",
    "features": ("avx2", "fma"),
    "vector_bits": 256,
    "vector_registers": 16,
    "fma_units": 2,
    "fma_latency": 4,
    "cores": 4,
    "threads": 8,
    "caches": (L1,),
}
TILE = {
    "buf_a": 1024,
    "buf_b": 2048,
    "acc_max": 4096,
    "bw_a": 32,
    "bw_b": 64.5,
    "macs_per_cycle": 256,
}
TILE_TOML = """
[near_tile]
buf_a = 1024
buf_b = 2048
acc_max = 4096
macs_per_cycle = 256
bw_a = 32
bw_b = 64.5
"""

CPU_TOML = Hardware(name="m", cpu=Cpu(**CPU)).to_toml()


def refusal(make, *args, **kwargs):
    with pytest.raises(HardwareError) as caught:
        make(*args, **kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["buf_a", "buf_b", "block_m", "block_n", "sync_granularity", "acc_bytes_per_element"])
@pytest.mark.parametrize("value", [0, -4, True, 1.0, "64"])
def test_whole_fields(name, value):
    text = refusal(Hardware.neartile, **{**TILE, name: value})
    assert text == f"near_tile: {name} = {value!r}; expected a whole number of at least 1"


@pytest.mark.parametrize("name", ["bw_a", "bw_b", "macs_per_cycle"])
@pytest.mark.parametrize("value", [0, -1.5, math.inf, math.nan, True, "1", None])
def test_rates(name, value):
    text = refusal(Hardware.neartile, **{**TILE, name: value})
    assert text == f"near_tile: {name} = {value!r}; expected a finite number above 0"


def test_a_machine_may_have_no_accumulation_buffer():
    assert Hardware.neartile(**{**TILE, "acc_max": 0}).near_tile.acc_max == 0
    assert "near_tile: acc_max = -1" in refusal(Hardware.neartile, **{**TILE, "acc_max": -1})


def test_builder_keeps_every_argument():
    given_values = {**TILE, "block_m": 8, "block_n": 16, "sync_granularity": 64, "acc_bytes_per_element": 2}
    unit = Hardware.neartile(**given_values).near_tile
    assert {name: getattr(unit, name) for name in given_values} == given_values


@pytest.mark.parametrize(
    "name",
    [
        "row_bytes",
        "sub_units",
        "units",
        "first_buffer_rows",
        "second_buffer_rows",
        "least_granularity",
        "padding_slack",
        "co_block_factor",
        "output_element_bytes",
    ],
)
@pytest.mark.parametrize("value", [0, -4, True, 1.0, "64"])
def test_whole_fields_of_page_05s_machine(name, value):
    text = refusal(Hardware.wfold, **{name: value})
    assert text == f"w_fold: {name} = {value!r}; expected a whole number of at least 1"


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"input_rows_per_cycle": 0}, "w_fold: input_rows_per_cycle = 0; expected a finite number above 0"),
        ({"staging_bytes": -1}, "w_fold: staging_bytes = -1; expected a whole number of at least 0"),
        ({"fold_place": "lode"}, "w_fold: fold_place = 'lode'; did you mean 'load'? expected in place, load, local"),
        ({"row_bytes": 48}, "w_fold: least_granularity = 8; expected row_bytes = 48 divided by a power of two"),
        ({"row_bytes": 4}, "w_fold: least_granularity = 8; expected row_bytes = 4 divided by a power of two"),
        ({"first_buffer_rows": 3}, "w_fold: first_buffer_rows = 3; expected at least a row for each of units = 4"),
        ({"row_byte": 48}, "w_fold: unknown field 'row_byte'; did you mean 'row_bytes'? expected co_block_factor"),
    ],
)
def test_page_05s_machine(change, part):
    assert part in refusal(Hardware.wfold, **change)


def test_wfold_builder_keeps_every_argument():
    given_values = {field.name: getattr(WFold(), field.name) for field in dataclasses.fields(WFold)}
    given_values |= {"row_bytes": 128, "sub_units": 4, "units": 2, "staging_bytes": 256, "output_rows_per_cycle": 0.5}
    unit = Hardware.wfold(**given_values).w_fold
    assert {name: getattr(unit, name) for name in given_values} == given_values
    assert unit.granularities == (128, 64, 32, 16, 8)
    assert unit.bytes_per_cycle == 4 * 2 * 128


def test_wfold_without_arguments_is_the_presets_engine_without_latency():
    assert Hardware.wfold().w_fold == dataclasses.replace(Hardware.load("wfold16").w_fold, latency=0)
    assert Hardware.load("wfold16").w_fold.granularities == (64, 32, 16, 8)


def test_bandwidth_must_come_from_somewhere():
    fields = {"buf_a": 1, "buf_b": 1, "acc_max": 0, "macs_per_cycle": 1}
    assert "expected both bw_a and bw_b, or a bandwidth" in refusal(NearTile, **fields, bw_a=1.0)
    assert NearTile(**fields, bandwidth={"internal": 8}).bandwidth == {"internal": 8.0}
    assert "did you mean 'external'?" in refusal(NearTile, **fields, bandwidth={"extrenal": 8})


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"arch": "x86"}, "cpu: arch = 'x86'; did you mean 'x86_64'? expected aarch64, x86_64"),
        ({"vector_bits": 384}, "cpu: vector_bits = 384; expected 128, 256, 512"),
        (
            {"arch": "aarch64", "features": ("sve",), "vector_bits": 384},
            "cpu: vector_bits = 384; expected 128",
        ),
        (
            {"arch": "aarch64", "features": ("neon", "avx512f"), "vector_bits": 128},
            "cpu: features with 'avx512f', an extension of x86_64; expected extensions of aarch64: bf16, complxnum,",
        ),
        ({"features": ("neon",)}, "cpu: features with 'neon', an extension of aarch64; expected extensions of x86_64"),
        ({"vector_registers": 0}, "cpu: vector_registers = 0; expected a whole number of at least 1"),
        ({"fma_units": 1.5}, "cpu: fma_units = 1.5"),
        ({"cores": 9}, "cpu: threads = 8; expected at least cores = 9"),
        ({"features": "avx2"}, "cpu: features = 'avx2'; expected a list of strings"),
        ({"priority_ratio": 1.01}, "cpu: priority_ratio = 1.01; expected a finite number above 0 and at most 1"),
        ({"clock_mhz": -1}, "cpu: clock_mhz = -1"),
        ({"memory_bytes_per_cycle": math.nan}, "cpu: memory_bytes_per_cycle = nan"),
        ({"caches": ()}, "cpu: caches of levels []"),
        ({"caches": (dataclasses.replace(L1, level=2), L1)}, "cpu: caches of levels [2, 1]; expected levels 1, 2"),
        ({"caches": (32768,)}, "cpu: caches = (32768,); expected a list of caches"),
    ],
)
def test_cpu_fields(change, part):
    assert part in refusal(Cpu, **{**CPU, **change})


def test_cache_size_is_sets_times_ways_times_line():
    assert L1.sets == 64
    assert refusal(Cache, level=1, size=32768, ways=7, line=64) == (
        "cache: size = 32768 of level 1; expected a multiple of ways * line = 7 * 64 = 448 bytes"
    )


def test_a_machine_has_a_name_and_a_unit():
    assert "expected at least one of cpu, near_tile, w_fold" in refusal(Hardware, name="empty")
    assert "hardware: name = ''" in refusal(Hardware, name="", cpu=Cpu(**CPU))
    assert "hardware: cpu = 3" in refusal(Hardware, name="x", cpu=3)


def test_descriptions_can_be_keys_and_travel():
    machine = Hardware.load("neartile")
    assert {machine: 1}[Hardware.load("neartile")] == 1
    assert pickle.loads(pickle.dumps(machine)) == machine


@pytest.mark.parametrize("name", preset_names())
def test_presets_load_and_come_back_from_toml(name, tmp_path):
    machine = Hardware.load(name)
    assert machine.name == name
    copy = tmp_path / "copy.toml"
    copy.write_text(machine.to_toml(), encoding="utf-8")
    again = Hardware.load(copy)
    assert again == machine and again.fingerprint() == machine.fingerprint()


def test_presets_of_this_package():
    assert {"neartile", "icelake-server-2c", "icelake-server-16c", "zen4-server-8c"} <= set(preset_names())
    assert {"skylake-desktop-8c", "alderlake-desktop-8c", "neoverse-v1-16c", "wfold16"} <= set(preset_names())
    assert {"vta", "dla3", "rnn16k", "rnn64k"} <= set(preset_names())


def test_neartile_preset_is_in_balance_as_its_comment_says():
    unit = Hardware.load("neartile").near_tile
    side = math.isqrt(unit.acc_max // 4)
    engine = side * side / unit.macs_per_cycle
    loading = side * 2 / unit.bandwidth["external"]
    assert (side, engine, loading) == (256, 16, 8)


def test_a_detected_machine_can_be_saved_and_loaded(tmp_path):
    machine = Hardware.detect()
    (tmp_path / "mine.toml").write_text(machine.to_toml())
    assert Hardware.load(str(tmp_path / "mine.toml")) == machine


@given(
    name=st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1),
    bw=st.floats(1e-3, 1e9),
    macs=st.integers(1, 1 << 40),
    acc_bytes=st.none() | st.integers(1, 8),
)
def test_any_machine_comes_back_from_toml(tmp_path_factory, name, bw, macs, acc_bytes):
    fields = {**TILE, "bw_a": bw, "macs_per_cycle": macs, "acc_bytes_per_element": acc_bytes}
    machine = Hardware.neartile(**fields, name=name)
    file = tmp_path_factory.mktemp("toml") / "m.toml"
    file.write_text(machine.to_toml(), encoding="utf-8")
    assert Hardware.load(file) == machine


def load_text(tmp_path, text):
    (tmp_path / "m.toml").write_text(text)
    return Hardware.load(tmp_path / "m.toml")


def test_name_defaults_to_that_of_the_file(tmp_path):
    assert load_text(tmp_path, TILE_TOML).name == "m"
    assert load_text(tmp_path, f'name = "given"\n{TILE_TOML}').name == "given"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (f"{TILE_TOML}buf_c = 3\n", "m.toml: [near_tile]: unknown field 'buf_c'; did you mean 'buf_b'? expected acc_"),
        (f"{TILE_TOML}[near_tyle]\n", "m.toml: unknown field 'near_tyle'; did you mean 'near_tile'?"),
        (TILE_TOML.replace("buf_a = 1024", "buf_a = -1"), "m.toml: [near_tile]: near_tile: buf_a = -1; expected a wh"),
        (TILE_TOML.replace("buf_a = 1024\n", ""), "m.toml: [near_tile]: missing required field 'buf_a'"),
        (TILE_TOML.replace("= 64.5", "= 'fast'"), "m.toml: [near_tile]: near_tile: bw_b = 'fast'"),
        ("near_tile = 3", "m.toml: [near_tile]: 3; expected a table"),
        ("", "m.toml: hardware 'm' has no unit"),
        (CPU_TOML.replace("ways", "way"), "m.toml: [cpu.caches[0]]: unknown field 'way'; did you mean 'ways'?"),
        (
            CPU_TOML.replace("ways = 8", "ways = 9"),
            "m.toml: [cpu.caches[0]]: cache: size = 32768 of level 1; expected a",
        ),
        ("[near_tile]\nbuf_a = 1\nbuf_b 2\n", "m.toml:3: not TOML: "),
        ("[near_tile]\nbuf_a = [1,\n", "m.toml:"),
    ],
)
def test_wrong_files(tmp_path, text, part):
    assert part in refusal(load_text, tmp_path, text)


def test_files_that_cannot_be_read(tmp_path):
    assert "cannot be read: No such file" in refusal(Hardware.load, tmp_path / "absent.toml")
    assert "cannot be read" in refusal(Hardware.load, f"{tmp_path}/absent")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    assert "byte 0 is not UTF-8" in refusal(Hardware.load, tmp_path / "binary.toml")


def test_unknown_preset_names_the_nearest():
    text = refusal(Hardware.load, "neartyle")
    assert "unknown hardware preset 'neartyle'; did you mean 'neartile'?" in text
    assert all(name in text for name in preset_names())


def test_every_refusal_is_a_tiling_error():
    with pytest.raises(TilingError):
        Hardware.load("nothing-like-it")


def test_fingerprint_is_stable_and_tells_machines_apart():
    cpu = Cpu(**CPU)
    machine = Hardware(name="a", cpu=cpu)
    assert machine.fingerprint() == "886483a46355af5f"
    same = dataclasses.replace(cpu, clock_mhz=3000.0, assumed=("caches",), features=("fma", "avx2"))
    assert Hardware(name="b", cpu=same).fingerprint() == machine.fingerprint()
    for change in (
        {"cores": 3},
        {"threads": 4},
        {"vector_bits": 512},
        {"fma_units": 1},
        {"features": ("avx2",)},
        {"mcpu": "haswell"},
        {"priority_ratio": 1.0},
        {"caches": (dataclasses.replace(L1, ways=4),)},
    ):
        other = Hardware(name="a", cpu=dataclasses.replace(cpu, **change))
        assert other.fingerprint() != machine.fingerprint(), change
    assert len({Hardware.load(name).fingerprint() for name in preset_names()}) == len(preset_names())


def test_fingerprints_outlast_costs_that_came_later():
    machine = Hardware.load("zen4-server-8c")
    other = dataclasses.replace(machine, cpu=dataclasses.replace(machine.cpu, costs=KernelCosts(l2_share=0.7)))
    assert other.fingerprint() == "f2fd4e6334541461"


@pytest.mark.parametrize(
    ("machine", "fingerprint"),
    [
        ("neartile", "aa3febc224508457"),
        ("wfold", "fe82b483df8d1281"),  # because its buffers determine its timing
        ("icelake-server-2c", "74841d1d7384c0fc"),
        ("neoverse-v1-16c", "0b11d2dc7d16002b"),  # because its kernels leave two registers free
    ],
)
def test_fingerprints_outlast_units_and_fields_that_came_later(machine, fingerprint):
    described = {
        "neartile": Hardware(
            name="near",
            near_tile=NearTile(
                buf_a=524288,
                buf_b=524288,
                acc_max=262144,
                macs_per_cycle=4096,
                block_m=16,
                block_n=16,
                sync_granularity=32,
                bandwidth={"external": 64, "internal": 512},
            ),
        ),
        "wfold": Hardware.wfold(),
    }
    assert (described.get(machine) or Hardware.load(machine)).fingerprint() == fingerprint


def test_what_came_later_counts_where_it_is_set():
    machine = Hardware.load("neartile")
    assert with_field(machine, "near_tile.fill", 0).fingerprint() == machine.fingerprint()
    for path, value in {
        "near_tile.fill": 1,
        "near_tile.partial_blocks": "padded",
        "near_tile.macs_of_bytes.1": 9,
        "queues.depth": 2,
        "memories.external.latency": 3,
        "energy.vector_pj": 1.0,
    }.items():
        assert with_field(machine, path, value).fingerprint() != machine.fingerprint(), path
    assert with_field(machine, "clock_mhz", 1.0).fingerprint() == machine.fingerprint()


def test_a_description_is_printed_as_one_line():
    assert str(Hardware.load("zen4-server-8c")) == "zen4-server-8c: znver4, 8 cores, 1 x 512-bit FMA, L1 32 KiB"
    assert str(Hardware.load("vta")).startswith("vta: matrix engine, 256 MAC/cycle")
