"""Rows that are multiplied by blocked weights: in float32, or rounded to 16 or 8 bits in the blocks of the weights."""

from __future__ import annotations

from dataclasses import replace

from tvm import relax

from ...decide.gemm.blocked import BlockedProduct
from ...errors import WorkloadError, nearest
from ...frontend import ImportedModel
from ...frontend.blocked_weights import product_in_blocks
from ...match.described import description_of
from ..passes.dataflow import Rewriter, is_op, rewrite
from .blocks import Named

ACTIVATIONS = ("float32", "int16", "int8")


def check_activations(activations: str | None) -> None:
    """Raise WorkloadError for types without a kernel."""
    if activations is not None and activations not in ACTIVATIONS:
        raise WorkloadError(f"activations = {activations!r}; {nearest(str(activations), ACTIVATIONS)}")


def with_activations(imported: ImportedModel, activations: str) -> ImportedModel:
    """`imported` with rows of this type for all matrix multiplications by blocked weights. Raises WorkloadError if it
    has none."""
    mod = imported.module
    products = {
        variable: description
        for variable, func in mod.functions.items()
        if not isinstance(func, relax.Function) and isinstance(description := description_of(func), BlockedProduct)
    }
    if not products:
        raise WorkloadError(
            f"activations = {activations!r}: the model has no block-quantised weights; expected a model "
            "with such weights, or weights='int4'"
        )

    def write(rewriter: Rewriter, _: relax.Var, value: relax.Expr) -> relax.Expr | None:
        description = products.get(value.args[0]) if is_op(value, "call_tir") else None
        if description is None or description.activations == activations:
            return None
        x, *_, weights = value.args[1].fields
        if description.activations == "int8":  # the rows before their quantisation
            x = rewriter.value(rewriter.value(x).tuple_value).args[1].fields[0]
        product = BlockedProduct(rows=1, n=description.n, k=description.k, encoding=description.encoding)
        return product_in_blocks(Named(rewriter, mod, activations), x, weights, product, activations)

    return replace(imported, module=rewrite(mod, write))
