"""An operator of another library, which no converter can exist for: PyTorch runs it wherever it stands."""

from __future__ import annotations

import torch


@torch.library.custom_op("elsewhere::foreign", mutates_args=())
def foreign(x: torch.Tensor) -> torch.Tensor:
    return x.sin().exp()


@foreign.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)
