"""W-fold on its machine: the loops of a convolution and their counts (W-fold convolution for few channels, design page
05).

The machine reads and multiplies rows of M bytes. Channels, padded only to a granularity PCI = M / 2^i, leave room for
Ws = M / PCI adjacent columns along W, which are contiguous in memory. A row of weights is PCI bytes repeated Ws times.
A unit multiplies two rows and sums each PCI bytes separately: Ws output points of one output channel per step. The Ncu
units of a sub-unit take adjacent rows, the Ns sub-units different output channels. So P = Ncu*Ws points of Ns channels
take one step per tap and block of channels, of which there are Bci = ceil(Ci/PCI):

    steps = Ho * ceil(Wo/P) * (Aco/Ns) * Kh * Kw * Bci          Aco: Co padded to a multiple of Ns

From tap to tap both buffers slide by one column, so a piece of kw taps needs P + kw - 1 columns, and that number
divided by Ws (rounded up) rows of the first buffer. The buffer's L1 rows hold L1*Ws columns, hence kw <= Kmax = (L1 -
Ncu)*Ws + 1; wider kernels are divided. All rows are formed again for each block of channels, kernel row, piece, block
of points and block of output channels. The last of these makes the size of such a block important: an input row, once
loaded, serves all its channels, co_block/Ns steps of each sub-unit. If the block is larger than the machine's default,
its weights for a tap must fit the second buffer and its sums the result buffer.

A row takes one contiguous read of the input memory if Bci = 1. Otherwise it takes Ws reads one column apart, or one
read of Ws whole columns into staging registers, from which the row is selected. Staging registers that hold all columns
of a piece serve further blocks of channels without another read.

Results are written in rows as well, of Wso = M / PCO points by PCO bytes of output channels, including a shorter last
part.

In the steady state everything overlaps, and the slowest of the multipliers and the three ports determines the time;
fold/fold_walk.py simulates finite buffers.

H and depth are not folded, so their strides and dilations are free. Along W the stride is 1, after stride-fold if
necessary, and a dilated kernel is expanded. Groups run one after another.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

from ...hardware.description import WFold
from ..gemm.traffic import ceil_div

# Instructions per block of output channels of an image, so that loads, multiplications and stores overlap.
INSTRUCTIONS = 8


@dataclass(frozen=True)
class Layer:
    """A convolution as the machine sees it: one image of one group, with stride 1 along W."""

    groups: int
    rows: int  # output rows over all depths
    wo: int
    w: int
    ci_bytes: int  # bytes of one column
    co: int
    taps_high: int  # kernel rows over all depths
    kw: int
    d_s: int  # bytes of an element
    d_out: int  # bytes of a stored element
    pitch: int  # bytes between adjacent columns in the input memory
    d_acc: int = 4  # bytes of a sum
    planes: int = 1  # output planes that `rows` covers
    deep: int = 1  # kernel planes that `taps_high` covers

    @property
    def co_bytes(self) -> int:
        return self.co * self.d_out


@dataclass(frozen=True)
class FoldNest:
    """A layer on the machine with all choices made, and the resulting counts for one image."""

    layer: Layer
    unit: WFold
    pci: int
    pco: int
    co_rows: int  # output channels per sub-unit in a block

    @property
    def ws(self) -> int:
        return self.unit.row_bytes // self.pci

    @property
    def wso(self) -> int:
        return self.unit.row_bytes // self.pco

    @property
    def bci(self) -> int:
        return ceil_div(self.layer.ci_bytes, self.pci)

    @property
    def aco_rows(self) -> int:
        """Output channels per sub-unit: Aco / Ns."""
        return ceil_div(self.layer.co, self.unit.sub_units)

    @property
    def points(self) -> int:
        """Output points of a block."""
        return self.unit.units * self.ws

    @property
    def kmax(self) -> int:
        return (self.unit.first_buffer_rows - self.unit.units) * self.ws + 1

    @property
    def kw_pieces(self) -> tuple[int, ...]:
        whole, rest = divmod(self.layer.kw, self.kmax)
        return (self.kmax,) * whole + ((rest,) if rest else ())

    @property
    def block_steps(self) -> int:
        return self.aco_rows * self.kw_pieces[0] * self.layer.taps_high * self.bci

    @property
    def row_blocks(self) -> int:
        """Blocks of points per output row."""
        return ceil_div(self.layer.wo, self.points)

    @property
    def _blocks(self) -> int:
        """Blocks of points of an image and all its groups."""
        return self.layer.groups * self.layer.rows * self.row_blocks

    @property
    def steps(self) -> int:
        return self._blocks * self.aco_rows * self.layer.taps_high * self.layer.kw * self.bci

    @property
    def block_reads(self) -> int:
        """Input rows read by a block of points for one block of output channels."""
        rows = sum(ceil_div(self.points + piece - 1, self.ws) for piece in self.kw_pieces)
        return self.bci * self.layer.taps_high * rows

    @property
    def passes(self) -> int:
        """Number of passes over the input: blocks of output channels."""
        return ceil_div(self.aco_rows, self.co_rows)

    @property
    def reads(self) -> int:
        return self.passes * self._blocks * self.block_reads

    @property
    def weight_rows(self) -> int:
        """Number of weight rows, one per step: the second buffer is a ring buffer."""
        return self.steps

    @property
    def write_rows(self) -> int:
        whole, rest = divmod(self.layer.wo, self.points)
        along_w = whole * ceil_div(self.points, self.wso) + ceil_div(rest, self.wso)
        return self.layer.groups * self.layer.rows * along_w * self._pieces

    @property
    def _pieces(self) -> int:
        """Parts of the output channels that are stored, over all blocks."""
        whole = self.layer.co // self.block_channels
        rest = self.layer.co - whole * self.block_channels
        return whole * self._pieces_of(self.block_channels) + self._pieces_of(rest)

    def _pieces_of(self, channels: int) -> int:
        return ceil_div(channels * self.layer.d_out, self.pco)

    @property
    def block_channels(self) -> int:
        """Output channels of a block."""
        return self.co_rows * self.unit.sub_units

    @property
    def pass_blocks(self) -> list[tuple[int, int, int]]:
        """Blocks of output channels as (count, output channels per sub-unit, parts of the output channels)."""
        return [
            (count, ceil_div(channels, self.unit.sub_units), self._pieces_of(channels))
            for channels, count in _parts(self.layer.co, self.block_channels)
        ]

    def piece_rows(self, width: int) -> int:
        """Return the rows of the first buffer that a piece of `width` taps slides over."""
        return ceil_div(self.points + width - 1, self.ws)

    def row_reads(self, width: int) -> tuple[int, int]:
        """Return the contiguous reads of the input memory, each of at most a row, that form one row of a piece of
        `width` taps: for the first block of channels, and for each further one."""
        layer, unit = self.layer, self.unit
        if self.ws == 1 or (self.bci == 1 and layer.pitch == layer.ci_bytes):
            return 1, 1
        staged = self.ws * layer.pitch
        through = ceil_div(staged, unit.row_bytes) if staged <= unit.staging_bytes else self.ws
        stays = staged * self.piece_rows(width) <= unit.staging_bytes
        return min(self.ws, through), 0 if stays else min(self.ws, through)

    @property
    def sum_rows(self) -> int:
        """Rows of the result buffer for the sums of a block in each sub-unit."""
        own = min(self.co_rows, self.aco_rows)
        return ceil_div(own * self.points * self.layer.d_acc, self.unit.row_bytes)

    @property
    def rooms(self) -> int | None:
        """Blocks of points whose sums fit at once; None if unlimited."""
        rows = self.unit.result_buffer_rows
        return None if rows is None else rows // self.sum_rows

    @property
    def instruction_rows(self) -> int:
        """Output rows of an instruction."""
        return ceil_div(self.layer.rows // self.layer.planes, INSTRUCTIONS)

    @property
    def instruction_columns(self) -> int:
        """Output columns of an instruction: all, or several blocks of points if there are few rows, as in matrix
        multiplications."""
        parts = INSTRUCTIONS // ceil_div(self.layer.rows // self.layer.planes, self.instruction_rows)
        return min(self.layer.wo, ceil_div(self.row_blocks, parts) * self.points)

    @property
    def instructions(self) -> list[tuple[int, FoldNest, bool]]:
        """The instructions of an image as (count, computation, whether results are stored). Only those of the last
        kernel plane store results. Each instruction has one block of output channels."""
        layer = self.layer
        parts = itertools.product(
            _parts(layer.rows // layer.planes, self.instruction_rows),
            _parts(layer.wo, self.instruction_columns),
            _parts(layer.co, self.block_channels),
        )
        found = []
        for (rows, many), (columns, wide), (channels, passes) in parts:
            part = replace(
                layer,
                groups=1,
                rows=rows,
                wo=columns,
                w=columns + layer.kw - 1,
                co=channels,
                taps_high=layer.taps_high // layer.deep,
                planes=1,
                deep=1,
            )
            nest, count = replace(self, layer=part), layer.planes * layer.groups * many * wide * passes
            if layer.deep > 1:
                found.append((count * (layer.deep - 1), nest, False))
            found.append((count, nest, True))
        return found

    @property
    def port_cycles(self) -> dict[str, int]:
        """Cycles of the multipliers and of each port without waiting for the others."""
        return {
            "steps": self.steps,
            "input port": math.ceil(self.reads / self.unit.input_rows_per_cycle),
            "weight port": math.ceil(self.weight_rows / self.unit.weight_rows_per_cycle),
            "write-out": math.ceil(self.write_rows / self.unit.output_rows_per_cycle),
        }

    @property
    def least_steps(self) -> float:
        """Lower bound of the cycles until the last step of an image is over: all steps, and the unavoidable waits for
        buffers. These are the first rows, and the rows of a piece and of weights for which there is no space while the
        previous piece or tap is multiplied."""
        unit, pieces = self.unit, self.kw_pieces
        alike = self.layer.taps_high * self.bci * self._blocks
        row = math.ceil(1 / unit.weight_rows_per_cycle)
        gaps = [
            math.ceil(max(0, unit.units + self.piece_rows(width) - unit.first_buffer_rows) / unit.input_rows_per_cycle)
            for width in pieces
        ]
        waits = 0
        for passes, own, _ in self.pass_blocks:
            full, part = divmod(own, unit.second_buffer_rows)
            for width, gap in zip(pieces, gaps, strict=True):
                between = max(gap, 0 if part else row)
                taps = full * width if part else full * width - 1
                waits += passes * alike * (taps * row + between)
            waits -= between  # no wait after the last piece; before a block of another size the wait may differ
        return unit.units / unit.input_rows_per_cycle + self.steps + waits

    @property
    def last_rows(self) -> int:
        """Rows of results of the last block of points."""
        points = self.layer.wo % self.points or self.points
        return ceil_div(points, self.wso) * self.pass_blocks[-1][2]

    def least_cycles(self, steps: float, ports: int) -> int:
        """Return a lower bound of an image's cycles, given its :attr:`least_steps` and the slowest of its multipliers
        and ports."""
        return max(ports, math.floor(steps + self.last_rows / self.unit.output_rows_per_cycle))

    @property
    def steady_cycles(self) -> int:
        """Cycles in the steady state: everything overlaps, and the slowest part determines the time."""
        return max(self.port_cycles.values())


def _parts(size: int, each: int) -> list[tuple[int, int]]:
    """Return `size` in parts of `each`, the last one shorter, as (size, count)."""
    whole, rest = divmod(size, each)
    return [(part, count) for part, count in ((each, whole), (rest, 1)) if part and count]
