"""How many vectors a reduction keeps in registers at once."""

from __future__ import annotations

from .elementwise import SHARES_PER_CORE

# Vectors of partial sums of one row: enough to hide the latency of an addition on two units.
ALONG_VECTORS = 8
# The same of a row whose length a run brings, and may be short.
OPEN_VECTORS = 4
# Vectors of rows side by side: each step of the reduced loops serves so many, and addresses are computed once.
ACROSS_VECTORS = 4


def strip_vectors(extent: int, lanes: int, other_rows: int, tasks: int) -> int:
    """Vectors side by side across `extent` rows; fewer where tasks would otherwise not find enough strips."""
    most = max(1, min(ACROSS_VECTORS, extent // lanes))
    while most > 1 and other_rows < tasks and extent // (most * lanes) < SHARES_PER_CORE * tasks:
        most //= 2
    return most
