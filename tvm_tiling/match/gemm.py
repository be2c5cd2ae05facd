"""Matching of the matrix multiplication in a PrimFunc: its operands by axes, and the operators fused around it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from math import prod
from operator import mul

from tvm import sym, tirx
from tvm.ir import TensorLoad

from ..errors import WorkloadError
from ..limits import MAX_EXTENT
from ..lowering.samples import Extent, is_open
from ..workload import GemmWorkload
from .access import Access, linear_strides, loads, strip_cast, variables
from .function import SumOfProducts, refuse, sum_of_products
from .program import MatchedProgram, acc_dtype, operand_types, write_back


@dataclass(frozen=True)
class GemmProgram(MatchedProgram):
    """A matched matrix multiplication: C[b, i, j] = sum_k a(b, i, k) * b(b, k, j), then `result`. Axes of the output:
    b, i, j.

    The workload has dynamic extents at the sample; `extents` has them as expressions.
    """

    workload: GemmWorkload
    a: Access  # axes (batch, m, k)
    b: Access  # axes (batch, k, n)
    swapped: bool  # the operands of the source are swapped so that n is the contiguous axis of the output

    @property
    def extents(self) -> tuple[Extent, Extent, Extent, Extent]:
        """The extents of batch, m, n and k."""
        batch, m, n = (product_of(sizes) for sizes in self.out_extents)
        return batch, m, n, product_of(self.a.extents[2])

    @property
    def is_open(self) -> bool:
        """Return whether any of them is dynamic."""
        return any(map(is_open, self.extents))

    @property
    def has_windows(self) -> bool:
        """Return whether an operand is read by windows: at the sum of two axes."""
        read = [load for operand in (self.a, self.b) for load in loads(operand.expr)]
        return any(len(variables(index)) > 1 for load in read for index in load.indices)


def product_of(sizes: Iterable[Extent]) -> Extent:
    """The product of extents, a number if none is dynamic."""
    return reduce(mul, sizes, 1)


def match_gemm(
    func: tirx.PrimFunc, name: str = "main", *, may_swap: bool = True, may_open: bool = False
) -> GemmProgram:
    """Match the matrix multiplication in `func`. Raises UnsupportedOperator with the condition that is not met.

    `may_swap`: if only the axis of A is contiguous in the output, the operands may be swapped. `may_open` as in
    sum_of_products.
    """
    return gemm_of(sum_of_products(func, name, may_open=may_open), may_swap=may_swap)


def _operand(name: str, expr: tirx.Expr, axes: list[list[tirx.Var]], among: Mapping[tirx.Var, Extent]) -> Access:
    sizes = tuple(tuple(among[v] for v in axis) for axis in axes)
    plain = strip_cast(expr)
    strides = buffer = None
    if isinstance(plain, TensorLoad):
        for d, (index, size) in enumerate(zip(plain.indices, plain.source.shape, strict=True)):
            if isinstance(index, tirx.Var) and index in among and not _within(among[index], size):
                raise refuse(
                    name, f"{plain.source.name}'s axis {d} is read up to {among[index]}, but has {size} elements"
                )
        strides = linear_strides(plain, axes, sizes)
        buffer = plain.source if strides is not None else None
    source = plain if isinstance(plain, TensorLoad) else expr
    return Access(source, tuple(tuple(a) for a in axes), sizes, str(source.ty), buffer, strides)


def _within(count: Extent, size: tirx.Expr) -> bool:
    """Return whether an axis of `count` elements is within `size`."""
    if not is_open(count) and not is_open(size):
        return int(count) <= int(size)
    return bool(sym.Analyzer().can_prove(count <= size))


def gemm_of(found: SumOfProducts, *, may_swap: bool = True) -> GemmProgram:
    """The matrix multiplication equivalent to a sum of products, like match_gemm."""
    name, among, left, right = found.name, found.extents, found.left, found.right
    real = found.sizes
    left_vars, right_vars = variables(left, among), variables(right, among)
    if any((v in left_vars) != (v in right_vars) for v in found.reduce):
        raise refuse(name, "a reduction axis is missing from one operand")
    # Axes in storage order of the output, so that fused axes are contiguous where possible.
    order = found.spatial
    if not order:
        raise refuse(name, "its result is a scalar; expected results with an axis")
    batch = [v for v in order if (v in left_vars) == (v in right_vars)]
    m_axis = [v for v in order if v in left_vars and v not in right_vars]
    n_axis = [v for v in order if v in right_vars and v not in left_vars]
    m_size, n_size = (prod([among[v] for v in axis]) for axis in (m_axis, n_axis))
    last = next((v for v in reversed(order) if among[v] > 1), order[-1])
    swapped = may_swap and ((n_size == 1 and m_size > 1) or (last in m_axis and m_size > 1))
    if swapped:
        left, right, m_axis, n_axis, m_size, n_size = right, left, n_axis, m_axis, n_size, m_size
    a = _operand(name, left, [batch, m_axis, list(found.reduce)], real)
    b = _operand(name, right, [batch, list(found.reduce), n_axis], real)
    out, indices, value = write_back(name, found.block, found.epilogue)
    axes = (tuple(batch), tuple(m_axis), tuple(n_axis))
    sizes = tuple(tuple(among[v] for v in axis) for axis in axes)
    most = MAX_EXTENT if any(v in found.opened for v in found.reduce) else 0
    return GemmProgram(
        func=found.func,
        name=name,
        workload=_workload(name, a, b, sizes, prod(among[v] for v in found.reduce), found.sum_type, most),
        a=a,
        b=b,
        out=out,
        out_indices=indices,
        out_axes=axes,
        out_extents=tuple(tuple(real[v] for v in axis) for axis in axes),
        value=value,
        has_epilogue=found.epilogue is not None,
        swapped=swapped,
    )


def _workload(
    name: str, a: Access, b: Access, sizes: tuple[tuple[int, ...], ...], k: int, sum_type: str, most: int
) -> GemmWorkload:
    """`most`: the maximum size of the reduction axis, if it is dynamic."""
    batch, m, n = (prod(s) for s in sizes)
    types = operand_types(name, a.dtype, b.dtype)

    def leading(access: Access, row: int, column: int, columns: int, rows: int) -> tuple[bool, int | None]:
        if access.strides is None:
            return False, None
        if access.strides[column] == 1 or columns == 1:
            return False, max(access.strides[row], columns) if rows > 1 else None
        if access.strides[row] == 1 or rows == 1:
            return True, max(access.strides[column], rows)
        return False, None

    trans_a, lda = leading(a, 1, 2, k, m)
    trans_b, ldb = leading(b, 1, 2, n, k)
    try:
        return GemmWorkload(
            m=m,
            n=n,
            k=k,
            batch=batch,
            **types,
            acc_dtype=acc_dtype(name, types, sum_type, max(k, most)),
            trans_a=trans_a,
            trans_b=trans_b,
            lda=lda,
            ldb=ldb,
        )
    except WorkloadError as error:
        raise refuse(name, str(error)) from error
