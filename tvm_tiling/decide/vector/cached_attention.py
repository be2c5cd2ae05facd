"""Attention of new rows over a cache of keys and values that may be shared by several heads.

For one new row, keys are read in place: one vector of products per key, summed across lanes. For more rows, keys are
transposed once into panels with keys as lanes, which tiles of rows then traverse. A row does not see keys after its own
position, and keys that no row of a tile sees are skipped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from ...hardware.description import Cpu
from ..explain import Sections
from ..tiling import Decision, Reason

MOST_SHARED = 8  # rows of one position computed at once
PANEL_VECTORS = 2  # vectors of keys in a panel


@dataclass(frozen=True, kw_only=True)
class CachedAttention:
    """The computation: softmax(scale q k') v for `length` rows of each of `heads` heads, with `every` keys in `groups`
    heads.

    The row at position i sees the keys up to before + i, and only the last `window` of them unless that is 0. With
    `softcap` c other than 0, scores s become c tanh(s / c).
    """

    batch: Any  # ints, or TIR expressions for dynamic sizes
    length: Any
    every: Any
    heads: int
    groups: int
    width: int
    scale: float
    window: int = 0
    softcap: float = 0.0

    @property
    def shared(self) -> int:
        """Number of heads that share keys and values."""
        return self.heads // self.groups

    @property
    def flops(self) -> int:
        """Floating-point operations of both matrix multiplications, as if every row saw every key; requires static
        sizes."""
        return 4 * self.batch * self.heads * self.length * self.every * self.width

    @property
    def inputs(self) -> dict[str, tuple[tuple[Any, ...], str]]:
        """Names, shapes and types of the kernel's inputs. "before" is the number of keys before the first row's own."""
        cache = ((self.batch, self.groups, self.every, self.width), "float32")
        return {
            "q": ((self.batch, self.length, self.heads, self.width), "float32"),
            "keys": cache,
            "values": cache,
            "before": ((self.batch,), "int32"),
        }

    @property
    def outputs(self) -> dict[str, tuple[tuple[Any, ...], str]]:
        """Names, shapes and types of the kernel's outputs."""
        return {"y": ((self.batch, self.length, self.heads * self.width), "float32")}


@dataclass(frozen=True, kw_only=True)
class CachedAttentionTiling(Decision):
    """Tiles of `rows` rows by panels of `panel` keys; cores divide batch and groups, and the rows into `shares`
    parts."""

    op: ClassVar[str] = "attention over a cache"

    form: str = "cached"
    lanes: int
    rows: int
    panel: int
    shares: int
    predicted_seconds: float

    sections: ClassVar[Sections] = (
        ("tile", ("form", "lanes", "rows", "panel")),
        ("cores", ("shares",)),
        ("predicted", ("predicted_seconds",)),
    )


def decide_cached_attention(sizes: CachedAttention, cpu: Cpu) -> CachedAttentionTiling:
    """Return the configuration for static sizes; for dynamic ones, those of the sample."""
    lanes = cpu.lanes(4)
    across = -(-sizes.width // lanes)
    # Sums of a tile of rows: by a panel of keys, and by the vectors of a value, which stay in registers too.
    rows = max(1, min(6, (cpu.vector_registers - 4) // max(PANEL_VECTORS, min(across, 4))))
    shares = max(1, -(-cpu.cores // max(1, sizes.batch * sizes.groups)))
    macs = 2 * sizes.batch * sizes.heads * sizes.length * sizes.every * sizes.width
    cycles = macs / lanes / cpu.fma_units / min(cpu.cores, shares * sizes.batch * sizes.groups)
    exponentials = sizes.batch * sizes.heads * sizes.length * sizes.every / lanes * cpu.kernel_costs.function
    read = 8.0 * sizes.batch * sizes.groups * sizes.every * sizes.width
    cycles = max(cycles + exponentials / cpu.cores, read / cpu.bytes_per_cycle(read) / cpu.cores)
    return CachedAttentionTiling(
        lanes=lanes,
        rows=rows,
        panel=PANEL_VECTORS * lanes,
        shares=shares,
        predicted_seconds=(cycles + cpu.parallel_start) / (1e6 * cpu.mhz),
        reasons=(
            Reason("form", "cached", "one new row reads keys in place; for more rows they are transposed once"),
            Reason("shares", shares, f"{math.prod((sizes.batch, sizes.groups))} heads of keys for {cpu.cores} cores"),
        ),
    )
