"""relax_pipeline="tvm_tiling" of tvm.compile: one function or several, constant weights or parameters, dynamic
shapes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
from networks import Network, attention, default, residual_network
from tvm import relax
from tvm.relax.frontend import nn

import tvm_tiling as tt

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def machine(mod: tvm.IRModule) -> relax.VirtualMachine:
    return relax.VirtualMachine(tvm.compile(mod, tt.llvm_target(), relax_pipeline="tvm_tiling"), tvm.cpu())


def run(vm: relax.VirtualMachine, name: str, *arrays: np.ndarray) -> np.ndarray:
    return vm[name](*(tvm.runtime.tensor(array) for array in arrays)).numpy()


@pytest.mark.parametrize(("body", "shape"), [(residual_network, (1, 3, 33, 33)), (attention, (1, 17, 24))])
def test_whole_networks(body, shape):
    net = Network(shape)
    mod, arrays = net.module(body), net.arrays()
    np.testing.assert_allclose(run(machine(mod), "main", *arrays), default(mod, arrays), rtol=1e-4, atol=1e-5)


class Layers(nn.Module):
    def __init__(self):
        self.wide, self.narrow = nn.Linear(24, 40), nn.Linear(40, 8)

    def forward(self, x):
        return self.narrow(nn.op.relu(self.wide(x)))

    def first(self, x):
        return nn.op.softmax(self.wide(x), axis=-1)


def relu(a):
    return np.maximum(a, 0)


def test_functions_of_other_names_with_weights_passed():
    kind = nn.spec.Tensor((5, 24), "float32")
    module, _ = Layers().export_tvm({"forward": {"x": kind}, "first": {"x": kind}})
    rng = np.random.default_rng(0)
    x, *weights = (rng.uniform(-1, 1, shape).astype("float32") for shape in ((5, 24), (40, 24), (40,), (8, 40), (8,)))
    vm = machine(module)
    wide = x @ weights[0].T + weights[1]
    np.testing.assert_allclose(run(vm, "forward", x, *weights), relu(wide) @ weights[2].T + weights[3], rtol=1e-4)
    exponent = np.exp(wide - wide.max(axis=-1, keepdims=True))
    np.testing.assert_allclose(run(vm, "first", x, *weights), exponent / exponent.sum(-1, keepdims=True), rtol=1e-4)


def test_open_shapes_are_left_to_tvm():
    module, _ = Layers().export_tvm({"forward": {"x": nn.spec.Tensor(("rows", 24), "float32")}})
    rng = np.random.default_rng(0)
    weights = [rng.uniform(-1, 1, shape).astype("float32") for shape in ((40, 24), (40,), (8, 40), (8,))]
    vm = machine(module)
    for rows in (1, 3, 8):
        x = rng.uniform(-1, 1, (rows, 24)).astype("float32")
        want = relu(x @ weights[0].T + weights[1]) @ weights[2].T + weights[3]
        np.testing.assert_allclose(run(vm, "forward", x, *weights), want, rtol=1e-4, atol=1e-5)


def test_constant_weights_are_packed_and_options_taken():
    net = Network((1, 64, 30, 30))
    mod = net.module(lambda net, x: relax.op.nn.conv2d(x, net.c(64, 64, 3, 3), padding=1))
    forms = {}
    for winograd in (True, False):
        with tt.llvm_target():
            lowered = relax.get_pipeline("tvm_tiling", winograd=winograd)(mod)
        (convolution,) = [f for v, f in lowered.functions.items() if v.name_hint.endswith("_packed")]
        forms[winograd] = json.loads(convolution.attrs["tvm_tiling.decision"])["form"]
    assert forms[True] == "winograd" != forms[False]


def test_another_target_is_refused_with_a_sentence():
    with pytest.raises(tt.HardwareError, match="target 'c' is not supported; expected 'llvm'"):
        tvm.compile(Network((1, 17, 24)).module(attention), tvm.target.Target("c"), relax_pipeline="tvm_tiling")


def test_tvm_finds_it_by_its_entry_point():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    entry = project["entry-points"]["tvm.backends"]["tvm_tiling_pipeline"]
    module, function = entry.split(":")
    code = (
        "import tvm_tiling, sys\n"
        "assert 'tvm' not in sys.modules\n"
        f"import {module}\n"
        "assert 'tvm' not in sys.modules\n"
        "import tvm\n"
        f"{module}.{function}()\n"
        f"{module}.{function}()\n"
        "assert tvm.relax.get_pipeline('tvm_tiling')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
