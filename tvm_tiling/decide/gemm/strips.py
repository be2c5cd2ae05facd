"""Cycles of matrix multiplications on a weight-stationary systolic array: a block of A stays resident while columns of
B stream through."""

from __future__ import annotations

import numpy as np

from ...hardware.near_tile import NearTile


def streamed_cycles(
    unit: NearTile, element_bytes: int, rows: np.ndarray, lines: np.ndarray, columns: np.ndarray, depth: np.ndarray
) -> np.ndarray:
    """Return the cycles (int64) without the engine's fill time.

    The operands are `rows` of A by `lines` lines of `columns` columns of B, `depth` blocks of K deep, with elements of
    `element_bytes`. Columns are processed in strips of at most block_n; a strip does not extend past its line. The
    instructions of a strip are issued while earlier strips stream, so that a short strip after full ones is not limited
    by their issue: `strip_least` bounds the strips of a line together.
    """
    peak = unit.block_m * unit.block_k / unit.macs(element_bytes)
    full, rest = np.divmod(columns, unit.block_n)
    streaming = full * _strip(unit, peak, np.array(unit.block_n)) + np.where(rest > 0, _strip(unit, peak, rest), 0.0)
    line = np.maximum(streaming, (full + (rest > 0)) * unit.strip_least)
    blocks = -(-rows // unit.block_m) * depth
    cycles: np.ndarray = np.ceil(blocks * (lines * line + unit.block_change) * (1 - 1e-14)).astype(np.int64)
    return cycles


def _strip(unit: NearTile, peak: float, columns: np.ndarray) -> np.ndarray:
    """Return the cycles in which a strip streams, with `peak` cycles of multiplications per column."""
    return np.maximum(unit.strip_start + columns * unit.column_cycles, columns * peak)
