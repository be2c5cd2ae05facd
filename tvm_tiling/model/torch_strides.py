"""Tensors of given strides: what PyTorch would have made has the layout that PyTorch would have given it."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def with_strides(tensor: torch.Tensor, strides: Sequence[int] | None) -> torch.Tensor:
    """The tensor, or a copy of these strides; itself where none are known, and where elements of such strides overlap
    or leave gaps."""
    if strides is None or not differ(tensor, strides) or not is_dense(tensor.shape, strides):
        return tensor
    return torch.empty_strided(tensor.shape, tuple(strides), dtype=tensor.dtype).copy_(tensor)


def differ(tensor: torch.Tensor, strides: Sequence[int]) -> bool:
    """Whether elements lie elsewhere by these strides than by the tensor's own."""
    if tensor.numel() < 2:
        return False
    return any(
        size > 1 and own != other for size, own, other in zip(tensor.shape, tensor.stride(), strides, strict=True)
    )


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the axes in some order have the strides of a tensor without gaps."""
    expected = 1
    for stride, size in sorted((stride, size) for size, stride in zip(shape, strides, strict=True) if size != 1):
        if stride != expected:
            return False
        expected *= size
    return True
