"""What runs kernels: launch.c or, without a C compiler, TVM's thread pool; which calls set its cores.

Each test runs in a separate process, because threads persist.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tvm.support import cc

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

def helpers(run):
    # How many threads a run starts: launch.c starts its own, TVM's pool is there before.
    tvm.get_global_func("runtime.NumThreads")()
    before = state()[1]; run()
    return state()[1] - before

def product(compiled):
    a, b, c = (tvm.runtime.tensor(np.ones(shape, "float32")) for shape in ((96, 64), (64, 128), (96, 128)))
    function = compiled["main"]
    def run():
        for _ in range(3): function(a, b, c)
        assert (c.numpy() == 64).all()
    return run
"""
WITHOUT_COMPILER = {"PATH": "/nowhere"}
launched = pytest.mark.skipif(
    cc.get_cc() is None or not sys.platform.startswith("linux"), reason="right: kernels run in TVM's pool here"
)


def told(code: str, **variables: str) -> list[str]:
    """Return the words of the line printed by a process that begins with START."""
    unset = ("TVM_NUM_THREADS", "OMP_NUM_THREADS", "CC", "CXX")
    environment = {name: value for name, value in os.environ.items() if name not in unset} | variables
    command = [sys.executable, "-c", START + code]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout.split()


@pytest.fixture(scope="module")
def plain() -> list[str]:
    """Return the number of threads that TVM uses by default."""
    return told("print(threads())")


def test_llvm_target_changes_neither_the_environment_nor_the_pool(plain):
    code = """
before = state(); tt.llvm_target(); print(state() == before)
before = state()[0]; kernel(); print(state()[0] == before, threads())
"""
    assert told(code) == ["True", "True", *plain]


@launched
@pytest.mark.parametrize(
    ("before", "variables", "cores"),
    [
        ("", {}, usable_core_count()),
        ("tt.use_all_cores(1)", {}, 1),
        ("", {"TVM_NUM_THREADS": "1"}, 1),
        ("tt.use_all_cores(1); product(kernel())(); tt.use_all_cores()", {}, usable_core_count()),
    ],
)
def test_kernels_run_by_launch_on_the_cores_they_are_told(before, variables, cores):
    assert told(f"{before}; print(helpers(product(kernel())))".lstrip("; "), **variables) == [str(cores - 1)]


@launched
def test_kernels_of_another_thread_run_by_launch_too(plain):
    code = """
def other():
    print(helpers(product(kernel())), threads())
one = threading.Thread(target=other); one.start(); one.join()
"""
    assert told(code) == [str(usable_core_count() - 1), *plain]


@launched
def test_kernels_of_plain_tvm_keep_its_pool_after_one_of_ours():
    code = """
product(kernel())()
a = te.placeholder((1 << 16,))
func = te.create_prim_func([a, te.compute((1 << 16,), lambda i: a[i] + 1.0)])
schedule = tvm.s_tir.Schedule(func)
(loop,) = schedule.get_loops(schedule.get_sblock("compute"))
schedule.parallel(loop)
x, y = (tvm.runtime.tensor(np.ones(1 << 16, "float32")) for _ in range(2))
run = tvm.compile(schedule.mod, target="llvm")["main"]
print(helpers(lambda: run(x, y)), (y.numpy() == 2).all())
"""
    assert told(code) == ["0", "True"]


def test_without_a_compiler_the_first_kernel_gives_the_pool_all_cores():
    code = "product(kernel())(); print(threads())"
    assert told(code, **WITHOUT_COMPILER) == [str(usable_core_count())]
    assert told(f"tt.use_all_cores(1); {code}", **WITHOUT_COMPILER) == ["1"]
    assert told(code, **WITHOUT_COMPILER, TVM_NUM_THREADS="1") == ["1"]


def test_a_kernel_in_a_relax_model_has_all_cores():
    code = """
from tvm.relax.frontend import nn
module, _ = nn.ReLU().export_tvm({"forward": {"x": nn.spec.Tensor((8, 8), "float32")}})
executable = tvm.compile(module, target=tt.llvm_target())
tvm.runtime.vm.VirtualMachine(executable, tvm.cpu())
print(threads())
"""
    assert told(code, **WITHOUT_COMPILER) == [str(usable_core_count())]


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
