"""Nodes whose operands or attributes their operator does not define are refused in one sentence that names the node."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.defs import onnx_opset_version
from test_onnx_node_checks import refusal

from tvm_tiling.frontend.onnx.operand_checks import Operands, check_operands
from tvm_tiling.frontend.onnx.operators import CONVERTERS


def shape(value):
    return None if value is None else value.shape


def ones(*shape):
    return np.ones(shape, "float32")


@pytest.mark.parametrize(
    ("operator", "shape", "constants", "attributes", "why"),
    [
        ("ReduceSum", (2, 3), [np.array([1])], {"keepdims": 2}, "keepdims is 2; expected 0 or 1"),
        ("CumSum", (2, 3), [np.int64(1)], {"reverse": -1}, "reverse is -1; expected 0 or 1"),
        ("CumSum", ("rows",), [np.int64(3)], {}, "axis 3 is out of range; expected -1 to 0"),
        ("ReduceSum", (2, 3), [np.array([[1, 1]])], {}, "input 1 has 2 axes; expected a list"),
        ("Squeeze", (1, 3), [np.array([], "int64")], {}, "axes are empty; expected at least one axis"),
        ("ArgMax", (2, 0), [], {"axis": 1}, "axis 1 has no elements; expected at least one"),
        ("Compress", ("rows", 2), [np.ones((1, 3), bool)], {}, "input 1 has 2 axes; expected a list"),
        ("Celu", (3,), [], {"alpha": 0.0}, "alpha is 0; expected another number"),
        ("LRN", (1, 3, 4, 4), [], {"size": 0}, "size is 0; expected a number from 1"),
        ("LpNormalization", (2, 3), [], {"p": 3}, "p is 3; expected 1 or 2"),
        ("ReverseSequence", (4, 4), [np.ones(4, "int64")], {"time_axis": -1}, "are 1 and -1; expected 0 and 1, or"),
        ("GatherND", (2, 3), [np.zeros((2, 1), "int64")], {"batch_dims": -1}, "batch_dims is -1; expected 0 to 1"),
        ("GridSample", (1, 1, 4, 4), [ones(1, 2, 2, 2)], {"mode": "square"}, "mode is 'square'; expected one of"),
        ("DepthToSpace", (1, 6, 2, 2), [], {"blocksize": 2}, "images have 6 channels; expected a multiple of"),
        ("SpaceToDepth", (1, 1, 5, 4), [], {"blocksize": 2}, "expected multiples of blocksize 2"),
        ("DepthToSpace", (1, 4, 2, 2), [], {"blocksize": 2, "mode": "crd"}, "mode is 'crd'; expected DCR or CRD"),
        ("PRelu", (2, 3), [ones(6)], {}, "input 1 has shape (6); expected one that is broadcast to (2, 3)"),
        ("LayerNormalization", (2, 3), [ones(3), ones(1, 2, 3)], {}, "input 2 has shape (1, 2, 3); expected one that"),
        ("Einsum", (2, 3), [np.ones((3, 4))], {"equation": "ij,jk->ik"}, "have types float32, float64; expected one"),
    ],
)
def test_operands_and_attributes(operator, shape, constants, attributes, why):
    assert why in refusal(operator, shape, constants, **attributes)


@pytest.mark.parametrize(
    ("constants", "attributes", "why"),
    [
        ([ones(1, 4, 2, 2), ones(1, 8, 3, 3)], {}, "do not match group 1"),
        ([ones(1, 1, 2, 2), ones(1, 8, 4, 4)], {}, "offset has shape (1, 8, 4, 4); expected (1, 8, 3, 3)"),
        ([ones(1, 1, 2, 2), ones(2, 8, 3, 3)], {}, "offset has shape (2, 8, 3, 3); expected (1, 8, 3, 3)"),
        ([ones(1, 1, 2, 2), ones(1, 8, 3, 3), ones(2)], {}, "B has shape (2); expected (1)"),
        ([ones(1, 1, 2, 2), ones(1, 8, 3, 3)], {"kernel_shape": [3, 3]}, "kernel_shape is [3, 3], but the weights"),
        ([ones(1, 1, 2, 2), ones(1, 8, 3, 3)], {"strides": [0, 1]}, "strides are [0, 1]; expected 2 numbers from 1"),
    ],
)
def test_deformable_convolutions(constants, attributes, why):
    assert why in refusal("DeformConv", (1, 1, 4, 4), constants, opset=19, **attributes)


@pytest.mark.parametrize(
    ("constants", "attributes", "why"),
    [
        ([ones(1, 8, 4), ones(1, 8, 2)], {}, "W has shape (1, 8, 4); expected (?, ?, 3)"),
        ([ones(1, 8, 3), ones(1, 8, 2)], {"direction": "both"}, "direction is 'both'; expected one of forward, "),
        ([ones(1, 8, 3), ones(1, 8, 2), ones(1, 16), np.ones(2, "int32")], {}, "sequence_lens has shape (2); expected"),
        ([ones(1, 8, 3), ones(1, 8, 2), ones(1, 16), np.ones(1, "int32"), ones(1, 2, 2)], {}, "initial_h has shape"),
    ],
)
def test_recurrent_layers(constants, attributes, why):
    assert why in refusal("LSTM", (4, 1, 3), constants, hidden_size=2, **attributes)


@pytest.mark.skipif(onnx_opset_version() < 23, reason="the installed onnx has no Attention")
@pytest.mark.parametrize(
    ("keys", "values", "why"),
    [
        ((2, 2, 6, 8), (2, 1, 6, 8), "V has shape (2, 1, 6, 8); expected (2, 2, 6, ?)"),
        ((1, 2, 6, 8), (1, 2, 6, 8), "K has shape (1, 2, 6, 8); expected (2, ?, ?, 8)"),
        ((2, 4, 6, 4), (2, 4, 6, 8), "K has shape (2, 4, 6, 4); expected (2, ?, ?, 8)"),
        ((2, 3, 6, 8), (2, 3, 6, 8), "Q has 4 heads and K 3; expected a multiple"),
    ],
)
def test_keys_and_values_of_attention(keys, values, why):
    assert why in refusal("Attention", (2, 4, 5, 8), [ones(*keys), ones(*values)], opset=23)


def test_lengths_of_keys_of_attention():
    node = [ones(2, 4, 6, 8), ones(2, 4, 6, 8), ones(5, 6), None, None, np.ones(1, "int64")]
    operands = Operands({}, lambda place: [[2, 4, 5, 8], *map(shape, node)][place], lambda _: None)
    with pytest.raises(ValueError, match=r"nonpad_kv_seqlen has shape \(1\); expected \(2\)"):
        check_operands("Attention", operands)


@pytest.mark.skipif(onnx_opset_version() < 28, reason="the installed onnx has no mode of SpaceToDepth")
def test_an_unknown_order_of_depth():
    assert "mode is 'crd'; expected DCR or CRD" in refusal(
        "SpaceToDepth", (1, 1, 4, 4), opset=28, blocksize=2, mode="crd"
    )


@pytest.mark.parametrize("axis", [2**40, 2**32 + 1, -(2**40)])
def test_axes_of_a_transform_that_do_not_fit_32_bits(axis):
    assert f"axis {axis} is out of range; expected -3 to 1, but not -1" in refusal(
        "DFT", (2, 4, 1), axis=axis, opset=17
    )


@pytest.mark.parametrize(
    ("place", "shape", "why"),
    [
        (1, (1, 1), "a_scale has shape (1, 1) for matrices of shape (2, 4); expected a single number, or one per row"),
        (2, (4,), "a_zero_point has shape (4) for matrices of shape (2, 4); expected a single number, or one per row"),
        (4, (1, 1), "b_scale has shape (1, 1) for matrices of shape (4, 3); expected a single number, or one per col"),
        (5, (2,), "b_zero_point has shape (2) for matrices of shape (4, 3); expected a single number, or one per col"),
        (6, (1, 1), "y_scale has shape (1, 1); expected a single number"),
        (7, (3,), "y_zero_point has shape (3); expected a single number"),
    ],
)
def test_scales_and_zero_points_of_a_matrix_multiplication(place, shape, why):
    zero = np.uint8(1)
    constants = [ones(), zero, np.ones((4, 3), "uint8"), ones(), zero, ones(), zero]
    constants[place - 1] = np.full(shape, constants[place - 1])
    assert why in refusal("QLinearMatMul", (2, 4), constants)


@pytest.mark.parametrize("error", [IndexError("list index out of range"), RuntimeError("Check failed: groups > 0")])
def test_errors_of_the_code_become_sentences(error, monkeypatch):
    class Failing:
        @staticmethod
        def get_converter(_):
            def converter(*_):
                raise error

            return converter

    monkeypatch.setitem(CONVERTERS, "Det", Failing)
    said = refusal("Det", (2, 3, 3))
    assert said.endswith("its attributes do not match its inputs, of shapes (2, 3, 3), or are not supported")
