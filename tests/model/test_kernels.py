"""Kernels: compiled once for equal functions, stored by content, named afterwards; checks of arguments."""

from __future__ import annotations

import _thread
import subprocess
import sys
import threading

import numpy as np
import pytest
import tvm
from interrupts import ends_with
from networks import Network
from tvm import relax, te, tirx, topi

import tvm_tiling as tt
from tvm_tiling.model import kernels as kernels_module
from tvm_tiling.model.build_progress import BuildProgress
from tvm_tiling.model.cache_folder import CacheFolder
from tvm_tiling.model.kernel_cache import KernelCache
from tvm_tiling.model.kernels import Kind, kernels_for, trusted
from tvm_tiling.model.link import link_objects
from tvm_tiling.model.machine_code import object_of
from tvm_tiling.model.object_names import has_symbols, renamed
from tvm_tiling.model.operators import _given
from tvm_tiling.schedule import llvm_target, this_cpu
from tvm_tiling.temporary import temporary_folder

SHAPE = (4, 8)


def product(extent=8, name="main"):
    a, b = te.placeholder((4, extent), "float32", "A"), te.placeholder((extent, 16), "float32", "B")
    return tt.tiling_schedule(topi.matmul(a, b)).mod["main"].with_attr("global_symbol", name)


def two_layers(net, x):
    return relax.op.nn.relu(relax.op.matmul(relax.op.tanh(relax.op.matmul(x, net.c(8, 8))), net.c(8, 24)))


def module(seed=0):
    return Network(SHAPE, seed=seed).module(two_layers)


@pytest.fixture
def compiled(monkeypatch):
    """Record the names of functions that LLVM compiles during the test."""
    names, lock, make = [], threading.Lock(), kernels_module.object_of

    def noted(func, target):
        with lock:
            names.append(str(func.attrs.get("global_symbol", "")))
        return make(func, target)

    monkeypatch.setattr(kernels_module, "object_of", noted)
    return names


def test_equal_functions_are_compiled_once_and_called_by_both_names(compiled):
    a, b = np.ones((4, 8), "float32"), np.arange(128, dtype="float32").reshape(8, 16)
    with kernels_for(this_cpu()) as kernels:
        functions = {"first": product(name="first"), "second": product(name="other"), "third": product(9)}
        objects = kernels.objects(functions, lambda _: Kind.SCHEDULED)
    assert len(compiled) == 2 and len(objects) == 3
    with temporary_folder() as folder:
        library = link_objects(objects, folder).module
    for name in ("first", "second"):
        out = tvm.runtime.tensor(np.zeros((4, 16), "float32"))
        library[name](tvm.runtime.tensor(a), tvm.runtime.tensor(b), out)
        np.testing.assert_allclose(out.numpy(), a @ b)


def test_the_same_function_gives_the_same_object_file():
    """On this the cache relies, and the suite itself, which compiles equal kernels of different tests once."""
    first, second = (object_of(product(), llvm_target()) for _ in range(2))
    assert first == second and first != object_of(product(9), llvm_target())


def test_another_model_takes_the_kernels_that_it_shares(compiled, tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_TILING_CACHE", str(tmp_path))
    x = Network(SHAPE).arrays()[0]
    first = tt.compile(module())
    made, kept = len(compiled), sorted(tmp_path.glob("*.kernel"))
    assert 2 < made <= len(kept)  # the plan's runner is cached, too, by the first model of a process
    second = tt.compile(module(seed=1))  # other weights: another model with the same kernels
    assert len(compiled) == made and not second.from_cache
    assert sorted(tmp_path.glob("*.kernel")) == kept
    alone = tt.compile(module(seed=1), cache=False)
    assert len(compiled) == 2 * made
    np.testing.assert_array_equal(second.run(x), alone.run(x))
    assert np.abs(first.run(x) - second.run(x)).max() > 0
    assert second.variants[0].library.content == alone.variants[0].library.content  # as if there were no cache


def test_calibration_takes_kernels_of_the_cache(compiled, tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_TILING_CACHE", str(tmp_path))
    x = Network(SHAPE).arrays()[0]
    tt.compile(module(), precision="int8", calibration=[x])
    made = len(compiled)
    tt.compile(module(), precision="int8", calibration=[x / 2])  # another model: its scales differ
    uncached = len(compiled) - made
    tt.compile(module(), precision="int8", calibration=[x / 4], cache=False)
    alone = len(compiled) - made - uncached
    assert uncached < alone - 2  # the calibration model, which runs twice in floats, is not compiled again


@pytest.mark.parametrize("damage", ["cut", "changed", "everybody's"])
def test_a_corrupted_or_foreign_kernel_counts_as_absent(damage, tmp_path):
    cache = KernelCache(CacheFolder(tmp_path, limit=1 << 20))
    key = cache.key("x")
    cache.put(key, b"machine code")
    assert cache.get(key) == b"machine code"
    (path,) = tmp_path.iterdir()
    if damage == "everybody's":
        path.chmod(0o666)
    else:
        path.write_bytes(path.read_bytes()[:-1] + (b"" if damage == "cut" else b"!"))
    assert cache.get(key) is None


def test_a_cache_of_size_0_keeps_nothing(compiled, tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_TILING_CACHE", str(tmp_path))
    monkeypatch.setenv("TVM_TILING_CACHE_SIZE", "0")
    tt.compile(module())
    assert compiled and not list(tmp_path.iterdir())


def test_progress_is_reported_for_every_kernel(capfd):
    told: list[BuildProgress] = []
    tt.compile(module(), cache=False, progress=told.append)
    assert [progress.done for progress in told] == list(range(1, len(told) + 1))
    assert told[-1].of == told[-1].done > 2 and all(progress.done <= progress.of for progress in told)
    tt.compile(module(), cache=False, progress=True)
    assert capfd.readouterr() == ("", "")  # which is not a terminal


def test_an_error_of_a_kernel_is_raised_and_ends_the_threads(monkeypatch):
    def failing(*_):
        raise tt.WorkloadError("as wanted")

    before = _thread._count()
    monkeypatch.setattr(kernels_module, "object_of", failing)
    with pytest.raises(tt.WorkloadError, match="as wanted"):
        tt.compile(module(), cache=False)
    assert ends_with(before)


def test_an_error_of_the_progress_function_ends_the_compilation():
    def failing(_: BuildProgress) -> None:
        raise ZeroDivisionError("as wanted")

    before = _thread._count()
    with pytest.raises(ZeroDivisionError, match="as wanted"):
        tt.compile(module(), cache=False, progress=failing)
    assert ends_with(before)


def test_only_kernels_that_are_given_arguments_check_them():
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            viewed = builder.emit(relax.op.reshape(x, (8, 4)))
            first = builder.emit_te(topi.tanh, viewed, primfunc_name_hint="first")
            last = builder.emit_output(builder.emit_te(topi.exp, first, primfunc_name_hint="last"))
        builder.emit_func_output(last)
    assert {variable.name_hint for variable in _given(builder.get()["main"])} == {"first"}


@pytest.mark.parametrize(
    ("kind", "compiler", "level"),
    [(Kind.SCHEDULED, "gcc", 1), (Kind.ADDED, "gcc", 1), (Kind.PACKING, "gcc", 0), (Kind.PACKING, None, 1)],
)
def test_llvm_does_not_optimise_what_runs_once_where_the_jit_does_not_link(kind, compiler, level, monkeypatch):
    levels = []
    monkeypatch.setattr(
        kernels_module, "object_of", lambda _, target: levels.append(target.attrs.get("opt-level")) or b""
    )
    monkeypatch.setattr(kernels_module.cc, "get_cc", lambda: compiler)
    with kernels_for(this_cpu()) as kernels:
        kernels.start(product(), kind).get()
    assert levels == [level]


def test_tvms_linker_is_there_before_there_are_threads():
    """It registers types, and TVM's passes read the table of types without a lock."""
    program = (
        "import sys, tvm_tiling as tt\n"
        "from tvm.support import cc\n"
        "from tvm_tiling.model.kernels import kernels_for\n"
        "cc.get_cc = lambda: None\n"
        "assert 'tvm_ffi_orcjit' not in sys.modules\n"
        "kernels_for(tt.Hardware.detect())\n"
        "assert 'tvm_ffi_orcjit' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_functions_of_open_sizes_compare_them(tmp_path):
    n = tirx.Var("n", "int64")
    a = te.placeholder((n,), "float32", "A")
    func = trusted(te.create_prim_func([a, topi.exp(a)]))
    with kernels_for(this_cpu()) as kernels:
        module = link_objects(kernels.objects({"exp": func}, lambda _: Kind.SCHEDULED), tmp_path).module
    given, made = (tvm.runtime.tensor(np.zeros(5, "float32")) for _ in range(2))
    module["exp"](given, made)
    np.testing.assert_array_equal(made.numpy(), np.ones(5, "float32"))
    with pytest.raises(Exception, match="shape"):
        module["exp"](given, tvm.runtime.tensor(np.zeros(4, "float32")))


def test_renamed_symbols_are_found_by_a_linker(tmp_path):
    with kernels_for(this_cpu()) as kernels:
        (content,) = kernels.objects({"f" * 300: product()}, lambda _: Kind.SCHEDULED)
    if not has_symbols(content):
        pytest.skip("objects of another format")
    path = tmp_path / "kernel.o"
    path.write_bytes(renamed(content, lambda name: name.replace("f" * 300, "short")))
    said = subprocess.run(["nm", str(path)], capture_output=True, text=True, check=False)
    assert said.returncode == 0 and "T __tvm_ffi_short\n" in said.stdout and "f" * 300 not in said.stdout
    assert renamed(content, lambda name: name) == content
