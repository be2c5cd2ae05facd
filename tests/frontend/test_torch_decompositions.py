"""Operators that this package decomposes: what attention calls in inference, which PyTorch leaves whole, and losses."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch_compare import compare  # noqa: E402


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


PADDING = torch.tensor([[False, False, True, True], [False, False, False, True]])
CAUSAL = torch.ones(4, 4).triu(1).bool()


def served(run, x):
    """What torch.compile serves without PyTorch's help, beside what PyTorch computes; PyTorch's export takes the slow
    way of these modules, torch.compile the fast one."""
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


def test_labels_behind_the_first_minus_one_do_not_count():
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
