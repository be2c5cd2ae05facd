"""A band of the input in W-fold layout; padding of the image and of the channels is zero.

    band[block of channels][row][columns / ws][ws * pci]

Positions without an element of the image are the same in every band, so they are set once; only rows above or below the
image are set when they occur.
"""

from __future__ import annotations

from typing import TypeAlias

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.fold.folded_rows import FoldedRows
from ..hardware.dot_instructions import DotInstruction
from ..match import ConvProgram
from .band import clear, runs
from .dot import packed_a

Expr: TypeAlias = tirx.Expr
Index: TypeAlias = tirx.Expr | int


class FoldBand:
    """Sizes and filling of a band of `height` rows."""

    def __init__(self, program: ConvProgram, rows: FoldedRows, height: int, engine: DotInstruction) -> None:
        self.program, self.rows, self.height, self.engine = program, rows, height, engine
        self.vector = rows.ws * rows.pci
        self.length = rows.columns * rows.pci
        self.zero = tirx.const(-engine.offset, engine.operand)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.rows.bci, self.height, self.rows.columns // self.rows.ws, self.vector)

    def at(self, block: Index, row: Index, column: Index) -> Index:
        """Return the offset of a folded column's first element."""
        return (block * self.height + row) * self.length + column * self.rows.pci

    def clear(self, band: tirx.Var) -> None:
        """Set the whole band to zero."""
        clear(band, 0, self.rows.bci * self.height * self.length, self.vector, self.zero)

    def fill(self, band: tirx.Var, image: Index, first: Index, count: Index) -> None:
        """Copy the `count` input rows under the output rows starting at `first`."""
        h = self.rows.h
        with T.serial(0, count) as row:
            y = first * h.stride + row + h.start
            if not h.padded:
                self._copy(band, image, y, row)
                return
            with T.If(tirx.all(y >= 0, y < h.size)):
                with T.Then():
                    self._copy(band, image, y, row)
                with T.Else(), T.serial(0, self.rows.bci) as block:
                    clear(band, self.at(block, row, 0), self.length, self.vector, self.zero)

    def _copy(self, band: tirx.Var, image: Index, y: Index, row: Index) -> None:
        rows, strides = self.rows, self.program.x_strides
        adjacent = strides is not None and strides[4] == 1
        for x, count, start, end in rows.filled(self.program.workload.w):
            if adjacent and strides is not None and strides[3] == rows.ci:
                # The image's row is contiguous: a channel past the last belongs to the next column.
                self._runs(band, image, y, row, x, count, 0, start, end)
                continue
            for j in range(start // rows.ci, end // rows.ci):
                if adjacent:
                    self._runs(band, image, y, row, x, count, j, j * rows.ci, (j + 1) * rows.ci)
                else:
                    self._elements(band, image, y, row, x, count, j)

    def _runs(
        self,
        band: tirx.Var,
        image: Index,
        y: Index,
        row: Index,
        x: int,
        count: int,
        j: int,
        start: int,
        end: int,
    ) -> None:
        """Copy folded channels [start, end) of `count` folded columns, numbered from those of column j."""
        rows = self.rows
        with T.serial(0, count) as i:
            column = (x + i) * rows.fold - rows.left + j
            for block in range(start // rows.pci, -(-end // rows.pci)):
                low, high = max(start, block * rows.pci), min(end, (block + 1) * rows.pci)
                to = self.at(block, row, x + i) + low - block * rows.pci

                def copy(f: Index, width: int, to: Index = to, low: int = low, column: Index = column) -> None:
                    with T.vectorized(0, width) as lane:
                        value = self._input(image, y, column, low - j * rows.ci + f + lane)
                        T.buffer_store(band, value, [to + f + lane])

                runs(high - low, self.vector, copy)

    def _elements(self, band: tirx.Var, image: Index, y: Index, row: Index, x: int, count: int, j: int) -> None:
        """Copy column j of `count` folded columns with non-adjacent channels."""
        rows = self.rows
        with T.serial(0, rows.ci) as c, T.serial(0, count) as i:
            folded = j * rows.ci + c
            to = self.at(tirx.floordiv(folded, rows.pci), row, x + i) + tirx.floormod(folded, rows.pci)
            T.buffer_store(band, self._input(image, y, (x + i) * rows.fold - rows.left + j, c), [to])

    def _input(self, image: Index, y: Index, x: Index, c: Index) -> Expr:
        """Return the input's element in the instruction's type."""
        return packed_a(self.engine, lambda dtype: self.program.input_at(image, 0, y, x, c, dtype=dtype))
