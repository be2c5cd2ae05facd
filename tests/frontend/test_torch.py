"""PyTorch models: imported, built by TVM's default pipeline, compared with torch."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

torch = pytest.importorskip("torch")

from default_build import run  # noqa: E402
from torch_networks import Detector, Encoder, MaskedAttention, UNet  # noqa: E402

import tvm_tiling as tt  # noqa: E402
from tvm_tiling.errors import ModelFormatError, UnsupportedOperator  # noqa: E402
from tvm_tiling.frontend import load_model  # noqa: E402

KEEP = torch.tensor([[True] * 7, [True] * 5 + [False] * 2])
NETWORKS = {
    "encoder": (Encoder, {}, lambda: (torch.randint(0, 50, (2, 7)),)),
    "encoder, norms first": (
        Encoder,
        {"norm_first": True, "activation": "relu"},
        lambda: (torch.randint(0, 50, (1, 5)),),
    ),
    "attention with masks": (MaskedAttention, {}, lambda: (torch.randn(2, 7, 24), KEEP)),
    "unet": (UNet, {}, lambda: (torch.randn(1, 3, 16, 24),)),
    "detector": (Detector, {}, lambda: (torch.randn(1, 3, 32, 32),)),
}


def seeded(name):
    kind, options, inputs = NETWORKS[name]
    torch.manual_seed(0)
    network = kind(**options)
    for module in network.modules():
        # Statistics as after training: the identity would hide mistakes.
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.running_mean, -1, 1)
            torch.nn.init.uniform_(module.running_var, 0.5, 2)
    return network, inputs()


@pytest.mark.parametrize("name", NETWORKS)
def test_a_module_gives_what_torch_gives(name):
    network, inputs = seeded(name)
    model = load_model(network, example_inputs=inputs)
    assert network.training, "the module is left as it was"
    assert model.source == "torch"
    assert model.input_shapes == tuple(tuple(value.shape) for value in inputs)
    with torch.no_grad():
        expected = network.eval()(*inputs)
    expected = [expected] if isinstance(expected, torch.Tensor) else list(expected)
    results = run(model, [value.numpy() for value in inputs])
    assert len(results) == len(expected) == len(model.output_names)
    for result, value in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, value.numpy(), rtol=1e-4, atol=1e-5)


def test_an_exported_program_is_taken_as_it_is():
    network, inputs = seeded("unet")
    program = torch.export.export(network.eval(), inputs)
    model = load_model(program)
    assert (model.input_names, model.input_dtypes) == (("image",), ("float32",))
    result = run(model, [inputs[0].numpy()])[0]
    np.testing.assert_allclose(result, network(*inputs).detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_program_that_was_decomposed_before(name):
    network, inputs = seeded(name)
    program = torch.export.export(network.eval(), inputs).run_decompositions()
    results = run(load_model(program), [value.numpy() for value in inputs])
    with torch.no_grad():
        expected = network(*inputs)
    expected = [expected] if isinstance(expected, torch.Tensor) else list(expected)
    for result, value in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, value.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_with_the_sums_of_its_rows(causal):
    class Attention(torch.nn.Module):
        def forward(self, query, key, value, mask):
            attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
            return attention(query, key, value, is_causal=causal, attn_mask=None if causal else mask)

    operands = [torch.randn(2, 3, 5, 16) for _ in range(3)]
    mask = torch.zeros(2, 3, 5, 5)
    mask[0, :, 2] = -torch.inf  # a row of nothing
    mask[1, 1, :, 3] = -torch.inf
    exe = tt.compile(Attention(), example_inputs=(*operands, mask), cache=False)
    results = exe.run(*(value.numpy() for value in (*operands, mask)))
    for result, value in zip(results, Attention()(*operands, mask), strict=True):
        np.testing.assert_allclose(result, value.numpy(), rtol=1e-5, atol=1e-6)


def test_weights_are_constants():
    network, inputs = seeded("encoder")
    model = load_model(network, example_inputs=inputs)
    assert len(model.module["main"].params) == 1
    assert model.input_dtypes == ("int64",)


def test_a_module_needs_example_inputs():
    with pytest.raises(ModelFormatError, match="example_inputs"):
        load_model(UNet())


def test_open_shapes_are_refused_by_name():
    network, inputs = seeded("unet")
    batch = torch.export.Dim("batch", min=1, max=8)
    image = torch.cat([inputs[0], inputs[0]])
    program = torch.export.export(network.eval(), (image,), dynamic_shapes={"image": {0: batch}})
    with pytest.raises(ModelFormatError, match=r"'image' \(.*3, 16, 24\).*dynamic_shapes"):
        load_model(program)


def test_a_module_that_counts_is_refused():
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x):
            self.count += 1
            return x + self.count

    with pytest.raises(ModelFormatError, match="count"):
        load_model(Counter(), example_inputs=(torch.randn(2),))


def test_unsupported_operators_are_named_with_their_nodes():
    class Spectrum(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.svdvals(x), torch.linalg.eig(x)[1].real

    with pytest.raises(UnsupportedOperator, match=r"linalg_eig.*nodes 'linalg_eig'"):
        load_model(Spectrum(), example_inputs=(torch.randn(3, 3),))


@pytest.mark.parametrize("option", [{"shapes": {"image": (1, 3, 8, 8)}}, {"batch": 2}, {"params": {"a": 1}}])
def test_options_that_a_program_cannot_take_are_refused(option):
    network, inputs = seeded("unet")
    with pytest.raises(ModelFormatError, match=next(iter(option))):
        load_model(network, example_inputs=inputs, **option)


def test_a_module_of_another_kind_is_not_a_module():
    with pytest.raises(ModelFormatError, match="expected a path"):
        load_model(object())
    assert isinstance(load_model(seeded("unet")[0], example_inputs=seeded("unet")[1]).module, tvm.IRModule)


OPERATORS = {
    "amax": lambda x: x.amax(dim=1, keepdim=True),
    "amin": lambda x: x.amin(dim=(1, 2)),
    "any": lambda x: (x > 2).any(),
    "clamp": lambda x: x.clamp(min=-0.5),
    "clamp of integers": lambda x: (x * 9).long().clamp(max=4),
    "divide, floor": lambda x: torch.div(x, 0.7, rounding_mode="floor"),
    "divide, trunc": lambda x: torch.div(x, 0.7, rounding_mode="trunc"),
    "min": lambda x: x.min(dim=1),
    "prod": lambda x: x.prod(dim=2),
    "reflect": lambda x: torch.nn.functional.pad(x, (2, 1), mode="reflect"),
    "reflect, two axes": lambda x: torch.nn.functional.pad(x[None], (2, 1, 1, 0), mode="reflect"),
    "replicate": lambda x: torch.nn.functional.pad(x[None], (2, 1, 1, 3), mode="replicate"),
    "scatter, sums": lambda x: torch.zeros(2, 3, 5).scatter_add(2, (x.abs() * 2).long().clamp(max=4), x),
    "select and put back": lambda x: torch.select_scatter(x, x[:, 0] * 2, 1, -1),
    "variance": lambda x: x.var(dim=1),
    "variance, biased": lambda x: x.var(dim=(1, 2), unbiased=False),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_written_here(name):
    class Network(torch.nn.Module):
        def forward(self, x):
            return OPERATORS[name](x)

    torch.manual_seed(1)
    x = torch.randn(2, 3, 5)
    expected = Network()(x)
    expected = [expected] if isinstance(expected, torch.Tensor) else list(expected)
    for result, value in zip(run(load_model(Network(), example_inputs=(x,)), [x.numpy()]), expected, strict=True):
        np.testing.assert_allclose(result, value.numpy(), rtol=1e-5, atol=1e-6)
