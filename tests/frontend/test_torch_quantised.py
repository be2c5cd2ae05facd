"""Quantised PyTorch programs in pt2e's representation: integers where possible, and PyTorch's results."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from torch.ao.quantization.fx import _decomposed  # noqa: E402, F401 - registers the library's operators
from torch_called import Called  # noqa: E402

import tvm_tiling as tt  # noqa: E402

Q = torch.ops.quantized_decomposed
RANGES = [(torch.int8, -128, 127), (torch.int8, -127, 127), (torch.uint8, 0, 255), (torch.uint8, 0, 127)]


def both(module, *args):
    """Return (ours, PyTorch's, the executable)."""
    with torch.no_grad():
        right = module.eval()(*args)
    made = tt.compile(torch.export.export(module, args), cache=False)
    return made(*args), right, made


def dtypes(made):
    return [o.workload["dtype"] for o in made.operators if o.kind in ("convolution", "gemm")]


@pytest.mark.parametrize(("dtype", "low", "high"), RANGES)
@pytest.mark.parametrize("channels", [False, True])
def test_there_and_back(dtype, low, high, channels):
    torch.manual_seed(0)
    x = 3 * torch.randn(5, 6, 4)
    if channels:
        scale, zero = torch.rand(6) * 0.05 + 0.01, torch.randint(max(low, 0), 9, (6,))

        def function(self, x):
            stored = Q.quantize_per_channel(x, self.scale, self.zero, 1, low, high, dtype)
            return stored, Q.dequantize_per_channel(stored, self.scale, self.zero, 1, low, high, dtype)

        module = Called(function, scale=scale, zero=zero)
    else:

        def function(self, x):
            stored = Q.quantize_per_tensor(x, 0.03, 5, low, high, dtype)
            return stored, Q.dequantize_per_tensor(stored, 0.03, 5, low, high, dtype)

        module = Called(function)
    ours, right, _ = both(module, x)
    assert ours[0].dtype == dtype
    steps = (ours[0].int() - right[0].int()).abs()
    assert steps.max() <= 1 and (steps > 0).float().mean() < 0.01, "but for ties that a division rounds elsewhere"
    assert ours[0].min() >= low and ours[0].max() <= high
    assert torch.allclose(ours[1], right[1], atol=float(0.07 * steps.max()) + 1e-6)


def network(activation=(torch.uint8, 0, 255)):
    """Two convolutions with a residual sum, and a matrix multiplication; per-channel int8 weights."""
    torch.manual_seed(1)
    dtype, low, high = activation

    def weights(*shape):
        return torch.randint(-127, 128, shape, dtype=torch.int8)

    held = {"w1": weights(8, 3, 3, 3), "w2": weights(8, 8, 3, 3), "w3": weights(4, 8)}
    scales = {f"s{n}": torch.rand(held[f"w{n}"].shape[0]) * 4e-3 + 1e-3 for n in (1, 2, 3)}
    zeros = {f"z{n}": torch.zeros(held[f"w{n}"].shape[0], dtype=torch.int64) for n in (1, 2, 3)}

    def pair(x, scale, zero):
        return Q.dequantize_per_tensor(
            Q.quantize_per_tensor(x, scale, zero, low, high, dtype), scale, zero, low, high, dtype
        )

    def kernel(self, n):
        parts = (getattr(self, f"{letter}{n}") for letter in "wsz")
        return Q.dequantize_per_channel(*parts, 0, -128, 127, torch.int8)

    def function(self, x):
        first = pair(torch.relu(torch.nn.functional.conv2d(pair(x, 0.03, 100), kernel(self, 1), padding=1)), 0.02, low)
        second = torch.relu(torch.nn.functional.conv2d(first, kernel(self, 2), padding=1) + first)
        flat = torch.flatten(torch.nn.functional.adaptive_avg_pool2d(second, 1), 1)
        return torch.nn.functional.linear(pair(flat, 0.02, low), kernel(self, 3))

    return Called(function, **held, **scales, **zeros)


@pytest.mark.parametrize("activation", [(torch.uint8, 0, 255), (torch.int8, -128, 127)])
def test_convolutions_and_gemms_multiply_integers(activation):
    ours, right, made = both(network(activation), torch.randn(2, 3, 10, 10))
    assert dtypes(made) == ["int8"] * 3
    assert (ours - right).abs().max() <= 0.02 * right.abs().max()


def test_scales_that_the_run_computes():
    torch.manual_seed(2)

    def function(self, x):
        scale, zero = Q.choose_qparams(x, 0, 255, 1e-5, torch.uint8)
        stored = Q.quantize_per_tensor(x, scale, zero, 0, 255, torch.uint8)
        return stored, Q.dequantize_per_tensor(stored, scale, zero, 0, 255, torch.uint8), scale, zero

    for x in (torch.randn(7, 5), torch.rand(7, 5) + 1, torch.zeros(7, 5), -torch.rand(7, 5)):
        ours, right, _ = both(Called(function), x)
        assert torch.allclose(ours[2], right[2], rtol=1e-6) and torch.equal(ours[3], right[3])
        assert ours[2].dtype == torch.float64 and ours[3].dtype == torch.int64
        assert (ours[0].int() - right[0].int()).abs().max() <= 1
        assert torch.allclose(ours[1], right[1], atol=float(right[2]) * 1.01)


def test_a_gemm_of_integers_as_dynamic_quantisation_writes_it():
    """Rows with a scale each, int8 by int8 in int32, followed by both scales."""
    torch.manual_seed(3)

    def function(self, x):
        scale = x.abs().amax(dim=1, keepdim=True).clamp(min=1e-6) / 127.5
        stored = torch.clamp(torch.round(x / scale), -128, 127).to(torch.int8)
        return torch._int_mm(stored, self.w.t()) * scale * self.s

    module = Called(function, w=torch.randint(-127, 128, (32, 64), dtype=torch.int8), s=torch.rand(32))
    ours, right, made = both(module, torch.randn(24, 64))
    assert dtypes(made) == ["int8"]
    assert (ours - right).abs().max() <= 1e-5 * right.abs().max()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x: Q.quantize_per_tensor(x, 0.0, 0, -128, 127, torch.int8), "a scale is 0; expected positive numbers"),
        (lambda x: Q.quantize_per_tensor(x, float("nan"), 0, -128, 127, torch.int8), "a scale is nan"),
        (
            lambda x: Q.quantize_per_tensor(x, 0.1, 300, 0, 255, torch.uint8),
            "a zero point of 300 is out of range for uint8",
        ),
    ],
)
def test_what_is_refused_by_name(call, said):
    program = torch.export.export(Called(lambda self, x: call(x)), (torch.randn(3),))
    with pytest.raises(tt.UnsupportedOperator, match="quantized_decomposed::quantize_per_tensor.*" + said):
        tt.compile(program, cache=False)
