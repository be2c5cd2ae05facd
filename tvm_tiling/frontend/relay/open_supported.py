"""Relay operators that are supported on tensors of dynamic shape.

Their translations read no extent as a number, or say which of them has to be static.
"""

from __future__ import annotations

from .operators import broadcast, elementwise, products, qnn_scaling, reductions

_NORMS = """nn.batch_norm nn.fast_softmax nn.group_norm nn.instance_norm nn.l2_normalize nn.layer_norm nn.log_softmax
nn.lrn nn.softmax"""
_IMAGES = """nn.conv1d nn.conv2d nn.conv3d nn.conv1d_transpose nn.conv2d_transpose nn.conv3d_transpose nn.max_pool1d
nn.max_pool2d nn.max_pool3d nn.avg_pool1d nn.avg_pool2d nn.avg_pool3d nn.adaptive_avg_pool1d nn.adaptive_avg_pool2d
nn.adaptive_avg_pool3d nn.adaptive_max_pool1d nn.adaptive_max_pool2d nn.adaptive_max_pool3d
contrib.adaptive_avg_pool2d contrib.adaptive_max_pool2d nn.global_avg_pool2d nn.global_max_pool2d nn.upsampling
nn.upsampling3d image.resize image.resize1d image.resize2d image.resize3d dyn.image.resize2d nn.pad nn.mirror_pad"""
_MOVES = """broadcast_to broadcast_to_like concatenate contrib_reverse_reshape dyn.broadcast_to dyn.reshape dyn.squeeze
dyn.strided_slice dyn.tile expand_dims layout_transform nn.batch_flatten repeat reshape
reshape_like reverse slice_like split squeeze stack strided_slice tile transpose"""
_CREATED = """arange dyn.full dyn.one_hot dyn.ones dyn.zeros full full_like meshgrid ndarray_size one_hot ones ones_like
shape_of zeros zeros_like"""
_CHOICES = """argsort dyn.topk gather gather_nd scatter scatter_add scatter_elements scatter_nd sort take topk trilu"""
_QUANTISED = """qnn.abs qnn.add qnn.avg_pool2d qnn.batch_matmul qnn.concatenate qnn.conv2d qnn.dense qnn.erf qnn.exp
qnn.hardswish qnn.leaky_relu qnn.log qnn.mul qnn.rsqrt qnn.sigmoid qnn.softmax qnn.sqrt qnn.subtract qnn.tanh"""
_FIXED = frozenset(["trunc_divide", "trunc_mod"])

ANY_SHAPE = (
    frozenset(
        [
            *" ".join((_NORMS, _IMAGES, _MOVES, _CREATED, _CHOICES, _QUANTISED)).split(),
            *broadcast.OPERATORS,
            *elementwise.OPERATORS,
            *products.OPERATORS,
            *qnn_scaling.OPERATORS,
            *reductions.OPERATORS,
        ]
    )
    - _FIXED
)
