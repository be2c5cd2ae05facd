"""Cache conflicts between the rows of one column, as a function of the leading dimension (design page 03)."""

from __future__ import annotations

from math import gcd

from ...errors import TilingError, WorkloadError, nearest
from ...hardware.description import Cache
from ...workload import require_positive

MODES = ("best", "seed")


def rows_sharing_a_set(ld: int, element_bytes: int, cache: Cache, rows: int) -> int:
    """Return the largest number of `rows` consecutive rows whose lines map to one set of `cache`, at the worst column
    offset.

    `ld` is in elements, `element_bytes` in bytes; the base address is a multiple of the element size. Short rows that
    share a line count once, since they take one way together. Exact for any geometry; the time is proportional to the
    number of rows before the sets repeat (microseconds for a microkernel). Raises WorkloadError if ld, element_bytes or
    rows is below 1 or an element would straddle lines.
    """
    _check(ld, element_bytes, cache, rows)
    line, sets = cache.line, cache.sets
    span = sets * line
    stride = ld * element_bytes

    # Why no column offset is tried. An offset adds the same t to the address of every row, so rows r and r' share a
    # set exactly if (r*stride + t) and (r'*stride + t), taken modulo `span`, lie in one aligned window of `line` bytes.
    # Moving t moves that window over the circle of `span` bytes in steps of one element, and every row is on that
    # grid, so the fullest window may be taken to start at a row. With i that row, row r is inside exactly if
    # ((r - i)*stride mod span) < line: a matter of the difference r - i alone. The count for i is therefore the sum of
    # `inside` over `rows` consecutive differences, and all i together are one sliding sum.
    #
    # Rows repeat their sets every `period` rows. A full period puts one row on each multiple of `grid`, of which
    # ceil(line / grid) are in any window that starts at a row; only the rows left over need the sliding sum.
    if stride < line:
        # No line between the first and the last is skipped, and consecutive lines map to consecutive sets.
        lines = ((rows - 1) * stride + line - element_bytes) // line + 1
        return -(-lines // sets)
    grid = gcd(stride, span)
    period = span // grid
    rounds, rest = divmod(rows, period)
    inside = [difference * stride % span < line for difference in range(1 - rest, rest)]
    count = most = sum(inside[:rest])
    for entering in range(rest, 2 * rest - 1):
        count += inside[entering] - inside[entering - rest]
        most = max(most, count)
    return rounds * -(-line // grid) + most


def is_bad_leading_dimension(ld: int, element_bytes: int, cache: Cache, rows: int, mode: str = "best") -> bool:
    """Return whether reading one column of `rows` rows, `ld` elements apart, can evict lines of the same column from
    `cache`.

    mode="best" counts exactly: True if at some column offset more than `cache.ways` rows share a set (so never for rows
    <= ways). mode="seed" is the published divisibility test, which ignores the number of rows: True if ld *
    element_bytes divides sets * line or is a multiple of it. Errors are those of :func:`rows_sharing_a_set`; raises
    TilingError for another mode.
    """
    require_mode("is_bad_leading_dimension", mode)
    if mode == "best":
        return rows_sharing_a_set(ld, element_bytes, cache, rows) > cache.ways
    _check(ld, element_bytes, cache, rows)
    stride, span = ld * element_bytes, cache.sets * cache.line
    return span % stride == 0 or stride % span == 0


def require_mode(owner: str, mode: str) -> None:
    """Raise TilingError unless `mode` is one of MODES."""
    if mode not in MODES:
        raise TilingError(f"{owner}: unknown mode {mode!r}; {nearest(str(mode), MODES)}")


def _check(ld: int, element_bytes: int, cache: Cache, rows: int) -> None:
    for name, value in (("ld", ld), ("element_bytes", element_bytes), ("rows", rows)):
        require_positive("leading dimension", name, value)
    if cache.line % element_bytes:
        raise WorkloadError(
            f"leading dimension: element_bytes = {element_bytes}; expected a divisor of the cache line of {cache.line} "
            "bytes"
        )
