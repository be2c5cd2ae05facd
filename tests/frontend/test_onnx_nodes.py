"""Some of the onnx package's node tests; tests/slow/test_onnx_node_tests.py runs all of them."""

from __future__ import annotations

import pytest
from onnx_nodes import by_default_build, case_named, check, deciding

# One or two for each converter of this package, and for each input that must be known before the run.
PLAIN = [
    "add",
    "attention_23_fullymasked_qk_matmul_output_mode3_zero",
    "attention_4d",
    "attention_3d_causal",
    "batchnorm_epsilon",
    "bitcast_float32_to_int32",
    "celu",
    "convtranspose_output_shape",
    "dropout_default_mask",
    "gemm_default_vector_bias",
    "gru_bidirectional",
    "gru_seq_length",
    "isinf_negative",
    "l2normalization_axis_1",
    "lstm_bidirectional",
    "maxpool_with_argmax_2d_precomputed_strides",
    "mod_mixed_sign_float32",
    "pow_types_float32_int64",
    "qlinearconv",
    "reshape_negative_dim",
    "reversesequence_batch",
    "rms_normalization_3d_axis1_epsilon",
    "rnn_seq_length",
    "rotary_embedding_interleaved",
    "simple_rnn_batchwise",
    "swish",
    "tensorscatter_circular",
]
WITH_PARAMS = [
    "resize_downsample_scales_cubic_antialias",
    "resize_tf_crop_and_resize_extrapolation_value",
    "resize_upsample_sizes_nearest_ceil_half_pixel",
    "dft_inverse",
]

# tests/model/test_compiled_onnx_nodes.py compiles these by default, the build by TVM is slow.
COMPILED = [
    "reduce_max_empty_set",
    "basic_conv_with_padding",
    "clip",
    "det_nd",
    "gelu_tanh_1",
    "group_normalization_epsilon",
    "layer_normalization_4d_axis1",
    "lstm_with_peepholes",
    "maxpool_2d_ceil",
    "softmax_axis_1",
    "top_k",
]
COMPILED_WITH_PARAMS = [
    "col2im_pads",
    "onehot_with_negative_axis",
    "slice_neg_steps",
    "reduce_sum_negative_axes_keepdims_random",
]


def with_slow(names, others):
    return [*names, *(pytest.param(name, marks=pytest.mark.slow) for name in others)]


@pytest.mark.parametrize("name", with_slow(PLAIN, COMPILED))
def test_node(name):
    check(case_named(f"test_{name}"), by_default_build)


@pytest.mark.parametrize("name", with_slow(WITH_PARAMS, COMPILED_WITH_PARAMS))
def test_node_with_values_given_before_the_run(name):
    case = case_named(f"test_{name}")
    check(case, by_default_build, fixed=deciding(case))
