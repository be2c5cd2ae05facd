"""The operators of OpInfo that the nets check: by kind those that models use most, then all others."""

from __future__ import annotations

KINDS = {
    "elementwise": """
        abs add sub rsub mul div.no_rounding_mode div.trunc_rounding div.floor_rounding floor_divide remainder
        fmod pow neg sign reciprocal maximum minimum fmax fmin clamp bitwise_and bitwise_or bitwise_xor
        bitwise_not bitwise_left_shift bitwise_right_shift logical_and logical_or logical_xor logical_not eq
        ne lt le gt ge where isnan isinf isfinite atan2 logaddexp hypot copysign signbit xlogy exp exp2 expm1
        log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc
        sigmoid logit round round.decimals_3 trunc floor ceil frac nan_to_num
    """,
    "activations": """
        nn.functional.relu nn.functional.relu6 nn.functional.leaky_relu nn.functional.elu nn.functional.selu
        nn.functional.celu nn.functional.gelu nn.functional.silu nn.functional.mish nn.functional.hardtanh
        nn.functional.hardswish nn.functional.hardsigmoid nn.functional.softplus nn.functional.softsign
        nn.functional.logsigmoid nn.functional.softshrink nn.functional.hardshrink nn.functional.tanhshrink
        nn.functional.threshold nn.functional.prelu nn.functional.glu
    """,
    "reductions": """
        sum mean prod amax amin max.reduction_with_dim min.reduction_with_dim argmax argmin any all var std
        var_mean softmax log_softmax logsumexp linalg.vector_norm cumsum cumprod sort argsort topk
    """,
    "creation": """
        arange full full_like fill zeros_like ones_like linspace eye to clone triu tril empty_like randn
        bernoulli
    """,
    "indexing": """
        index_select gather scatter scatter_add scatter_reduce.amax index_put index_add index_copy index_fill
        __getitem__ take take_along_dim masked_fill select slice cat stack split narrow flip roll expand
        permute reshape view repeat tile unfold
    """,
    "layers": """
        nn.functional.conv1d nn.functional.conv2d nn.functional.conv3d nn.functional.conv_transpose1d
        nn.functional.conv_transpose2d nn.functional.linear nn.functional.bilinear nn.functional.embedding
        nn.functional.layer_norm nn.functional.group_norm nn.functional.instance_norm nn.functional.batch_norm
        nn.functional.rms_norm nn.functional.max_pool1d nn.functional.max_pool2d nn.functional.avg_pool1d
        nn.functional.avg_pool2d nn.functional.avg_pool3d nn.functional.adaptive_avg_pool2d
        nn.functional.adaptive_max_pool2d nn.functional.grid_sample nn.functional.interpolate.nearest
        nn.functional.interpolate.nearest-exact nn.functional.interpolate.bilinear
        nn.functional.interpolate.bicubic nn.functional.interpolate.area nn.functional.interpolate.linear
        nn.functional.interpolate.trilinear nn.functional.pixel_shuffle nn.functional.unfold
        nn.functional.pad.constant nn.functional.pad.reflect nn.functional.pad.replicate
        nn.functional.pad.circular nn.functional.scaled_dot_product_attention nn.functional.normalize
        nn.functional.cosine_similarity
    """,
    "products": """
        mm bmm matmul addmm baddbmm einsum mv dot outer
    """,
}
OPERATORS = {kind: names.split() for kind, names in KINDS.items()}


def every_kind() -> dict[str, list[str]]:
    """Return all operators of OpInfo; needs PyTorch."""
    from opinfo_samples import operators

    listed = {name for names in OPERATORS.values() for name in names}
    return {**OPERATORS, "others": [name for name in operators() if name not in listed]}


def a_tenth() -> list[str]:
    """Return every tenth operator, always the same ones."""
    return [name for names in every_kind().values() for name in names][::10]
