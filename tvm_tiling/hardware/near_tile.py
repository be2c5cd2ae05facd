"""The matrix engine with its buffers (design page 01)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ..errors import HardwareError
from ..workload import MEMORIES
from . import checks

PARTIAL_BLOCKS = ("skipped", "padded", "streamed")


@dataclass(frozen=True, kw_only=True)
class NearTile:
    """A near-tile accelerator: input buffers for A and B of `buf_a` and `buf_b` bytes, a matrix engine, an accumulation
    buffer of `acc_max` bytes. One synchronisation with the vector engine covers `sync_granularity` bytes of results.

    `bandwidth` maps the name of a memory to its bytes per cycle; `bw_a`/`bw_b`, if given, override it for that operand.
    `macs_per_cycle` is the peak at the element size of the workload; `macs_of_bytes` overrides it for elements of 1, 2
    or 4 bytes. `dtypes` are the supported operand types; empty: all. Buffer sizes are net of double buffering: with
    `double_buffer`, the chip has A and B twice. `acc_max` = 0 is a machine without an accumulation buffer.

    The other fields describe the simulated engine. It takes `fill` cycles before its first block and delivers results
    `drain` cycles after its last one; a multiplication starts at least `interval` cycles after the previous one. One
    whose operand is the result of an earlier one waits for it, unless the engine `forwards`; sums that stay in the
    accumulation buffer are added at the end of the pipeline and never wait. Partial blocks cost only their own
    operations (`partial_blocks` "skipped": m*n*k are counted unpadded) or, "padded", as much as full blocks of block_m
    x block_n x block_k.

    "streamed" is a weight-stationary systolic array: a block_m x block_k block of A stays in it while columns of B
    stream through, in strips of block_n adjacent columns (for a convolution, those of one row of output positions). A
    strip of n columns streams for strip_start + n * column_cycles cycles, and for no less time than its operations
    take at `macs_per_cycle`. The issue of its instructions takes strip_least cycles and overlaps with earlier strips: a
    row of positions takes the larger of both sums over its strips. A new block of A takes block_change more.

    Results leave through an output buffer of `out_bytes` (None: never full) at `bw_out` bytes per cycle (None: never
    the bottleneck).
    """

    buf_a: int
    buf_b: int
    acc_max: int
    macs_per_cycle: float
    block_m: int = 1
    block_n: int = 1
    sync_granularity: int = 8
    acc_bytes_per_element: int | None = None  # None: the accumulator type of the workload
    bw_a: float | None = None
    bw_b: float | None = None
    bandwidth: dict[str, float] = field(default_factory=dict, hash=False)
    block_k: int = checks.added(1)
    fill: int = checks.added(0)
    drain: int = checks.added(0)
    out_bytes: int | None = checks.added(None)
    bw_out: float | None = checks.added(None)
    partial_blocks: str = checks.added("skipped")
    double_buffer: bool = checks.added(True)
    dtypes: tuple[str, ...] = checks.added(())
    macs_of_bytes: dict[str, float] = field(default_factory=dict, hash=False, metadata=checks.ADDED)
    interval: int = checks.added(1)
    forwards: bool = checks.added(False)
    strip_least: float = checks.added(0.0)  # cycles; these four apply if partial_blocks = "streamed"
    strip_start: float = checks.added(0.0)
    column_cycles: float = checks.added(1.0)
    block_change: float = checks.added(0.0)

    def __post_init__(self) -> None:
        for name in ("buf_a", "buf_b", "block_m", "block_n", "block_k", "sync_granularity", "interval"):
            checks.whole("near_tile", name, getattr(self, name))
        for name in ("acc_max", "fill", "drain"):
            checks.whole("near_tile", name, getattr(self, name), least=0)
        for name in ("acc_bytes_per_element", "out_bytes"):
            if getattr(self, name) is not None:
                checks.whole("near_tile", name, getattr(self, name))
        checks.put(self, "macs_per_cycle", checks.number("near_tile", "macs_per_cycle", self.macs_per_cycle))
        for name in ("bw_a", "bw_b", "bw_out"):
            if getattr(self, name) is not None:
                checks.put(self, name, checks.number("near_tile", name, getattr(self, name)))
        for name in ("strip_least", "strip_start", "block_change"):
            checks.put(self, name, checks.at_least_zero("near_tile", name, getattr(self, name)))
        checks.put(self, "column_cycles", checks.number("near_tile", "column_cycles", self.column_cycles))
        checks.one_of("near_tile", "partial_blocks", self.partial_blocks, PARTIAL_BLOCKS)
        checks.truth("near_tile", "double_buffer", self.double_buffer)
        checks.truth("near_tile", "forwards", self.forwards)
        checks.put(self, "dtypes", checks.element_types("near_tile", self.dtypes))
        for name, key, known in (("bandwidth", "memory", MEMORIES), ("macs_of_bytes", "bytes", ("1", "2", "4"))):
            given = getattr(self, name)
            if not isinstance(given, dict):
                kind = "memories" if key == "memory" else "element bytes"
                raise HardwareError(f"near_tile: {name} = {given!r}; expected a table of {kind}")
            for word in given:
                checks.one_of(f"near_tile.{name}", key, word, known)
            values = {word: checks.number(f"near_tile.{name}", word, given[word]) for word in sorted(given)}
            checks.put(self, name, values)
        if not self.bandwidth and (self.bw_a is None or self.bw_b is None):
            raise HardwareError(
                "near_tile: missing bandwidth; expected both bw_a and bw_b, or a bandwidth for at least one "
                f"of {', '.join(MEMORIES)}"
            )

    def macs(self, element_bytes: int) -> float:
        """Return the multiply-accumulates per cycle at peak for elements of that size."""
        return self.macs_of_bytes.get(str(element_bytes), self.macs_per_cycle)

    def block_cycles(self, element_bytes: int) -> int:
        """Return the cycles of a full block for elements of that size: more than one if they halve the peak, or if the
        block has more operations than the machine performs per cycle."""
        block = self.block_m * self.block_n * self.block_k
        return max(1, math.ceil(max(self.macs_per_cycle, block) / self.macs(element_bytes)))
