"""PyTorch programs with nested arguments and a cache, and torch.compile of a net with an unsupported operator."""

import warnings

import numpy as np
import torch

import tvm_tiling as tt


class Attention(torch.nn.Module):
    """One step of attention over a cache owned by the caller."""

    def __init__(self, width=32):
        super().__init__()
        self.project = torch.nn.Linear(width, 3 * width)

    def forward(self, x, cache, use_cache=True):
        query, key, value = self.project(x).chunk(3, dim=-1)
        key, value = torch.cat([cache["key"], key], 1), torch.cat([cache["value"], value], 1)
        out = torch.nn.functional.scaled_dot_product_attention(query, key, value)
        return {"out": out, "cache": {"key": key, "value": value} if use_cache else None}


net, x = Attention().eval(), torch.randn(1, 1, 32)
cache = {"key": torch.randn(1, 7, 32), "value": torch.randn(1, 7, 32)}
exe = tt.compile(torch.export.export(net, (x,), {"cache": cache, "use_cache": True}))
assert exe.signature.input_names == ("x", "cache.key", "cache.value")
assert exe.signature.output_names == ("out", "cache.key", "cache.value")
out, key, value = exe.run(x, cache=cache)
with torch.no_grad():
    np.testing.assert_allclose(out, net(x, cache)["out"].numpy(), rtol=1e-3, atol=1e-5)


class Gamma(torch.nn.Module):
    def forward(self, x):
        return torch.special.airy_ai(x.abs() + 1)


net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), Gamma(), torch.nn.Linear(64, 10)).eval()
x = torch.randn(4, 64)
with torch.no_grad(), warnings.catch_warnings():
    warnings.simplefilter("ignore", tt.errors.LeftToTorch)
    found = torch.compile(net, backend="tvm_tiling")(x)
    torch.testing.assert_close(found, net(x), rtol=1e-3, atol=1e-4)
print(tt.torch_report()[-1])
