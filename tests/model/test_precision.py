"""Models in another precision than float32: their error, its report, and refusals."""

from __future__ import annotations

from functools import cache

import ml_dtypes
import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

import tvm_tiling as tt
from tvm_tiling.decide.rnn.recurrence import Recurrence
from tvm_tiling.frontend.recurrent_layer import DirectionWeights, recurrent_direction
from tvm_tiling.model.precision.record import PrecisionRecord

# Norm of the difference from float32 relative to its own: a few units in the last place of each type.
FAR = {"bfloat16": 2e-2, "float16": 2e-3, "int8": 8e-2}


def function(shapes, body, dtype="float32"):
    """Return a model of inputs of these shapes."""
    builder = relax.BlockBuilder()
    inputs = [relax.Var(f"x{number}", relax.TensorType(shape, dtype)) for number, shape in enumerate(shapes)]
    with builder.function("main", inputs):
        with builder.dataflow():
            output = builder.emit_output(body(builder, *inputs))
        builder.emit_func_output(output)
    return builder.get()


def weights(rng, *shape):
    return relax.const((rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32))


def images(n=1):
    """A network with a residual sum, a depthwise convolution, pooling, and a final matrix multiplication."""

    def body(builder, x):
        rng = np.random.default_rng(0)
        emit = builder.emit
        first = emit(op.nn.relu(emit(op.nn.conv2d(x, weights(rng, 16, 3, 3, 3), padding=1))))
        pooled = emit(op.nn.max_pool2d(first, (2, 2), strides=(2, 2)))
        deep = emit(op.nn.conv2d(pooled, weights(rng, 16, 1, 3, 3), padding=1, groups=16))
        wide = emit(op.nn.relu(emit(op.nn.conv2d(deep, weights(rng, 16, 16, 1, 1)))))
        total = emit(op.nn.relu(emit(op.add(wide, pooled))))
        last = emit(op.nn.conv2d(total, weights(rng, 32, 16, 3, 3), strides=2))
        flat = emit(op.reshape(emit(op.mean(emit(op.nn.relu(last)), [2, 3])), (n, 32)))
        return op.matmul(flat, weights(rng, 32, 10))

    return function([(n, 3, 20, 20)], body)


def text(rows=12):
    """Matrix multiplications, an activation, and attention between two of them."""

    def body(builder, x):
        rng = np.random.default_rng(1)
        emit = builder.emit
        q, k, v = (emit(op.matmul(x, weights(rng, 32, 32))) for _ in range(3))
        scores = emit(op.nn.softmax(emit(op.matmul(q, emit(op.permute_dims(k, (1, 0)))))))
        mixed = emit(op.add(emit(op.matmul(scores, v)), x))
        wide = emit(op.nn.gelu(emit(op.matmul(mixed, weights(rng, 32, 96)))))
        return op.add(emit(op.matmul(wide, weights(rng, 96, 32))), mixed)

    return function([(rows, 32)], body)


def sequence(steps=6):
    """A recurrent layer, and a matrix multiplication on its last state."""
    rng = np.random.default_rng(4)
    recurrence = Recurrence(cell="gru", steps=steps, batch=2, hidden=24, order="rzn")

    def body(builder, x):
        layer = DirectionWeights(weights(rng, 72, 4), weights(rng, 72, 24), weights(rng, 72), weights(rng, 72))
        _, last = recurrent_direction(builder, recurrence, x, layer, [None])
        return op.matmul(last, weights(rng, 24, 5))

    return function([(steps, 2, 4)], body)


def given(model, count=3, seed=2):
    shape = [int(extent) for extent in model["main"].params[0].ty.shape]
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(np.float32) for _ in range(count)]


@cache
def in_float32(network):
    return tt.compile(network(), cache=False)


def distance(ours, right):
    return float(np.linalg.norm(ours.astype(np.float64) - right) / np.linalg.norm(right))


@pytest.mark.values
@pytest.mark.parametrize("precision", ["bfloat16", "float16", "int8"])
@pytest.mark.parametrize("network", [images, text])
def test_results_are_near_float32_and_the_record_says_how_near(network, precision):
    model, plain = network(), in_float32(network)
    inputs = given(model)
    half = tt.compile(model, precision=precision, calibration=inputs[:2], cache=False)
    assert half.signature == plain.signature, "inputs and outputs stay in float32"
    assert half.run(inputs[2]).dtype == np.float32
    measured = [distance(half.run(x), plain.run(x)) for x in inputs]
    assert 0 < max(measured) < FAR[precision]
    record = half.precision
    assert (record.precision, record.inputs, record.left) == (precision, 2, ())
    assert record.error == pytest.approx(max(measured[:2]), rel=1e-3)
    assert f"precision: {precision}, " in str(half.report())


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_recurrent_weights_lie_in_memory_in_16_bits(precision):
    model = sequence()
    x, *_ = inputs = given(model)
    plain = tt.compile(model, cache=False)
    half = tt.compile(model, precision=precision, calibration=inputs, cache=False)
    assert 0 < distance(half.run(x), plain.run(x)) < FAR[precision]
    assert half.report().memory.weights < 0.7 * plain.report().memory.weights


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_what_is_multiplied_lies_in_memory_in_that_type(precision):
    model = images()
    made = tt.compile(model, precision=precision, calibration=given(model), cache=False)
    multiplying = [o for o in made.operators if o.kind in ("convolution", "gemm")]
    assert len(multiplying) == 5
    # Depthwise convolutions, which use a number once per kernel position, would be widened in 16 bits: they stay in
    # float32.
    narrow = [o for o in multiplying if precision == "int8" or o.workload.get("groups", 1) == 1]
    assert {o.workload["dtype"] for o in narrow} == {precision}
    if precision == "int8":
        plain = tt.compile(model, cache=False)
        assert made.report().memory.activations < 0.7 * plain.report().memory.activations


def test_float32_is_exact_and_says_nothing():
    model = text()
    (x,) = given(model, 1)
    left, right = tt.compile(model, cache=False), tt.compile(model, precision="float32", cache=False)
    assert np.array_equal(left.run(x), right.run(x))
    assert left.precision == PrecisionRecord() and "precision" not in str(left.report())


def test_without_inputs_no_error_is_reported():
    made = tt.compile(text(), precision="bfloat16", cache=False)
    assert made.precision == PrecisionRecord(precision="bfloat16")
    assert "error not measured" in str(made.precision)


@pytest.mark.parametrize(
    ("tolerance", "accepted"),
    [
        (0.0, {"float32"}),
        pytest.param(1e-9, {"float32"}, marks=pytest.mark.slow),
        pytest.param(0.5, {"float32", "bfloat16", "float16", "int8"}, marks=pytest.mark.slow),
    ],
)
def test_auto_takes_the_fastest_that_is_near_enough(tolerance, accepted):
    model = images()
    made = tt.compile(model, precision="auto", calibration=given(model), tolerance=tolerance, cache=False)
    record = made.precision
    assert record.precision in accepted and record.tolerance == tolerance
    compared = {each.precision: each for each in record.compared}
    assert list(compared) == ["float32", "bfloat16", "float16", "int8"]
    timed = {name: each.seconds for name, each in compared.items() if each.seconds is not None}
    assert set(timed) == accepted
    assert timed[record.precision] == min(timed.values())
    assert all(each.error <= tolerance for name, each in compared.items() if name in timed)


def test_a_layer_whose_numbers_8_bits_do_not_hold_stays_in_floats_by_name():
    """One number in a thousand is ten thousand times as large as the others, which would all become 0."""

    def body(builder, x):
        rng = np.random.default_rng(3)
        spread = np.ones((1, 64), np.float32)
        spread[0, 7] = 3e4
        far = builder.emit(op.multiply(x, relax.const(spread)))
        kept = rng.standard_normal((64, 32)).astype(np.float32)
        kept[7] = 0  # the large values are irrelevant
        first = builder.emit(op.nn.relu(builder.emit(op.matmul(far, relax.const(kept)))), "spoilt")
        return op.matmul(first, weights(rng, 32, 8))

    model = function([(40, 64)], body)
    inputs = [x * (np.arange(x.size).reshape(x.shape) % 997 == 7) * 1e3 + x for x in given(model)]
    made = tt.compile(model, precision="int8", calibration=inputs, cache=False)
    types = [o.workload["dtype"] for o in made.operators if o.kind == "gemm"]
    assert types == ["float32", "int8"]
    assert len(made.precision.left) == 1
    assert made.precision.error < FAR["int8"]
    assert f"in float32 for their accuracy: {made.precision.left[0]}" in str(made.precision)


def test_a_view_of_what_is_not_a_gemm_is_quantised_too():
    def body(builder, x):
        shares = builder.emit(op.reshape(builder.emit(op.nn.softmax(x)), (8, 48)))
        return op.matmul(shares, weights(np.random.default_rng(5), 48, 16))

    model = function([(8, 6, 8)], body)
    inputs = given(model)
    made = tt.compile(model, precision="int8", calibration=inputs, cache=False)
    assert [o.workload["dtype"] for o in made.operators if o.kind == "gemm"] == ["int8"]
    assert made.precision.error < FAR["int8"]


def test_one_input_among_others_that_is_not_finite_is_refused():
    model = text()
    inputs = given(model)
    inputs[1] = inputs[1].copy()
    inputs[1][3, 5] = np.inf
    with pytest.raises(tt.WorkloadError, match="not finite"):
        tt.compile(model, precision="int8", calibration=inputs, cache=False)


def test_several_sizes_are_quantised_by_the_inputs_that_fit_each(tmp_path):
    onnx = pytest.importorskip("onnx")
    rng = np.random.default_rng(4)
    w = onnx.numpy_helper.from_array(rng.standard_normal((16, 8)).astype(np.float32), "w")
    x, y = (
        onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ("batch", c)) for n, c in (("x", 16), ("y", 8))
    )
    graph = onnx.helper.make_graph([onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [w])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    inputs = [rng.standard_normal((n, 16)).astype(np.float32) for n in (2, 5)]
    made = tt.compile(model, batch=[2, 5], precision="int8", calibration=inputs, cache=False)
    assert made.precision.inputs == 2
    for x in inputs:
        assert distance(made.run(x), x @ onnx.numpy_helper.to_array(w)) < FAR["int8"]
    with pytest.raises(tt.WorkloadError, match="'x' has shape"):
        tt.compile(model, batch=[2, 3], precision="int8", calibration=inputs, cache=False)


def test_the_record_is_saved_and_cached_by_precision_and_inputs(tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_TILING_CACHE", str(tmp_path / "cache"))
    model = text()
    inputs = given(model)
    made = tt.compile(model, precision="int8", calibration=inputs)
    assert not made.from_cache
    again = tt.compile(model, precision="int8", calibration=inputs)
    assert again.from_cache and again.precision == made.precision
    assert not tt.compile(model, precision="int8", calibration=[10 * x for x in inputs]).from_cache
    assert not tt.compile(model, precision="float16", calibration=inputs).from_cache
    made.save(tmp_path / "model.tar")
    loaded = tt.load(tmp_path / "model.tar")
    assert loaded.precision == made.precision
    assert np.array_equal(loaded.run(inputs[0]), made.run(inputs[0]))


def test_a_model_that_overflows_in_16_bits_says_so():
    unit = np.eye(8, dtype=np.float32)

    def body(builder, x):
        return op.matmul(builder.emit(op.matmul(x, relax.const(1e4 * unit))), relax.const(unit))

    model = function([(4, 8)], body)
    inputs = [np.full((4, 8), 1e3, np.float32)]
    made = tt.compile(model, precision="float16", calibration=inputs, cache=False)
    assert np.isnan(made.precision.error)
    assert "not a number where float32 has one" in str(made.precision)
    chosen = tt.compile(model, precision="auto", calibration=inputs, cache=False)
    assert chosen.precision.precision != "float16"


def test_a_model_of_half_precision_keeps_its_types():
    def body(builder, x):
        return op.matmul(x, relax.const(np.eye(8).astype(ml_dtypes.bfloat16)))

    model = function([(4, 8)], body, "bfloat16")
    x = np.arange(32).reshape(4, 8).astype(ml_dtypes.bfloat16)
    made = tt.compile(model, precision="bfloat16", calibration=[x], cache=False)
    assert made.precision.error == 0 and np.array_equal(made.run(x), x)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"precision": "half"}, tt.WorkloadError, "precision = 'half'"),
        ({"precision": np.float16}, tt.WorkloadError, "precision = <class 'numpy.float16'>; expected auto, bfloat16"),
        ({"precision": None}, tt.WorkloadError, "precision = None; expected auto"),
        ({"precision": "int8", "calibration": "x.npz"}, tt.WorkloadError, "calibration has type str; expected a list"),
        ({"precision": "int8"}, tt.WorkloadError, "for the ranges of tensors"),
        ({"precision": "auto"}, tt.WorkloadError, "on calibration=\\[inputs\\]"),
        ({"precision": "int8", "calibration": []}, tt.WorkloadError, "calibration is empty"),
        ({"precision": "int8", "calibration": np.zeros(3)}, tt.WorkloadError, "calibration has type ndarray"),
        ({"precision": "bfloat16", "calibration": {}}, tt.WorkloadError, "calibration has type dict"),
        ({"precision": "int8", "calibration": [np.zeros((2, 2), np.float32)]}, tt.WorkloadError, "has shape"),
        ({"precision": "int8", "calibration": [np.full((12, 32), np.inf, np.float32)]}, tt.WorkloadError, "not finite"),
        ({"calibration": [np.zeros((12, 32), np.float32)]}, tt.HardwareError, "calibration has no effect"),
        (
            {"precision": "bfloat16", "target": "vsim/vta"},
            tt.HardwareError,
            "multiplies in the types of its description",
        ),
    ],
)
def test_what_is_refused(options, error, said):
    with pytest.raises(error, match=said):
        tt.compile(text(), cache=False, **options)


def test_an_open_size_is_named():
    onnx = pytest.importorskip("onnx")
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ("rows", 4)) for n in "xy")
    w = onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")
    graph = onnx.helper.make_graph([onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [w])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    with pytest.raises(tt.WorkloadError, match=r"'int8' requires a size for every dimension.* 'rows' are dynamic"):
        tt.compile(model, precision="int8", calibration=[np.ones((2, 4), np.float32)], cache=False)


@pytest.mark.parametrize(
    ("precision", "wrong", "said"),
    [
        ("bfloat16", np.zeros((2, 2), np.float32), "has shape"),
        ("auto", np.zeros((2, 2), np.float32), "has shape"),
        ("int8", np.zeros((4, 8)), "is float64"),
        ("int8", None, "is object"),
        ("int8", {"image": np.zeros((4, 8), np.float32)}, "no input 'image'"),
        ("bfloat16", np.full((4, 8), np.nan, np.float32), "no result of the model is finite"),
        ("auto", np.full((4, 8), np.nan, np.float32), "no result of the model is finite"),
        ("int8", np.full((4, 8), np.nan, np.float32), "is not finite; expected inputs"),
    ],
)
def test_the_input_that_is_wrong_is_numbered(precision, wrong, said, tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_TILING_CACHE", str(tmp_path))
    model = function([(4, 8)], lambda builder, x: op.matmul(x, weights(np.random.default_rng(0), 8, 8)))
    with pytest.raises(tt.WorkloadError, match=r"calibration\[1\]: .*" + said):
        tt.compile(model, precision=precision, calibration=[given(model)[0], wrong])


def test_nothing_to_quantise_is_refused():
    model = function([(4, 8)], lambda builder, x: op.nn.relu(x))
    with pytest.raises(tt.WorkloadError, match="has no matrix multiplications or convolutions by float32 weights"):
        tt.compile(model, precision="int8", calibration=given(model), cache=False)


@pytest.mark.parametrize(
    "plain",
    [
        {},
        {"precision": "int4", "error": None, "inputs": 0, "tolerance": None, "left": [], "compared": []},
        {"precision": "int8", "error": "much", "inputs": 1, "tolerance": None, "left": [], "compared": []},
        {"precision": "int8", "error": None, "inputs": 1, "tolerance": None, "left": [], "compared": [{}]},
    ],
)
def test_an_invalid_record_is_refused(plain):
    with pytest.raises((ValueError, KeyError)):
        PrecisionRecord.from_dict(plain)
