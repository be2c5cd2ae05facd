"""The W-fold engine stepped through: every row that is formed, every row of weights, every step, in sequence.

Written from the specification, not from the package, with fractions of cycles and the whole history, so that nothing is
skipped:

- the main unit forms rows in the order in which they are used. With L1 places in the first buffer a row waits until the
  one L1 rows before it is released, and all rows of a piece are released at the piece's last step;
- each step of a sub-unit takes its own row of weights, loaded in order. With L2 places a row waits for the one L2 rows
  before it, and the rows of a kernel position are released at its last step. More than L2 are processed in parts;
- a step takes one cycle and starts at a cycle boundary; the first needs the Ncu rows of the first kernel position, and
  a position that slides into a further row needs that one, too;
- the sums of a block of points occupy the result buffer from its first step until its last row has left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Sizes:
    """A convolution of one image with stride 1 along W, as the engine sees it; channels in bytes."""

    rows: int
    wo: int
    high: int
    kw: int
    ci: int
    co: int
    pitch: int  # bytes from a column to the next
    out: int = 1  # bytes of a result
    sums: int = 4  # bytes of a sum


def _period(rate):
    return 1 / Fraction(rate).limit_denominator(64)


def stepped(unit, sizes, pci, pco, co_rows, leaves=True):
    """Return the cycles until the last step is over, and until the last result has left."""
    ws, wso = unit.row_bytes // pci, unit.row_bytes // pco
    points = unit.units * ws
    longest = 0
    while -(-(points + longest) // ws) <= unit.first_buffer_rows:
        longest += 1
    row, weight = _period(unit.input_rows_per_cycle), _period(unit.weight_rows_per_cycle)
    result = _period(unit.output_rows_per_cycle)
    read = 0 if unit.input_reads_per_cycle is None else _period(unit.input_reads_per_cycle)
    blocks = range(0, sizes.ci, pci)
    contiguous = ws == 1 or (len(blocks) == 1 and sizes.pitch == sizes.ci)

    now = formed = loaded = out = Fraction(0)
    given_up, weights_given_up, left = [], [], []
    channels = min(co_rows, -(-sizes.co // unit.sub_units))
    most = None
    if unit.result_buffer_rows is not None and leaves:
        most = unit.result_buffer_rows // -(-channels * points * sizes.sums // unit.row_bytes)
    for first in range(0, sizes.co, co_rows * unit.sub_units):
        own = min(co_rows, -(-(sizes.co - first) // unit.sub_units))
        last = min(sizes.co, first + own * unit.sub_units)
        for _ in range(sizes.rows):
            for x in range(0, sizes.wo, points):
                if most is not None and len(left) >= most:
                    now = max(now, left[len(left) - most])
                for start in range(0, sizes.kw, longest):
                    taps = min(longest, sizes.kw - start)
                    needed = -(-(points + taps - 1) // ws)
                    for _ in range(sizes.high):
                        for block in blocks:
                            # How the columns of a row are read from the input memory.
                            reads, staged = (1 if contiguous else ws), ws * sizes.pitch
                            if not contiguous and staged <= unit.staging_bytes:
                                reads = min(ws, math.ceil(staged / unit.row_bytes))
                                if block and needed * staged <= unit.staging_bytes:
                                    reads = 0
                            there = []
                            for _ in range(needed):
                                before = len(given_up) + len(there) - unit.first_buffer_rows
                                place = given_up[before] if before >= 0 else 0
                                formed = max(formed, place) + max(row, reads * read)
                                there.append(formed)
                            for tap in range(taps):
                                now = max(now, there[(points - 1 + tap) // ws])
                                for part in range(0, own, unit.second_buffer_rows):
                                    count = min(unit.second_buffer_rows, own - part)
                                    for number in range(count):
                                        before = len(weights_given_up) + number - unit.second_buffer_rows
                                        place = weights_given_up[before] if before >= 0 else 0
                                        loaded = max(loaded, place) + weight
                                        now = math.ceil(max(now, loaded)) + 1
                                    weights_given_up += [now] * count
                            given_up += [now] * needed
                if leaves:
                    wanted = min(points, sizes.wo - x)
                    places = {(p // wso, c * sizes.out // pco) for p in range(wanted) for c in range(last - first)}
                    out = max(out, now) + len(places) * result
                    left.append(out)
    return int(now), math.ceil(max(now, out))
