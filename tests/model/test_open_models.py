"""Models with dynamic shapes: one executable for every batch and length."""

from __future__ import annotations

import json
import tarfile
import threading

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_tiling as tt
from tvm_tiling.errors import ModelFormatError, UnsupportedOperator, WorkloadError
from tvm_tiling.model.planned_variant import PlannedVariant
from tvm_tiling.runtime.open_plan import OpenPlan, plan_of
from tvm_tiling.runtime.plan_tables import MOST_ELEMENTS, OpenTables
from tvm_tiling.sizes import Guard, Named, OpenSize, OpenSizes, Operation, evaluated, from_plain, to_plain

RNG = np.random.default_rng(0)
WEIGHTS = RNG.uniform(-1, 1, (24, 40)).astype("float32")
PLACES = RNG.uniform(-1, 1, (1, 64, 24)).astype("float32")


def tokens():
    """softmax(relu((x + places[:, :length]) w)), and the sum of x: (batch, length, 24), length at most 64."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["length"]),
        helper.make_node("Slice", ["places", "zero", "length", "one"], ["own"]),
        helper.make_node("Add", ["x", "own"], ["placed"], name="placing"),
        helper.make_node("MatMul", ["placed", "w"], ["product"]),
        helper.make_node("Relu", ["product"], ["positive"]),
        helper.make_node("Softmax", ["positive"], ["y"], axis=-1),
        helper.make_node("ReduceSum", ["x", "one"], ["total"], keepdims=0),
    ]
    constants = {"w": WEIGHTS, "places": PLACES, "zero": np.array([0]), "one": np.array([1])}
    graph = helper.make_graph(
        nodes,
        "tokens",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "length", 24])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "length", 40]),
            helper.make_tensor_value_info("total", TensorProto.FLOAT, ["batch", 24]),
        ],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def given(batch: int, length: int) -> np.ndarray:
    return np.random.default_rng(batch * 1000 + length).uniform(-1, 1, (batch, length, 24)).astype("float32")


def check(executable, x: np.ndarray, **options) -> None:
    y, total = executable.run(x, **options)
    made = np.maximum((x + PLACES[:, : x.shape[1]]) @ WEIGHTS, 0)
    made = np.exp(made - made.max(-1, keepdims=True))
    np.testing.assert_allclose(y, made / made.sum(-1, keepdims=True), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(total, x.sum(1), rtol=1e-3, atol=1e-4)


@pytest.fixture(scope="module")
def compiled():
    return tt.compile(tokens(), cache=False)


def test_every_batch_and_length(compiled):
    assert isinstance(compiled.variants[0], PlannedVariant)
    assert compiled.signature.input_shapes == ((Named("batch"), Named("length"), 24),)
    for batch, length in ((1, 1), (1, 7), (2, 16), (5, 33), (1, 64), (3, 2), (16, 64), (1, 1)):
        check(compiled, given(batch, length))
    lines = compiled.signature.lines()
    assert "input x: batch x length x 24 float32" in lines and "batch: 1 to 2147483647" in lines


def test_what_does_not_fit_is_refused_in_a_sentence(compiled):
    with pytest.raises(
        WorkloadError, match=r"the inputs have batch = 1, length = 65, but the model requires length <= 64"
    ):
        compiled.run(given(1, 65))
    with pytest.raises(WorkloadError, match=r"input 'x' has shape \(2, 3\), but the model takes \(batch, length, 24\)"):
        compiled.run(np.zeros((2, 3), "float32"))
    with pytest.raises(WorkloadError, match=r"input 'x' has shape \(2, 3, 23\), but the model takes"):
        compiled.run(np.zeros((2, 3, 23), "float32"))
    with pytest.raises(WorkloadError, match="size 'batch' of the inputs is 0; expected 1 to"):
        compiled.run(np.zeros((0, 3, 24), "float32"))
    check(compiled, given(2, 3))


def test_one_arena_grows_to_the_largest_and_stays(compiled):
    tables: OpenTables = compiled.variants[0]._runner._open
    check(compiled, given(16, 64))
    arena = tables._arena
    for number in range(40):
        check(compiled, given(1 + number % 16, 1 + (7 * number) % 64))
    assert tables._arena == arena
    assert len(compiled.variants[0]._runner._known) <= 1024


def test_outputs_in_memory_of_the_caller(compiled):
    for batch, length in ((2, 9), (1, 30)):
        out = (tt.aligned_empty((batch, length, 40)), tt.aligned_empty((batch, 24)))
        check(compiled, given(batch, length), out=out)
    with pytest.raises(WorkloadError, match=r"out 'y' has shape \(2, 9, 40\); expected \(2, 8, 40\)"):
        compiled.run(given(2, 8), out=(np.zeros((2, 9, 40), "float32"), np.zeros((2, 24), "float32")))


def test_unaligned_inputs_and_gaps(compiled):
    for batch, length in ((3, 11), (2, 5), (3, 12)):
        x = given(batch, length)
        raw = np.zeros(x.size + 1, "float32")
        raw[1:] = x.reshape(-1)
        check(compiled, raw[1:].reshape(x.shape))
        wide = np.zeros((batch, length, 48), "float32")
        wide[..., ::2] = x
        check(compiled, wide[..., ::2])


def test_several_threads_and_runs_beside_each_other(compiled):
    failed: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for number in range(12):
                check(compiled, given(1 + (seed + number) % 4, 1 + (seed * number) % 60))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    inputs = [given(1 + n % 3, 1 + 5 * n % 50) for n in range(9)]
    for _ in range(4):  # both ways of running many
        for x, (y, total) in zip(inputs, tt.run_many([(compiled, x) for x in inputs]), strict=True):
            assert y.shape == (*x.shape[:2], 40)
            np.testing.assert_allclose(total, x.sum(1), rtol=1e-3, atol=1e-4)


def test_a_saved_file_serves_every_size(compiled, tmp_path):
    compiled.save(tmp_path / "model.tar")
    again = tt.load(tmp_path / "model.tar")
    assert again.signature == compiled.signature
    for batch, length in ((1, 3), (4, 64)):
        check(again, given(batch, length))
    with pytest.raises(WorkloadError, match="length <= 64"):
        again.run(given(1, 65))


@pytest.mark.parametrize(
    "change",
    [
        {"tensors": lambda rows: [[0, 10**6, *row[2:]] for row in rows]},
        {"results": lambda rows: [10**6 for _ in rows]},
        {"pieces": lambda rows: [[[1], dtype, first, last] for _, dtype, first, last in rows]},
        {"scalars": lambda rows: [*rows, ["**", "batch", 2]]},
        {"scalars": lambda rows: [*rows, "another"]},
        {"steps": lambda rows: [[name, [*numbers, -99]] for name, numbers in rows]},
    ],
)
def test_a_plan_that_names_what_is_not_there_is_refused(compiled, change):
    plan = compiled.variants[0].library.plan
    assert isinstance(plan, OpenPlan)
    plain = json.loads(json.dumps(plan.to_dict()))
    assert plan_of(plain) == plan
    for name, edit in change.items():
        plain[name] = edit(plain[name])
    with pytest.raises((ValueError, WorkloadError)):
        runner = compiled.variants[0]._runner
        read = plan_of(plain)
        addresses = dict.fromkeys(read.kernels, 1)
        constants = [(0, 1 << 20)] * 64
        OpenTables(read, constants, addresses).at({"batch": 2, "length": 3})
        assert runner is not None


def test_sizes_beyond_the_kernels_are_refused(compiled):
    tables = compiled.variants[0]._runner._open
    with pytest.raises(WorkloadError, match=f"expected from 0 to {MOST_ELEMENTS} elements"):
        tables.at({"batch": 1 << 30, "length": 64})
    with pytest.raises(WorkloadError, match="expected"):
        tables.at({"batch": 1 << 62, "length": 1 << 62})


# ---- what a caller says of open sizes --------------------------------------------------------------------------------


def test_a_range_is_held_against():
    made = tt.compile(tokens(), batch=(1, 4), dims={"length": range(2, 33)}, cache=False)
    assert len(made.variants) == 1
    assert [(size.least, size.most) for size in made.signature.open_sizes.sizes] == [(1, 4), (2, 32)]
    check(made, given(4, 32))
    for batch, length, name in ((5, 3, "batch"), (1, 1, "length"), (1, 33, "length")):
        with pytest.raises(WorkloadError, match=f"size {name!r} of the inputs is"):
            made.run(given(batch, length))


def test_sizes_of_a_list_are_compiled_for_themselves():
    made = tt.compile(tokens(), batch=[1, 3], dims={"length": 5}, cache=False)
    assert [variant.signature.input_shapes for variant in made.variants] == [((1, 5, 24),), ((3, 5, 24),)]
    check(made, given(3, 5))
    with pytest.raises(WorkloadError, match="was compiled for"):
        made.run(given(2, 5))


def test_one_size_may_be_given_and_the_other_stay_open():
    made = tt.compile(tokens(), batch=2, cache=False)
    assert made.signature.input_shapes == ((2, Named("length"), 24),)
    check(made, given(2, 41))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dims": {"width": (1, 5)}}, "dims names 'width'"),
        ({"dims": {"length": range(1, 9, 2)}}, "a range of sizes from 0"),
        ({"dims": {"length": range(0)}}, "a range of sizes from 0"),
        ({"batch": (4, 2)}, None),
    ],
)
def test_bad_ranges(options, said):
    if said is None:  # two sizes, not a range
        assert len(tt.compile(tokens(), dims={"length": 3}, cache=False, **options).variants) == 2
        return
    with pytest.raises((ModelFormatError, WorkloadError), match=said):
        tt.compile(tokens(), cache=False, **options)


@pytest.mark.parametrize("sliced", ["x", "places"])
def test_memory_follows_the_size_and_not_the_end_of_a_slice(sliced):
    """In a model that the virtual machine runs because the number of nonzero elements depends on the data: with a
    dynamic size, and with that number."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["found"]),
        helper.make_node("Transpose", ["found"], ["turned"], perm=[1, 0]),
        helper.make_node("Cast", ["turned"], ["places"], to=TensorProto.FLOAT),
        helper.make_node("Slice", [sliced, "zero", "end", "zero"], ["y"]),
        helper.make_node("Relu", ["y"], ["positive"]),
        helper.make_node("MatMul", ["positive", "w"], ["z"]),
    ]
    constants = {"zero": np.array([0]), "end": np.array([10**9]), "w": np.eye(2, dtype="float32")}
    graph = helper.make_graph(
        nodes,
        "far",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["s", 2])],
        [
            helper.make_tensor_value_info("places", TensorProto.FLOAT, None),
            helper.make_tensor_value_info("z", TensorProto.FLOAT, None),
        ],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    made = tt.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), cache=False)
    assert made.report().memory.total < 2**20
    for length in (5, 1):
        x = np.random.default_rng(length).uniform(1, 2, (length, 2)).astype("float32")
        places, z = made.run(x)
        np.testing.assert_array_equal(places, np.argwhere(x))
        np.testing.assert_allclose(z, x if sliced == "x" else places, rtol=1e-6)


def test_extents_of_which_tvm_concludes_too_much():
    """26 w - 13 is at least 0, but w is not at least 13: with w = 1 there is no space for a vector."""
    constants = {"repeats": np.array([1, 26, 1]), "start": np.array([0]), "end": np.array([-13]), "axis": np.array([1])}
    nodes = [
        helper.make_node("Tile", ["x", "repeats"], ["many"]),
        helper.make_node("Slice", ["many", "start", "end", "axis"], ["fewer"]),
        helper.make_node("Transpose", ["fewer"], ["y"], perm=[0, 2, 1]),
    ]
    graph = helper.make_graph(
        nodes,
        "extents",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", "w", 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    made = tt.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), cache=False)
    for shape in ((1, 1, 6), (2, 3, 6), (3, 1, 6), (1, 2, 6)):
        x = np.random.default_rng(0).uniform(size=shape).astype("float32")
        wanted = np.tile(x, (1, 26, 1))[:, :-13].transpose(0, 2, 1)
        memory = np.full(wanted.size + 128, 7, "float32")  # of which the middle is the result's
        at = -memory.ctypes.data // 4 % 16 + 32
        y = memory[at : at + wanted.size].reshape(wanted.shape)
        made.run(x, out=y)
        np.testing.assert_array_equal(y, wanted)
        assert (memory[:at] == 7).all() and (memory[at + wanted.size :] == 7).all()


def test_open_sizes_need_a_cpu(compiled, tmp_path):
    with pytest.raises(ModelFormatError, match="is dynamic; expected"):
        tt.compile(tokens(), target="vsim/vta")
    with pytest.raises(
        UnsupportedOperator, match=r"dynamic dimensions \(batch, length\), but a C library requires static shapes"
    ):
        compiled.export(tmp_path / "library")


def test_the_cache_distinguishes_ranges(tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_TILING_CACHE", str(tmp_path))
    first = tt.compile(tokens(), batch=(1, 4))
    assert not first.from_cache and tt.compile(tokens(), batch=(1, 4)).from_cache
    other = tt.compile(tokens(), batch=(1, 5))
    assert not other.from_cache
    check(tt.compile(tokens(), batch=(1, 5)), given(5, 4))


# ---- arithmetic of sizes ---------------------------------------------------------------------------------------------


def test_extents_are_plain_data():
    extent = Operation("*", Named("batch"), Operation("max", Operation("-", Named("length"), 3), 1))
    assert from_plain(json.loads(json.dumps(to_plain(extent)))) == extent
    assert evaluated(extent, {"batch": 2, "length": 7}) == 8 and evaluated(extent, {"batch": 2, "length": 1}) == 2
    assert str(extent) == "batch * max(length - 3, 1)"
    with pytest.raises(WorkloadError, match="is 0 for these inputs"):
        evaluated(Operation("//", 5, Named("n")), {"n": 0})
    for wrong in (1.5, None, ["+", 1], ["^", 1, 2], True, {"a": 1}):
        with pytest.raises(ValueError, match="is not a size"):
            from_plain(wrong)
    deep: object = "n"
    for _ in range(200):
        deep = ["+", deep, 1]
    with pytest.raises(ValueError, match="is not a size"):
        from_plain(deep)


def test_guards_are_read_back_and_name_known_sizes():
    sizes = OpenSizes((OpenSize("a", 1, 9), OpenSize("b")), (Guard(Named("a"), "<=", Named("b"), "node 'x'"),))
    assert OpenSizes.from_dict(json.loads(json.dumps(sizes.to_dict()))) == sizes
    sizes.require({"a": 3, "b": 3})
    with pytest.raises(
        WorkloadError, match=r"the inputs have a = 4, b = 3, but the model requires a <= b \(node 'x'\)"
    ):
        sizes.require({"a": 4, "b": 3})
    with pytest.raises(ValueError, match="refers to the unknown size"):
        OpenSizes.from_dict({"sizes": [["a", 1, 2]], "guards": [["c", "==", 1, ""]]})
    with pytest.raises(ValueError, match="a relation other than"):
        OpenSizes.from_dict({"sizes": [["a", 1, 2]], "guards": [["a", "in", 1, ""]]})


def test_the_file_holds_the_weights_once(compiled, tmp_path):
    compiled.save(tmp_path / "open.tar")
    with tarfile.open(tmp_path / "open.tar") as archive:
        assert archive.getmember("constants.bin").size <= 1.2 * (WEIGHTS.nbytes + PLACES.nbytes)


def images():
    """Three layers over images of any size: stride 2 over 3 channels, pooling, stride 1; the extents of the last two
    follow from those of the image."""
    rng = np.random.default_rng(3)
    first, second = (rng.uniform(-1, 1, shape).astype("float32") for shape in ((32, 3, 5, 5), (32, 32, 3, 3)))
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["a"], pads=[2] * 4, strides=[2, 2]),
        helper.make_node("MaxPool", ["a"], ["b"], kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Conv", ["b", "second"], ["c"], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "images",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, "h", "w"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 32, None, None])],
        [numpy_helper.from_array(first, "first"), numpy_helper.from_array(second, "second")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), (first, second)


def images_computed(x: np.ndarray, weights) -> np.ndarray:
    def windows(values, side, border, stride, outside=0.0):
        padded = np.pad(values, ((0, 0), (0, 0), (border, border), (border, border)), constant_values=outside)
        return np.lib.stride_tricks.sliding_window_view(padded, (side, side), (2, 3))[:, :, ::stride, ::stride]

    first, second = weights
    a = np.einsum("ncyxij,ocij->noyx", windows(x, 5, 2, 2), first)
    b = windows(a, 3, 1, 2, -np.inf).max((4, 5))
    return np.maximum(np.einsum("ncyxij,ocij->noyx", windows(b, 3, 1, 1), second), 0)


def test_images_of_any_size_have_the_algorithms_of_fixed_sizes(monkeypatch):
    def slow(*_):
        raise AssertionError("plain loops")

    monkeypatch.setattr("tvm_tiling.schedules.plain_loops.apply", slow)
    model, weights = images()
    executable = tt.compile(model, cache=False)
    forms = [operator.form for operator in executable.operators if operator.kind != "other"]
    assert sorted(forms) == ["open", "winograd"]
    assert "image tiles" in json.dumps([operator.decision for operator in executable.operators])
    for batch, h, w in ((1, 1, 1), (2, 3, 9), (1, 33, 20), (3, 64, 64), (1, 2, 50)):
        x = np.random.default_rng(h).uniform(-1, 1, (batch, 3, h, w)).astype("float32")
        np.testing.assert_allclose(executable.run(x), images_computed(x, weights), rtol=1e-3, atol=1e-3)


def test_reshapes_to_sums_of_sizes_copy_nothing():
    weights, after = RNG.uniform(-1, 1, (8, 3, 3, 3)).astype("float32"), RNG.uniform(-1, 1, (8, 5)).astype("float32")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["image"], strides=[2, 2]),
        helper.make_node("MaxPool", ["image"], ["pooled"], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
        helper.make_node("Reshape", ["pooled", "flat"], ["pixels"]),
        helper.make_node("Transpose", ["pixels"], ["tokens"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["tokens", "after"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "patches",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "h", "w"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, "tokens", 5])],
        [numpy_helper.from_array(v, n) for n, v in (("w", weights), ("after", after), ("flat", np.array([0, 0, -1])))],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    compiled = tt.compile(made, cache=False)
    judge = onnxruntime.InferenceSession(made.SerializeToString())
    for high, wide in ((21, 34), (9, 9), (40, 17)):
        x = RNG.uniform(-1, 1, (1, 3, high, wide)).astype("float32")
        np.testing.assert_allclose(compiled.run(x), judge.run(None, {"x": x})[0], rtol=1e-5, atol=1e-5)
    assert not [o.name for o in compiled.report().operators if o.name.startswith("reshape")]


def test_tensors_without_elements_are_broadcast():
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "first"], ["n"]),
        helper.make_node("Concat", ["n", "shape"], ["more"], axis=0),
        helper.make_node("Expand", ["x", "more"], ["y"]),
        helper.make_node("Relu", ["x"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "empty",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 0, "m"])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", "n", 0, "m"]),
            helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 0, "m"]),
        ],
        [numpy_helper.from_array(np.array([0]), "first")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    compiled = tt.compile(made, cache=False)
    for n, m in ((1, 1), (3, 5)):
        y, z = compiled.run(np.zeros((n, 0, m), np.float32))
        assert (y.shape, z.shape) == ((n, n, 0, m), (n, 0, m))
