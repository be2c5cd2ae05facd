"""The suite of kernels, and the networks of the onnx package, on an emulated AArch64 machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from emulator import needs_emulator

pytestmark = [pytest.mark.slow, needs_emulator]
TESTS = Path(__file__).parents[1]
MACHINES = ("neoverse-v1", "neoverse-n1")
# Of tests/numeric; the others test TVM graphs, or processors of this computer.
KERNELS = (
    "blocked_products", "config_multiples", "configs", "convs", "depthwise_convs", "dot_instructions", "fold_rules",
    "gate_math", "half_attention", "open_products", "products", "recurrent", "row_products", "vector_math",
    "wfold_conv", "winograd_conv",
)  # fmt: skip
# They describe x86-64 processors, expect a decision for this computer's caches, or save and read TVM libraries.
DESELECTED = (
    "not avx and not narrower and not several_blocks and not saved_and_read_as_script "
    "and not compiles_to_its_instruction"
)
NETWORKS = ("shufflenet", "squeezenet", "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50")
LARGE = ("vgg19", "zfnet512")


def emulated(machine: str, *words: object) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *map(str, words)]
    environment = {**os.environ, "TVM_TILING_EMULATED": machine}
    done = subprocess.run(command, cwd=TESTS.parent, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", KERNELS)
def test_kernels(name, machine):
    emulated(machine, TESTS / "numeric" / f"test_{name}.py", "-k", DESELECTED)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", (*NETWORKS, *LARGE))
def test_a_network_of_the_onnx_package_beside_onnxruntime(name, machine):
    pytest.importorskip("onnxruntime")
    files = TESTS / "slow" / "test_nine_networks.py", TESTS / "model" / "test_light_networks.py"
    emulated(machine, "-m", "slow or not slow", "-k", f"random_weights and {name}", *files)
