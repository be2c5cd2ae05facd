"""Layers whose weights torchao or PyTorch keeps in few bits: in blocks as they are stored, and PyTorch's results."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
quantization = pytest.importorskip("torchao.quantization", reason="needs PyTorch")

from torchao.quantization import Int8WeightOnlyConfig, IntxWeightOnlyConfig, quantize_  # noqa: E402
from torchao.quantization.granularity import PerAxis, PerGroup  # noqa: E402
from torchao.quantization.quant_primitives import MappingType  # noqa: E402

import tvm_tiling as tt  # noqa: E402

INT4 = {"weight_dtype": torch.int4, "granularity": PerGroup(32)}


def layers(k, n, config, dtype=torch.float32):
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(k, n), torch.nn.ReLU(), torch.nn.Linear(n, 96, bias=False))
    module = module.to(dtype).eval()
    quantize_(module, config)
    return module


def check(module, x, most=1e-4, dynamic=None):
    """Weights per product as they are told, and the outputs beside PyTorch's."""
    program = torch.export.export(module, (x,), dynamic_shapes=dynamic)
    executable = tt.compile(program, cache=False)
    for rows in (x,) if dynamic is None else (x, x[:1], torch.cat([x] * 9)):
        wanted = module(rows).detach().float()
        found = torch.as_tensor(np.asarray(executable.run(rows), np.float32))
        assert (found - wanted).abs().max() <= most * wanted.abs().max()
    told = [each.workload for each in executable.report().operators if each.workload is not None]
    return [workload.get("encoding", "plain") for workload in told], executable


@pytest.mark.parametrize(
    ("config", "k", "n", "encoding"),
    [
        (IntxWeightOnlyConfig(**INT4), 128, 64, "int4:32:float32"),
        (IntxWeightOnlyConfig(**INT4, mapping_type=MappingType.ASYMMETRIC), 96, 64, "int4:32:float32:zero_points"),
        (IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(48)), 144, 96, "int4:16:float32"),
        (IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=PerAxis(0)), 130, 130, "int8:32:float32"),
        (Int8WeightOnlyConfig(), 1000, 256, "int8:256:float32"),
    ],
    ids=["int4", "asymmetric", "groups of 48", "int8 of axes", "int8"],
)
def test_layers_of_torchao_stay_in_blocks(config, k, n, encoding):
    found, executable = check(layers(k, n, config), torch.randn(3, k))
    assert found == [encoding, encoding]
    bits = 4 if encoding.startswith("int4") else 8
    assert executable.report().memory.weights < (k * n + 96 * n) * bits / 8 * 2


@pytest.mark.parametrize("config", [IntxWeightOnlyConfig(**INT4), Int8WeightOnlyConfig()], ids=["int4", "int8"])
def test_open_rows(config):
    rows = torch.export.Dim("rows", min=1, max=64)
    check(layers(128, 64, config), torch.randn(3, 128), dynamic=({0: rows},))


def test_bfloat16():
    found, _ = check(
        layers(128, 64, IntxWeightOnlyConfig(**INT4), torch.bfloat16), torch.randn(3, 128).bfloat16(), 1e-2
    )
    assert found == ["int4:32:float32", "int4:32:float32"]


def test_groups_that_no_kernel_reads_become_floats():
    config = IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(24))
    found, _ = check(layers(96, 48, config), torch.randn(3, 96), 1e-6)
    assert found == ["plain", "plain"]


def test_weights_that_another_node_reads_are_floats_for_it():
    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = layers(64, 64, IntxWeightOnlyConfig(**INT4))

        def forward(self, x):
            return self.inner(x) + self.inner[0].weight.dequantize().sum()

    check(Twice(), torch.randn(3, 64))


def test_the_product_of_pytorchs_own():
    class Packed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("weight", torch.randint(-128, 128, (72, 160), dtype=torch.int8))
            self.register_buffer("scales", torch.rand(72) / 100)

        def forward(self, x):
            return torch.ops.aten._weight_int8pack_mm(x, self.weight, self.scales)

    found, _ = check(Packed(), torch.randn(3, 160))
    assert found == ["int8:32:float32"]
