"""Assembly of the kernels that measure the peak, and the number of TVM's threads."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import pytest

from tvm_tiling.hardware import Hardware
from tvm_tiling.hardware.dot_instructions import DOT_INSTRUCTIONS, FMA_FLOAT32
from tvm_tiling.peak import accumulators, byte_instruction, compiled, instruction_module
from tvm_tiling.runtime.threads import own_core, usable_core_count, usable_processors

CPU = Hardware.detect().cpu
pytestmark = pytest.mark.skipif(CPU.arch != "x86_64", reason="reads x86 assembly")


@pytest.fixture(scope="module")
def target():
    import tvm

    features = [f"+{feature}" for feature in CPU.features]
    return tvm.target.Target({"kind": "llvm", "mattr": features, "num-cores": CPU.cores})


def _loop(module, instruction):
    """Return the longest innermost loop with `instruction`: the lines between a label and a jump back to it."""
    lines = module.mod.inspect_source("asm").splitlines()
    labels = {line[:-1]: place for place, line in enumerate(lines) if re.fullmatch(r"\.LBB\w+:", line)}
    loops = []
    for end, line in enumerate(lines):
        jump = re.fullmatch(r"\tj\w+\t(\.\w+)", line)
        start = labels.get(jump[1], end) if jump else end
        if start < end and not any(start < place < end for place in labels.values()):
            loops.append([inner for inner in lines[start + 1 : end + 1] if re.match(r"\t\w", inner)])
    loops = [loop for loop in loops if any(inner.startswith(f"\t{instruction}") for inner in loop)]
    assert loops, f"no loop with {instruction}"
    return max(loops, key=len)


@pytest.mark.parametrize("cores", [1, 2])
def test_the_fma_loop_stays_in_registers(target, cores):
    chains = accumulators(CPU)
    body = _loop(compiled(instruction_module(FMA_FLOAT32, CPU.vector_bits, chains, cores), target), "vfmadd")
    fused = [line for line in body if "vfmadd" in line]
    assert len(fused) >= chains
    assert not [line for line in fused if "(" in line], "operand in memory"
    assert len(body) - len(fused) <= 4, "more than the loop's own counting between the multiply-adds"
    register = "zmm" if CPU.vector_bits == 512 else "ymm"
    assert all(register in line for line in fused)


def test_the_fma_loop_computes(target):
    import tvm

    lanes = CPU.lanes(4)
    main = compiled(instruction_module(FMA_FLOAT32, CPU.vector_bits, 3, 1), target)["main"]
    seed = np.stack([np.full(lanes, 0.5, "float32"), np.full(lanes, 3.0, "float32")])
    out = tvm.runtime.tensor(np.zeros((1, 3 * lanes), "float32"))
    main(tvm.runtime.tensor(seed), out, 2)
    assert np.all(out.numpy() == (0.5 * 0.5 + 3) * 0.5 + 3)


@pytest.mark.parametrize("name", ["vpdpbusd", "dpbf16ps"])
def test_the_dot_product_loop_stays_in_registers(target, name):
    row = next(row for row in DOT_INSTRUCTIONS if row.name == name)
    if row.form(CPU) is None:
        pytest.skip(f"no {name} on this CPU")
    body = _loop(
        compiled(instruction_module(row, CPU.vector_bits, accumulators(CPU), 1), target), f"v{name.lstrip('v')}"
    )
    assert not [line for line in body if name in line and "(" in line]


def test_the_peak_of_bytes_is_that_of_their_dot_product():
    cpu = Hardware.load("zen4-server-8c").cpu
    assert byte_instruction(cpu).name == "vpdpbusd"
    assert byte_instruction(Hardware.load("skylake-desktop-8c").cpu) is None
    assert byte_instruction(Hardware.load("neoverse-v1-16c").cpu).group == 8


def test_tvm_uses_every_core():
    # In a separate process: the thread pool of this one may exist already and cannot grow.
    code = "from tvm_tiling.runtime.launcher import *; print(use_all_cores(), use_all_cores(1), use_all_cores())"
    unset = ("TVM_NUM_THREADS", "OMP_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    cores = usable_core_count()
    assert told.stdout.split() == [str(cores), "1", str(cores)]


def test_a_pool_made_too_early_is_reported():
    if usable_core_count() < 2:
        pytest.skip("one core")
    code = (
        "from tvm_tiling.runtime.launcher import use_all_cores\n"
        "import tvm, warnings; tvm.get_global_func('runtime.NumThreads')()\n"
        "warnings.simplefilter('error'); use_all_cores(2)"
    )
    environment = {**os.environ, "TVM_NUM_THREADS": "1"}
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert told.returncode != 0
    assert "call it first" in told.stderr


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads cannot be bound here")
def test_own_core_binds_and_lets_go():
    before = os.sched_getaffinity(0)
    with own_core():
        assert os.sched_getaffinity(0) == {usable_processors()[0]}
    assert os.sched_getaffinity(0) == before
    with pytest.raises(KeyError), own_core():
        raise KeyError
    assert os.sched_getaffinity(0) == before
