"""Factorisations of symmetric indefinite matrices, and systems solved by them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch_compare import Function, compare, compiled  # noqa: E402

from tvm_tiling.errors import WorkloadError  # noqa: E402


def symmetric(*shape, diagonal=1.0, seed=0):
    half = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    whole = half + half.mT
    return whole - (1 - diagonal) * torch.diag_embed(whole.diagonal(dim1=-2, dim2=-1))


def factors(matrices):
    return torch.linalg.ldl_factor_ex(matrices)


@pytest.mark.parametrize("size", [1, 2, 3, 9])
@pytest.mark.parametrize("diagonal", [1.0, 0.05, 0.0], ids=["large", "small", "zero"])
def test_factors_and_solutions(size, diagonal):
    """With small diagonals most pivots are blocks of two rows, and rows are exchanged."""
    matrices = symmetric(4, size, size, diagonal=diagonal if size > 1 else 1.0)
    assert size < 3 or diagonal or (factors(matrices).pivots < 0).any()
    right = torch.randn(4, size, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def run(matrices, right):
        found, pivots, status = factors(matrices)
        return found, pivots, status, torch.linalg.ldl_solve(found, pivots, right)

    compare(run, matrices, right, rtol=1e-8, atol=1e-10)


def test_the_upper_triangle_is_not_read():
    matrix = symmetric(5, 5)
    compare(factors, matrix.tril() + 1e6 * torch.ones(5, 5, dtype=torch.float64).triu(1), rtol=1e-9)


def test_one_right_side_for_several_matrices_of_float32():
    matrices, right = symmetric(2, 4, 4).float(), torch.ones(4, 2)
    compare(lambda m, r: torch.linalg.ldl_solve(*torch.linalg.ldl_factor(m), r), matrices, right, rtol=1e-4, atol=1e-5)


def test_a_block_of_zeros_is_reported():
    compare(factors, torch.tensor([[1.0, 0, 0], [0, 0, 0], [0, 0, 2]], dtype=torch.float64))


def test_a_block_of_zeros_ends_the_run_where_no_status_is_returned():
    def run(matrix):
        return torch.linalg.ldl_factor(matrix)

    program = torch.export.export(Function(run), (torch.eye(3),)).run_decompositions()
    if "_linalg_check_errors" not in str(program.graph):
        pytest.skip("this release of PyTorch drops the check")
    with pytest.raises(WorkloadError, match=r"linalg\.ldl_factor.*status of a matrix"):
        compiled(run, torch.zeros(3, 3))


def test_pivots_outside_of_the_matrix_end_the_run():
    pivots = torch.tensor([1, 2, 7], dtype=torch.int32)
    with pytest.raises(WorkloadError, match=r"linalg_ldl_solve.*pivot"):
        compiled(torch.linalg.ldl_solve, torch.eye(3), pivots, torch.ones(3, 1))
