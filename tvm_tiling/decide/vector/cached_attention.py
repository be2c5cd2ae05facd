"""Attention of new rows over a cache of keys and values, each of which several heads share.

Of one new row the keys are read as they lie, a vector of products for each, and added up across lanes; of more they are
turned once into panels whose lanes are keys, and tiles of rows go over these. A row sees no key behind its own place,
and what no row of a tile sees is not computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from ...hardware.description import Cpu
from ..explain import Sections
from ..tiling import Decision, Reason

MOST_SHARED = 8  # rows of one place that are computed at once
PANEL_VECTORS = 2  # of keys


@dataclass(frozen=True, kw_only=True)
class CachedAttention:
    """What the kernel computes: softmax(scale q k') v for `length` rows of each of `heads` heads; `every` keys lie in
    `groups` heads. A row at place i sees the keys up to before + i, of these the last `window` where that is not 0.
    `softcap` c where not 0: scores s become c tanh(s / c)."""

    batch: Any  # numbers, or what TIR has for those that only a run brings
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
        """Heads that share keys and values."""
        return self.heads // self.groups

    @property
    def flops(self) -> int:
        """Operations of both products, as if every row saw every key; sizes have to be numbers."""
        return 4 * self.batch * self.heads * self.length * self.every * self.width

    @property
    def inputs(self) -> dict[str, tuple[tuple[Any, ...], str]]:
        """Names, shapes and types of what the kernel takes. "before": keys in front of the first row's own."""
        cache = ((self.batch, self.groups, self.every, self.width), "float32")
        return {
            "q": ((self.batch, self.length, self.heads, self.width), "float32"),
            "keys": cache,
            "values": cache,
            "before": ((self.batch,), "int32"),
        }

    @property
    def outputs(self) -> dict[str, tuple[tuple[Any, ...], str]]:
        """The same of what it gives."""
        return {"y": ((self.batch, self.length, self.heads * self.width), "float32")}


@dataclass(frozen=True, kw_only=True)
class CachedAttentionTiling(Decision):
    """Tiles of `rows` rows by panels of `panel` keys; cores share batch and groups, and rows in `shares` parts."""

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
    """The configuration for sizes that are numbers, those of the sample where a run brings them."""
    lanes = cpu.lanes(4)
    across = -(-sizes.width // lanes)
    # Sums of a tile of rows: by a panel of keys, and by the vectors of a value, which stay in registers as well.
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
            Reason("form", "cached", "one new row reads keys as they lie; more rows read them turned, once for all"),
            Reason("shares", shares, f"{math.prod((sizes.batch, sizes.groups))} heads of keys for {cpu.cores} cores"),
        ),
    )
