"""Operators that this package decomposes: attention in inference, which PyTorch leaves whole, and losses."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch_compare import Function, compare  # noqa: E402

import tvm_tiling  # noqa: E402
from tvm_tiling.errors import ModelFormatError  # noqa: E402


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


PADDING = torch.tensor([[False, False, True, True], [False, False, False, True]])
CAUSAL = torch.ones(4, 4).triu(1).bool()


def served(run, x):
    """Supported by torch.compile without PyTorch's help, compared with PyTorch; torch.export uses the slow path of
    these modules, torch.compile the fast one."""
    with torch.no_grad():
        expected = run(x)
        results = torch.compile(run, backend="tvm_tiling", fullgraph=True, options={"fallback": False})(x)
    torch.testing.assert_close(results, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{"norm_first": True, "activation": "gelu"}, {}], ids=["norm first", "norm last"])
def test_an_encoder_layer_in_inference_is_one_operator_of_pytorch(options):
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, **options).eval()

    def run(x):
        return layer(x), layer(x, src_mask=CAUSAL), layer(x, src_key_padding_mask=PADDING), layer(x, CAUSAL, PADDING)

    served(run, random(2, 4, 8))


def test_attention_in_inference_gives_its_weights():
    torch.manual_seed(0)
    attention = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()

    def run(x):
        return (
            *attention(x, x, x),
            *attention(x, x, x, average_attn_weights=False, attn_mask=CAUSAL),
            attention(x, x, x, need_weights=False, key_padding_mask=PADDING)[0],
        )

    served(run, random(2, 4, 8))


def test_labels_after_the_first_minus_one_do_not_count():
    """PyTorch's decomposition counts them, and gives the loss of one row an axis."""
    several = torch.tensor([[3, 0, -1, 1], [-1, 2, 2, 2], [0, 1, 2, 3]])

    def run(x, several):
        loss = torch.nn.functional.multilabel_margin_loss
        return [
            loss(given, labels, reduction=reduction)
            for given, labels in ((x, several), (x[1], several[1]))
            for reduction in ("none", "mean", "sum")
        ]

    compare(run, random(3, 4), several, atol=1e-6)


def test_batch_normalisation_with_new_statistics():
    def normalised(x, weight, bias, mean, variance):
        found = torch.ops.aten._batch_norm_with_update_functional(x, weight, bias, mean, variance, 0.1, 1e-5)
        return [*found[:3], *found[4:]]

    tensors = (torch.rand(4, 3, 5), torch.rand(3), torch.rand(3), torch.rand(3), torch.rand(3))
    compare(normalised, *tensors, rtol=1e-4)


@pytest.mark.parametrize("statistics", [torch.float32, torch.bfloat16])
def test_batch_normalisation_of_bfloat16_in_training_keeps_the_type_of_its_statistics(statistics):
    def normalised(x, mean, variance, weight):
        return torch.nn.functional.batch_norm(x, mean, variance, weight, training=True)

    x = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0)).bfloat16()
    given = [x, torch.zeros(3, dtype=statistics), torch.ones(3, dtype=statistics), torch.ones(3, dtype=statistics)]
    executable = tvm_tiling.compile(torch.export.export(Function(normalised), tuple(t.clone() for t in given)))
    results = executable(*given)
    expected = normalised(*given)  # changes the second and the third
    for result, value in zip(results, (expected, *given[1:3]), strict=True):
        torch.testing.assert_close(result, value, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_renorm_of_16_bit_floats_changes_types_on_its_way(dtype):
    x = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0)).to(dtype)
    compare(lambda x: torch.renorm(x, 2, 1, 0.5), x, rtol=1e-2)


def test_instance_normalisation_returns_the_statistics_that_it_changes():
    def normalised(x, mean, variance, weight):
        y = torch.nn.functional.instance_norm(x, mean, variance, weight, use_input_stats=True, momentum=0.3)
        return y, mean * 1, variance * 1

    given = [torch.rand(2, 3, 4, 5), torch.rand(3), torch.rand(3), torch.rand(3)]
    expected = normalised(*(tensor.clone() for tensor in given))
    executable = tvm_tiling.compile(torch.export.export(Function(normalised), tuple(t.clone() for t in given)))
    results = dict(zip(executable.signature.output_names, executable.run(*(t.numpy() for t in given)), strict=True))
    for result, value in zip(results.values(), (*expected, *expected[1:]), strict=True):
        torch.testing.assert_close(torch.as_tensor(result), value, rtol=1e-4, atol=1e-6)
    assert [name for name in results if name.endswith(".updated")] == ["tensors_1.updated", "tensors_2.updated"]


def test_instance_normalisation_that_changes_a_modules_statistics_is_refused():
    program = torch.export.export(torch.nn.InstanceNorm1d(3, track_running_stats=True), (torch.rand(2, 3, 4),))
    with pytest.raises(ModelFormatError, match=r"it changes .*running_mean"):
        tvm_tiling.compile(program)
