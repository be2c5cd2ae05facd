"""ResNet-50 and a transformer encoder, quantised, on two machines: bit for bit NumPy's results for the same graph."""

from __future__ import annotations

import functools
import json
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tvm import relax

import tvm_tiling as tt
from tvm_tiling.frontend import load_model
from tvm_tiling.hardware.fields import with_field
from tvm_tiling.model.quantise.quantise import quantised

sys.path.insert(0, str(Path(__file__).parent.parent / "model"))
from html_page import Page
from integer_reference import reference
from networks import Network

from benchmarks.onnx_networks import with_random_weights

pytestmark = pytest.mark.slow
op = relax.op
TOKENS, WIDTH, HEADS, LAYERS = 64, 192, 4, 3


def encoder(net, x):
    """Layers with multi-head attention and a feed-forward part, with pre-norm."""

    def dense(value, wide, out):
        return net.emit(op.add(net.emit(op.matmul(value, net.c(wide, out))), net.c(out)))

    def heads(value, order):
        apart = net.emit(op.reshape(value, (1, TOKENS, HEADS, WIDTH // HEADS)))
        return net.emit(op.permute_dims(apart, order))

    for _ in range(LAYERS):
        y = net.emit(op.nn.layer_norm(x, net.c(WIDTH), net.c(WIDTH), axes=-1))
        q, k, v = (heads(dense(y, WIDTH, WIDTH), order) for order in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)))
        scale = relax.const(np.float32((WIDTH // HEADS) ** -0.5))
        scores = net.emit(op.multiply(net.emit(op.matmul(q, k)), scale))
        mixed = net.emit(op.matmul(net.emit(op.nn.softmax(scores)), v))
        joined = net.emit(op.reshape(net.emit(op.permute_dims(mixed, (0, 2, 1, 3))), (1, TOKENS, WIDTH)))
        x = net.emit(op.add(x, dense(joined, WIDTH, WIDTH)))
        y = net.emit(op.nn.layer_norm(x, net.c(WIDTH), net.c(WIDTH), axes=-1))
        x = net.emit(op.add(x, dense(net.emit(op.nn.gelu(dense(y, WIDTH, 4 * WIDTH))), 4 * WIDTH, WIDTH)))
    return net.emit(op.nn.layer_norm(x, net.c(WIDTH), net.c(WIDTH), axes=-1))


def network(name):
    if name == "resnet50":
        return with_random_weights("resnet50")
    return Network((1, TOKENS, WIDTH)).module(encoder)


@functools.cache
def expected(name):
    """Return (model, inputs, NumPy's results for the first of them): the same for all int8 machines."""
    model = network(name)
    imported = load_model(model)
    rng = np.random.default_rng(1)
    data = [rng.standard_normal(imported.input_shapes[0]).astype("float32") for _ in range(2)]
    return model, data, reference(quantised(imported, tt.Hardware.load("vta"), data), data[0])


@functools.cache
def compiled(name, machine):
    """Return (executable, seconds)."""
    model, data, _ = expected(name)
    start = time.perf_counter()
    executable = tt.compile(model, target=f"vsim/{machine}", calibration=data)
    return executable, time.perf_counter() - start


@pytest.mark.parametrize("machine", ["vta", "wfold16"])
@pytest.mark.parametrize("name", ["resnet50", "encoder"])
def test_networks_are_exact_and_their_reports_open(name, machine, tmp_path):
    _, data, want = expected(name)
    executable, compiling = compiled(name, machine)
    start = time.perf_counter()
    result, sim = executable.simulate(data[0])
    seconds = time.perf_counter() - start
    np.testing.assert_array_equal(result, want)
    assert sim.lower_bound <= sim.cycles <= sim.upper_bound
    report = executable.report()
    left = [o.name for o in report.operators if o.where == "cpu" and ("conv2d" in o.name or "matmul" in o.name)]
    assert not left, f"on the CPU: {left}"
    tt.save_report(report, tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text())
    assert not page.open and not page.outside and all(o.name in page.cells for o in report.operators)
    check_timeline(sim, tmp_path / "trace.json")
    print(
        f"{name} on {machine}: {sim.cycles} cycles, utilisation {sim.utilisation:.1%}, {sim.instructions} instructions,"
        f" {sim.macs} MAC; {compiling:.0f} s to quantise and record, {seconds:.1f} s to simulate"
    )


def check_timeline(sim, path):
    """Its events load, follow each other within an engine, and are as long as the engine is busy."""
    sim.save_trace(path)
    ends: dict[int, int] = {}
    busy: dict[int, int] = {}
    for event in json.loads(path.read_text())["traceEvents"]:
        if event["ph"] == "X" and event["pid"] == 0:
            assert event["ts"] >= ends.get(event["tid"], 0)
            ends[event["tid"]] = event["ts"] + event["dur"]
            busy[event["tid"]] = busy.get(event["tid"], 0) + event["dur"]
    assert [busy.get(number, 0) for number in range(len(sim.engines))] == [e.busy for e in sim.engines.values()]


def test_a_hundred_machines_for_a_recorded_network_take_less_than_a_minute():
    simulation = compiled("resnet50", "vta")[0].simulation
    machine = tt.Hardware.load("vta")
    simulation.on(machine)  # if numba is installed, it compiles now
    start = time.process_time()
    cycles = [simulation.on(with_field(machine, "memories.external.latency", n)).cycles for n in range(1, 101)]
    seconds = time.process_time() - start
    print(f"100 machines: {seconds:.1f} s")
    assert cycles == sorted(cycles) and cycles[0] < cycles[-1]
    assert seconds < 60
