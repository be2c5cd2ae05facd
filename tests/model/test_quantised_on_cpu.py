"""Quantised ONNX models on the CPU, computed in integers, compared with onnxruntime without optimisations."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from packaging.version import Version
from test_quantise_onnx import by_onnxruntime, every_form, inputs, quantised_by_onnxruntime

import tvm_tiling as tt

onnxruntime = pytest.importorskip("onnxruntime")
TYPES = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8}


class Graph:
    """Builder of an ONNX graph of one layer between integers, node by node."""

    def __init__(self, dtype, seed=0):
        self.dtype, self.rng = dtype, np.random.default_rng(seed)
        self.nodes, self.constants, self.inputs, self.arrays = [], [], [], {}

    def constant(self, values):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def scale(self, scale, zero=None, dtype=None):
        """Return names of a scale and a zero point; a random one for activations."""
        dtype = dtype or self.dtype
        if zero is None:
            zero = self.rng.integers(-20, 20) + (128 if dtype == "uint8" else 0)
        return self.constant(np.float32(scale)), self.constant(np.asarray(zero, dtype))

    def given(self, *shape):
        """Return an integer input, and its dequantised value."""
        name = f"x{len(self.inputs)}"
        self.inputs.append(helper.make_tensor_value_info(name, TYPES[self.dtype], shape))
        limits = np.iinfo(self.dtype)
        self.arrays[name] = self.rng.integers(limits.min, limits.max, shape, endpoint=True).astype(self.dtype)
        return name

    def add(self, operator, given, domain="", **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, given, [name], domain=domain, **attributes))
        return name

    def real(self, *shape, scale=0.05):
        return self.add("DequantizeLinear", [self.given(*shape), *self.scale(scale)])

    def weights(self, *shape, axis=0, dtype="int8"):
        """Return dequantised weights with a scale for each position along an axis."""
        values = self.constant(self.rng.integers(-127, 127, shape, endpoint=True).astype(dtype))
        count = shape[axis]
        scales = self.rng.uniform(0.002, 0.02, count).astype(np.float32)
        return self.add("DequantizeLinear", [values, *self.scale(scales, np.zeros(count, dtype), dtype)], axis=axis)

    def finished(self, name, scale=0.1):
        return self.finished_model(self.add("QuantizeLinear", [name, *self.scale(scale)]))

    def finished_model(self, name, result=None):
        out = helper.make_tensor_value_info(name, TYPES[self.dtype] if result is None else result, None)
        graph = helper.make_graph(self.nodes, "layer", self.inputs, [out], self.constants)
        versions = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=versions, ir_version=8)


def convolution(graph):
    x, w = graph.real(1, 13, 9, 11), graph.weights(24, 13, 3, 3)
    return graph.add("Relu", [graph.add("Conv", [x, w, graph.constant(np.full(24, 0.3, "float32"))], pads=[1] * 4)])


def strided_convolution(graph):
    return graph.add("Conv", [graph.real(2, 8, 10, 10), graph.weights(16, 8, 3, 3)], pads=[0, 1, 1, 1], strides=[2, 2])


def grouped_convolution(graph):
    return graph.add("Conv", [graph.real(1, 12, 7, 7), graph.weights(8, 3, 3, 3)], group=4, pads=[1] * 4)


def depthwise_convolution(graph):
    return graph.add("Conv", [graph.real(1, 20, 9, 9), graph.weights(20, 1, 3, 3)], group=20, pads=[1] * 4)


def residual(graph):
    """Return the 8-bit sum of a convolution's result and another tensor."""
    total = graph.add("Conv", [graph.real(1, 16, 6, 6), graph.weights(24, 16, 1, 1)])
    scale = graph.scale(0.2)
    stored = graph.add("DequantizeLinear", [graph.add("QuantizeLinear", [total, *scale]), *scale])
    return graph.add("Relu", [graph.add("Add", [stored, graph.real(1, 24, 6, 6, scale=0.3)])])


def product(graph):
    return graph.add("MatMul", [graph.real(5, 37), graph.weights(37, 19, axis=1)])


def product_of_two(graph):
    return graph.add("MatMul", [graph.real(2, 5, 33), graph.real(2, 33, 7)])


def mean(graph):
    return graph.add("GlobalAveragePool", [graph.real(1, 11, 5, 7)])


def average_pool(graph):
    return graph.add("AveragePool", [graph.real(1, 11, 8, 8)], kernel_shape=[2, 2], strides=[2, 2])


def largest(graph):
    return graph.add("MaxPool", [graph.real(1, 11, 8, 8)], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)


def joined(graph):
    return graph.add("Concat", [graph.real(1, 5, 3), graph.real(1, 4, 3, scale=0.2)], axis=1)


def multiplied(graph):
    return graph.add("Mul", [graph.real(3, 17), graph.real(3, 17)])


def sigmoid(graph):
    return graph.add("Sigmoid", [graph.real(3, 17)])


LAYERS = (
    convolution,
    strided_convolution,
    grouped_convolution,
    depthwise_convolution,
    residual,
    product,
    product_of_two,
    mean,
    average_pool,
    largest,
    joined,
    multiplied,
    sigmoid,
)

MULTIPLYING = LAYERS[:7]


def without_optimiser(model, arrays):
    """onnxruntime's result, computed in floats: its uint8 and int8 kernels saturate sums on CPUs without VNNI."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, arrays)[0]


def assert_near(model, arrays):
    """Equal to onnxruntime's numbers, except next to a rounding boundary, where they may round to the other side."""
    want = without_optimiser(model, arrays)
    executable = tt.compile(model)
    got = executable.run(**arrays)
    assert got.dtype == want.dtype and got.shape == want.shape
    off = np.abs(got.astype(int) - want.astype(int))
    assert off.max(initial=0) <= 1 and np.count_nonzero(off) <= max(1, off.size // 50)
    return executable


@pytest.mark.values
@pytest.mark.parametrize("dtype", sorted(TYPES))
@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.__name__)
def test_layers_are_within_a_step(layer, dtype):
    graph = Graph(dtype)
    executable = assert_near(graph.finished(layer(graph)), graph.arrays)
    if layer in MULTIPLYING:
        assert "int8" in {o.workload["dtype"] for o in executable.report().operators if o.workload is not None}


@pytest.mark.parametrize("dtype", sorted(TYPES))
def test_gemms_of_two_activations_of_open_sizes(dtype):
    """Sums with a fixed number of terms are computed in integers; dynamic ones might overflow int32."""
    for shapes, kind in (((("b", "n", 33), ("b", 33, "m")), "int8"), ((("b", 5, "n"), ("b", "n", 7)), "float32")):
        graph = Graph(dtype)
        fixed = [[extent if isinstance(extent, int) else 2 for extent in shape] for shape in shapes]
        model = graph.finished(graph.add("MatMul", [graph.real(*shape) for shape in fixed]))
        for value, shape in zip(model.graph.input, shapes, strict=True):
            for dim, extent in zip(value.type.tensor_type.shape.dim, shape, strict=True):
                if isinstance(extent, str):
                    dim.dim_param = extent
        executable = tt.compile(model)
        assert kind in {o.workload["dtype"] for o in executable.report().operators if o.workload is not None}
        for sizes in ({"b": 1, "n": 1, "m": 1}, {"b": 2, "n": 9, "m": 70}, {"b": 3, "n": 67, "m": 31}):
            limits, given = np.iinfo(dtype), {}
            for name, shape in zip(graph.arrays, shapes, strict=True):
                extents = [sizes.get(extent, extent) for extent in shape]
                given[name] = graph.rng.integers(limits.min, limits.max, extents, endpoint=True).astype(dtype)
            off = np.abs(executable.run(**given).astype(int) - without_optimiser(model, given).astype(int))
            assert off.max() <= 1 and np.count_nonzero(off) <= max(1, off.size // 50)


def test_a_long_chain_after_a_gemm_is_compiled_in_time():
    """Each step is quantised by itself, like a GELU that is quantised operation by operation."""
    graph = Graph("uint8")
    value = graph.add("MatMul", [graph.real(3, 32), graph.weights(32, 24, axis=1)])
    for step in range(8):
        pair = graph.scale(0.0417 + 0.0031 * step)
        value = graph.add("DequantizeLinear", [graph.add("QuantizeLinear", [value, *pair]), *pair])
        value = graph.add(("Mul", "Add")[step % 2], [value, graph.constant(np.float32(0.9 - 0.1 * step))])
    assert_near(graph.finished(value, scale=0.1013), graph.arrays)


def of_two(graph):
    x, y = graph.given(3, 17), graph.given(3, 17)
    return [x, *graph.scale(0.0517), y, *graph.scale(0.0931), *graph.scale(0.1743)]


def of_one(graph, *shape, scale=0.0517, result=0.0463):
    return [graph.given(*shape), *graph.scale(scale), *graph.scale(result)]


CONTRIBUTED = {
    "QLinearAdd": (lambda g: of_two(g), {}),
    "QLinearMul": (lambda g: of_two(g), {}),
    "QLinearSigmoid": (lambda g: of_one(g, 3, 17, result=1 / 256), {}),
    "QLinearLeakyRelu": (lambda g: of_one(g, 3, 17), {"alpha": 0.2}),
    "QLinearSoftmax": (lambda g: of_one(g, 2, 5, 7, result=1 / 256), {"axis": -1, "opset": 17}),
    "QLinearGlobalAveragePool": (lambda g: of_one(g, 1, 6, 5, 4), {"channels_last": 0}),
    "QLinearGlobalAveragePool, channels last": (lambda g: of_one(g, 1, 6, 5, 4), {"channels_last": 1}),
    "QLinearAveragePool": (
        lambda g: of_one(g, 1, 6, 8, 8),
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4},
    ),
    "QLinearConcat": (
        lambda g: [*g.scale(0.1), g.given(2, 3), *g.scale(0.05), g.given(2, 4), *g.scale(0.2)],
        {"axis": 1},
    ),
    "QGemm": (
        lambda g: [
            g.given(5, 33),
            *g.scale(0.05),
            # 7 bits: on CPUs without VNNI onnxruntime adds products of uint8 and int8 in pairs of 16 bits, and
            # saturates.
            g.constant(g.rng.integers(-63, 63, (19, 33), endpoint=True).astype("int8")),
            *g.scale(np.float32(0.01), np.int8(0), "int8"),
            g.constant(g.rng.integers(-3000, 3000, 19).astype("int32")),
            *g.scale(0.3),
        ],
        {"transB": 1},
    ),
}


@pytest.mark.values
@pytest.mark.parametrize("dtype", sorted(TYPES))
@pytest.mark.parametrize("name", CONTRIBUTED)
def test_operators_of_the_quantizer_are_within_a_step(name, dtype):
    if name == "QLinearSoftmax" and Version(onnxruntime.__version__) < Version("1.24"):
        pytest.skip("onnxruntime is too old to judge this operator")
    graph = Graph(dtype)
    given, attributes = CONTRIBUTED[name]
    operator = name.split(",")[0]
    assert_near(graph.finished_model(graph.add(operator, given(graph), "com.microsoft", **attributes)), graph.arrays)


@pytest.mark.parametrize("dtype", sorted(TYPES))
def test_a_zero_point_that_is_left_out_is_0(dtype):
    graph = Graph(dtype)
    x, y = graph.given(3, 17), graph.given(3, 17)
    result = graph.constant(np.float32(0.1743))
    given = [x, *graph.scale(0.0517), y, *graph.scale(0.0931), result]
    assert_near(graph.finished_model(graph.add("QLinearAdd", given, "com.microsoft")), graph.arrays)


@every_form
def test_models_of_the_quantizer_are_computed_in_integers(tmp_path, form, per_channel, activations):
    model = quantised_by_onnxruntime(tmp_path, form, per_channel, activations)
    executable = tt.compile(str(model))
    taken = [o.workload["dtype"] for o in executable.report().operators if o.workload is not None]
    assert taken.count("int8") == 3
    for x in inputs(3):
        got, want = executable.run(x), by_onnxruntime(model, x)
        assert np.abs(got - want).max() <= 0.03 * np.abs(want).max()


def test_weights_that_are_floats_stay_floats():
    graph = Graph("int8")
    weights = graph.constant(graph.rng.standard_normal((37, 19)).astype(np.float32))
    name = graph.finished(graph.add("MatMul", [graph.real(5, 37), weights]))
    executable = assert_near(name, graph.arrays)
    assert [o.workload["dtype"] for o in executable.report().operators if o.workload is not None] == ["float32"]


@pytest.mark.values
@pytest.mark.parametrize("dtype", sorted(TYPES))
@pytest.mark.parametrize(
    "layer", [convolution, depthwise_convolution, product, product_of_two], ids=lambda f: f.__name__
)
def test_results_that_stay_floats(layer, dtype):
    graph = Graph(dtype)
    model = graph.finished_model(graph.add("Tanh", [layer(graph)]), TensorProto.FLOAT)
    executable = tt.compile(model)
    want, got = without_optimiser(model, graph.arrays), executable.run(**graph.arrays)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
    assert "int8" in {o.workload["dtype"] for o in executable.report().operators if o.workload is not None}
