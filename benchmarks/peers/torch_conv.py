"""The ways in which PyTorch (oneDNN) computes a convolution, in both layouts of activations.

All of them return a new tensor each time: none can write into an existing one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from tvm_tiling.runtime.arrays import numpy_type

from ..operands import ConvOperands
from .base import Prepared

UNSIGNED_ZERO = 128  # oneDNN's int8 convolution takes unsigned inputs: values are shifted by this zero point


def as_tensor(array: Any) -> Any:
    """Return a tensor on an array's memory. NumPy's bfloat16 type differs from PyTorch's."""
    import torch

    if array.dtype != numpy_type("bfloat16"):
        return torch.from_numpy(array)
    return torch.from_numpy(array.view("int16")).view(torch.bfloat16)


def as_array(tensor: Any) -> Any:
    """Return an array on a tensor's memory."""
    import torch

    if tensor.dtype != torch.bfloat16:
        return tensor.numpy()
    return tensor.view(torch.int16).numpy().view(numpy_type("bfloat16"))


def ways(operands: ConvOperands, packed: bool) -> dict[str, Prepared]:
    """Return each way by name. The int8 sums are returned as float32, which is exact below 2^24."""
    import torch

    x, kernels = (
        as_tensor(operands.x).permute(0, 3, 1, 2),
        as_tensor(operands.kernels).permute(3, 2, 0, 1),
    )
    w = operands.workload
    sizes = (list(w.stride), list(w.padding[:2]), list(w.dilation), w.groups)
    if w.dtype == "int8":
        return {"onednn u8": _int8(x, kernels, sizes)}
    last, dense = torch.channels_last, torch.contiguous_format
    found = {
        "channels_last": _plain(x.contiguous(memory_format=last), kernels.contiguous(memory_format=last), sizes),
        "NCHW": _plain(x.contiguous(memory_format=dense), kernels.contiguous(memory_format=dense), sizes),
    }
    if packed:
        with contextlib.suppress(
            AttributeError, RuntimeError
        ):  # a build without oneDNN, or a layer that it does not support
            found["channels_last packed"] = _packed(x.contiguous(memory_format=last), kernels, sizes)
    return found


def _keeping(convolution: Callable[[], Any]) -> Prepared:
    """A call whose result is kept and viewed as (n, ho, wo, co)."""
    import torch

    kept: list[Any] = [None]

    def run() -> None:
        with torch.inference_mode():
            kept[0] = convolution()

    run()
    return Prepared(run, lambda: as_array(kept[0].permute(0, 2, 3, 1)))


def _plain(x: Any, kernels: Any, sizes: tuple[Any, ...]) -> Prepared:
    import torch

    return _keeping(lambda: torch.conv2d(x, kernels, None, *sizes))


def _packed(x: Any, kernels: Any, sizes: tuple[Any, ...]) -> Prepared:
    """Return the operator that PyTorch's compiler calls after it has frozen the weights in oneDNN's layout."""
    import torch

    stride, padding, dilation, groups = sizes
    laid_out = torch.ops.mkldnn._reorder_convolution_weight(
        kernels.contiguous(), padding, stride, dilation, groups, list(x.shape)
    )
    convolve = torch.ops.mkldnn._convolution_pointwise
    return _keeping(lambda: convolve(x, laid_out, None, padding, stride, dilation, groups, "none", [], ""))


def _int8(x: Any, kernels: Any, sizes: tuple[Any, ...]) -> Prepared:
    import torch

    stride, padding, dilation, groups = sizes
    shifted = (x.to(torch.int16) + UNSIGNED_ZERO).to(torch.uint8).contiguous(memory_format=torch.channels_last)
    ones = torch.ones(len(kernels))
    zeros = torch.zeros(len(kernels), dtype=torch.int32)
    laid_out = torch.ops.onednn.qconv_prepack(
        kernels.contiguous(), ones, 1.0, UNSIGNED_ZERO, stride, padding, dilation, groups, list(x.shape)
    )
    quantised: tuple[Any, ...] = (shifted, 1.0, UNSIGNED_ZERO, laid_out, ones, zeros, None)
    result: tuple[Any, ...] = (1.0, 0, torch.float32, "none", [], "")
    return _keeping(lambda: torch.ops.onednn.qconv2d_pointwise(*quantised, *sizes, *result))
