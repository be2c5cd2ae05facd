"""What the context of an operator determines beyond its sizes and types."""

from __future__ import annotations

from dataclasses import dataclass

from .conv.cpu_conv import Source
from .conv.winograd import TOLERANCE


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """The context of an operator: fixed by its place in a model, not by a decision or a configuration.

    Matrix multiplications and convolutions: `prepacked` (weights are prepacked).

    Matrix multiplications on a CPU: `plain_a` and `plain_b` (the operand can be read in place), `accumulates` (partial
    sums may be kept in the output), `exchanged` (A is the second operand of the source).

    Convolutions on a CPU: `source` (memory layout of the operands, None if they are dense in the workload's layout),
    `winograd` and `tolerance` (as in decide_conv_on_cpu).

    Accelerators: `vector` (the vector engine runs an epilogue or converts the type of the sums), and with several
    storage levels `behind` (bytes per result that the innermost level holds for the epilogue).
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
        """When weights are packed: "ahead" (at compile time) or "run" (in the kernel)."""
        return "ahead" if self.prepacked else "run"
