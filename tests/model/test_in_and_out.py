"""Memory of inputs and outputs: addresses in kernels, refusals, copies, and what stays untouched."""

from __future__ import annotations

import ctypes
import gc
import signal
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import Network, residual_network
from onnx import TensorProto, helper
from tvm import relax
from tvm.relax import op

import tvm_tiling as tt
from tvm_tiling.errors import WorkloadError
from tvm_tiling.runtime.plan_runner import PlanInstance

SHAPE = (6, 16)
# From plan.c: where an instance holds the address of its DLTensors, and the bytes of each; its memory is first in it.
TENSORS, TENSOR_BYTES = 72, 48
DTYPES = ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool"]


def numpy_kind(dtype: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)


def place(shape, dtype: str, offset: int, gap: int = 1) -> np.ndarray:
    """Return an array that starts `offset` elements after a multiple of 64 bytes, with every `gap`-th element as last
    axis."""
    wide = (*shape[:-1], shape[-1] * gap)
    raw = tt.aligned_empty(int(np.prod(wide)) + offset + 8, dtype)
    return raw[offset : offset + int(np.prod(wide))].reshape(wide)[..., ::gap]


def values(shape, dtype: str, seed: int = 0) -> np.ndarray:
    found = np.random.default_rng(seed).integers(0, 9, shape)
    return (found % 2 if dtype == "bool" else found).astype(numpy_kind(dtype))


def elements(dtype: str) -> tvm.IRModule:
    """x itself; a function of x and y, and a view of it."""
    builder = relax.BlockBuilder()
    x, y = (relax.Var(name, relax.TensorType(SHAPE, dtype)) for name in "xy")
    with builder.function("main", [x, y]):
        with builder.dataflow():
            both = builder.emit(op.logical_or(x, y) if dtype == "bool" else op.maximum(x, y))
            results = [x, both, op.reshape(both, (96,))]
            output = builder.emit_output(relax.Tuple([builder.emit(result) for result in results]))
        builder.emit_func_output(output)
    return builder.finalize()


def wanted(x, y):
    both = np.maximum(x, y)
    return [x, both, both.reshape(96)]


COMPILED: dict[str, tt.Executable] = {}


def compiled(dtype: str = "float32") -> tt.Executable:
    if dtype not in COMPILED:
        COMPILED[dtype] = tt.compile(elements(dtype), cache=False)
    return COMPILED[dtype]


def outputs(dtype: str = "float32") -> list[np.ndarray]:
    return [tt.aligned_empty(shape, dtype) for shape in (SHAPE, SHAPE, (96,))]


@pytest.fixture
def seen(monkeypatch):
    """Return the addresses of all kernel arguments."""
    found: list[int] = []

    run = PlanInstance.run

    def noted(self, buffers, seconds=None):
        run(self, buffers, seconds)
        tensors = ctypes.c_void_p.from_address(self.address + TENSORS).value
        count = len(self._runner.plan.tensors)
        found.extend(ctypes.c_void_p.from_address(tensors + number * TENSOR_BYTES).value for number in range(count))

    monkeypatch.setattr(PlanInstance, "run", noted)
    monkeypatch.setattr(sys.modules[__name__], "COMPILED", {})
    return found


# ---- addresses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool", "int8"])
def test_kernels_read_and_write_the_memory_that_is_given(seen, dtype):
    exe, (x, y), out = compiled(dtype), (tt.aligned_empty(SHAPE, dtype) for _ in range(2)), outputs(dtype)
    x[...], y[...] = values(SHAPE, dtype, 1), values(SHAPE, dtype, 2)
    y.flags.writeable = False
    found = exe.run(x, y, out=out)
    assert all(a is b for a, b in zip(found, out, strict=True))
    assert {x.ctypes.data, y.ctypes.data, out[1].ctypes.data} <= set(seen)
    for got, value in zip(found, wanted(x, y), strict=True):
        np.testing.assert_array_equal(got, value)


@pytest.mark.parametrize("dtype", DTYPES)
def test_memory_aligned_to_its_elements_is_not_copied(seen, dtype):
    exe, (x, y), out = compiled(dtype), (place(SHAPE, dtype, 1) for _ in range(2)), outputs(dtype)
    x[...], y[...] = values(SHAPE, dtype, 1), values(SHAPE, dtype, 2)
    out[1] = place(SHAPE, dtype, 3)
    found = exe.run(x, y, out=out)
    assert {x.ctypes.data, y.ctypes.data, out[1].ctypes.data} <= set(seen)
    for got, value in zip(found, wanted(x, y), strict=True):
        np.testing.assert_array_equal(got, value)


def test_memory_between_the_places_of_elements_is_copied(seen):
    def between(shape) -> np.ndarray:
        size = 4 * int(np.prod(shape))
        return tt.aligned_empty(size + 64, "uint8")[2 : size + 2].view("float32").reshape(shape)

    exe, (x, y), out = compiled(), (between(SHAPE) for _ in range(2)), outputs()
    x[...], y[...] = values(SHAPE, "float32", 1), values(SHAPE, "float32", 2)
    out[1] = between(SHAPE)
    found = exe.run(x, y, out=out)
    assert not {x.ctypes.data, y.ctypes.data, out[1].ctypes.data} & set(seen)
    assert all(address % 64 == 0 for address in seen)
    for got, value in zip(found, wanted(x, y), strict=True):
        np.testing.assert_array_equal(got, value)


def test_a_last_operator_that_is_reshaped_writes_there_too(seen):
    def flat(net, x):
        return net.emit(op.reshape(net.emit(op.nn.relu(net.emit(op.matmul(x, net.c(16, 5))))), (30,)))

    net = Network(SHAPE)
    exe, (x,) = tt.compile(net.module(flat), cache=False), net.arrays()
    out = tt.aligned_empty(30)
    assert exe.run(x, out=out) is out and out.ctypes.data in seen
    np.testing.assert_array_equal(out, exe.run(x))


@settings(max_examples=30)
@given(
    dtype=st.sampled_from(DTYPES),
    offsets=st.tuples(*[st.sampled_from([0, 0, 1, 3, 8])] * 5),
    gaps=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    read_only=st.tuples(st.booleans(), st.booleans()),
    turned=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_strides_offsets_and_types(dtype, offsets, gaps, read_only, turned, seed):
    inputs = []
    for number, gap in enumerate(gaps):
        array = (
            place(SHAPE[::-1], dtype, offsets[number], gap).T if turned else place(SHAPE, dtype, offsets[number], gap)
        )
        array[...] = values(SHAPE, dtype, seed + number)
        array.flags.writeable = not read_only[number]
        inputs.append(array)
    before = [array.copy() for array in inputs]
    out = [place(shape, dtype, offset) for shape, offset in zip((SHAPE, SHAPE, (96,)), offsets[2:], strict=True)]
    exe = compiled(dtype)
    for found in (exe.run(*inputs, out=tuple(out)), exe.run(*inputs)):
        for got, value in zip(found, wanted(*before), strict=True):
            np.testing.assert_array_equal(got, value)
    for array, was in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(array, was)


def test_axes_of_one_element_may_have_any_stride():
    def double(net, x):
        return net.emit(op.add(x, x))

    exe = tt.compile(Network((1, 8, 1)).module(double), cache=False)
    memory = tt.aligned_empty(64)
    memory[...] = np.arange(64)
    x = np.lib.stride_tricks.as_strided(memory, (1, 8, 1), (1000, 4, 12))
    out = np.lib.stride_tricks.as_strided(tt.aligned_empty(64), (1, 8, 1), (12, 4, 400))
    assert exe.run(x, out=out) is out
    np.testing.assert_array_equal(out, 2 * x)


def test_network_into_given_memory_equals_the_run():
    net = Network((1, 3, 32, 32))
    exe, (x,) = tt.compile(net.module(residual_network), cache=False), net.arrays()
    expected = exe.run(x)
    out = tt.aligned_empty(expected.shape)
    for _ in range(3):
        out[...] = np.nan
        np.testing.assert_array_equal(exe.run(x, out=out), expected)


def test_sizes_that_the_data_decides():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((8,), "bool"))
    with builder.function("main", [x]):
        with builder.dataflow():
            places = builder.emit(op.nonzero(x))
            output = builder.emit_output(relax.Tuple([places, builder.emit(op.logical_not(x))]))
        builder.emit_func_output(output)
    exe = tt.compile(builder.finalize(), cache=False)
    given = np.array([0, 1, 1, 0, 0, 1, 0, 0], "bool")
    out = np.zeros((1, 3), "int64"), tt.aligned_empty(8, "bool")
    assert exe.run(given, out=out)[0] is out[0]
    np.testing.assert_array_equal(out[0], [[1, 2, 5]])
    np.testing.assert_array_equal(out[1], ~given)
    with pytest.raises(WorkloadError, match=r"has shape \(1, 4\); expected \(1, 3\)"):
        exe.run(given, out=(np.zeros((1, 4), "int64"), out[1]))


def test_each_variant_has_its_shapes():
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 5])],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    exe = tt.compile(proto, batch=[2, 7], cache=False)
    for rows in (2, 7):
        x, out = values((rows, 5), "float32") - 4, tt.aligned_empty((rows, 5))
        np.testing.assert_array_equal(exe.run(x, out=out), np.maximum(x, 0))
        with pytest.raises(WorkloadError, match=rf"has shape \(3, 5\); expected \({rows}, 5\)"):
            exe.run(x, out=np.zeros((3, 5), "float32"))


# ---- overlap ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [-16, -5, 0, 3, 16])
def test_an_output_over_an_input_is_right(shift):
    memory = tt.aligned_empty(256)
    x, y = memory[32:128].reshape(SHAPE), values(SHAPE, "float32", 2)
    x[...] = values(SHAPE, "float32", 1)
    expected = [value.copy() for value in wanted(x, y)]
    start = 32 + shift
    out = [tt.aligned_empty(SHAPE), memory[start : start + 96].reshape(SHAPE), tt.aligned_empty(96)]
    for got, value in zip(compiled().run(x, y, out=out), expected, strict=True):
        np.testing.assert_array_equal(got, value)


def test_an_output_over_an_input_that_is_an_output_too():
    """Two outputs are the input itself: it is read after the first of them is written."""
    x, y = tt.aligned_empty(SHAPE), values(SHAPE, "float32", 2)
    x[...] = values(SHAPE, "float32", 1)
    expected = [value.copy() for value in wanted(x, y)]
    out = [tt.aligned_empty(SHAPE), x, tt.aligned_empty(96)]
    for got, value in zip(compiled().run(x, y, out=out), expected, strict=True):
        np.testing.assert_array_equal(got, value)


# ---- what is refused -------------------------------------------------------------------------------------------------


def read_only(shape):
    array = np.zeros(shape, "float32")
    array.flags.writeable = False
    return array


ZEROS = np.zeros(SHAPE, "float32")
REFUSED = {
    "too few": ([ZEROS], "the number of arrays in out is 1; expected 3: 'output_0', 'output_1', 'output_2'"),
    "one array": (ZEROS, "the number of arrays in out is 1; expected 3"),
    "shape": (
        [ZEROS, np.zeros((16, 6), "float32"), np.zeros(96, "float32")],
        "'output_1' has shape (16, 6); expected (6,",
    ),
    "type": ([ZEROS, np.zeros(SHAPE), np.zeros(96, "float32")], "'output_1' has type float64; expected float32"),
    "byte order": (
        [ZEROS.astype(">f4"), ZEROS.copy(), np.zeros(96, "float32")],
        "'output_0' has type >f4; expected float32",
    ),
    "gaps": ([np.zeros((6, 32), "float32")[:, ::2], ZEROS, np.zeros(96, "float32")], "'output_0' has strides (128, 8)"),
    "read-only": ([ZEROS, ZEROS.copy(), read_only(96)], "'output_2' is read-only"),
    "twice": ([ZEROS, ZEROS, np.zeros(96, "float32")], "'output_1' shares memory with another output"),
    "a list": (
        [ZEROS, [1.0], np.zeros(96, "float32")],
        "'output_1' has type list; expected a writable contiguous array",
    ),
    "a name": ({"output_0": ZEROS, "other": ZEROS}, "no output 'other'"),
    "a missing name": ({"output_0": ZEROS}, "out 'output_1' is missing"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_written_to(what):
    out, message = REFUSED[what]
    x = values(SHAPE, "float32")
    with pytest.raises(WorkloadError) as error:
        compiled().run(x, x, out=out)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_outputs_by_name_and_as_other_arguments():
    x, y = values(SHAPE, "float32", 1), values(SHAPE, "float32", 2)
    names = compiled().signature.output_names
    out = dict(zip(names, outputs(), strict=True))
    found = compiled().run(y=y, x=x, out=dict(reversed(out.items())))
    assert all(got is out[name] for got, name in zip(found, names, strict=True))
    np.testing.assert_array_equal(out["output_1"], np.maximum(x, y))
    single = tt.compile(Network(SHAPE).module(lambda net, v: net.emit(op.nn.relu(v))), cache=False)
    place_of_one = tt.aligned_empty(SHAPE)
    for form in (place_of_one, (place_of_one,), {single.signature.output_names[0]: place_of_one}):
        assert single.run(x, out=form) is place_of_one
    tensor = tvm.runtime.empty(SHAPE, "float32")
    assert single.run(x, out=tensor) is tensor
    np.testing.assert_array_equal(tensor.numpy(), x)


def test_an_input_called_out_is_meant_by_its_name():
    builder = relax.BlockBuilder()
    x = relax.Var("out", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            output = builder.emit_output(op.nn.relu(x))
        builder.emit_func_output(output)
    exe = tt.compile(builder.finalize(), cache=False)
    np.testing.assert_array_equal(exe.run(out=ZEROS), ZEROS)


# ---- references, threads, files --------------------------------------------------------------------------------------


def test_nothing_keeps_an_array_after_its_run():
    net = Network(SHAPE, SHAPE)
    exe = tt.compile(net.module(lambda n, x, y: n.emit(op.maximum(x, y))), cache=False)
    arrays = [tt.aligned_empty(SHAPE) for _ in range(3)]
    for array in arrays:
        array[...] = 1
    watched = [weakref.ref(array.base) for array in arrays]
    exe.run(*arrays[:2], out=arrays[2])
    exe.run(*arrays[:2])
    exe.run(*arrays[:2], out=arrays[2])
    del array, arrays
    gc.collect()
    assert [reference() is None for reference in watched] == [True] * 3


def test_threads_write_to_memory_of_their_own():
    net = Network((1, 3, 32, 32))
    exe, _ = tt.compile(net.module(residual_network), cache=False), net.arrays()
    arrays = [np.random.default_rng(n).uniform(-1, 1, (1, 3, 32, 32)).astype("float32") for n in range(4)]
    expected = [exe.run(x) for x in arrays]
    wrong = []

    def work(number: int) -> None:
        x, out = tt.aligned_empty((1, 3, 32, 32)), tt.aligned_empty(expected[number].shape)
        x[...] = arrays[number]
        for _ in range(20):
            out[...] = np.nan
            if not np.array_equal(exe.run(x, out=out), expected[number]):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_runs_beside_each_other_take_memory_as_it_is():
    exe = compiled()
    arrays = []
    for number in range(6):
        x, y = tt.aligned_empty(SHAPE), place(SHAPE, "float32", 1)
        x[...], y[...] = values(SHAPE, "float32", number), values(SHAPE, "float32", 50 + number)
        arrays.append((x, y))
    for _ in range(8):
        for (x, y), found in zip(arrays, tt.run_many([(exe, pair) for pair in arrays]), strict=True):
            for got, value in zip(found, wanted(x, y), strict=True):
                np.testing.assert_array_equal(got, value)
                assert not np.shares_memory(got, x)


def test_a_loaded_model_writes_there_too(tmp_path, seen):
    compiled().save(tmp_path / "model.tar")
    loaded = tt.load(tmp_path / "model.tar")
    x, out = values(SHAPE, "float32"), outputs()
    loaded.run(x, x, out=out)
    assert out[1].ctypes.data in seen and loaded.signature == compiled().signature


def test_a_run_that_is_refused_leaves_the_next_one_right():
    builder = relax.BlockBuilder()
    data, at = (
        relax.Var("data", relax.TensorType((4, 8), "float32")),
        relax.Var("at", relax.TensorType((3,), "int64")),
    )
    with builder.function("main", [data, at]):
        with builder.dataflow():
            output = builder.emit_output(op.take(data, at, axis=0))
        builder.emit_func_output(output)
    exe, table, out = tt.compile(builder.finalize(), cache=False), values((4, 8), "float32"), tt.aligned_empty((3, 8))
    with pytest.raises(tt.TilingError, match="9"):
        exe.run(table, np.array([0, 9, 1]), out=out)
    np.testing.assert_array_equal(exe.run(table, np.array([2, 0, 1]), out=out), table[[2, 0, 1]])


# ---- accelerators ----------------------------------------------------------------------------------------------------


def test_programs_take_memory_too():
    exe = tt.compile(tt.GemmWorkload(m=16, n=16, k=16, dtype="int8"), target="vsim/vta")
    a = np.random.default_rng(0).integers(-9, 9, (16, 16)).astype("int8")
    out = np.zeros((16, 16), "int32")
    assert exe.run(a, a, out=out) is out
    np.testing.assert_array_equal(out, a.astype("int32") @ a.astype("int32"))
    np.testing.assert_array_equal(exe(a, a), out)
    with pytest.raises(WorkloadError, match="expected int32"):
        exe.run(a, a, out=np.zeros((16, 16), "int8"))


def test_models_on_accelerators_take_memory_too():
    net = Network((16, 16))
    (x,) = net.arrays()
    module = net.module(lambda n, v: n.emit(op.nn.softmax(n.emit(op.matmul(v, n.c(16, 16))))))
    exe = tt.compile(module, target="vsim/vta", calibration=[x], cache=False)
    expected, out = exe.run(x), tt.aligned_empty((16, 16))
    assert exe.run(x, out=out) is out
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(exe(x), expected)


# ---- what lies around ------------------------------------------------------------------------------------------------


def guarded(wrong: str) -> subprocess.CompletedProcess[str]:
    program = Path(__file__).parent / "in_guarded_memory.py"
    return subprocess.run([sys.executable, str(program), wrong], capture_output=True, text=True, timeout=600)


@pytest.mark.skipif(sys.platform != "linux", reason="protects pages as Linux does")
def test_nothing_around_inputs_and_outputs_is_touched():
    pytest.importorskip("onnxruntime")
    done = guarded("")
    assert done.returncode == 0, f"{done.stdout[-600:]}\n{done.stderr[-1000:]}"


@pytest.mark.skipif(sys.platform != "linux", reason="protects pages as Linux does")
@pytest.mark.parametrize("wrong", ["write an input", "read behind"])
def test_what_touches_them_is_noticed(wrong):
    pytest.importorskip("onnxruntime")
    assert guarded(wrong).returncode == -signal.SIGSEGV
