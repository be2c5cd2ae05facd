"""Whole models on simulated accelerators: quantised, partitioned, bit for bit NumPy's results for the same graph."""

from __future__ import annotations

import json

import numpy as np
import pytest
from integer_reference import reference
from networks import Network, attention, residual_network

import tvm_tiling as tt
from tvm_tiling.accel.checks.hazards import check_hazards
from tvm_tiling.frontend import load_model
from tvm_tiling.model.quantise.quantise import quantised

NETWORKS = {"attention": (attention, (1, 17, 24)), "residual": (residual_network, (1, 3, 24, 24))}


def made(name):
    """Return (module, calibration data) of a network."""
    body, shape = NETWORKS[name]
    network = Network(shape)
    module = network.module(body)
    return module, [network.rng.uniform(-1, 1, shape).astype("float32") for _ in range(3)]


@pytest.fixture(
    scope="module", params=[("attention", "vta"), ("residual", "vta"), ("attention", "neartile")], ids="-".join
)
def compiled(request):
    name, machine = request.param
    module, data = made(name)
    executable = tt.compile(module, target=f"vsim/{machine}", calibration=data)
    integers = quantised(load_model(module), tt.Hardware.load(machine), data)
    return module, data, executable, integers


def test_results_are_those_of_numpy_bit_for_bit(compiled):
    _, data, executable, integers = compiled
    for x in data:
        np.testing.assert_array_equal(executable.run(x), reference(integers, x))


def test_results_are_close_to_those_in_floats(compiled):
    module, data, executable, _ = compiled
    floats = tt.compile(module, cache=False)
    for x in data:
        want, got = floats.run(x), executable.run(x)
        assert np.abs(got - want).max() < 0.05 * np.abs(want).max()


def test_gemms_run_on_the_accelerator_and_are_reported(compiled):
    _, data, executable, _ = compiled
    _, sim = executable.simulate(data[0])
    assert sim.lower_bound <= sim.cycles <= sim.upper_bound
    report = executable.report()
    there = [o for o in report.operators if o.where == "accelerator"]
    assert sum(o.macs for o in there) == sim.macs > 0
    for operand in ("a", "b", "out"):
        assert sum(o.bytes[operand] for o in there) == sim.bytes[operand]
    assert all(0 < o.cycles <= sim.cycles for o in there)
    assert all(o.why for o in report.operators if o.where == "cpu")
    assert not any("matmul" in o.name or "conv2d" in o.name for o in report.operators if o.where == "cpu")
    assert json.loads(json.dumps(report.to_dict()))["simulation"]["cycles"] == sim.cycles
    assert str(sim.cycles) in str(report)


def test_the_program_of_all_pieces_has_no_hazards_and_can_be_kept(compiled, tmp_path):
    _, _, executable, _ = compiled
    program = executable.program
    check_hazards(program)
    program.save(tmp_path / "p.vsim")
    assert tt.simulate(tt.Program.load(tmp_path / "p.vsim")).cycles == executable.simulation.on().cycles
    assert sum(len(piece) for piece in executable.programs) <= len(program)


def test_a_saved_model_runs_again(compiled, tmp_path):
    _, data, executable, _ = compiled
    executable.save(tmp_path / "m.tar")
    loaded = tt.load(tmp_path / "m.tar")
    (got, sim), (want, expected) = loaded.simulate(data[0]), executable.simulate(data[0])
    np.testing.assert_array_equal(got, want)
    assert sim.cycles == expected.cycles
    assert str(loaded.report()) == str(executable.report())


def test_a_float_model_without_calibration_is_refused_by_an_int8_machine():
    module, _ = made("attention")
    with pytest.raises(tt.HardwareError, match=r"vta does not support float32 .*use calibration="):
        tt.compile(module, target="vsim/vta")


def test_a_machine_of_floats_takes_the_model_as_it_is():
    module, data = made("attention")
    want, got = tt.compile(module, cache=False).run(data[0]), tt.compile(module, target="vsim/neartile").run(data[0])
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("calibration", "said"),
    [
        ([], "calibration is empty"),
        (np.zeros((1, 17, 24), np.float32), r"calibration has type ndarray; expected a list"),
        ([np.zeros((1, 16, 24), np.float32)], r"has shape \(1, 16, 24\), but the model was compiled for \(1, 17, 24\)"),
        ([np.full((1, 17, 24), np.nan, np.float32)], "is not finite"),
    ],
)
def test_calibration_that_is_none_is_refused(calibration, said):
    module, _ = made("attention")
    with pytest.raises(tt.WorkloadError, match=said):
        tt.compile(module, target="vsim/vta", calibration=calibration)
