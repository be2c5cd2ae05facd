"""Decompositions of programs: PyTorch's own rules to core ATen operators, except for operators that are translated
undecomposed, plus rules for operators that PyTorch does not decompose."""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import inf
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch.nn import functional as F  # noqa: N812

# Operators that PyTorch would decompose but that are translated as they are.
_WHOLE = (
    *("lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input"),
    *("linear.default", "scaled_dot_product_attention.default"),
    *("roll.default", "im2col.default", "col2im.default", "pixel_shuffle.default", "pixel_unshuffle.default"),
    *(f"{kind}_pad{rank}d.default" for kind in ("reflection", "replication") for rank in (1, 2, 3)),
    *("upsample_nearest1d.vec", "upsample_nearest2d.vec", "upsample_nearest3d.vec"),
    *("_upsample_nearest_exact1d.vec", "_upsample_nearest_exact2d.vec", "_upsample_nearest_exact3d.vec"),
    *("upsample_linear1d.vec", "upsample_bilinear2d.vec", "upsample_trilinear3d.vec", "upsample_bicubic2d.vec"),
    *("_upsample_bilinear2d_aa.vec", "_upsample_bicubic2d_aa.vec", "_upsample_lanczos2d_aa.vec"),
    *("affine_grid_generator.default", "max_unpool2d.default", "max_unpool3d.default"),
    *("adaptive_avg_pool1d.default", "adaptive_avg_pool2d.default", "adaptive_avg_pool3d.default"),
    *("take.default", "one_hot.default", "linspace.default"),
)
# Operators that PyTorch does not decompose although it has a rule for them.
_FURTHER = ("_batch_norm_with_update_functional.default",)
_OWN: dict[str, Callable[..., Any]] = {}


def decompositions() -> Any:
    """The table of decompositions for torch.export."""
    table: Any = torch.export.default_decompositions()
    for found in [found for found in table if torch.Tag.nondeterministic_seeded in getattr(found, "tags", ())]:
        table.pop(found)  # PyTorch's own kernels draw the same random numbers as the module
    for name in _WHOLE:
        if (found := _overload(name)) is not None:
            table.pop(found, None)
    for name in _FURTHER:
        if (found := _overload(name)) in decomposition_table:
            table[found] = decomposition_table[found]
    for name, function in _OWN.items():
        if (found := _overload(name)) is not None:
            table[found] = function
    return table


@functools.lru_cache(maxsize=1)
def rules() -> dict[Any, Callable[..., Any]]:
    """The decompositions as a dict, created once: PyTorch takes a third of a second to build a table."""
    return dict(decompositions().items())


def _overload(name: str) -> Any:
    """An operator of the installed PyTorch by packet and overload; None if it does not exist."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet, None), overload, None)


def _decomposes(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _OWN[name] = function
        return function

    return register


# ---- attention as called by nn.MultiheadAttention and nn.TransformerEncoderLayer in inference -----------------------


@_decomposes("_native_multi_head_attention.default")
def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    mask: torch.Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """A mask excludes keys where it is nonzero; with type 1 it is (batch, keys), otherwise it broadcasts to the
    scores."""
    weights, biases = qkv_weight.chunk(3), qkv_bias.chunk(3)
    q, k, v = (
        F.linear(x, weight, bias).unflatten(-1, (num_head, -1)).transpose(1, 2)
        for x, weight, bias in zip((query, key, value), weights, biases, strict=True)
    )
    scores = (q * (embed_dim // num_head) ** -0.5) @ k.transpose(-2, -1)
    if mask is not None:
        hidden = mask.to(torch.bool)
        scores = scores.masked_fill(hidden[:, None, None, :] if mask_type == 1 else hidden, -inf)
    shares = scores.softmax(-1)
    result = F.linear((shares @ v).transpose(1, 2).flatten(2), proj_weight, proj_bias)
    if not need_weights:
        return result, query.new_empty(0)
    return result, shares.mean(1) if average_attn_weights else shares


@_decomposes("_transformer_encoder_layer_fwd.default")
def _encoder_layer(
    src: torch.Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: torch.Tensor,
    norm_bias_1: torch.Tensor,
    norm_weight_2: torch.Tensor,
    norm_bias_2: torch.Tensor,
    ffn_weight_1: torch.Tensor,
    ffn_bias_1: torch.Tensor,
    ffn_weight_2: torch.Tensor,
    ffn_bias_2: torch.Tensor,
    mask: torch.Tensor | None = None,
    mask_type: int | None = None,
) -> torch.Tensor:
    def first(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    def attended(x: torch.Tensor) -> torch.Tensor:
        heads = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        return _attention(x, x, x, embed_dim, num_heads, *heads, mask, False, True, mask_type)[0]

    def fed(x: torch.Tensor) -> torch.Tensor:
        inner = F.linear(x, ffn_weight_1, ffn_bias_1)
        return F.linear(F.gelu(inner) if use_gelu else inner.relu(), ffn_weight_2, ffn_bias_2)

    if norm_first:
        middle = src + attended(first(src))
        return middle + fed(second(middle))
    middle = first(src + attended(src))
    return second(middle + fed(middle))


# ---- normalisation --------------------------------------------------------------------------------------------------


@_decomposes("instance_norm.default")
def _instance_norm(
    input: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> torch.Tensor:
    """Not decomposed unless it updates statistics, which its schema does not declare."""
    if not use_input_stats or (running_mean is None and running_var is None):
        kept: torch.Tensor = NotImplemented
        return kept
    batch, channels = input.shape[:2]

    def repeated(value: torch.Tensor | None) -> torch.Tensor | None:
        return None if value is None else value.repeat(batch)

    mean, variance = repeated(running_mean), repeated(running_var)
    planes = input.reshape(1, batch * channels, *input.shape[2:])
    result = torch.batch_norm(planes, repeated(weight), repeated(bias), mean, variance, True, momentum, eps, False)
    for held, changed in ((running_mean, mean), (running_var, variance)):
        if held is not None and changed is not None:
            held.copy_(changed.view(batch, channels).mean(0))
    return result.view(input.shape)


# ---- losses ---------------------------------------------------------------------------------------------------------


@_decomposes("multilabel_margin_loss_forward.default")
def _multilabel_margin_loss(
    input: torch.Tensor, target: torch.Tensor, reduction: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The labels of a row are those before its first -1; PyTorch's own rule counts those after it as label 0."""
    rows, labels = torch.atleast_2d(input), torch.atleast_2d(target)
    classes = torch.arange(rows.shape[1])
    counts = (labels < 0).to(torch.int64).cumsum(1) == 0
    is_target = ((labels[..., None] == classes) & counts[..., None]).any(1)
    own = rows.gather(1, labels.clamp(min=0))
    away = (1 - own[..., None] + rows[:, None]).clamp(min=0)
    terms = torch.where(counts[..., None] & ~is_target[:, None], away, torch.zeros_like(away))
    losses = terms.sum((1, 2)) / rows.shape[1]
    # PyTorch's reduction codes: 0 none, 1 mean, 2 sum.
    loss = losses.reshape(target.shape[:-1]) if reduction == 0 else losses.mean() if reduction == 1 else losses.sum()
    return loss, is_target.to(input.dtype).reshape(target.shape)
