"""Recurrent layers on the column engine: pairs of EP and VP, cycles of a step, the original search and what it
misses."""

from __future__ import annotations

import json

import pytest

import tvm_tiling as tt

RNN16K, RNN64K = (tt.Hardware.rnn(multipliers=multipliers, threads=4, name="page 04") for multipliers in (16384, 65536))


def layer(hidden=512, inputs=None, **further):
    return tt.RnnWorkload(**{"steps": 100, "input_size": inputs or hidden, "hidden_size": hidden, **further})


@pytest.mark.parametrize("mode", ["best", "seed"])
@pytest.mark.parametrize(("hardware", "wanted"), [(RNN16K, (16, 8, 4)), (RNN64K, (64, 32, 16))], ids=["16k", "64k"])
def test_worked_example_best_ep_for_256_512_and_1024(hardware, wanted, mode):
    assert tuple(tt.decide(layer(size), hardware, mode=mode).ep for size in (256, 512, 1024)) == wanted


def test_worked_example_of_vectors_of_512_where_32_by_2048_beats_16_by_4096():
    many, few = (tt.rnn_cycles(layer(512), RNN64K, ep=ep, vp=vp) for ep, vp in ((32, 2048), (16, 4096)))
    assert (many.product, few.product) == (32, 64)
    assert many < few and many.cycles_per_step < few.cycles_per_step


def test_worked_example_of_vectors_of_1024_where_16_by_4096_beats_32_by_2048_by_its_shallower_tree():
    shallow, deep = (tt.rnn_cycles(layer(1024), RNN64K, ep=ep, vp=vp) for ep, vp in ((16, 4096), (32, 2048)))
    assert shallow.product == deep.product == 128 and shallow.cycles_per_step == deep.cycles_per_step
    assert shallow.latency == deep.latency - 1 and shallow == deep - 1


def test_greedy_stops_where_cycles_rise_and_the_gap_is_reported():
    """640 units on 64 inputs: EP = 4 processes all 2560 rows at once, 160 + 22 cycles; 8 needs two parts and one more
    cycle of the tree, 160 + 23, and ends the search; 32 needs five parts of 512 rows, 100 + 25."""
    best, seed = (tt.decide(layer(640, 64), RNN16K, mode=mode) for mode in ("best", "seed"))
    assert [(tiling.ep, tiling.cycles_per_step) for tiling in (seed, best)] == [(4, 182), (32, 125)]
    assert best.seed_gap == seed.seed_gap == 182 / 125
    assert tt.decide(layer(512), RNN16K).seed_gap == 1.0


def test_an_ep_that_takes_as_long_as_the_one_before_does_not_end_the_walk():
    """640 units on 640 inputs: 320 cycles with EP = 4 and 8, then 240 with 16 and 200 with 32."""
    steps = [
        tt.rnn_cycles(layer(640), RNN16K, ep=ep, vp=min(2560, 16384 // ep)).cycles_per_step for ep in (4, 8, 16, 32)
    ]
    assert steps == [320, 320, 240, 200]
    seed = tt.decide(layer(640), RNN16K, mode="seed")
    assert (seed.ep, seed.cycles_per_step, seed.seed_gap) == (32, 200, 1.0)


@pytest.mark.parametrize("multipliers", [16384, 65536])
def test_mode_seed_is_the_walk_to_the_first_rise(multipliers):
    machine = tt.Hardware.rnn(multipliers=multipliers)
    for hidden in (96, 128, 160, 200, 256, 320, 384, 512, 640, 768, 1000, 1024):
        for inputs in {64, 256, hidden}:
            walked = []
            for ep in machine.column.column_counts:
                vp = min(4 * hidden, multipliers // ep)
                cycles = tt.rnn_cycles(layer(hidden, inputs), machine, ep=ep, vp=vp).cycles_per_step
                if walked and cycles > walked[-1][0]:
                    break
                walked.append((cycles, ep))  # for equal cycles the smaller EP has the smaller latency
            found = tt.decide(layer(hidden, inputs), machine, mode="seed")
            assert (found.cycles_per_step, found.ep) == min(walked)


def test_a_step_by_hand():
    # 4 * 640 rows by 512 at once: 5 blocks; 100 and 640 columns by 32: 4 and 20; 3 + 5 + 1 + 16 cycles to a sum.
    found = tt.rnn_cycles(layer(640, 100, steps=7), RNN16K, ep=32, vp=512)
    cx, ch, lat = 4 * 5, 20 * 5, 25
    assert (found.product, found.latency) == (cx + ch, lat)
    assert found.cycles_per_step == ch + lat and found.row_wise_per_step == cx + ch + lat
    assert found == cx + ch + 6 * (ch + lat) + lat


def test_rows_past_those_of_the_weights_are_idle():
    wide, all_rows = (tt.rnn_cycles(layer(128), RNN16K, ep=4, vp=vp) for vp in (4096, 512))
    assert wide == all_rows


@pytest.mark.parametrize(
    ("cell", "reset", "blocks_x", "blocks_h", "drains"),
    [("gru", True, 4, 4, 1), ("gru", False, 3, 3, 2), ("rnn", True, 1, 1, 1), ("lstm", True, 4, 4, 1)],
)
def test_cells_have_their_rows_and_drains(cell, reset, blocks_x, blocks_h, drains):
    """A GRU whose reset multiplies the matrix product: four rows per unit; else two dependent multiplications. Plain:
    one row."""
    found = tt.rnn_cycles(layer(256, cell=cell, linear_before_reset=reset, steps=1), RNN16K, ep=16, vp=256)
    cx, ch, lat = 16 * blocks_x, 16 * blocks_h, 24
    assert found.cycles_per_step == ch + max(cx, lat) + (drains - 1) * lat
    assert found.row_wise_per_step == cx + ch + drains * lat
    assert found == cx + ch + drains * lat


def test_the_best_pair_has_the_fewest_cycles_of_all():
    for hidden in (96, 200, 640, 1500):
        for cell in ("lstm", "gru", "rnn"):
            workload = layer(hidden, 77, cell=cell)
            found = tt.decide(workload, RNN16K)
            rows = {"lstm": 4, "gru": 4, "rnn": 1}[cell] * hidden
            every = {
                ep: tt.rnn_cycles(workload, RNN16K, ep=ep, vp=min(rows, 16384 // ep))
                for ep in RNN16K.column.column_counts
            }
            fewest = min((cycles.cycles_per_step, cycles.latency, ep) for ep, cycles in every.items())
            assert (found.cycles_per_step, found.ep) == (fewest[0], fewest[2])
            assert found.cycles == every[found.ep] and found.vp == min(rows, 16384 // found.ep)
            assert found.utilisation == workload.macs / (100 * 16384 * found.cycles_per_step) <= 1


def test_every_layer_has_a_pair_of_its_own():
    found = tt.decide(layer(256, 2048, layers=3, bidirectional=True), RNN16K)
    assert [config.input_size for config in found.layers] == [2048, 512, 512]
    alone = [tt.decide(layer(256, size), RNN16K) for size in (2048, 512, 512)]
    assert [config.ep for config in found.layers] == [one.ep for one in alone]
    assert found.cycles_per_step == 2 * sum(one.cycles_per_step for one in alone)


def test_sequences_of_a_batch_and_directions_are_threads():
    machine = tt.Hardware.rnn(multipliers=16384, threads=4)
    one, four, nine = (tt.decide(layer(256, batch=batch), machine) for batch in (1, 4, 9))
    step = max(4 * 32, one.cycles_per_step)
    assert (one.threads, four.threads, nine.threads) == (1, 4, 4)
    assert one.cycles_per_step == 16 + 24 and one.threads_needed == 2
    assert four.cycles == 4 * 32 + 99 * step + 24
    assert nine.cycles == 2 * four.cycles + one.cycles
    assert tt.decide(layer(256, bidirectional=True), machine).threads == 2
    two = tt.Hardware.rnn(multipliers=16384, threads=4, engines=2)
    assert tt.decide(layer(256, batch=8), two).cycles == four.cycles


def test_a_tree_with_a_tail_serves_its_columns_alone():
    machine = tt.Hardware.rnn(multipliers=4096, tree_inputs=64, tree_tail=4)
    for size in (64, 128, 512, 2048):
        assert tt.decide(layer(size), machine).ep in (16, 32, 64)
    with pytest.raises(tt.HardwareError, match=r"ep = 8; expected a number of columns .*: 16, 32, 64"):
        tt.rnn_cycles(layer(), machine, ep=8, vp=16)


def test_one_tree_for_layers_of_several_sizes_needs_a_tail():
    found = tt.decide(layer(1024, 16, layers=2), RNN64K)
    counts = {config.ep for config in found.layers}
    assert found.tail == max(counts) // min(counts)


@pytest.mark.parametrize(
    ("ep", "vp", "said"),
    [
        (3, 1, "ep = 3; expected a number of columns"),
        (True, 1, "ep = True; expected"),
        (16, 0, "vp = 0 rows with ep = 16 columns; expected 1 to 1024, for 16384 multipliers"),
        (16, 1025, "vp = 1025 rows"),
    ],
)
def test_pairs_that_the_machine_has_not(ep, vp, said):
    with pytest.raises(tt.HardwareError, match=said):
        tt.rnn_cycles(layer(), RNN16K, ep=ep, vp=vp)


def test_machines_modes_and_options_without_use_are_refused():
    with pytest.raises(
        tt.HardwareError, match="neartile has no unit for recurrent layers, only near_tile, vector; expected"
    ):
        tt.decide(layer(), tt.Hardware.load("neartile"))
    with pytest.raises(tt.HardwareError, match=r"mode = 'worst'; expected best, seed"):
        tt.decide(layer(), RNN16K, mode="worst")
    with pytest.raises(
        tt.HardwareError, match=r"algorithm = 'pack' does not apply to a rnn on page 04, .*; expected None"
    ):
        tt.decide(layer(), RNN16K, algorithm="pack")
    with pytest.raises(tt.UnsupportedOperator, match="rnn_cycles: a GemmWorkload; expected an RnnWorkload"):
        tt.rnn_cycles(tt.GemmWorkload(m=1, n=1, k=1), RNN16K, ep=1, vp=1)


def test_the_decision_tells_of_itself():
    found = tt.decide(layer(640, layers=2), RNN16K)
    text = found.explain()
    for name in ("columns at once (EP)", "sequences per engine", "cycles per step", "row-wise, per step", "layer 2"):
        assert f"    {name} " in text
    plain = json.loads(found.to_json())
    assert plain["op"] == "rnn" and len(plain["layers"]) == 2 and found.why("ep")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"cell": "lstn"}, "unknown cell 'lstn'; did you mean 'lstm'[?] expected gru, lstm, rnn"),
        ({"steps": 0}, "steps = 0; expected a whole number of at least 1"),
        ({"bidirectional": 1}, "bidirectional = 1; expected True or False"),
        ({"activation": "gelu"}, "activation 'gelu'; expected tanh, relu"),
        ({"activation": "relu"}, "activation 'relu' requires the cell 'rnn'; expected 'tanh'"),
        ({"dtype": "float31"}, "unknown element type 'float31'"),
    ],
)
def test_impossible_workloads_are_refused(wrong, said):
    with pytest.raises(tt.WorkloadError, match=said):
        layer(**wrong)


def test_work_and_bytes_of_layers_in_both_directions():
    found = layer(8, 5, layers=2, bidirectional=True, batch=3, steps=7, cell="gru")
    weights = 2 * 3 * 8 * ((5 + 8) + (16 + 8))
    assert found.input_sizes == (5, 16) and found.weights == weights
    assert found.macs == 3 * 7 * weights == found.flops // 2
    assert found.bytes == 4 * (3 * 7 * 5 + weights + 3 * 7 * 16)
    assert found.to_dict()["op"] == "rnn"
