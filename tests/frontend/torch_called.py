"""Functions as modules, for tests that need PyTorch."""

from __future__ import annotations

import torch


class Called(torch.nn.Module):
    """Return a function of itself and of tensors as a module; `held` become buffers."""

    def __init__(self, function, **held):
        super().__init__()
        self.function = function
        for name, value in held.items():
            self.register_buffer(name, value)

    def forward(self, *args):
        return self.function(self, *args)
