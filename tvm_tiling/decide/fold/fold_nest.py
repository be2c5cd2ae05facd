"""W-fold on its machine: the loops of a convolution and what they cost (page 05).

The machine reads and multiplies rows of M bytes. Channels, padded to a granularity PCI = M / 2^i only, leave room for
Ws = M / PCI neighbours along W, which lie beside them in memory. A row of weights is PCI bytes repeated Ws times; a
unit multiplies row by row and sums each PCI bytes on their own: Ws output points of one output channel in one step. The
Ncu units of a sub-unit take neighbouring rows, the Ns sub-units different output channels. So P = Ncu*Ws points of Ns
channels take one step per tap and block of channels, of which there are Bci = ceil(Ci/PCI):

    steps = Ho * ceil(Wo/P) * (Aco/Ns) * Kh * Kw * Bci          Aco: Co padded to a multiple of Ns

From tap to tap both buffers slide by one column, so a piece of kw taps needs P + kw - 1 columns, that over Ws (rounded
up) rows of the first buffer. Its L1 rows hold L1*Ws columns: hence kw <= Kmax = (L1 - Ncu)*Ws + 1, wider kernels are
cut. All rows are loaded anew for each block of channels, kernel row, piece, block of points and block of output
channels. The last is why the size of such a block matters: an input row that came once serves all its channels,
co_block/Ns steps of each sub-unit. Their weights of a tap must fit the second buffer where the block is larger than the
machine's usual one.

Results leave in rows as well, of Wso = M / PCO points by PCO bytes of output channels, a last shorter piece included.
Everything overlaps in steady state: the slowest of the multipliers and the three ports decides.

H and depth are never folded, so their strides and dilations cost nothing. W is folded, so along W the stride is 1,
after stride-fold where it was not, and a dilated kernel is expanded. Groups run one after the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...hardware.description import WFold
from ..gemm.traffic import ceil_div


@dataclass(frozen=True)
class Layer:
    """What the machine sees of a convolution: one image of one group, stride 1 along W."""

    groups: int
    rows: int  # output rows, of all depths
    wo: int
    w: int
    ci_bytes: int  # of one column
    co: int
    taps_high: int  # kernel rows, of all depths
    kw: int
    d_s: int  # bytes of an element
    d_out: int  # bytes of an element that leaves

    @property
    def co_bytes(self) -> int:
        return self.co * self.d_out


@dataclass(frozen=True)
class FoldNest:
    """A layer on the machine with every choice made; what one image costs follows from it."""

    layer: Layer
    unit: WFold
    pci: int
    pco: int
    co_rows: int  # output channels of a sub-unit in a block

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
        """Output channels of a sub-unit: Aco / Ns."""
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
        """Blocks of points of an output row."""
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
        """Input rows of a block of points, for one block of output channels."""
        rows = sum(ceil_div(self.points + piece - 1, self.ws) for piece in self.kw_pieces)
        return self.bci * self.layer.taps_high * rows

    @property
    def passes(self) -> int:
        """How often the input passes by: blocks of output channels."""
        return ceil_div(self.aco_rows, self.co_rows)

    @property
    def reads(self) -> int:
        return self.passes * self._blocks * self.block_reads

    @property
    def weight_rows(self) -> int:
        """A row of weights for each step: the second buffer is loaded in a circle."""
        return self.steps

    @property
    def write_rows(self) -> int:
        whole, rest = divmod(self.layer.wo, self.points)
        along_w = whole * ceil_div(self.points, self.wso) + ceil_div(rest, self.wso)
        return self.layer.groups * self.layer.rows * along_w * self._pieces

    @property
    def _pieces(self) -> int:
        """Pieces of output channels, one that two blocks share counted in both."""
        block = self.co_rows * self.unit.sub_units * self.layer.d_out
        borders = ceil_div(self.layer.co_bytes, block) - 1
        between_pieces = borders // (self.pco // math.gcd(block, self.pco))
        return ceil_div(self.layer.co_bytes, self.pco) + borders - between_pieces

    @property
    def port_cycles(self) -> dict[str, int]:
        """Cycles of the multipliers and of each port, were it alone."""
        return {
            "steps": self.steps,
            "input port": math.ceil(self.reads / self.unit.input_rows_per_cycle),
            "weight port": math.ceil(self.weight_rows / self.unit.weight_rows_per_cycle),
            "write-out": math.ceil(self.write_rows / self.unit.output_rows_per_cycle),
        }

    @property
    def cycles(self) -> int:
        return max(self.port_cycles.values())
