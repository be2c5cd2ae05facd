"""An operator of another library without a converter: PyTorch always runs it."""

from __future__ import annotations

import torch


@torch.library.custom_op("elsewhere::foreign", mutates_args=())
def foreign(x: torch.Tensor) -> torch.Tensor:
    return x.sin().exp()


@foreign.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)
