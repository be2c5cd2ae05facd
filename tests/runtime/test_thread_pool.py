"""TVM's thread pool: who sets its cores, and who does not. Each in a process of its own, as a pool cannot grow."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tvm_tiling.runtime.threads import usable_core_count

START = """
import os, threading
import numpy as np, tvm, tvm_tiling as tt
from tvm import te

def state():
    tasks = "/proc/self/task"
    return dict(os.environ), len(os.listdir(tasks)) if os.path.isdir(tasks) else 0

def kernel():
    a, b, r = te.placeholder((96, 64)), te.placeholder((64, 128)), te.reduce_axis((0, 64))
    product = te.compute((96, 128), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r))
    schedule = tt.tiling_schedule(te.create_prim_func([a, b, product]))
    return tvm.compile(schedule.mod, target=tt.llvm_target())

def threads():
    return tvm.get_global_func("runtime.NumThreads")()
"""


def told(code: str, **variables: str) -> list[str]:
    """The words that a process prints which begins with START."""
    unset = ("TVM_NUM_THREADS", "OMP_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in unset} | variables
    command = [sys.executable, "-c", START + code]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout.split()


@pytest.fixture(scope="module")
def plain() -> list[str]:
    """How many threads TVM takes by itself."""
    return told("print(threads())")


def test_llvm_target_changes_neither_the_environment_nor_the_pool(plain):
    code = """
before = state(); tt.llvm_target(); print(state() == before)
before = state()[0]; kernel(); print(state()[0] == before, threads())
"""
    assert told(code) == ["True", "True", *plain]


def test_the_first_kernel_has_all_cores():
    assert told("kernel()['main']; print(threads())") == [str(usable_core_count())]


def test_the_first_kernel_of_another_thread_has_all_cores():
    code = """
def other():
    kernel()["main"]
    print(threads())
one = threading.Thread(target=other); one.start(); one.join()
"""
    assert told(code) == [str(usable_core_count())]


def test_a_kernel_in_a_relax_model_has_all_cores():
    code = """
from tvm.relax.frontend import nn
module, _ = nn.ReLU().export_tvm({"forward": {"x": nn.spec.Tensor((8, 8), "float32")}})
executable = tvm.compile(module, target=tt.llvm_target())
tvm.runtime.vm.VirtualMachine(executable, tvm.cpu())
print(threads())
"""
    assert told(code) == [str(usable_core_count())]


def test_the_cores_of_the_documented_call_are_kept():
    assert told("tt.use_all_cores(1); kernel()['main']; print(threads())") == ["1"]


def test_the_variable_of_the_user_is_kept():
    assert told("kernel()['main']; print(threads())", TVM_NUM_THREADS="1") == ["1"]


def test_kernels_of_plain_tvm_get_what_tvm_gives_them(plain):
    code = """
a = te.placeholder((64,))
tvm.compile(te.create_prim_func([a, te.compute((64,), lambda i: a[i] + 1.0)]), target="llvm")["main"]
print(threads())
"""
    assert told(code) == plain


@pytest.mark.skipif(usable_core_count() < 2, reason="one core")
def test_a_search_measures_on_all_cores():
    code = "tt.space_generator(); print(os.environ['TVM_NUM_THREADS'])"
    assert told(code) == [str(usable_core_count())]
