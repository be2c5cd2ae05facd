"""The W-fold machine as a scalar loop nest, and the direct convolution for comparison.

Written from the specification, not from the package: executing the loops counts steps, loads and results. Buffers are
small lists: a row that was not loaded cannot be multiplied, so that the counts are those of a valid loop nest.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


def convolution(x, weights, stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), groups=1):
    """y[n, ho, wo, co] of x[n, h, w, ci] and weights[co, kh, kw, ci/groups]; padding is (top, left, bottom, right)."""
    n, h, w, _ = x.shape
    co, kh, kw, cg = weights.shape
    top, left, bottom, right = padding
    ho = (h + top + bottom - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    wo = (w + left + right - dilation[1] * (kw - 1) - 1) // stride[1] + 1
    y = np.zeros((n, ho, wo, co), dtype=np.int64)
    for yo in range(ho):
        for xo in range(wo):
            for i in range(kh):
                for j in range(kw):
                    yi, xi = yo * stride[0] + i * dilation[0] - top, xo * stride[1] + j * dilation[1] - left
                    if not (0 <= yi < h and 0 <= xi < w):
                        continue
                    for group in range(groups):
                        channels = slice(group * cg, (group + 1) * cg)
                        outputs = slice(group * co // groups, (group + 1) * co // groups)
                        y[:, yo, xo, outputs] += x[:, yi, xi, channels] @ weights[outputs, i, j].T
    return y


@dataclass
class Machine:
    """The sizes of the loop nest. Elements are one byte, so that granularities are numbers of channels, too."""

    row: int  # M
    sub_units: int  # Ns
    units: int  # Ncu
    first_rows: int  # L1
    pci: int
    pco: int
    co_rows: int  # output channels of a sub-unit in a block


@dataclass
class Counted:
    """What the loop nest counted."""

    steps: int = 0
    reads: int = 0  # rows of the main unit
    weight_rows: int = 0  # rows of the first sub-unit
    write_rows: int = 0
    first_block_steps: int = 0  # steps of the first block of points, all blocks of output channels
    pieces: list[int] = field(default_factory=list)


def walk(x, weights, machine, *, stride_h=1, dilation_h=1, padding=(0, 0, 0, 0), wo=None):
    """Convolve one image x[h, w, ci] with stride 1 along W, as the machine does: (y[ho, wo, co], Counted).

    `wo`: the number of points per row that are needed, if fewer than possible.
    """
    h, w, ci = x.shape
    co, kh, kw, _ = weights.shape
    top, left, bottom, right = padding
    m = machine
    ws, wso = m.row // m.pci, m.row // m.pco
    points = m.units * ws
    ho = (h + top + bottom - dilation_h * (kh - 1) - 1) // stride_h + 1
    wo = w + left + right - kw + 1 if wo is None else wo

    def element(yi, xi, channel):
        inside = 0 <= yi < h and 0 <= xi < w and channel < ci
        return int(x[yi, xi, channel]) if inside else 0  # the padding filter

    longest = 0
    while -(-(points + longest) // ws) <= m.first_rows:  # columns of the first buffer that a longer kernel needs
        longest += 1
    counted = Counted()
    y = np.full((ho, wo, co), -(10**9), dtype=np.int64)
    for co_start in range(0, co, m.co_rows * m.sub_units):
        own = min(m.co_rows, -(-(co - co_start) // m.sub_units))
        for yo in range(ho):
            for x_start in range(0, wo, points):
                sums = np.zeros((own, m.sub_units, points), dtype=np.int64)
                first_block = yo == 0 and x_start == 0
                for piece_start in range(0, kw, longest):
                    piece = min(longest, kw - piece_start)
                    if first_block and co_start == 0:
                        counted.pieces.append(piece)
                    for c_start in range(0, ci, m.pci):
                        for i in range(kh):
                            yi = yo * stride_h + i * dilation_h - top
                            buffer: dict[int, list[int]] = {}  # the first buffer: rows of Ws columns by PCI channels
                            for j in range(piece):
                                for q in range(own):
                                    # One step: Ncu rows from the first buffer, one row of weights in each sub-unit.
                                    counted.steps += 1
                                    counted.weight_rows += 1
                                    counted.first_block_steps += first_block
                                    for unit in range(m.units):
                                        for s in range(ws):
                                            column = unit * ws + s + j
                                            if column // ws not in buffer:
                                                begin = x_start - left + piece_start + column // ws * ws
                                                buffer[column // ws] = [
                                                    element(yi, begin + t, c_start + c)
                                                    for t in range(ws)
                                                    for c in range(m.pci)
                                                ]
                                                counted.reads += 1
                                            row = buffer[column // ws]
                                            for u in range(m.sub_units):
                                                channel = co_start + q * m.sub_units + u
                                                if channel >= co:
                                                    continue
                                                for c in range(min(m.pci, ci - c_start)):
                                                    weight = weights[channel, i, piece_start + j, c_start + c]
                                                    sums[q, u, unit * ws + s] += row[column % ws * m.pci + c] * int(
                                                        weight
                                                    )
                            assert len(buffer) <= m.first_rows
                leaving = set()
                for p in range(min(points, wo - x_start)):
                    for channel in range(co_start, min(co, co_start + own * m.sub_units)):
                        q, u = divmod(channel - co_start, m.sub_units)
                        y[yo, x_start + p, channel] = sums[q, u, p]
                        leaving.add((p // wso, (channel - co_start) // m.pco))
                counted.write_rows += len(leaving)
    return y, counted
