"""Blocked low-bit weights of a float32 model with one scale per block: weight-only quantisation.

The scale of a block is searched: rounding with the step that represents its largest weight is compared with smaller
steps, which clip that weight and fit the others better, and the one with the least squared error is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import tvm
from tvm import relax

from ...decide.gemm.blocked import BlockedProduct
from ...errors import WorkloadError, nearest
from ...frontend import ImportedModel
from ...frontend.blocked_weights import product_in_blocks, rows_of_blocks
from ...frontend.node_names import names_in, nodes_named, numbers_of
from ...lowering.weight_panels import Blocks, record_memory, records
from ...operand_types import WEIGHT_FORMATS, Encoding
from ..passes.dataflow import Rewriter, array, constant, is_op, rewrite, shape_of
from ..pipeline import straight
from .record import LayerError

FORMATS = tuple(name for name, row in WEIGHT_FORMATS.items() if row.emitted and row.bits is not None)
LEAST_WEIGHTS = 1 << 12  # minimum size of a matrix: smaller ones are not worth their error
_PARTS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)  # of the step that represents the largest weight
_AT_ONCE = 1 << 20  # weights per iteration


def check_weights(weights: str | None, block: int) -> None:
    """Raise WorkloadError for formats without a kernel, and unsupported block sizes."""
    if weights is not None and weights not in FORMATS:
        raise WorkloadError(f"weights = {weights!r}; {nearest(str(weights), FORMATS)}")
    fits = isinstance(block, int) and not isinstance(block, bool) and 16 <= block <= 256 and not block & (block - 1)
    if not fits:
        raise WorkloadError(f"block = {block!r}; expected 16, 32, 64, 128 or 256 weights")


def in_blocks(imported: ImportedModel, weights: str, block: int) -> tuple[ImportedModel, tuple[LayerError, ...]]:
    """`imported` with blocked constant weights of its matrix multiplications and lookup tables; and the error of each.
    Raises WorkloadError if it has none."""
    encoding, errors = Encoding(format=weights, block=block), []
    mod = straight(imported.module)
    names = names_in(mod)

    def write(rewriter: Rewriter, variable: relax.Var, value: relax.Expr) -> relax.Expr | None:
        if is_op(value, "matmul"):
            x, w, transposed = value.args[0], value.args[1], False
            bound = rewriter.value(w)
            if is_op(bound, "permute_dims"):
                w, transposed = bound.args[0], True
            held = _weights(w, block)
            if held is None or str(x.ty.dtype) != "float32":
                return None
            stored = _stored(held if transposed else held.T, encoding)
            made = product_in_blocks(
                Named(rewriter, mod, weights), x, constant(stored.records), stored.product, "int16"
            )
        elif is_op(value, "take") and value.attrs.axis is not None and int(value.attrs.axis) == 0:
            held = _weights(value.args[0], block)
            if held is None:
                return None
            stored = _stored(held, encoding)
            table = constant(stored.records)
            made = rows_of_blocks(
                Named(rewriter, mod, weights), table, value.args[1], stored.product, "take", wraps=False
            )
        else:
            return None
        node = ", ".join(nodes_named(names, numbers_of(variable.name))) or variable.name
        errors.append(LayerError(node, stored.error))
        return made

    changed = rewrite(mod, write)
    if not errors:
        raise WorkloadError(
            f"weights = {weights!r}: the model has no matrix multiplications by float32 weights of "
            f"{LEAST_WEIGHTS} elements or more; expected a model that has, or None"
        )
    return replace(imported, module=changed), tuple(errors)


class Named:
    """An emitter in place of that of `mod`, for variables with the present node's name; its function names have a
    suffix that distinguishes them from those of `mod`."""

    def __init__(self, rewriter: Rewriter, mod: tvm.IRModule, word: str) -> None:
        self.emit, self.lookup_binding = rewriter.emit, rewriter.value
        self.call_te, self.get = rewriter.builder.call_te, lambda: mod
        self.add_func = lambda func, name: rewriter.builder.add_func(func, f"{name}_{word}")


def _weights(expr: relax.Expr, block: int) -> np.ndarray | None:
    """The value of constant float32 weights to quantise."""
    shape = shape_of(expr)
    if shape is None or len(shape) != 2 or shape[0] * shape[1] < LEAST_WEIGHTS or min(shape) < block:
        return None
    value = array(expr)
    return value if value is not None and value.dtype == np.float32 else None


@dataclass(frozen=True)
class _Stored:
    """The stored weights of a matrix multiplication, and their error."""

    product: BlockedProduct
    records: np.ndarray
    error: float


def _stored(weights: np.ndarray, encoding: Encoding) -> _Stored:
    """Quantise weights [n, k]. Raises WorkloadError if one is not finite."""
    n, k = weights.shape
    product = BlockedProduct(rows=1, n=n, k=k, encoding=encoding)
    made = record_memory(product)
    lost = whole = 0.0
    for start, rows in _pieces(weights, product):
        end = start + len(rows)
        found, scales, error = quantised(rows, product)
        records(Blocks(found, scales), product, made[start:end])
        lost += error
        whole += float(np.einsum("ijk,ijk->", rows, rows, dtype=np.float64))
    if not np.isfinite(whole):
        raise WorkloadError("weights that are not finite cannot be quantised; expected finite ones")
    return _Stored(product, made, float(np.sqrt(lost / whole)) if whole else 0.0)


def _pieces(weights: np.ndarray, product: BlockedProduct) -> Iterator[tuple[int, np.ndarray]]:
    """Groups of rows as [rows, blocks, elements], zero-padded; and the index of the first row."""
    block, step = product.encoding.block, max(1, _AT_ONCE // max(1, product.k))
    for start in range(0, product.n, step):
        piece = np.ascontiguousarray(weights[start : start + step])
        padded = np.zeros((len(piece), product.blocks * block), np.float32)
        padded[:, : product.k] = piece
        yield start, padded.reshape(len(piece), product.blocks, block)


def quantised(rows: np.ndarray, product: BlockedProduct) -> tuple[np.ndarray, np.ndarray, float]:
    """(uint8 values, float32 scales, sum of squared errors) of blocks [rows, blocks, elements]: the largest weight of a
    block is mapped to the lowest value, which has no counterpart, and its sign becomes that of the scale."""
    centre = product.centre
    place = np.abs(rows).argmax(axis=-1)[..., None]
    largest = np.take_along_axis(rows, place, axis=-1)
    best: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
    for part in _PARTS:
        scale = largest * np.float32(-part / centre)
        inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)
        values = np.clip(np.rint(rows * inverse), -centre, centre - 1)
        error = np.square(rows - values * scale).sum(axis=-1, keepdims=True, dtype=np.float64)
        if best is None:
            best = values, scale, error
            continue
        better = error < best[2]
        best = tuple(np.where(better, new, old) for new, old in zip((values, scale, error), best, strict=True))  # type: ignore[assignment]
    assert best is not None
    values, scale, error = best
    return (values + centre).astype(np.uint8), scale[..., 0].astype(np.float32), float(error.sum())
