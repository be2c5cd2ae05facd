"""Attributes of Relay operators: their defaults, and their representation in JSON.

The text form prints only values that differ from the default; JSON contains all, as strings. A line of the table is a
list of operators and their attributes, name:kind=default; an attribute without a default is required. The kind is the
JSON representation: i, f, b and s are literals (integer, float, boolean, text), n is a node; mA is a literal before
release 0.A and a node since; x is irrelevant. Where releases differ in a default, it is None here, and the operator's
converter decides.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import ModelFormatError
from .nodes import Nodes, NoValue

_POOL = "pool_size:n padding:n=0 ceil_mode:b=False dilation:n=1 strides:n=1 out_layout:s=''"
_CONV = (
    "strides:n=1 padding:n=0 dilation:n=1 groups:i=1 channels:n=None kernel_size:n=None out_layout:s='' "
    "out_dtype:s=None"
)
_RESIZE = (
    "size:n=None method:s='linear' coordinate_transformation_mode:s='half_pixel' rounding_method:s='round' "
    "cubic_alpha:f=-0.5 cubic_exclude:i=0 out_dtype:s=None roi:n=None extrapolation_value:f=0.0"
)
_REDUCE = "axis:n=None keepdims:b=False exclude:b=False"
_NORM = "epsilon:f=1e-5 center:b=True scale:b=True"
_QNN_PAIR = (
    "lhs_zero_point:i=None lhs_scale:f=None rhs_zero_point:i=None rhs_scale:f=None output_zero_point:i=None "
    "output_scale:f=None lhs_axis:i=-1 rhs_axis:i=-1"
)
_QNN_PRODUCT = "input_zero_point:i=None kernel_zero_point:i=None input_scale:f=None kernel_scale:f=None"
_NO_ATTRIBUTES = (
    "abs acos acosh add asin asinh atan atanh bitwise_and bitwise_not bitwise_or bitwise_xor broadcast_to_like "
    "cast_like ceil collapse_sum_like copy cos cosh divide equal erf exp fast_erf fast_exp fast_tanh floor "
    "floor_divide floor_mod full_like greater greater_equal hardswish invert_permutation isfinite isinf isnan "
    "left_shift less less_equal log "
    "log10 log2 logical_and logical_not logical_or logical_xor maximum minimum mod multiply negative "
    "nn.batch_flatten "
    "nn.cross_entropy nn.cross_entropy_with_logits nn.relu not_equal ones_like power qnn.abs qnn.erf qnn.exp "
    "qnn.hardswish qnn.log qnn.rsqrt qnn.sigmoid qnn.sqrt qnn.tanh right_shift round rsqrt sigmoid sign sin sinh sqrt "
    "subtract tan tanh trunc trunc_divide trunc_mod unravel_index where zeros_like annotation.stop_fusion "
    "annotation.checkpoint adv_index identity"
)
_TABLE = f"""
{_NO_ATTRIBUTES}:
nn.bias_add nn.prelu: axis:i=1
nn.conv1d: {_CONV} data_layout:s='NCW' kernel_layout:s='OIW'
nn.conv2d: {_CONV} data_layout:s='NCHW' kernel_layout:s='OIHW'
nn.conv3d: {_CONV} data_layout:s='NCDHW' kernel_layout:s='OIDHW'
nn.conv1d_transpose: {_CONV} output_padding:n=0 data_layout:s='NCW' kernel_layout:s=None
nn.conv2d_transpose: {_CONV} output_padding:n=0 data_layout:s='NCHW' kernel_layout:s=None
nn.conv3d_transpose: {_CONV} output_padding:n=0 data_layout:s='NCDHW' kernel_layout:s=None
nn.deformable_conv2d: {_CONV} deformable_groups:i=1 data_layout:s='NCHW' kernel_layout:s='OIHW'
nn.dense: units:n=None out_dtype:s=None
nn.matmul nn.batch_matmul: units:n=None out_dtype:s=None transpose_a:b=None transpose_b:b=None
nn.max_pool1d nn.avg_pool1d: {_POOL} count_include_pad:b=False layout:s='NCW'
nn.max_pool2d nn.avg_pool2d qnn.avg_pool2d: {_POOL} count_include_pad:b=False layout:s='NCHW'
nn.max_pool3d nn.avg_pool3d: {_POOL} count_include_pad:b=False layout:s='NCDHW'
nn.global_max_pool2d nn.global_avg_pool2d: layout:s='NCHW' out_layout:s=''
nn.adaptive_avg_pool1d nn.adaptive_max_pool1d: output_size:n=[] layout:s='NCW' out_layout:s=''
nn.adaptive_avg_pool2d nn.adaptive_max_pool2d: output_size:n=[] layout:s='NCHW' out_layout:s=''
contrib.adaptive_avg_pool2d contrib.adaptive_max_pool2d: output_size:n=[] layout:s='NCHW' out_layout:s=''
nn.adaptive_avg_pool3d nn.adaptive_max_pool3d: output_size:n=[] layout:s='NCDHW' out_layout:s=''
nn.batch_norm nn.instance_norm: axis:i=1 {_NORM}
nn.layer_norm: axis:i=-1 {_NORM}
nn.group_norm: num_groups:i axis:i=1 {_NORM}
nn.l2_normalize: eps:f axis:n=None
nn.lrn: size:i=5 axis:i=1 bias:f=2.0 alpha:f=0.0001 beta:f=0.75
nn.softmax nn.fast_softmax nn.log_softmax qnn.softmax: axis:i=-1
nn.leaky_relu qnn.leaky_relu: alpha:f=0.25
nn.dropout: rate:f=0.5
nn.pad: pad_width:n pad_value:f=0.0 pad_mode:s='constant'
nn.mirror_pad: pad_width:n mode:s='SYMMETRIC'
nn.upsampling: scale_h:f scale_w:f layout:s='NCHW' method:s='nearest_neighbor' align_corners:b=False
nn.upsampling3d: scale_d:f scale_h:f scale_w:f layout:s='NCDHW' method:s='nearest_neighbor' \
coordinate_transformation_mode:s='half_pixel'
nn.depth_to_space nn.space_to_depth: block_size:i layout:s='NCHW' mode:s='DCR'
nn.space_to_batch_nd: block_shape:n paddings:n pad_value:f=0.0
nn.batch_to_space_nd: block_shape:n crops:n
nn.dilate: strides:n dilation_value:f=0.0
nn.nll_loss: reduction:s='mean' ignore_index:i
nn.fifo_buffer: axis:i=0
sum mean max min prod all any: {_REDUCE}
argmax argmin: {_REDUCE} select_last_index:b=False
variance: {_REDUCE} unbiased:b=False
cumsum cumprod: axis:n=None dtype:s=None exclusive:n=False
clip: a_min:f a_max:f
cast reinterpret annotation.cast_hint: dtype:s
fixed_point_multiply: multiplier:i shift:i
reshape contrib_reverse_reshape: newshape:n allowzero:b=False reverse:b=False
dyn.reshape: newshape:n=None allowzero:b=False reverse:b=False
reshape_like: lhs_begin:i=0 lhs_end:n=None rhs_begin:i=0 rhs_end:n=None
transpose: axes:n=None
squeeze dyn.squeeze: axis:n=None
expand_dims: axis:i num_newaxis:i=1
concatenate: axis:i=0
stack: axis:n=0
split: indices_or_sections:n axis:i=0
strided_slice dyn.strided_slice: begin:n=None end:n=None strides:n=None slice_mode:s='end' axes:n=None
strided_set: begin:x=None
slice_like: axes:n=None
tile: reps:n
dyn.tile: reps:n=None
repeat: repeats:n axis:n=None
reverse: axis:n
broadcast_to dyn.broadcast_to collapse_sum_to: shape:n=None dtype:s=None
full dyn.full zeros dyn.zeros ones dyn.ones: shape:n=None dtype:s=None
arange: start:x=None stop:x=None step:x=None dtype:s
layout_transform: src_layout:s dst_layout:s
meshgrid: indexing:s='ij'
shape_of ndarray_size: dtype:s='int32'
take: batch_dims:n=0 axis:n=None mode:s='clip'
gather: axis:n=0
gather_nd: batch_dims:n=0 index_rank:n=None
scatter scatter_add: axis:n=0
scatter_elements: axis:n=0 reduction:s='update'
scatter_nd: mode:s='update'
one_hot dyn.one_hot: depth:i=1 axis:i=-1 dtype:s=None
sequence_mask: mask_value:f=0.0 axis:i=0
reverse_sequence: seq_axis:n=1 batch_axis:n=0
sparse_to_dense: output_shape:n
matrix_set_diag: k1:i=0 k2:i=0 super_diag_right_align:b=True sub_diag_right_align:b=False
trilu: upper:b=True
einsum: equation:s
searchsorted: right:b=False dtype:s='int32'
sliding_window: axis:i window_shape:n strides:n
topk dyn.topk: k:m7=1 axis:i=-1 ret_type:s='both' is_ascend:b=False dtype:s='int32'
argsort: axis:i=-1 is_ascend:b=True dtype:s='int32'
sort: axis:i=-1 is_ascend:b=True dtype:s='int32'
image.resize: size:n layout:s='NCHW' method:s='bilinear' align_corners:b=None \
coordinate_transformation_mode:s=None out_dtype:s=None
image.resize1d: {_RESIZE} layout:s='NCW'
image.resize2d dyn.image.resize2d: {_RESIZE} layout:s='NCHW'
image.resize3d: {_RESIZE} layout:s='NCDHW'
image.crop_and_resize: crop_size:n layout:s='NCHW' method:s='bilinear' extrapolation_value:f=0.0 out_dtype:s=None
image.dilation2d: strides:n=1 padding:n=0 dilations:n=1 data_layout:s='NCHW' kernel_layout:s='IHW' out_dtype:s=None
image.affine_grid: target_shape:n
image.grid_sample: method:s='bilinear' layout:s='NCHW' padding_mode:s='zeros' align_corners:b=True
vision.multibox_prior: sizes:n=[1.0] ratios:n=[1.0] steps:n=[-1.0,-1.0] offsets:n=[0.5,0.5] clip:b=False
vision.get_valid_counts: score_threshold:m8=0.0 id_index:i=0 score_index:i=1
vision.non_max_suppression: max_output_size:m7=-1 iou_threshold:f=0.5 force_suppress:b=False top_k:i=-1 \
coord_start:i=2 score_index:i=1 id_index:i=0 return_indices:b=True invalid_to_bottom:b=False
vision.roi_align: pooled_size:n spatial_scale:f sample_ratio:i=-1 layout:s='NCHW' mode:s='avg'
vision.roi_pool: pooled_size:n spatial_scale:f layout:s='NCHW'
qnn.quantize: out_dtype:s output_zero_point:i=None output_scale:f=None axis:i=-1
qnn.dequantize: input_zero_point:i=None input_scale:f=None axis:i=-1 out_dtype:s='float32'
qnn.requantize: input_scale:f=None input_zero_point:i=None output_scale:f=None output_zero_point:i=None \
rounding:s='None' compute_dtype:s='None' out_dtype:s='int8' axis:i=-1
qnn.conv2d: {_CONV} {_QNN_PRODUCT} data_layout:s='NCHW' kernel_layout:s='OIHW'
qnn.conv2d_transpose: {_CONV} output_padding:n=0 data_layout:s='NCHW' kernel_layout:s=None
qnn.dense: units:n=None out_dtype:s='int32' {_QNN_PRODUCT}
qnn.batch_matmul: out_dtype:s='int32' transpose_a:b=False transpose_b:b=True
qnn.add qnn.subtract qnn.mul: {_QNN_PAIR}
qnn.concatenate: input_scales:n=None input_zero_points:n=None output_zero_point:i=None output_scale:f=None axis:i=0
on_device device_copy: device_type:x=0 is_fixed:x=0 virtual_device:x=0 constrain_result:x=0 constrain_body:x=0 \
src_dev_type:x=0 dst_dev_type:x=0 src_virtual_device:x=0 dst_virtual_device:x=0
annotation.compiler_begin annotation.compiler_end: compiler:x=''
"""
# Attributes noted by tuning passes, which do not change results.
_WITHOUT_CONSEQUENCE = frozenset(
    ["auto_scheduler_rewritten_layout", "meta_schedule_original_shape", "schedule_rule", "param_device_types"]
)
_VOID = ("", "void", "None", "handle0")


@dataclass(frozen=True)
class Attribute:
    """One attribute. `node_from`: the release since which JSON stores it as a node; None if it is always a literal."""

    kind: str
    node_from: int | None
    required: bool
    default: Any


def _attribute(text: str) -> tuple[str, Attribute]:
    head, equals, default = text.partition("=")
    name, _, kind = head.partition(":")
    node_from = {"n": 0, "m": int(kind[1:] or 0)}.get(kind[0])
    return name, Attribute(kind[0], node_from, not equals, ast.literal_eval(default) if equals else None)


def _operators(table: str) -> dict[str, dict[str, Attribute]]:
    found: dict[str, dict[str, Attribute]] = {}
    for line in table.strip().splitlines():
        names, _, listed = line.partition(":") if line.rstrip().endswith(":") else line.partition(": ")
        attributes = dict(_attribute(text) for text in listed.split())
        found.update(dict.fromkeys(names.split(), attributes))
    return found


OPERATORS = _operators(_TABLE)


def with_defaults(op: str, stated: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a call, with defaults for missing ones. Raises ValueError for required and unknown ones."""
    known = OPERATORS[op]
    unknown = sorted(set(stated) - set(known) - _WITHOUT_CONSEQUENCE)
    if unknown:
        raise ValueError(
            f"the attributes {', '.join(unknown)} are not supported; expected {', '.join(known) or 'none'}"
        )
    missing = [name for name, attribute in known.items() if attribute.required and name not in stated]
    if missing:
        raise ValueError(f"the attributes {', '.join(missing)} are missing")
    for name, value in stated.items():
        kind = _no_value(value)
        if kind is not None and name in known and known[name].kind != "x":
            raise ValueError(f"the attribute {name} contains a {kind}; expected numbers, texts and lists of these")
    return {name: stated.get(name, attribute.default) for name, attribute in known.items()}


def _no_value(value: Any) -> str | None:
    """The kind of a valueless node within an attribute; None if there is none."""
    if isinstance(value, list):
        return next((kind for kind in map(_no_value, value) if kind is not None), None)
    return value.kind if isinstance(value, NoValue) else None


def from_json(op: str, nodes: Nodes, number: int) -> dict[str, Any]:
    """The attributes of a JSON node as plain values. Raises ModelFormatError for invalid values."""
    known = OPERATORS.get(op)
    if known is None:
        return {}
    found: dict[str, Any] = {}
    for name, text in nodes.fields(number).items():
        attribute = known.get(name)
        if attribute is None:
            found[name] = text
        elif attribute.kind != "x":
            found[name] = _value(nodes, number, name, text, attribute)
    return found


def _value(nodes: Nodes, number: int, name: str, text: str, attribute: Attribute) -> Any:
    if attribute.kind == "s":
        held = nodes.name(number, name)
        return None if held in _VOID and attribute.default is None else held
    as_node = attribute.node_from is not None and (nodes.release or (0, 99)) >= (0, attribute.node_from)
    try:
        if as_node:
            return nodes.value(nodes.number_of(number, text))
        if attribute.kind == "b":
            return bool(int(text))
        return int(text) if attribute.kind == "i" else float(text)
    except ValueError as error:
        if isinstance(error, ModelFormatError):
            raise
        raise nodes.fail(number, f"{name} = {text[:40]!r} is not a valid value") from None
