"""A CPU configuration as a blocked matrix multiplication of pixels by channels: idle cores, tiles and lanes, traffic
between cores, and work per multiply-add.

These are effects that the formulas ignore or approximate. They are expressed in the same terms for matrix
multiplications, direct convolutions and Winograd convolutions, so that measurements of one operator improve predictions
for the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...hardware.cpu import CACHE_LINE
from ...workload import ConvWorkload, GemmWorkload
from ..conv.conv_tiling import ConvTiling
from ..conv.cpu_conv import as_product
from ..conv.winograd import image_tiles
from ..gemm.traffic import ceil_div
from ..tiling import Decision, GemmTiling


@dataclass(frozen=True, kw_only=True)
class BlockedProduct:
    """`batch` times m x n results with reduction axis k, in register tiles of `rows` by `vectors` vectors of `lanes`.

    - `shares`: division among cores in batch, m, n and k.
    - `blocks`: number of blocks of k; `columns`: columns of a block of the right operand.
    - `handed_on`: elements of the right operand that all cores pack together at run time; 0 if each core packs what it
      reads or nothing is packed.
    - `macs`: multiply-accumulates of the workload, not of Winograd's points.
    """

    m: int
    n: int
    k: int
    batch: int
    macs: int
    rows: int
    vectors: int
    lanes: int
    shares: tuple[int, int, int, int]
    blocks: int
    columns: int
    tiles_outside: bool
    packed: bool
    handed_on: int
    a_bytes: int  # of an element of the left operand, the right operand, the result
    b_bytes: float
    out_bytes: int

    @property
    def held(self) -> tuple[float, float, float]:
        """Bytes that are read repeatedly: a register tile's rows of the left operand, a panel of the right operand and
        a block of it, each as deep as a block of k."""
        depth = ceil_div(self.k, self.blocks)
        panel = self.vectors * self.lanes * self.b_bytes
        return self.rows * depth * self.a_bytes, depth * panel, depth * self.columns * self.b_bytes

    def features(self) -> dict[str, float]:
        """Return the features by name. Sizes and ratios of sizes are logarithms to base 2; shares of a whole are
        not."""
        tb, tm, tn, tk = self.shares
        panel = self.vectors * self.lanes
        tiles, panels = ceil_div(ceil_div(self.m, self.rows), tm), ceil_div(ceil_div(self.n, panel), tn)
        slowest = ceil_div(self.batch, tb) * min(self.m, tiles * self.rows) * min(self.n, panels * panel)
        depth = ceil_div(self.k, self.blocks)
        row_tail, column_tail, lane_tail = self.m % self.rows, self.n % panel, self.n % self.lanes
        # Two cores write the cache lines where their columns of the result meet, once per block of k.
        meet = tn > 1 and self.n * self.out_bytes % CACHE_LINE > 0
        accumulators = self.rows * self.vectors
        tile_bytes, panel_bytes, block_bytes = self.held
        return {
            "cores": tb * tm * tn * tk,
            "balance": math.log2(slowest * tb * tm * tn / (self.batch * self.m * self.n)),
            "macs_per_core": math.log2(max(1.0, self.macs / (tb * tm * tn * tk))),
            "rows": self.rows,
            "vectors": self.vectors,
            "accumulators": accumulators,
            "registers": accumulators + self.vectors + 1,
            "loads_per_step": (self.rows + self.vectors) / accumulators,
            "tiles": math.log2(tiles),
            "panels": math.log2(panels),
            "row_tail": row_tail / self.rows or 1.0,
            "row_tail_share": row_tail / self.m,
            "column_tail": column_tail / panel or 1.0,
            "column_tail_share": column_tail / self.n,
            "lane_tail": lane_tail / self.lanes,
            "lane_tail_share": lane_tail / self.n,
            "blocks": math.log2(self.blocks),
            "depth": math.log2(depth),
            "result_traffic": math.log2(2 * self.blocks / self.k),
            "columns_shared": float(tn > 1),
            "lines_shared": 100.0 * meet * self.blocks / self.k,
            "handed_on": math.log2(1 + self.handed_on * self.b_bytes),
            "handed_on_per_mac": 1000.0 * self.handed_on / self.macs,
            "packed_per_mac": self.packed / self.m,
            "tile_bytes": math.log2(tile_bytes),
            "panel_bytes": math.log2(panel_bytes),
            "block_bytes": math.log2(block_bytes),
            "tiles_outside": float(self.tiles_outside),
            "reuse": math.log2(panels if self.tiles_outside else tiles),
        }


def blocked_product(workload: GemmWorkload | ConvWorkload, tiling: Decision) -> BlockedProduct | None:
    """Return the blocked matrix multiplication that a decision describes; None for few rows, depthwise convolutions and
    accelerators.

    For a direct convolution, k covers taps and input channels. For Winograd convolution, rows are image tiles. For
    W-fold, rows are vectors of points and columns are single output channels.
    """
    if isinstance(workload, GemmWorkload):
        return _product(workload, tiling) if isinstance(tiling, GemmTiling) else None
    if not isinstance(tiling, ConvTiling):
        return None
    if tiling.product is not None:
        product = as_product(workload)
        return None if product is None else _product(product, tiling.product)
    if tiling.winograd is not None:
        return _winograd(workload, tiling)
    if tiling.form == "wfold":
        return _folded(workload, tiling)
    return _direct(workload, tiling) if tiling.form in ("direct", "stride_fold") else None


def _product(w: GemmWorkload, t: GemmTiling) -> BlockedProduct | None:
    if not t.mr or not t.nr or not t.lanes or t.form == "stream":
        return None
    shares = (t.threads_batch or 1, t.threads_m or 1, t.threads_n or 1, t.threads_k or 1)
    packed = t.pack_b == "pack"
    return BlockedProduct(
        m=w.m,
        n=w.n,
        k=w.k,
        batch=w.batch,
        macs=w.macs,
        rows=t.mr,
        vectors=max(1, t.nr // t.lanes),
        lanes=t.lanes,
        shares=shares,
        blocks=ceil_div(w.k, t.partition_k),
        columns=t.partition_n,
        tiles_outside=t.inner_order == "mn",
        packed=packed,
        handed_on=_from_others(w.batch * w.k * w.n, shares[1]) if packed else 0,
        a_bytes=w.a_bytes,
        b_bytes=w.b_bytes,
        out_bytes=w.out_bytes,
    )


def _direct(w: ConvWorkload, t: ConvTiling) -> BlockedProduct | None:
    if not (t.tile_rows and t.tile_columns and t.vectors and t.lanes and t.block_taps and t.block_run and t.columns):
        return None
    ci, co, across = w.ci // w.groups, w.co // w.groups, w.kw if t.merge_taps else 1
    parts = ceil_div(ci * across, t.block_run)
    taps = ceil_div(w.kd * w.kh * w.kw // across, 1 if parts > 1 else t.block_taps)
    shares = (1, t.threads_rows or 1, t.threads_columns or 1, 1)
    k = w.kd * w.kh * w.kw * ci
    packed = t.pack_w == "run"
    return BlockedProduct(
        m=w.macs // (w.co * k),
        n=co,
        k=k,
        batch=w.groups,
        macs=w.macs,
        rows=t.tile_rows * t.tile_columns,
        vectors=t.vectors,
        lanes=t.lanes,
        shares=shares,
        blocks=taps * parts,
        columns=t.columns,
        tiles_outside=t.inner_order == "mn",
        packed=packed,
        handed_on=_from_others(w.groups * k * co, shares[1]) if packed else 0,
        a_bytes=w.a_bytes,
        b_bytes=w.b_bytes,
        out_bytes=w.out_bytes,
    )


def _folded(w: ConvWorkload, t: ConvTiling) -> BlockedProduct | None:
    if not (t.ws and t.tile_columns and t.columns):
        return None
    k = w.kd * w.kh * w.kw * w.ci
    shares = (1, t.threads_rows or 1, t.threads_columns or 1, 1)
    packed = t.pack_w == "run"
    return BlockedProduct(
        m=ceil_div(w.macs // (w.co * k), t.ws),
        n=w.co,
        k=k,
        batch=1,
        macs=w.macs,
        rows=t.tile_columns // t.ws,
        vectors=t.columns,
        lanes=1,
        shares=shares,
        blocks=1,
        columns=ceil_div(w.co, shares[2]),
        tiles_outside=t.inner_order == "mn",
        packed=packed,
        handed_on=_from_others(k * w.co, shares[1]) if packed else 0,
        a_bytes=w.a_bytes,
        b_bytes=w.b_bytes,
        out_bytes=w.out_bytes,
    )


def _winograd(w: ConvWorkload, t: ConvTiling) -> BlockedProduct:
    config = t.winograd
    assert config is not None
    points = config.points**2
    shares = (1, config.threads_tiles, config.threads_channels, 1)
    packed = config.pack_w == "run"
    return BlockedProduct(
        m=w.n * math.prod(image_tiles(w, config.m)),
        n=w.co,
        k=w.ci,
        batch=1,
        macs=w.macs,
        rows=config.rows,
        vectors=config.vectors,
        lanes=config.lanes,
        shares=shares,
        blocks=1,
        columns=config.block_channels,
        tiles_outside=True,
        packed=packed,
        handed_on=_from_others(points * w.ci * w.co, shares[1]) if packed else 0,
        a_bytes=w.a_bytes,
        b_bytes=w.b_bytes,
        out_bytes=w.out_bytes,
    )


def _from_others(packed: int, shares: int) -> int:
    """Return the elements that a core reads and other cores have packed: cores that share the rows of the result pack
    the right operand together."""
    return packed * (shares - 1) // shares
