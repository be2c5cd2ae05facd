"""Configurations of convolutions, and of matrix multiplications as convolutions with one tap, on a W-fold machine, with
the single algorithm "wfold".

pci, pco    bytes of a block of input channels, and of a part of the output channels
co_block    output channels that share one pass over the input
"""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import HardwareError
from ...hardware.description import Hardware
from ...workload import ConvWorkload, GemmWorkload
from ..conv.conv_tiling import ConvTiling
from ..fold.fold_nest import FoldNest
from ..fold.fold_walk import image_cycles
from ..fold.wfold import (
    blocks_of,
    decide_wfold,
    granularities_of,
    layer_of,
    product_as_convolution,
    stride_fold_of,
    wfold_tiling,
)
from ..gemm.traffic import ceil_div, refuse_types
from ..tiling import Decision
from .record import Blocks, Config, Value
from .rule import Undivided, changed, halves_and_doubles, integer


class WFoldMachineConfigs(Undivided):
    """Configurations of one workload."""

    forms, name = ("wfold",), ""

    def __init__(self, workload: GemmWorkload | ConvWorkload, hardware: Hardware) -> None:
        unit = hardware.w_fold
        if unit is None:
            raise HardwareError(f"hardware {hardware.name!r}: has no w_fold unit, which algorithm 'wfold' needs")
        refuse_types(hardware, unit, workload)
        self.op = workload.op
        self.w = workload if isinstance(workload, ConvWorkload) else product_as_convolution(workload)
        self.hardware, self.unit = hardware, unit
        self.fold = stride_fold_of(self.w)
        self.layer = layer_of(self.fold, unit)
        self.incoming = blocks_of(self.layer, unit)
        self.leaving = granularities_of(unit, self.layer.wo, self.layer.d_out)

    def config_of(self, tiling: Decision) -> Config:
        """Return the configuration of a decision."""
        assert isinstance(tiling, ConvTiling) and tiling.pci and tiling.pco and tiling.co_block and tiling.ws
        layer, unit = self.layer, self.unit
        choices: dict[str, Value] = {"pci": tiling.pci, "pco": tiling.pco, "co_block": tiling.co_block}
        points, outputs = unit.units * tiling.ws, min(layer.co, tiling.co_block)
        channels = tiling.pci // layer.d_s
        block = Blocks(
            level="buffers",
            left=(1, points + layer.kw - 1, channels),
            right=(layer.taps_high * layer.kw, channels, outputs),
            result=(1, points, outputs),
        )
        return Config.of(self.op, "wfold", choices, (block,))

    def decided(self) -> Config:
        """Return the configuration of the decision."""
        return self.config_of(decide_wfold(self.w, self.hardware))

    def tiling_of(self, config: Config) -> ConvTiling:
        """Return the decision of a configuration for this shape."""
        return wfold_tiling(self.fold, self._nest(config), self.unit)

    def cost(self, config: Config) -> float:
        """Return the simulated cycles of all images."""
        return float(self.w.n * image_cycles(self._nest(config)))

    def candidates(self) -> Iterator[Config]:
        """Yield every granularity with every number of output channels that fits the buffers."""
        for pci, most in self.incoming.items():
            for pco in self.leaving:
                for co_rows in range(1, most + 1):
                    yield self._config(pci, pco, co_rows)

    def near(self, config: Config) -> Iterator[Config]:
        """Yield blocks of half and twice the output channels."""
        most = self.incoming[integer(config, "pci")] * self.unit.sub_units
        for block in halves_and_doubles(integer(config, "co_block"), self.unit.sub_units, most):
            yield changed(config, co_block=block)

    def fits(self, config: Config) -> bool:
        """Return True: configurations that exceed the buffers are refused."""
        return True

    def _config(self, pci: int, pco: int, co_rows: int) -> Config:
        return self.config_of(wfold_tiling(self.fold, FoldNest(self.layer, self.unit, pci, pco, co_rows), self.unit))

    def _nest(self, config: Config) -> FoldNest:
        """Return the configuration clipped to the shape. Raises HardwareError if it exceeds a row or a buffer."""
        pci, pco = integer(config, "pci"), integer(config, "pco")
        for name, value, accepted in (("pci", pci, self.incoming), ("pco", pco, self.leaving)):
            if value not in accepted:
                raise HardwareError(
                    f"config: {name} = {value} bytes on {self.hardware.name} for a row of this width; expected "
                    f"{', '.join(map(str, accepted)) or 'none'}"
                )
        sub_units = self.unit.sub_units
        co_rows = ceil_div(min(integer(config, "co_block"), self.layer.co), sub_units)
        if co_rows > self.incoming[pci]:
            raise HardwareError(
                f"config: co_block = {config.choice('co_block')} output channels are {co_rows} rows of weights for "
                f"each sub-unit of {self.hardware.name}; expected at most {self.incoming[pci] * sub_units}"
            )
        return FoldNest(self.layer, self.unit, pci, pco, co_rows)
