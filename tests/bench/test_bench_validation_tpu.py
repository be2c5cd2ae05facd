"""TPU v1 compared with its published counters, and the results of its networks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.validation_tpu import (
    NETWORKS,
    Lstm,
    Mlp,
    network_program,
    network_shares,
    published_shares,
    shares,
    tpu,
)
from tvm_tiling.accel.functional.run import run


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_shares_of_the_matrix_unit_beside_the_published_ones(name):
    batch, silicon, _ = published_shares()[name]
    own = network_shares(name, batch)
    assert own.active == pytest.approx(silicon.active, abs=0.08)
    assert own.weight_stall == pytest.approx(silicon.weight_stall, abs=0.08)
    assert own.active + own.weight_stall + own.weight_shift + own.non_matrix == pytest.approx(1)
    assert min(own.active, own.weight_stall, own.weight_shift, own.non_matrix) > 0


def test_networks_have_the_published_number_of_weights():
    assert {name: round(network.weights / 1e6) for name, network in NETWORKS.items()} == {
        "MLP0": 21,
        "MLP1": 5,
        "LSTM0": 50,
        "LSTM1": 34,
    }


def limited(values, shift=0):
    return np.clip(values >> shift, 0, 127).astype(np.int32)


def some_inputs(program, seed=0):
    """Weights from -8 to 9, activations from 0 to 127."""
    rng = np.random.default_rng(seed)
    limits = {tensor.name: (-8, 10) if tensor.name[0] == "w" else (0, 128) for tensor in program.of_role("input")}
    return {name: rng.integers(*limit, program.tensor(name).shape, np.int8) for name, limit in limits.items()}


def test_an_mlp_computes_its_layers():
    program = network_program(Mlp((300, 200, 256)), 3, tpu())
    inputs = some_inputs(program)
    x = inputs["host_x"].astype(np.int32)
    for weights in ("w0", "w1"):
        x = limited(inputs[weights].astype(np.int32) @ x, 8)
    (result,) = run(program, inputs).values()
    assert result.shape == (256, 3) and len(np.unique(result)) > 5
    np.testing.assert_array_equal(result, x)


@pytest.mark.parametrize("vectors", [2, 5])
def test_an_lstm_computes_its_cells(vectors):
    program = network_program(Lstm(cells=2, hidden=256, vectors=vectors), 2, tpu(sixteen_bits=True))
    inputs = {name: value.astype(np.int32) for name, value in some_inputs(program).items()}
    x = inputs["host_x"]
    for cell in range(2):
        state, before = inputs[f"state{cell}"], inputs[f"cell{cell}"]
        parts = [limited(inputs[f"w{4 * cell + place}"] @ at, 8) for place, at in enumerate((x, x, state, state))]
        first, second = parts[0] + parts[2], parts[1] + parts[3]
        if vectors == 5:
            first, second = limited(first), limited(second)
        new = limited(first[256:] * before + first[:256] * second[:256], 7 if vectors == 5 else 8)
        x = limited(second[256:] * new, 7)
    (result,) = run(program, {name: value.astype(np.int8) for name, value in inputs.items()}).values()
    assert len(np.unique(result)) > 5
    np.testing.assert_array_equal(result, x)


def test_activations_stay_on_the_chip_and_weights_are_waited_for():
    program = network_program(Mlp((1024, 1024, 1024)), 8, tpu())
    assert {tensor.name for tensor in program.tensors if tensor.memory == "external"} == {
        "host_x",
        "w0",
        "w1",
        "host_y",
    }
    own = shares(program)
    # 32 tiles of 65536 bytes at 48.6 per cycle, 8 cycles of work each.
    assert own.active * own.cycles == pytest.approx(32 * 8)
    assert own.weight_shift * own.cycles == pytest.approx(32 * 256)
    assert own.cycles > 32 * 65536 / 48.6
    assert own.weight_stall > 0.6


def test_the_page_has_the_simulated_shares():
    page = (Path(__file__).parents[2] / "docs" / "validation.md").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:1] == "|"]
    at = rows.index(["", "", *NETWORKS])
    own = {name: network_shares(name, batch) for name, (batch, *_) in published_shares().items()}
    silicon = {name: shares for name, (_, shares, _) in published_shares().items()}
    for place, share in enumerate(("active", "weight_stall", "weight_shift", "non_matrix")):
        for offset, figures in enumerate((silicon, own)):
            told = [float(cell.rstrip(" %")) for cell in rows[at + 2 + 2 * place + offset][2:]]
            found = [100 * getattr(figures[name], share) for name in NETWORKS]
            assert told == pytest.approx(found, abs=0.15), share
