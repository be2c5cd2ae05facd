"""The k largest or smallest elements: their order, ties and NaN, for every k, axis and type."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tvm_tiling as tt
from tvm_tiling.model.planned_variant import PlannedVariant

CASES = [
    ((1,), 0, 1),
    ((7,), 0, 7),
    ((65,), 0, 1),
    ((3, 1000), 1, 5),
    ((2, 700), -1, 129),
    ((16, 1000), 1, 32),
    ((1, 9000), 1, 300),
    ((40, 3, 5), 0, 13),
    ((4, 200, 3), 1, 8),
    ((2, 3, 64), -1, 64),
    ((2, 5000), -1, 4096),
    ((2, 5000), -1, 4097),
]


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Numbers with ties; floats have NaN, infinities and both zeros among them."""
    if dtype.startswith("int"):
        info = np.iinfo(dtype)
        x = rng.integers(-20, 20, shape).astype(dtype)
        return np.where(rng.random(shape) < 0.1, rng.choice([info.min, info.max], shape), x).astype(dtype)
    x = np.round(rng.standard_normal(shape) * 4).astype(dtype)
    special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40], dtype)
    return np.where(rng.random(shape) < 0.2, rng.choice(special, shape), x)


def expected_places(x: np.ndarray, k: int, axis: int, largest: bool) -> np.ndarray:
    """By a stable sort: NaN above all numbers, of equal elements the first one first."""
    nan = np.isnan(x)
    number = np.where(nan, 0, x).astype("float64") if x.dtype.kind == "f" else x.astype("int64")
    if largest:  # integers are inverted, since the least one has no opposite
        nan, number = ~nan, -number if x.dtype.kind == "f" else ~number
    order = np.lexsort((number, nan), axis=axis)
    return np.take(order, range(k), axis)


def model(shape: tuple[int, ...], axis: int, k: int, largest: bool, dtype: str) -> onnx.ModelProto:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = helper.make_node("TopK", ["x", "k"], ["v", "i"], axis=axis, largest=int(largest))
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", kind, shape)],
        [
            helper.make_tensor_value_info("v", kind, None),
            helper.make_tensor_value_info("i", onnx.TensorProto.INT64, None),
        ],
        [numpy_helper.from_array(np.array([k]), "k")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int32", "int8", "int64"])
def test_every_type(dtype, largest):
    rng = np.random.default_rng(0)
    for shape, axis, k in CASES[:9]:
        x = values(rng, shape, dtype)
        found, places = tt.compile(model(shape, axis, k, largest, dtype), cache=False).run(x)
        expected = expected_places(x, k, axis, largest)
        np.testing.assert_array_equal(places, expected, err_msg=f"{shape}, k = {k}")
        np.testing.assert_array_equal(found, np.take_along_axis(x, expected, axis))


@pytest.mark.parametrize(("shape", "axis", "k"), CASES)
def test_every_shape_and_both_orders(shape, axis, k):
    rng = np.random.default_rng(1)
    executable = tt.compile(model(shape, axis, k, True, "float32"), cache=False)
    rising = np.sort(rng.standard_normal(shape).astype("float32"), axis=axis)
    for x in (values(rng, shape, "float32"), rising, np.flip(rising, axis).copy(), np.zeros(shape, "float32")):
        np.testing.assert_array_equal(executable.run(x)[1], expected_places(x, k, axis, True))


def test_a_selection_needs_no_sort_of_tvm():
    """So that the model has a plan and can be exported."""
    executable = tt.compile(model((4, 100), 1, 5, True, "float32"), cache=False)
    assert isinstance(executable.variants[0], PlannedVariant)
    assert [operator.name for operator in executable.operators if operator.name == "positions"] == []
