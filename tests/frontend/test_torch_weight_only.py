"""PyTorch linear layers with low-bit integer weights: kept in that form, with PyTorch's results."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from torch_called import Called  # noqa: E402

import tvm_tiling as tt  # noqa: E402
from tvm_tiling.errors import UnsupportedOperator  # noqa: E402
from tvm_tiling.frontend.torch.few_bits import FewBits, unpacked_int4  # noqa: E402

A = torch.ops.aten
MOST = {torch.float32: 1e-4, torch.float16: 2e-3, torch.bfloat16: 1e-2}  # rows are rounded to 16 bits; then the type


def far(found, right):
    found = found.to(torch.float64) if isinstance(found, torch.Tensor) else torch.from_numpy(found.astype("float64"))
    return float((found - right.double()).norm() / right.double().norm())


def checked(module, x):
    """Return the encodings of the matrix multiplications of a module whose results are PyTorch's."""
    with torch.no_grad():
        right = module.eval()(x)
    made = tt.compile(module, example_inputs=(x,), cache=False)
    assert far(made(x), right) < MOST[x.dtype]
    return [o.workload.get("encoding") for o in made.operators if o.kind == "gemm"]


def int4(n, k, group, dtype, zeros):
    torch.manual_seed(n + k)
    values = torch.randint(0, 16, (n, k), dtype=torch.int32)
    pairs = torch.rand(k // group, n, 2).mul(0.1).add(0.01)
    pairs[..., 1] *= zeros
    return Called(
        lambda self, x: A._weight_int4pack_mm_for_cpu(x, self.packed, group, self.pairs),
        packed=A._convert_weight_to_int4pack_for_cpu(values, 1),
        pairs=pairs.to(dtype),
    )


@pytest.mark.parametrize(("n", "k", "group"), [(16, 64, 32), (48, 192, 64), (80, 256, 128)])
@pytest.mark.parametrize("zeros", [0, 1])
def test_packed_weights_of_4_bits(n, k, group, zeros):
    dtype = torch.bfloat16 if n == 48 else torch.float32
    (encoding,) = checked(int4(n, k, group, dtype, zeros), torch.randn(5, k).to(dtype))
    assert encoding.startswith(f"int4:{group}:") and encoding.endswith("offsets") == bool(zeros)


def test_unpacked_values_are_those_that_were_packed():
    values = torch.randint(0, 16, (32, 96), dtype=torch.int32)
    found = unpacked_int4(A._convert_weight_to_int4pack_for_cpu(values, 1), 32, 96)
    assert torch.equal(found.int(), values)
    assert unpacked_int4(torch.zeros(3, 8, dtype=torch.uint8), 3, 16) is None


@pytest.mark.parametrize("dtype", MOST)
def test_weights_of_8_bits(dtype):
    """PyTorch 2.14 is wrong, or ends the process, for bfloat16 with a k that is not a multiple of 32."""
    torch.manual_seed(1)
    k = 192 if dtype == torch.bfloat16 else 200
    values = torch.randint(-128, 128, (33, k), dtype=torch.int8)
    module = Called(
        lambda self, x: A._weight_int8pack_mm(x, self.values, self.scales),
        values=values,
        scales=torch.rand(33).add(0.1).to(dtype),
    )
    (encoding,) = checked(module, torch.randn(3, k).to(dtype))
    assert encoding.startswith("int8:256:")


def test_integers_that_change_their_type_before_the_gemm():
    torch.manual_seed(2)
    values = torch.randint(-128, 128, (70, 100), dtype=torch.int8)
    scales = torch.rand(70)
    module = Called(lambda self, x: (x @ self.values.t().to(x.dtype)) * self.scales, values=values, scales=scales)
    assert checked(module, torch.randn(2, 4, 100)) == ["int8:256:float16"]
    few = Called(lambda self, x: x @ (self.values // 16).t().to(x.dtype), values=values)
    assert checked(few, torch.randn(1, 100)) == ["int4:256:float16"]


def test_other_readers_get_floats():
    torch.manual_seed(3)
    values = torch.randint(-8, 8, (64, 64), dtype=torch.int8)
    x = torch.randn(64, 64)
    for function in (
        lambda self, x: x + self.values.float(),
        lambda self, x: self.values.float() @ x,
        lambda self, x: (x.sum(), self.values.float()),
        lambda self, x: torch.cat([self.values.float(), x]),
    ):
        module = Called(function, values=values)
        made, right = tt.compile(module, example_inputs=(x,), cache=False)(x), module(x)
        for one, other in zip(made, right, strict=True) if isinstance(made, tuple) else [(made, right)]:
            torch.testing.assert_close(torch.as_tensor(one), other, rtol=1e-5, atol=1e-4)


def test_weights_that_are_inputs_are_refused_by_name():
    def product(x, packed, pairs):
        return A._weight_int4pack_mm_for_cpu(x, packed, 32, pairs)

    class Product(torch.nn.Module):
        def forward(self, x, packed, pairs):
            return product(x, packed, pairs)

    module = int4(16, 64, 32, torch.float32, 1)
    with pytest.raises(UnsupportedOperator, match=r"_weight_int4pack_mm_for_cpu.*weights computed at run time"):
        tt.compile(Product(), example_inputs=(torch.randn(2, 64), module.packed, module.pairs), cache=False)


def test_floats_of_a_matrix():
    values = torch.tensor([[1, -2, 3, 4]], dtype=torch.int8)
    matrix = FewBits(values, torch.tensor([[2.0, 0.5]]), torch.tensor([[1.0, 0.0]]), torch.float32)
    assert matrix.floats().tolist() == [[1.0, -5.0, 1.5, 2.0]]
    assert matrix.transposed.shape == (4, 1) and matrix.transposed.floats().shape == (4, 1)


# ---- torchao --------------------------------------------------------------------------------------------------------


def quantised(name, dtype):
    """Two layers, the first of which torchao quantises."""
    pytest.importorskip("torchao", reason="needs torchao for PyTorch", exc_type=ImportError)
    from torchao.quantization import Int8WeightOnlyConfig, IntxWeightOnlyConfig, MappingType, quantize_
    from torchao.quantization.granularity import PerAxis, PerGroup

    def intx(bits, granularity, **more):
        return IntxWeightOnlyConfig(weight_dtype=getattr(torch, f"int{bits}"), granularity=granularity, **more)

    config = {
        "int8": lambda: Int8WeightOnlyConfig(),
        "int8 in groups": lambda: Int8WeightOnlyConfig(granularity=PerGroup(32)),
        "4 bits": lambda: intx(4, PerGroup(32)),
        "4 bits of rows": lambda: intx(4, PerAxis(0)),
        "4 bits with zeros": lambda: intx(4, PerGroup(96), mapping_type=MappingType.ASYMMETRIC),
        "6 bits": lambda: intx(6, PerGroup(64)),
        "8 bits": lambda: intx(8, PerGroup(32)),
    }[name]()
    torch.manual_seed(4)
    net = torch.nn.Sequential(torch.nn.Linear(192, 97), torch.nn.ReLU(), torch.nn.Linear(97, 5)).to(dtype).eval()
    quantize_(net, config, filter_fn=lambda module, _: getattr(module, "in_features", 0) == 192)
    return net


FORMS = {
    "int8": "int8:256:float16",
    "int8 in groups": "int8:32:float32",
    "4 bits": "int4:32:float32",
    "4 bits of rows": "int4:256:float32",
    "4 bits with zeros": "int4:32:float32:offsets",
    "6 bits": "int6:64:float32",
    "8 bits": "int8:32:float32",
}


@pytest.mark.parametrize("name", FORMS)
def test_weight_only_layers_of_torchao(name):
    first, _ = checked(quantised(name, torch.float32), torch.randn(3, 192))
    assert first == FORMS[name]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_layers_in_16_bits_keep_scales_of_16_bits(dtype):
    first, _ = checked(quantised("4 bits", dtype), torch.randn(2, 192).to(dtype))
    assert first == "int4:32:float16"


def test_layers_of_open_rows_and_plain_tensors():
    net, x = quantised("4 bits", torch.float32), torch.randn(3, 192)
    rows = torch.export.Dim("rows", min=1, max=64)
    made = tt.compile(torch.export.export(net, (x,), dynamic_shapes=({0: rows},)), cache=False)
    assert made.operators[0].workload["encoding"] == FORMS["4 bits"]
    for count in (1, 7, 40):
        x = torch.randn(count, 192)
        assert far(made(x), net(x).detach()) < 1e-4


def test_torch_compile_of_layers_whose_tensors_are_unwrapped():
    net, x = quantised("4 bits", torch.float32), torch.randn(3, 192)
    from torchao.utils import unwrap_tensor_subclass

    plain = unwrap_tensor_subclass(copy.deepcopy(net))
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(plain, backend="tvm_tiling", options={"fallback": False})
        assert 1e-7 < far(compiled(x), net(x)) < 1e-4  # rows are rounded to 16 bits
    assert not tt.torch_report()[-1].left
