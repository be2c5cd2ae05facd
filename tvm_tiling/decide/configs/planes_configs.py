"""Configurations of a convolution with channels first whose lanes are columns, on a CPU: algorithm "planes".

microkernel    rows, columns and output channels of the register tile
threads        number of cores among which the tiles of rows are divided
"""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import HardwareError
from ..conv.conv_tiling import ConvTiling
from ..conv.cpu_conv import ConvAlgorithms
from ..conv.planes import PlanesChoice, PlanesConfig
from ..gemm.traffic import ceil_div
from ..tiling import Decision
from .choice_configs import ChoiceConfigs
from .record import Blocks, Config, Value
from .rule import changed, fewer, halves_and_doubles, integer, integers


class PlanesConfigs(ChoiceConfigs[PlanesConfig]):
    """Configurations of one convolution; UnsupportedOperator if the algorithm does not apply."""

    forms, name = ("planes",), "planes"

    choice: PlanesChoice

    def __init__(self, convolution: ConvAlgorithms) -> None:
        self.all = convolution
        self.choice = PlanesChoice(
            convolution.w,
            convolution.cpu,
            input_run=convolution.source.channel_run,
            prepacked=convolution.packing == "ahead",
        )
        self.shape, self.lanes = self.choice.shape, self.choice.lanes

    def config_of(self, tiling: Decision) -> Config:
        """Return the configuration of a decision."""
        t, s = tiling, self.shape
        assert isinstance(t, ConvTiling) and t.tile_rows and t.vectors and t.columns
        threads = t.threads_rows or 1
        columns = min(t.vectors * self.lanes, s.w.points)
        choices: dict[str, Value] = {"microkernel": (t.tile_rows, t.vectors, t.columns), "threads": threads}
        taps = max(1, self.choice.taps)

        def level(name: str, rows: int, columns: int, outputs: int) -> Blocks:
            left = (s.h.reach(rows), s.w.reach(columns), s.ci)
            return Blocks(level=name, left=left, right=(taps, s.ci, outputs), result=(rows, columns, outputs))

        levels = (
            level("core", ceil_div(s.h.points, threads), s.w.points, s.co),
            level("registers", t.tile_rows, columns, t.columns),
        )
        return Config.of("conv", "planes", choices, levels)

    def near(self, config: Config) -> Iterator[Config]:
        """Yield tiles of half and twice the rows and output channels."""
        rows, vectors, outputs = integers(config, "microkernel", 3)
        for other in halves_and_doubles(rows, 1, self.shape.h.points):
            yield changed(config, microkernel=(other, vectors, outputs))
        for other in halves_and_doubles(outputs, 1, self.shape.co):
            yield changed(config, microkernel=(rows, vectors, other))

    def fits(self, config: Config) -> bool:
        """Return True: a tile reads its operands in place."""
        return True

    def _candidate(self, config: Config) -> PlanesConfig:
        """Return the configuration clipped to the shape."""
        s = self.shape
        rows, vectors, outputs = integers(config, "microkernel", 3)
        rows, vectors = min(rows, s.h.points), min(vectors, ceil_div(s.w.points, self.lanes))
        outputs = next(q for q in range(min(outputs, s.co), 0, -1) if s.co % q == 0)
        if not self.choice.serves(rows, vectors, outputs):
            raise HardwareError(
                f"config: microkernel {rows} x {vectors} x {outputs} exceeds registers or unrolled taps; "
                "expected a smaller one"
            )
        (threads,) = fewer((integer(config, "threads"),), (self.choice.units(rows, outputs),), self.choice.cpu.cores)
        return PlanesConfig(threads, rows, vectors, outputs)
