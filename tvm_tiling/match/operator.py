"""Classification of PrimFuncs as matrix multiplication or convolution."""

from __future__ import annotations

from tvm import tirx

from ..errors import UnsupportedOperator, attempted
from .conv import ConvProgram, conv_of, walks_over_images
from .function import sum_of_products
from .gemm import GemmProgram, gemm_of


def match(
    func: tirx.PrimFunc, name: str = "main", *, may_swap: bool = True, keep_taps: bool = False, wraps: bool = True
) -> GemmProgram | ConvProgram:
    """Match the convolution or matrix multiplication in `func`. Raises UnsupportedOperator with the condition that is
    not met.

    A convolution equivalent to a matrix multiplication (one tap, stride 1, no padding, one group; or adjacent windows
    without overlap) is matched as one if its operands can be read as matrices. `may_swap` as in match_gemm, `wraps` as
    in sum_of_products. With `keep_taps`, a sum written over taps remains a convolution.
    """
    found = sum_of_products(func, name, wraps=wraps)
    conv = attempted(conv_of, found)
    if isinstance(conv, UnsupportedOperator):
        # A matrix multiplication would compute its operands element by element: report the reason instead.
        if walks_over_images(found):
            raise conv
        return gemm_of(found, may_swap=may_swap)
    if keep_taps and conv.has_taps:
        return conv
    if not conv.has_taps or _is_computed_matrix(conv):
        return gemm_of(found, may_swap=may_swap)
    product = attempted(gemm_of, found, may_swap=may_swap)
    return product if isinstance(product, GemmProgram) and _reads_matrices(product) else conv


def _reads_matrices(product: GemmProgram) -> bool:
    """Return whether both operands are stored as one matrix each, with every element at a separate address."""
    size = product.workload
    if size.batch > 1 or product.a.strides is None or product.b.strides is None:
        return False
    _, a_row, a_column = product.a.strides
    _, b_row, b_column = product.b.strides
    return _apart(a_row, size.m, a_column, size.k) and _apart(b_row, size.k, b_column, size.n)


def _apart(row: int, rows: int, column: int, columns: int) -> bool:
    return rows == 1 or columns == 1 or row >= columns * column or column >= rows * row


def _is_computed_matrix(conv: ConvProgram) -> bool:
    """Return whether the input is a computed matrix: channels last, one pixel per row of the result."""
    size = conv.workload
    one_tap = size.kd == size.kh == size.kw == 1 and size.stride == (1, 1) and size.stride_d == 1
    unpadded = not any((*size.padding, *size.padding_d))
    return conv.x is None and one_tap and unpadded and size.groups == 1 and size.layout == "NHWC"
