"""Matrix multiplications of grouped rows by one matrix per group, as in a mixture of experts."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx

from ....figures import quantity
from ..translation import Translation, Unsupported, Value, converter, shape_of
from ..types import computed_in
from .products import product


@converter("transformers::grouped_mm_fallback.default")
def _rows_by_experts(t: Translation, input: relax.Expr, weight: relax.Expr, offs: relax.Expr) -> relax.Expr:
    return _by_groups(t, input, weight, offs)


@converter("_grouped_mm.default")
def _grouped(t: Translation, self: relax.Expr, mat2: relax.Expr, offs: Value, bias: Value, out_dtype: Any) -> Value:
    if bias is not None or out_dtype is not None:
        raise Unsupported("a bias or an output type is not supported; expected neither")
    ranks = len(shape_of(self)), len(shape_of(mat2))
    if offs is None:
        return t.cast(product(t, self, mat2, computed_in(t.dtype)), t.dtype)
    if ranks != (2, 3):
        raise Unsupported(
            f"groups of operands of {ranks[0]} and {ranks[1]} axes are not supported; expected groups of matrix rows"
        )
    return _by_groups(t, self, mat2, offs)


def _by_groups(t: Translation, rows: relax.Expr, matrices: relax.Expr, ends: relax.Expr) -> relax.Expr:
    """Each row times the matrix of its group. `ends`: the end row of each group; rows after all groups give zeros."""
    groups, depth, columns = shape_of(matrices)
    count, wide = shape_of(rows)[0], computed_in(t.dtype)
    if not groups or not depth:
        raise Unsupported(f"{quantity(groups, 'group')} with K = {depth} are not supported; expected at least one")

    def numbers(end: te.Tensor) -> te.Tensor:
        g = te.reduce_axis((0, groups), name="g")

        def passed(r: tirx.Var) -> tirx.Expr:
            return tirx.Cast("int32", end[g] <= tirx.Cast(end.dtype, r))

        return te.compute((count,), lambda r: te.sum(passed(r), axis=g), name="group")

    def products(row: te.Tensor, matrix: te.Tensor, group: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, depth), name="k")

        def term(r: tirx.Var, c: tirx.Var) -> tirx.Expr:
            held = tirx.min(group[r], tirx.const(groups - 1, "int32"))
            value = tirx.Cast(wide, row[r, k]) * tirx.Cast(wide, matrix[held, k, c])
            return tirx.Select(group[r] < groups, value, tirx.const(0, wide))

        return te.compute((count, columns), lambda r, c: te.sum(term(r, c), axis=k), name="grouped")

    number = t.te(numbers, ends, primfunc_name_hint="group_of_row")
    return t.cast(t.te(products, rows, matrices, number, primfunc_name_hint="grouped_matmul"), t.dtype)
