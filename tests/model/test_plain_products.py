"""Transposed operands are read as they are stored, and outer products are element-wise; results equal NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import tvm_tiling as tt

TYPES = {
    "float16": (TensorProto.FLOAT16, 4e-3),
    "float32": (TensorProto.FLOAT, 2e-5),
    "float64": (TensorProto.DOUBLE, 1e-12),
}


def check(left, right, orders, dtype="float32", **options):
    """Compile the matrix multiplication of transposed inputs, compare it with NumPy, and return its operators."""
    kind, tolerance = TYPES[dtype]
    ends, nodes, operands = [], [], []
    for name, shape, order in zip("ab", (left, right), orders, strict=True):
        ends.append(helper.make_tensor_value_info(name, kind, shape))
        if order is not None:
            nodes.append(helper.make_node("Transpose", [name], [f"{name}_turned"], perm=order))
        operands.append(name if order is None else f"{name}_turned")
    nodes.append(helper.make_node("MatMul", operands, ["y"]))
    graph = helper.make_graph(nodes, "product", ends, [helper.make_tensor_value_info("y", kind, None)])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(shape).astype(dtype) for shape in (left, right)]
    wide = [
        (array if order is None else array.transpose(order)).astype("float64")
        for array, order in zip(given, orders, strict=True)
    ]
    wanted = np.matmul(*wide)
    executable = tt.compile(made, cache=False, **options)
    found = executable.run(*given)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * max(1.0, float(np.abs(wanted).max())))
    return executable.report().operators


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("orders", [([1, 0], [1, 0]), ([1, 0], None), (None, [1, 0])], ids=str)
@pytest.mark.parametrize(("m", "k", "n"), [(127, 257, 65), (1, 300, 64), (3, 17, 5), (64, 3, 2)])
@pytest.mark.parametrize("deterministic", [False, True])
def test_transposed_inputs_are_read_as_they_are_stored(dtype, orders, m, k, n, deterministic):
    left, right = ((m, k) if orders[0] is None else (k, m)), ((k, n) if orders[1] is None else (n, k))
    operators = check(left, right, orders, dtype, deterministic=deterministic)
    assert [operator.kind for operator in operators] == ["gemm"]


@pytest.mark.parametrize(
    ("left", "right", "orders"),
    [
        ((6, 40, 33), (6, 21, 40), ([0, 2, 1], [0, 2, 1])),
        ((4, 33, 40), (21, 40), (None, [1, 0])),
        ((6, 40, 33), (40, 21), ([0, 2, 1], None)),
    ],
)
def test_batches_are_broadcast(left, right, orders):
    assert len(check(left, right, orders)) == 1


def test_other_orders_of_axes_remain_operators():
    operators = check((40, 6, 33), (33, 6, 21), ([2, 0, 1], None))
    assert sorted(operator.kind for operator in operators) == ["gemm", "other"]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("left", "right"), [((37, 1), (1, 129)), ((5, 30, 1), (5, 1, 20)), ((30, 1), (5, 1, 20))])
def test_outer_products_are_element_wise(dtype, left, right):
    (operator,) = check(left, right, (None, None), dtype)
    assert operator.form == "element-wise"


def test_outer_products_with_long_rows_are_computed_in_tiles():
    (operator,) = check((8, 1), (1, 5000), (None, None))
    assert operator.kind == "gemm"
