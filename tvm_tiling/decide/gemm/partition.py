"""Configuration of a matrix multiplication on an accelerator with input buffers and an accumulation buffer (analytical
split-K partition, design page 01)."""

from __future__ import annotations

from typing import Literal

from ... import figures
from ...errors import HardwareError, TilingError
from ...hardware.description import Hardware
from ...workload import ConvWorkload, GemmWorkload
from ..tiling import GemmTiling, Reason
from .best import Prefer, best_config, refuse_preference
from .inner_tile import inner_tile
from .seed import seed_config
from .traffic import Config, Product, product_on

Mode = Literal["best", "seed"]


# The published flags: 1 is m outside n, 0 is n outside m.
_ORDERS = {"mn": "mn", 1: "mn", "nm": "nm", 0: "nm"}


def decide_partition(
    workload: GemmWorkload | ConvWorkload,
    hardware: Hardware,
    *,
    mode: Mode = "best",
    prefer: Prefer = "utilisation",
    acc_factor: float = 0.5,
    outer_preset: str | int | None = None,
    inner_preset: str | int | None = None,
) -> GemmTiling:
    """Return the configuration of a matrix multiplication, or of a convolution as one, on `hardware.near_tile`.

    mode: "best" is feasible and as fast as any configuration. Among equally fast ones it prefers no split-K, then the
    smallest accumulation buffer, then the fewest bytes read, then the published loop order; prefer="traffic" puts the
    fewest bytes first. "seed" is the published rule, whose configuration may not fit (`feasible`) and may be slower.

    acc_factor: above 0 and below 1, the factor by which mode "seed" shrinks the accumulation buffer; mode "best" finds
    the smallest one directly. outer_preset: order of the outer loops with split-K, where the order has no cost.
    inner_preset: order of the inner loops. Both are "mn" or 1, or "nm" or 0.

    Raises HardwareError if no configuration fits, the machine has no matrix engine, or the memory of an operand has no
    bandwidth; TilingError for an invalid option.
    """
    if mode not in ("best", "seed"):
        raise TilingError(f"decide: mode = {mode!r}; expected 'best', 'seed'")
    refuse_preference(prefer)
    if not 0 < acc_factor < 1:
        raise TilingError(f"decide: acc_factor = {acc_factor!r}; expected a number above 0 and below 1")
    split_order = order_named("outer_preset", outer_preset, "mn")
    inner_order = order_named("inner_preset", inner_preset, "nm")
    product = product_on(workload, hardware)
    if mode == "seed":
        config = seed_config(product, acc_factor, split_order)
    else:
        found = best_config(product, prefer, split_order)
        if found is None:
            raise HardwareError(_nothing_fits(product, workload, hardware))
        config = found
    return partition_tiling(product, config, hardware, mode, inner_order, inner_preset is not None)


def partition_tiling(
    p: Product, config: Config, hardware: Hardware, mode: str, inner_order: str, inner_is_preset: bool
) -> GemmTiling:
    """Return the decision of a configuration, with its inner tiles and reasons."""
    unit = hardware.near_tile
    assert unit is not None  # product_on has refused machines without it
    inner = inner_tile(
        config.partition_m,
        config.partition_n,
        block_m=p.block_m,
        block_n=p.block_n,
        sync_granularity=unit.sync_granularity,
        d_s=p.d_a,
    )
    why = config.why
    utilisation = p.utilisation(config.load_a, config.load_b)
    feasible = mode == "best" or p.feasible(config.partition_m, config.partition_n, config.partition_k)
    bytes_a, bytes_b = config.load_a * p.bytes_a, config.load_b * p.bytes_b
    time_a, time_b = config.load_a * p.load_a_cycles, config.load_b * p.load_b_cycles
    why_inner = "as requested" if inner_is_preset else "column by column, in the order of the sums"
    why_acc = "holds the partial sums of split-K" if config.split_k else "no split-K"
    why_utilisation = f"cycles: multiplications {p.gemm_cycles:.0f} at peak, loads of A {time_a:.0f}, of B {time_b:.0f}"
    reasons: tuple[Reason, ...] = (
        Reason("partition_m", config.partition_m, why["partition_m"]),
        Reason("partition_n", config.partition_n, why["partition_n"]),
        Reason("partition_k", config.partition_k, why["partition_k"]),
        Reason("tile_m", inner.tile_m, inner.why_m),
        Reason("tile_n", inner.tile_n, inner.why_n),
        Reason("outer_order", config.outer_order, why["outer_order"]),
        Reason("inner_order", inner_order, why_inner),
        Reason("split_k", config.split_k, why["split_k"]),
        Reason("need_acc_buffer", config.split_k, why_acc),
        Reason("acc_bytes", config.acc_bytes, why.get("acc_bytes", "no split-K")),
        Reason("load_a", config.load_a, f"{why['load_a']}; {figures.size(bytes_a)} read"),
        Reason("load_b", config.load_b, f"{why['load_b']}; {figures.size(bytes_b)} read"),
        Reason("utilisation", utilisation, why_utilisation),
    )
    if not feasible:
        reasons += (Reason("feasible", False, "a block of the literal partition exceeds its buffer"),)
    return GemmTiling(
        partition_m=config.partition_m,
        partition_n=config.partition_n,
        partition_k=config.partition_k,
        tile_m=inner.tile_m,
        tile_n=inner.tile_n,
        outer_order=config.outer_order,
        inner_order=inner_order,
        split_k=config.split_k,
        need_acc_buffer=config.split_k,
        acc_bytes=config.acc_bytes,
        load_a=config.load_a,
        load_b=config.load_b,
        utilisation=utilisation,
        mode=mode,
        feasible=feasible,
        reasons=reasons,
    )


def _nothing_fits(p: Product, workload: GemmWorkload | ConvWorkload, hardware: Hardware) -> str:
    """Return the error text: which buffer is too small for the smallest block, and which size suffices."""
    rows, columns = min(p.m, p.block_m), min(p.n, p.block_n)
    kind = "conv" if isinstance(workload, ConvWorkload) else "gemm"
    what = f"{kind} of m = {p.m}, n = {p.n}, k = {p.k} in {workload.dtype} on hardware {hardware.name!r}: nothing fits"
    for buffer, size, need in (
        ("buf_a", p.buf_a, p.block_bytes_a(rows, 1)),
        ("buf_b", p.buf_b, p.block_bytes_b(columns, 1)),
    ):
        if size < need:
            return f"{what}; near_tile.{buffer} = {size} bytes; expected at least {need}, the smallest block at depth 1"
    need_a, need_b = p.block_bytes_a(rows, p.k), p.block_bytes_b(columns, p.k)
    return (
        f"{what}; near_tile.acc_max = {p.acc_max} bytes; expected at least {rows * columns * p.d_acc} for split-K, or "
        f"buf_a of at least {need_a} and buf_b of at least {need_b} bytes without it"
    )


def order_named(option: str, preset: str | int | None, default: str) -> str:
    """Return the order that a preset names, `default` for None. Raises TilingError for an unknown preset."""
    if preset is None:
        return default
    if preset not in _ORDERS:
        raise TilingError(f"decide: {option} = {preset!r}; expected 'mn' or 1 (m outside n), 'nm' or 0 (n outside m)")
    return _ORDERS[preset]
