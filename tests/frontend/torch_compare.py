"""A function of tensors, compiled by this package and run by PyTorch: the same values, shapes and types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import torch

import tvm_tiling


class Function(torch.nn.Module):
    """Return a function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.function(*tensors)


def compiled(function: Callable[..., Any], *tensors: torch.Tensor) -> list[torch.Tensor]:
    """Return the compiled function's results. Raises the errors of tvm_tiling.compile."""
    executable = tvm_tiling.compile(torch.export.export(Function(function), tensors))
    returned = executable.run(*(_array(tensor) for tensor in tensors))
    return [_tensor(value) for value in (returned if isinstance(returned, tuple) else (returned,))]


def compare(function: Callable[..., Any], *tensors: torch.Tensor, rtol: float = 1e-5, atol: float = 0.0) -> None:
    """Raise AssertionError if the compiled function returns other values, shapes or types than PyTorch."""
    with torch.no_grad():
        expected = function(*tensors)
    expected = [expected] if isinstance(expected, torch.Tensor) else list(expected)
    results = compiled(function, *tensors)
    assert len(results) == len(expected)
    for result, value in zip(results, expected, strict=True):
        torch.testing.assert_close(result, value, rtol=rtol, atol=atol, equal_nan=True)


def _array(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach().contiguous()
    return (
        tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if tensor.dtype == torch.bfloat16 else tensor.numpy()
    )


def _tensor(array: np.ndarray) -> torch.Tensor:
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
