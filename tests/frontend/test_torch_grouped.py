"""Grouped matrix multiplication: a group without rows, rows after all groups, 16-bit floats."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch_compare import compare  # noqa: E402

ENDS = torch.tensor([3, 3, 7, 8])
torch.manual_seed(0)
ROWS, MATRICES = torch.randn(9, 16), torch.randn(4, 16, 24)


def by_groups(rows, matrices, ends):
    result = torch.zeros(rows.shape[0], matrices.shape[2], dtype=rows.dtype)
    start = 0
    for number, end in enumerate(ends.tolist()):
        result[start:end] = rows[start:end] @ matrices[number]
        start = end
    return result


def declared():
    """The operator of transformers, as it declares it."""
    made = torch.library.custom_op(
        "transformers::grouped_mm_fallback",
        by_groups,
        mutates_args=(),
        schema="(Tensor input, Tensor weight, Tensor offs) -> Tensor",
    )
    made.register_fake(lambda input, weight, offs: input.new_empty(input.shape[0], weight.shape[2]))
    return made


GROUPED = getattr(torch.ops.transformers, "grouped_mm_fallback", None) or declared()


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_transformers_operator(dtype):
    rows = ROWS.clone()
    rows[8] = float("nan")  # of no group
    compare(lambda *given: GROUPED(*given), rows, MATRICES, ENDS.to(dtype), rtol=1e-4, atol=1e-5)


if hasattr(torch.nn.functional, "grouped_mm"):  # since PyTorch 2.10

    def test_pytorchs_operator():
        rows, matrices = ROWS[:8].bfloat16(), MATRICES.bfloat16()
        compare(lambda *given: torch.nn.functional.grouped_mm(*given[:2], offs=given[2]), rows, matrices, ENDS.int())
        compare(torch.nn.functional.grouped_mm, torch.randn(4, 8, 16).bfloat16(), matrices)
