"""Tensors with given strides, so that results have the layout they would have in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def with_strides(tensor: torch.Tensor, strides: Sequence[int] | None) -> torch.Tensor:
    """The tensor, or a copy with these strides; itself if none are known, and if elements with these strides overlap or
    leave gaps."""
    if strides is None or not differ(tensor, strides) or not is_dense(tensor.shape, strides):
        return tensor
    return torch.empty_strided(tensor.shape, tuple(strides), dtype=tensor.dtype).copy_(tensor)


def differ(tensor: torch.Tensor, strides: Sequence[int]) -> bool:
    """Return whether elements have other positions with these strides than with the tensor's own."""
    if tensor.numel() < 2:
        return False
    return any(
        size > 1 and own != other for size, own, other in zip(tensor.shape, tensor.stride(), strides, strict=True)
    )


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether the axes, in some order, have the strides of a contiguous tensor."""
    expected = 1
    for stride, size in sorted((stride, size) for size, stride in zip(shape, strides, strict=True) if size != 1):
        if stride != expected:
            return False
        expected *= size
    return True
