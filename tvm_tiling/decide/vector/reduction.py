"""How many vectors a reduction keeps in registers at once."""

from __future__ import annotations

from .elementwise import SHARES_PER_CORE

# Vectors of partial sums of one row: enough to cover the latency of an addition on two units.
ALONG_VECTORS = 8
# The same for a row of dynamic length, which may be short.
OPEN_VECTORS = 4
# Vectors of rows side by side: each step of the reduction loops serves all of them, and addresses are computed once.
ACROSS_VECTORS = 4


def strip_vectors(extent: int, lanes: int, other_rows: int, tasks: int) -> int:
    """Return the number of vectors side by side across `extent` rows; fewer if tasks would otherwise lack strips."""
    most = max(1, min(ACROSS_VECTORS, extent // lanes))
    while most > 1 and other_rows < tasks and extent // (most * lanes) < SHARES_PER_CORE * tasks:
        most //= 2
    return most
