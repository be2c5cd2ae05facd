"""What the place of an operator settles, apart from its sizes and types."""

from __future__ import annotations

from dataclasses import dataclass

from .conv.cpu_conv import Source
from .conv.winograd import TOLERANCE


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What the place of an operator settles, and neither a decision nor a configuration.

    `prepacked`: weights arrive packed. Of a product on a CPU `plain_a` and `plain_b`: the operand can be read in place;
    `accumulates`: sums may wait in the output; `exchanged`: A is the source's second operand. Of a convolution on a CPU
    `source`: how its operands lie, None for dense ones in the workload's layout; `winograd` and `tolerance` as in
    decide_conv_on_cpu. On an accelerator `vector`: the vector engine computes what is fused behind, or changes the type
    of the sums; where it has levels `behind`: bytes per result that the innermost one holds for what is fused behind.
    """

    prepacked: bool = False
    plain_a: bool = True
    plain_b: bool = True
    accumulates: bool = True
    exchanged: bool = False
    source: Source | None = None
    winograd: bool = True
    tolerance: float = TOLERANCE
    vector: bool = False
    behind: int = 0

    @property
    def packing(self) -> str:
        """When weights are packed."""
        return "ahead" if self.prepacked else "run"
