"""Configurations of a convolution in groups of few channels on a CPU: algorithm "grouped".

microkernel    columns of the register tile
threads        division of output rows and of vectors of channels among cores
"""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import HardwareError
from ..conv.conv_tiling import ConvTiling
from ..conv.cpu_conv import ConvAlgorithms
from ..conv.grouped import GroupedChoice, GroupedConfig
from ..gemm.traffic import ceil_div
from ..tiling import Decision
from .choice_configs import ChoiceConfigs
from .record import Blocks, Config, Value
from .rule import changed, fewer, halves_and_doubles, integer, integers


class GroupedConfigs(ChoiceConfigs[GroupedConfig]):
    """Configurations of one convolution; UnsupportedOperator if the algorithm does not apply."""

    forms, name = ("grouped",), "grouped"

    choice: GroupedChoice

    def __init__(self, convolution: ConvAlgorithms) -> None:
        source = convolution.source
        self.all = convolution
        self.choice = GroupedChoice(
            convolution.w,
            convolution.cpu,
            input_run=source.channel_run,
            output_run=source.output_run,
            prepacked=convolution.packing == "ahead",
        )
        self.shape = self.choice.shape

    def config_of(self, tiling: Decision) -> Config:
        """Return the configuration of a decision."""
        t, s = tiling, self.shape
        assert isinstance(t, ConvTiling) and t.tile_columns
        threads = (t.threads_rows or 1, t.threads_columns or 1)
        choices: dict[str, Value] = {"microkernel": t.tile_columns, "threads": threads}

        def level(name: str, rows: int, columns: int, vectors: int) -> Blocks:
            outputs = vectors * self.choice.lanes
            left = (s.h.reach(rows), s.w.reach(columns), outputs // s.co * s.ci)
            return Blocks(
                level=name, left=left, right=(self.choice.taps, s.ci, outputs), result=(rows, columns, outputs)
            )

        levels = (
            level("core", ceil_div(s.h.points, threads[0]), s.w.points, ceil_div(self.choice.vectors, threads[1])),
            level("registers", 1, t.tile_columns, 1),
        )
        return Config.of("conv", "grouped", choices, levels)

    def near(self, config: Config) -> Iterator[Config]:
        """Yield tiles of half and twice the columns."""
        for other in halves_and_doubles(integer(config, "microkernel"), 1, self.shape.w.points):
            yield changed(config, microkernel=other)

    def fits(self, config: Config) -> bool:
        """Return True: a tile reads its operands in place."""
        return True

    def _candidate(self, config: Config) -> GroupedConfig:
        """Return the configuration clipped to the shape."""
        s, choice = self.shape, self.choice
        columns = min(integer(config, "microkernel"), s.w.points)
        if not choice.serves(columns):
            raise HardwareError(
                f"config: microkernel of {columns} columns exceeds registers or unrolled taps; expected fewer columns"
            )
        tr, tn = fewer(integers(config, "threads", 2), (s.n * s.h.points, choice.vectors), choice.cpu.cores)
        return GroupedConfig((tr, tn), columns)
