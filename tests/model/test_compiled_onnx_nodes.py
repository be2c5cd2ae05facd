"""Some of the onnx package's node tests through tt.compile; tests/slow/test_onnx_node_tests.py runs all of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "frontend"))  # whose cases are used here

pytest.importorskip("onnx")

# One or two of each kind of schedule, and former faults: scalars, nothing to compute, data-dependent shapes, sums to a
# single number, functions of functions.
PLAIN = [
    "add_bcast",
    "argmax_no_keepdims_random_select_last_index",
    "argmin_keepdims_example",
    "attention_4d_causal",
    "averagepool_2d_pads_count_include_pad",
    "basic_conv_with_padding",
    "batchnorm_example",
    "batchnorm_epsilon_training_mode",
    "bitcast_bool_to_uint8",
    "bitcast_scalar_float32_to_int32",
    "causal_conv_with_state_kernel_size_one",
    "clip",
    "compress_default_axis",
    "concat_3d_axis_negative_1",
    "convtranspose_group_2",
    "cosh",
    "det_nd",
    "gather_elements_0",
    "gemm_default_scalar_bias",
    "gelu_tanh_1",
    "gridsample_bilinear",
    "group_normalization_epsilon",
    "instancenorm_example",
    "layer_normalization_4d_axis1",
    "lstm_with_peepholes",
    "matmul_1d_1d",
    "matmul_3d",
    "max_example",
    "maxpool_2d_ceil",
    "maxpool_3d_dilations",
    "mish",
    "nllloss_NCd1d2_with_weight_reduction_mean",
    "prelu_broadcast",
    "qlinearmatmul_2D_uint8_float32",
    "reduce_l2_default_axes_keepdims_random",
    "reduce_max_empty_set",
    "sce_mean_weight_ii_3d",
    "scatternd_add",
    "sinh",
    "softmax_axis_1",
    "top_k",
    "transpose_all_permutations_3",
    "unique_sorted_with_axis",
    "where_example",
]
WITH_PARAMS = [
    "blackmanwindow",
    "col2im_pads",
    "constant_pad",
    "onehot_with_negative_axis",
    "range_float_type_positive_delta",
    "reduce_sum_negative_axes_keepdims_random",
    "resize_upsample_scales_linear",
    "slice_neg_steps",
    "tile",
]


@pytest.mark.parametrize("name", PLAIN)
def test_node(name):
    from onnx_nodes import by_compile, case_named, check

    check(case_named(f"test_{name}"), by_compile)


@pytest.mark.parametrize("name", WITH_PARAMS)
def test_node_with_values_given_before_the_run(name):
    from onnx_nodes import by_compile, case_named, check, deciding

    case = case_named(f"test_{name}")
    check(case, by_compile, fixed=deciding(case))
