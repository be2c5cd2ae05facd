"""Comparison with other simulators: our simulator with their assumptions, and the explanation of differences."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import accel_peers
from benchmarks.accel_layers import LAYERS
from benchmarks.accel_setting import (
    AGAIN,
    ALONE,
    AT_ONCE,
    BEFORE,
    BEHIND,
    MATRIX,
    PADDED_BLOCKS,
    PADDED_LOADS,
    Setting,
    ours,
    roomy,
)
from benchmarks.peers import scalesim_peer, zigzag_peer
from benchmarks.peers.accel_machine import ArrayMachine, Figures, Layer
from tvm_tiling.workload import ConvWorkload, GemmWorkload

MACHINE = ArrayMachine(rows=16, columns=16, buf_a=4096, buf_b=4096, sums=8192, bandwidth=16)
RAGGED = Layer("ragged", GemmWorkload(m=40, n=24, k=64, dtype="int8"))
EVERY = (PADDED_BLOCKS, PADDED_LOADS, MATRIX, ALONE, BEFORE, BEHIND, AGAIN)


NOTHING = Figures(0, 0, 0, {}, 0.0)


def assumed(layer, *assumptions, theirs=NOTHING, machine=MACHINE):
    setting = Setting(machine)
    for assumption in assumptions:
        setting = assumption.turn(setting, layer, theirs)
    return ours(layer, setting)


def test_there_are_thirty_layers_and_their_names_differ():
    assert len({layer.name for layer in LAYERS}) == len(LAYERS) == 30


def test_a_convolution_as_a_gemm_has_its_multiplications():
    conv = Layer("c", ConvWorkload(n=1, h=9, w=7, ci=3, co=8, kh=3, kw=3, stride=(2, 2), dtype="int8"))
    assert (conv.matrix.m, conv.matrix.n, conv.matrix.k) == (4 * 3, 8, 27)
    assert conv.matrix.macs == conv.workload.macs
    plain, matrix = assumed(conv), assumed(conv, MATRIX)
    assert plain.moved["b"] == matrix.moved["b"] == 8 * 27
    assert matrix.moved["a"] == 12 * 27 > plain.moved["a"]
    assert assumed(conv, PADDED_LOADS) == replace(  # images are not padded
        assumed(conv, PADDED_BLOCKS), seconds=assumed(conv, PADDED_LOADS).seconds
    )
    assert assumed(conv, PADDED_LOADS, MATRIX).moved["a"] == 16 * 27


def test_padding_costs_blocks_and_bytes():
    fast = replace(MACHINE, bandwidth=1 << 20)  # compute-bound, except for the first and last transfers
    assert assumed(RAGGED, machine=fast).cycles == pytest.approx(40 * 24 * 64 / 256, abs=8)
    padded = assumed(RAGGED, PADDED_BLOCKS, machine=fast)
    assert padded.cycles == pytest.approx(48 * 32 * 64 / 256, abs=8)
    assert padded.moved == {"a": 40 * 64, "b": 24 * 64, "out": 40 * 24 * 4}
    loaded = assumed(RAGGED, PADDED_LOADS)
    assert loaded.moved == {"a": 48 * 64, "b": 32 * 64, "out": 40 * 24 * 4}


def test_blocks_that_do_not_overlap_pay_for_their_fill_and_drain():
    fast = replace(MACHINE, bandwidth=1 << 20)
    assert assumed(RAGGED, ALONE, machine=fast).cycles == pytest.approx(3 * 2 * (64 + 16 + 16 - 2), abs=8)


def test_what_moves_while_nothing_is_computed_is_in_series():
    theirs = Figures(0, before=40 * 64 // 16, behind=40 * 24 * 4 // 16, moved={}, seconds=0.0)
    series = assumed(RAGGED, BEFORE, BEHIND, theirs=theirs)
    # Plus the first tile of both operands, which is loaded before compute.
    assert 160 + 240 + 240 <= series.cycles <= 1.03 * (160 + 240 + 240)
    assert AT_ONCE > 1e6


def test_roomy_buffers_hold_each_operand_padded():
    large = Layer("large", GemmWorkload(m=100, n=40, k=512, dtype="int8"))
    room = roomy(MACHINE, large)
    assert room.buf_a >= 112 * 512 and room.buf_b >= 48 * 512
    assert roomy(room, large) == room


def simulator(cycles=None, **moved):
    """Return another simulator that reports our figures except for the given ones."""
    own = assumed(RAGGED)
    return lambda machine: replace(own, cycles=cycles or own.cycles, moved=own.moved | moved, seconds=2.0)


def names(row):
    return {one.measure: one.names for one in row.differences}


def test_equal_figures_need_no_name():
    row = accel_peers.compare(RAGGED, MACHINE, "scalesim", EVERY, simulator())
    assert set(names(row).values()) == {()}
    assert not accel_peers.unexplained([row])


def test_a_difference_gets_the_name_of_the_change_that_closes_it():
    theirs = assumed(RAGGED, PADDED_LOADS)
    row = accel_peers.compare(RAGGED, MACHINE, "scalesim", EVERY, simulator(**theirs.moved))
    assert names(row) == {"cycles": (), "a": ("padding is loaded",), "b": ("padding is loaded",), "out": ()}
    one = row.differences[1]
    assert one.turned == (48 * 64, 48 * 64) and one.relative == pytest.approx(40 / 48 - 1)


def test_a_difference_may_need_two_names():
    theirs = Figures(0, before=160, behind=240, moved={}, seconds=0.0)
    turned = assumed(RAGGED, BEFORE, BEHIND, theirs=theirs)
    row = accel_peers.compare(
        RAGGED, MACHINE, "zigzag", (PADDED_BLOCKS, BEFORE, BEHIND), lambda machine: replace(turned, seconds=1.0)
    )
    assert names(row)["cycles"] == ("no overlap of initial loads", "no overlap of final stores")
    assert row.differences[0].all_turned == pytest.approx((160 + 384 + 240) / turned.cycles - 1, abs=0.02)


def test_what_no_change_explains_is_said():
    row = accel_peers.compare(RAGGED, MACHINE, "scalesim", EVERY, simulator(b=17))
    (sentence,) = accel_peers.unexplained([row])
    assert sentence == "scalesim, ragged: b is 1536, not 17, and no assumption explains it"
    text = accel_peers.table([row])
    assert "b: unexplained" in text and "1 differ by over 10%, 0 of them explained" in text


def test_buffers_that_hold_everything_are_given_to_both():
    large = Layer("large", GemmWorkload(m=32, n=32, k=512, dtype="int8"))
    own = ours(large, Setting(MACHINE))
    seen = []

    def thrice_unless_it_fits(machine):
        seen.append(machine)
        times = 1 if machine == roomy(MACHINE, large) else 3
        return replace(own, moved=own.moved | {"a": times * 32 * 512})

    row = accel_peers.compare(large, MACHINE, "scalesim", (PADDED_LOADS, AGAIN), thrice_unless_it_fits)
    assert names(row)["a"] == ("operand larger than its buffer",)
    assert set(seen) == {MACHINE, roomy(MACHINE, large)}


def test_figures_are_kept_and_not_computed_again(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(zigzag_peer, "simulate", lambda *given: calls.append(given) or Figures(1, 0, 0, {"a": 2}, 0.5))
    path = tmp_path / "figures.json"
    first = accel_peers.Kept(path).simulator("zigzag", RAGGED)(MACHINE)
    again = accel_peers.Kept(path).simulator("zigzag", RAGGED)(MACHINE)
    assert first == again and len(calls) == 1
    accel_peers.Kept(path).simulator("zigzag", RAGGED)(replace(MACHINE, bandwidth=8))
    assert len(calls) == 2


def test_a_simulator_that_is_not_installed_is_skipped_by_name(monkeypatch, capsys):
    monkeypatch.setattr(scalesim_peer, "available", lambda: "not installed: scalesim")
    assert accel_peers.main(["--tool", "scalesim"]) == 0
    assert capsys.readouterr().out == "skipped scalesim: not installed: scalesim\n"


def test_a_layer_that_is_not_there_is_refused(capsys):
    with pytest.raises(SystemExit):
        accel_peers.main(["--layer", "VGG"])
    assert "'VGG'" in capsys.readouterr().err


def test_the_machine_as_zigzag_reads_it():
    content = zigzag_peer.description(MACHINE)
    assert content["operational_array"]["sizes"] == [16, 16]
    assert {name: memory["size"] for name, memory in content["memories"].items()} == {
        "sums": 8 * 8192,
        "buffer_A": 8 * 2 * 4096,
        "buffer_B": 8 * 2 * 4096,
        "memory": 8 << 32,
    }
    assert {port["bandwidth_max"] for port in content["memories"]["memory"]["ports"]} == {128}


@pytest.mark.parametrize("tool", sorted(accel_peers.TOOLS))
def test_a_real_simulator_is_explained(tool):
    module, known = accel_peers.TOOLS[tool]
    if missing := module.available():
        pytest.skip(missing)
    machine = replace(MACHINE, buf_a=8192, buf_b=8192, sums=16384)
    row = accel_peers.compare(RAGGED, machine, tool, known, accel_peers.Kept(None).simulator(tool, RAGGED))
    assert not accel_peers.unexplained([row])
    assert all(abs(one.all_turned) <= 0.2 for one in row.differences)
