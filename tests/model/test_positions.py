"""Indices out of range end a compilation or a run with one sentence, however the model is compiled and run."""

from __future__ import annotations

import re
import threading

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

import tvm_tiling as tt

EMBEDDING = np.arange(20, dtype="float32").reshape(5, 4)
INSIDE, OUTSIDE = np.array([0, -5, 4]), np.array([0, 7, 4])
SENTENCE = "node 'words' (Gather): index 7 at [1] is out of range; expected -5 to 4"


def gather_model(constant: np.ndarray | None = None):
    """An ONNX model: rows of a table, plus one."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"], name="words"),
        helper.make_node("Add", ["rows", "one"], ["out"], name="sum"),
    ]
    held = [numpy_helper.from_array(EMBEDDING, "table"), numpy_helper.from_array(np.float32(1), "one")]
    inputs = [helper.make_tensor_value_info("ids", TensorProto.INT64, [3])]
    if constant is not None:
        held.append(numpy_helper.from_array(constant, "ids"))
        inputs = []
        nodes.insert(0, helper.make_node("Identity", ["table_in"], ["table"]))
        held = [array for array in held if array.name != "table"]
        inputs = [helper.make_tensor_value_info("table_in", TensorProto.FLOAT, [5, 4])]
    outputs = [helper.make_tensor_value_info("out", TensorProto.FLOAT, [3, 4])]
    graph = helper.make_graph(nodes, "lookup", inputs, outputs, initializer=held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def relax_model(expr, *inputs: tuple[tuple[int, ...], str]) -> tvm.IRModule:
    """A Relax function of one expression over its inputs."""
    builder = relax.BlockBuilder()
    variables = [relax.Var(f"in_{i}", relax.TensorType(shape, dtype)) for i, (shape, dtype) in enumerate(inputs)]
    with builder.function("main", variables):
        with builder.dataflow():
            output = builder.emit_output(builder.emit(expr(*variables)))
        builder.emit_func_output(output)
    return builder.get()


@pytest.fixture(scope="module")
def executable():
    return tt.compile(gather_model(), cache=False)


def refused(call) -> str:
    """Return the message of the TilingError that `call` raises."""
    with pytest.raises(tt.TilingError) as raised:
        call()
    assert raised.value.__cause__ is None
    return str(raised.value)


def test_an_index_out_of_range_is_refused_by_the_name_of_its_node(executable):
    assert refused(lambda: executable.run(OUTSIDE)) == SENTENCE
    np.testing.assert_array_equal(executable.run(INSIDE), EMBEDDING[INSIDE] + 1)


@pytest.mark.parametrize("value", [5, -6, 2**31, -(2**31), 2**63 - 1, -(2**63)])
def test_every_index_out_of_range_is_refused(executable, value):
    assert f"index {value} at [2] is out of range" in refused(lambda: executable.run(np.array([0, 0, value])))


def test_a_constant_index_out_of_range_is_refused_when_compiled():
    assert refused(lambda: tt.compile(gather_model(OUTSIDE), cache=False)).endswith(SENTENCE)
    found = tt.compile(gather_model(INSIDE), cache=False).run(EMBEDDING)
    np.testing.assert_array_equal(found, EMBEDDING[INSIDE] + 1)


def test_a_check_is_one_kernel(executable):
    assert [operator.name for operator in executable.operators] == ["positions", "take", "add"]


def test_benchmark_refuses_indices_out_of_range(executable):
    assert refused(lambda: executable.benchmark(OUTSIDE, seconds=0.01)) == SENTENCE


def test_a_saved_executable_refuses_indices_out_of_range(executable, tmp_path):
    executable.save(tmp_path / "model.tar")
    loaded = tt.load(tmp_path / "model.tar")
    assert refused(lambda: loaded.run(OUTSIDE)) == SENTENCE
    np.testing.assert_array_equal(loaded.run(INSIDE), EMBEDDING[INSIDE] + 1)


def test_runs_beside_others_refuse_indices_out_of_range(executable):
    for _ in range(3):
        assert refused(lambda: tt.run_many([(executable, INSIDE), (executable, OUTSIDE)] * 4)) == SENTENCE
        for found in tt.run_many([(executable, INSIDE)] * 8):
            np.testing.assert_array_equal(found, EMBEDDING[INSIDE] + 1)


def test_threads_refuse_indices_out_of_range(executable):
    said: list[str] = []

    def work() -> None:
        for _ in range(20):
            said.append(refused(lambda: executable.run(OUTSIDE)))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == [SENTENCE] * 60


def test_tvm_compile_refuses_indices_out_of_range():
    module = relax_model(lambda x, i: relax.op.take(x, i, axis=0), ((5, 4), "float32"), ((3,), "int64"))
    machine = relax.VirtualMachine(tvm.compile(module, "llvm", relax_pipeline="tvm_tiling"), tvm.cpu())
    table = tvm.runtime.tensor(EMBEDDING)
    with pytest.raises(tt.WorkloadError, match=re.escape("take: index 7 at [1] is out of range; expected 0 to 4")):
        machine["main"](table, tvm.runtime.tensor(OUTSIDE))
    found = machine["main"](table, tvm.runtime.tensor(np.array([0, 2, 4]))).numpy()
    np.testing.assert_array_equal(found, EMBEDDING[[0, 2, 4]])


def test_tvm_compile_refuses_indices_into_dynamic_shapes():
    rows = tvm.tirx.Var("rows", "int64")
    module = relax_model(lambda x, i: relax.op.take(x, i, axis=0), ((rows, 4), "float32"), ((rows,), "int64"))
    machine = relax.VirtualMachine(tvm.compile(module, "llvm", relax_pipeline="tvm_tiling"), tvm.cpu())
    for count in (5, 3):
        table, places = tvm.runtime.tensor(EMBEDDING[:count]), np.arange(count)[::-1].copy()
        found = machine["main"](table, tvm.runtime.tensor(places)).numpy()
        np.testing.assert_array_equal(found, EMBEDDING[places])
        places[1] = count
        expected = f"take: index {count} at [1] is out of range; expected 0 to {count - 1}"
        with pytest.raises(tt.WorkloadError, match=re.escape(expected)):
            machine["main"](table, tvm.runtime.tensor(places))


def test_an_accelerated_model_refuses_indices_out_of_range():
    weights = np.ones((16, 16), "int8")
    table = np.arange(80).reshape(5, 16).astype("int8")

    def expr(ids):
        rows = relax.op.take(relax.const(table, "int8"), ids, axis=0)
        return relax.op.matmul(rows, relax.const(weights, "int8"), out_dtype="int32")

    executable = tt.compile(relax_model(expr, ((3,), "int64")), target="vsim/vta", cache=False)
    np.testing.assert_array_equal(executable.run(np.array([0, 1, 4])), table[[0, 1, 4]].astype("int32") @ weights)
    assert refused(lambda: executable.run(OUTSIDE)) == "take: index 7 at [1] is out of range; expected 0 to 4"


def test_torch_compile_refuses_indices_out_of_range():
    torch = pytest.importorskip("torch")
    net = torch.nn.Embedding(5, 4).eval()
    compiled = torch.compile(net, backend="tvm_tiling")
    with torch.no_grad():
        torch.testing.assert_close(compiled(torch.tensor([0, 4])), net(torch.tensor([0, 4])))
        with pytest.raises(tt.WorkloadError, match="is out of range; expected 0 to 4"):
            compiled(torch.tensor([0, 5]))


FLOAT, INT = "float32", "int64"
CONSTANTS = {
    "gather_elements: 5 indices along dimension 0 are too many; expected at most 3": lambda x: relax.op.gather_elements(
        x, relax.const(np.zeros((5, 2), INT), INT), 1
    ),
    "scatter_elements: 4 indices along dimension 0 are too many; expected at most 3": lambda x: (
        relax.op.scatter_elements(
            x, relax.const(np.zeros((4, 2), INT), INT), relax.const(np.zeros((4, 2), FLOAT), FLOAT), 1
        )
    ),
    "take: index 7 is out of range; expected 0 to 2": lambda x: relax.op.take(x, relax.prim_value(7), 0),
    "topk: k is 5; expected at most 4": lambda x: relax.op.topk(x, 5, 1, ret_type="values"),
    "index_put: shapes [2], [3] do not broadcast": lambda x: relax.op.index_put(
        x,
        relax.Tuple([relax.const(np.zeros(2, INT), INT)] * 2),
        relax.const(np.zeros(3, FLOAT), FLOAT),
    ),
    "reverse_sequence: length 4 at [0] is out of range; expected 0 to 3": lambda x: relax.op.reverse_sequence(
        x, relax.const(np.full(4, 4), INT), 0, 1
    ),
}


@pytest.mark.parametrize("sentence", CONSTANTS)
def test_what_reaches_outside_by_its_constants_is_refused_when_compiled(sentence):
    assert refused(lambda: tt.compile(relax_model(CONSTANTS[sentence], ((3, 4), FLOAT)), cache=False)) == sentence


def test_a_slice_of_computed_bounds_stays_inside():
    module = relax_model(relax.op.dynamic_strided_slice, ((3, 4), FLOAT), ((2,), INT), ((2,), INT), ((2,), INT))
    executable, x = tt.compile(module, cache=False), np.arange(12, dtype=FLOAT).reshape(3, 4)
    for begin, end, step in (((0, 1), (3, 4), (1, 2)), ((-100, 1), (3, 2**62), (2, 2)), ((2, 3), (-9, -9), (-1, -2))):
        taken = tuple(slice(*span) for span in zip(begin, end, step, strict=True))
        found = executable.run(x, *(np.array(given, INT) for given in (begin, end, step)))
        np.testing.assert_array_equal(found, x[taken])
    said = refused(lambda: executable.run(x, *(np.array(given, INT) for given in ((0, 1), (3, 4), (1, 0)))))
    assert said.startswith("dynamic_strided_slice: absolute stride 0 at [1] is out of range; expected 1 to ")


def test_counts_of_boxes_out_of_range_are_refused():
    module = relax_model(
        lambda x, count, i: relax.op.vision.non_max_suppression(x, count, i, return_indices=False),
        ((1, 5, 6), FLOAT),
        ((1,), "int32"),
        ((1, 5), "int32"),
    )
    executable, boxes = tt.compile(module, cache=False), np.random.default_rng(0).random((1, 5, 6), FLOAT)
    for count in (-1, 6, 2**31 - 1):
        said = refused(lambda count=count: executable.run(boxes, np.array([count], "int32"), np.zeros((1, 5), "int32")))
        assert said == f"non_max_suppression: count of boxes {count} at [0] is out of range; expected 0 to 5"


def test_lengths_of_recurrent_layers_out_of_range_are_refused():
    steps, batch, size, hidden = 4, 2, 3, 5
    arrays = np.random.default_rng(1)
    held = {"w": (1, 4 * hidden, size), "r": (1, 4 * hidden, hidden), "b": (1, 8 * hidden)}
    node = helper.make_node("LSTM", ["x", "w", "r", "b", "lengths"], ["y"], name="steps", hidden_size=hidden)
    graph = helper.make_graph(
        [node],
        "lstm",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [steps, batch, size]),
            helper.make_tensor_value_info("lengths", TensorProto.INT32, [batch]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [steps, 1, batch, hidden])],
        initializer=[numpy_helper.from_array(arrays.random(shape, FLOAT), name) for name, shape in held.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    executable, x = tt.compile(model, cache=False), arrays.random((steps, batch, size), FLOAT)
    assert executable.run(x, np.array([4, 1], "int32")).shape == (steps, 1, batch, hidden)
    for length in (-1, 5, 2**31 - 1):
        said = refused(lambda length=length: executable.run(x, np.array([4, length], "int32")))
        assert said == f"node 'steps' (LSTM): length {length} at [1] is out of range; expected 0 to 4"


@pytest.mark.parametrize("axis", [0, 1])
def test_large_tensors_of_indices_are_checked_and_scattered_in_shares(axis):
    shape = (210, 220)
    module = relax_model(
        lambda x, i, new: relax.op.scatter_elements(x, i, new, axis, "add"),
        (shape, FLOAT),
        (shape, INT),
        (shape, FLOAT),
    )
    executable, arrays = tt.compile(module, cache=False), np.random.default_rng(2)
    x, new = (arrays.integers(-9, 9, shape).astype(FLOAT) for _ in range(2))
    places = arrays.integers(-shape[axis], shape[axis], shape)
    expected, rest = x.copy(), np.broadcast_to(np.arange(shape[1 - axis]).reshape((-1, 1) if axis else (1, -1)), shape)
    np.add.at(expected, (rest, places) if axis else (places, rest), new)
    np.testing.assert_array_equal(executable.run(x, places, new), expected)
    places[190, 7] = shape[axis]
    low, high = -shape[axis], shape[axis] - 1
    said = f"scatter_elements: index {shape[axis]} at [190, 7] is out of range; expected {low} to {high}"
    assert refused(lambda: executable.run(x, places, new)) == said


@pytest.mark.parametrize("behind", [0, 1])
def test_an_index_that_is_made_of_a_dynamic_shape_is_checked(behind):
    rows = tvm.tirx.Var("rows", "int64")
    last = relax.prim_value(rows - 1 + behind)
    module = relax_model(lambda x: relax.op.take(x, last, axis=0), ((rows, 4), FLOAT))
    machine = relax.VirtualMachine(tvm.compile(module, "llvm", relax_pipeline="tvm_tiling"), tvm.cpu())
    if behind:
        with pytest.raises(tt.WorkloadError, match="take: index 5 is out of range; expected 0 to 4"):
            machine["main"](tvm.runtime.tensor(EMBEDDING))
    else:
        np.testing.assert_array_equal(machine["main"](tvm.runtime.tensor(EMBEDDING)).numpy(), EMBEDDING[4])
