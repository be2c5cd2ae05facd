"""PyTorch convolutions along one to three axes, transposed or not, in every float type.

The reference is PyTorch's own result in float64; a few roundings of the type relative to the largest element are
accepted.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch_compare import compiled  # noqa: E402

EPSILON = {torch.float64: 2.0**-48, torch.float32: 2.0**-23, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}
ROUNDINGS = 4

FORWARD = {
    "1d, groups": (nn.Conv1d(6, 12, 3, stride=2, padding=1, groups=3), (2, 6, 17)),
    "1d, circular": (nn.Conv1d(4, 5, 3, padding=2, dilation=2, padding_mode="circular"), (1, 4, 16)),
    "2d, same, an even kernel": (nn.Conv2d(4, 6, (4, 3), padding="same", dilation=(1, 2), groups=2), (1, 4, 7, 8)),
    "2d, reflect": (nn.Conv2d(3, 5, 3, stride=2, padding=(2, 1), padding_mode="reflect"), (1, 3, 8, 7)),
    "2d, depthwise": (nn.Conv2d(8, 16, (5, 3), padding=1, dilation=(2, 1), groups=8), (1, 8, 13, 7)),
    "2d, one image without a batch": (nn.Conv2d(3, 16, 3, bias=False), (3, 8, 13)),
    "3d": (nn.Conv3d(3, 16, (1, 3, 2), stride=(1, 2, 1), padding=(0, 1, 2), dilation=(1, 1, 2)), (2, 3, 5, 7, 8)),
    "3d, groups": (nn.Conv3d(6, 4, (3, 2, 3), groups=2, padding="same", bias=False), (1, 6, 5, 2, 7)),
    "3d, replicate": (nn.Conv3d(2, 3, 3, padding=(1, 0, 2), padding_mode="replicate"), (1, 2, 5, 5, 2)),
    "3d, depthwise": (nn.Conv3d(8, 8, 3, padding=1, groups=8), (1, 8, 4, 5, 6)),
}
TRANSPOSED = {
    "1d": (nn.ConvTranspose1d(4, 6, 4, stride=3, padding=1, output_padding=2, groups=2), (1, 4, 16)),
    "1d, output padding by the dilation": (nn.ConvTranspose1d(5, 3, 5, dilation=2, output_padding=1), (1, 5, 5)),
    "2d, stride and dilation": (nn.ConvTranspose2d(4, 6, 3, stride=2, dilation=2, padding=1), (1, 4, 5, 8)),
    "2d, output padding by the dilation": (
        nn.ConvTranspose2d(2, 16, (3, 2), stride=(1, 2), dilation=3, padding=(1, 0), output_padding=(2, 2)),
        (1, 2, 5, 8),
    ),
    "2d, depthwise": (nn.ConvTranspose2d(8, 8, 4, stride=2, padding=1, groups=8), (2, 8, 5, 7)),
    "3d": (nn.ConvTranspose3d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), (1, 4, 3, 4, 5)),
    "3d, stride and dilation": (
        nn.ConvTranspose3d(6, 4, (3, 2, 3), stride=(3, 1, 2), dilation=2, padding=(0, 1, 1), output_padding=(1, 0, 1)),
        (1, 6, 2, 7, 5),
    ),
}
CASES = {
    **{f"forward {name}": case for name, case in FORWARD.items()},
    **{f"transposed {n}": c for n, c in TRANSPOSED.items()},
}


def check(name, dtype):
    layer, shape = CASES[name]
    generator = torch.Generator().manual_seed(len(name))
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator).bfloat16())  # representable in every type
        x = torch.randn(shape, generator=generator).bfloat16()
        expected = layer.double()(x.double())
        layer.to(dtype)
        own = layer(x.to(dtype))
    (result,) = compiled(layer, x.to(dtype))
    assert (result.dtype, result.shape) == (dtype, own.shape)
    torch.testing.assert_close(
        result.double(), expected, rtol=0, atol=ROUNDINGS * EPSILON[dtype] * expected.abs().max().item()
    )


@pytest.mark.parametrize("name", CASES)
def test_convolutions(name):
    check(name, torch.float32)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "name", ["forward 2d, depthwise", "forward 3d", "transposed 2d, stride and dilation", "transposed 3d"]
)
def test_convolutions_in_other_types(name, dtype):
    check(name, dtype)
