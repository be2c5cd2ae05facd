"""The configuration of a matrix multiplication on an accelerator with several storage levels (multi-level form of the
analytical partition, design pages 01 and 02)."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from ...errors import HardwareError, UnsupportedOperator
from ...figures import quantity, times
from ...hardware.description import Hardware
from ...hardware.machine import Machine
from ...hardware.memory import OPERANDS
from ...workload import ConvWorkload, GemmWorkload
from ..explain import Row, Sections
from ..gemm.best import Prefer, refuse_preference
from ..gemm.traffic import ceil_div, operand_bytes, refuse_types
from ..labels import label
from ..tiling import Decision, Reason
from .level_conv import best_of, least_convolution, level_convolutions
from .level_model import Blocks, LevelProduct, Storage
from .level_time import Choice, Timed
from .objective import FASTEST, Objective
from .search import best_blocks


@dataclass(frozen=True, kw_only=True)
class LevelConfig:
    """The blocks of one storage level, in elements, for all its instances together.

    `left` is (rows, depth) of the left operand, `right` is (depth, columns) of the right operand, `result` is (rows,
    columns) of the sums that pass through the level. For a convolution, the left operand holds the kernels, rows are
    output channels, columns are output points in whole lines, and depth is input channels times taps; the bytes of the
    right operand are those of the input under the points including halos, at the outermost level without padding.

    `order` "mn" puts the loop over blocks of m outside that over n. All `instances` of the level share a block: its
    rows are divided into `across_m` parts and its columns into `across_n`; instances with the same part receive it in
    one transfer. `load_a` and `load_b` count how often each operand is loaded into the level; `bytes_a`, `bytes_b` and
    `bytes_out` are the resulting bytes, with a multicast counted once. `slots_a`, `slots_b` and `slots_out` are the
    numbers of blocks held at once; a block of A is loaded before one of B if `a_first`. `cycles` are those of the
    level's loads.
    """

    name: str
    left: tuple[int, int]
    right: tuple[int, int]
    result: tuple[int, int]
    order: str
    instances: int
    across_m: int
    across_n: int
    load_a: int
    load_b: int
    bytes_a: int
    bytes_b: int
    bytes_out: int
    slots_a: int
    slots_b: int
    slots_out: int
    a_first: bool
    cycles: float

    @property
    def reason(self) -> str:
        """Field name of the decision's reason for this level."""
        return f"level {self.name}"


@dataclass(frozen=True, kw_only=True)
class LevelsTiling(Decision):
    """Tiling of a matrix multiplication through the storage levels of a machine, outermost level first.

    One instruction of the matrix engines multiplies blocks of `tile_m` x `tile_n` x `tile_k`; `tile_order` "mn" puts
    the loop over tiles of m outside that over tiles of n. From `split_level` inwards, blocks hold only steps of K; ""
    means that K is never split. `sum_slots` blocks of sums are held in the innermost level at once. `load_a` and
    `load_b` count the loads from external memory. `cycles` is predicted for one multiplication of a batch;
    `utilisation` is that of all multipliers over these cycles. For a convolution, `points` is the number of output
    points in a line, and kernels of `groups` groups are held at once.
    """

    op: ClassVar[str] = "levels"
    title: ClassVar[str] = "storage levels"

    levels: tuple[LevelConfig, ...]
    tile_m: int
    tile_n: int
    tile_k: int
    tile_order: str
    split_level: str
    sum_slots: int
    load_a: int
    load_b: int
    cycles: float
    utilisation: float
    points: int = 1
    groups: int = 1

    sections: ClassVar[Sections] = (
        ("one instruction", ("tile_m", "tile_n", "tile_k", "tile_order", "sum_slots")),
        ("split-K", ("split_level",)),
        ("predicted", ("load_a", "load_b", "cycles", "utilisation")),
    )

    def _parts(self) -> Iterator[Row]:
        if self.points > 1 or self.groups > 1:
            for name in ("points", "groups"):
                yield Row("convolution", name, str(getattr(self, name)), "", label(self.op, name))
        for config in self.levels:
            blocks = f"{config.left[0]} x {config.right[1]} x {config.left[1]}"
            yield Row("levels", config.reason, blocks, self.why(config.reason))

    @property
    def rule(self) -> str | None:
        return "levels"

    @property
    def split_k(self) -> bool:
        """Whether K is split."""
        return self.split_level != ""


def has_levels(hardware: Hardware) -> bool:
    """Return whether tiling proceeds level by level. A single level with one instance is equivalent to a machine with
    plain buffers."""
    return hardware.near_tile is not None and Machine(hardware).has_levels


def decide_levels(
    workload: GemmWorkload | ConvWorkload, hardware: Hardware, *, behind: int = 0, prefer: Prefer = "utilisation"
) -> LevelsTiling:
    """Return the configuration of a matrix multiplication, or of a convolution as one, through the levels of
    `hardware`.

    behind: bytes per result that the innermost level holds for the epilogue.

    The result is the best fitting configuration by `prefer` (levels/objective.py), by default the one with the fewest
    predicted cycles. Raises TilingError for an unknown preference, and HardwareError if nothing fits or the machine has
    no matrix engine with levels for these types.
    """
    refuse_preference(prefer)
    p = replace(level_product(workload, hardware), d_epilogue=behind)
    if isinstance(workload, ConvWorkload):
        products = level_convolutions(p, workload)
        best = best_of(products, functools.partial(_found, objective=FASTEST))
        if best is not None and prefer != "utilisation":
            objective = Objective(prefer).within(best[1].times.cycles)
            other = best_of(products, functools.partial(_found, objective=objective))
            own = Timed(best[0], objective).walked(best[1], best[1].times.cycles)
            best = other if other is not None and objective.beats(other[1].rank, own.rank) else (best[0], own)
    else:
        found = _found(p, Objective(prefer))
        best = None if found is None else (p, found)
    if best is None:
        raise HardwareError(_nothing_fits(p, workload, hardware))
    return levels_tiling(*best)


@functools.lru_cache(maxsize=256)
def _found(p: LevelProduct, objective: Objective) -> Choice | None:
    return best_blocks(p, objective)


def level_product(workload: GemmWorkload | ConvWorkload, hardware: Hardware) -> LevelProduct:
    """Return the quantities of a matrix multiplication (for a convolution, of the one that a group stands for) on the
    levels of `hardware`. Raises HardwareError as :func:`decide_levels`."""
    tile = hardware.near_tile
    if tile is None or not hardware.levels:
        raise HardwareError(
            f"hardware {hardware.name!r}: has no near_tile unit with levels, which this configuration needs"
        )
    refuse_types(hardware, tile, workload)
    if isinstance(workload, ConvWorkload):
        if workload.transposed:
            raise UnsupportedOperator(
                f"conv: transposed convolutions are not supported on hardware {hardware.name!r}; expected plain ones, "
                "such as the convolution of the dilated input"
            )
        m, n = workload.co // workload.groups, workload.n * workload.ho * workload.wo
        k = workload.ci // workload.groups * workload.kh * workload.kw
    else:
        m, n, k = workload.m, workload.n, workload.k
    machine = Machine(hardware)
    d_a, d_b = operand_bytes(workload)
    units = [math.lcm(*(getattr(level, f"unit_{axis}") for level in hardware.levels)) for axis in "mnk"]
    storages = []
    total = 1
    for level in hardware.levels:
        total *= level.instances
        capacities = [level.capacity(operand) for operand in OPERANDS]
        storages.append(
            Storage(
                name=level.name,
                fan_out=level.instances,
                instances=total,
                capacity=level.bytes,
                capacities=(capacities[0], capacities[1], capacities[2]),
                rate=level.bytes_per_cycle or math.inf,
                latency=level.latency,
            )
        )
    rates = [machine.rate("external", operand) or math.inf for operand in OPERANDS]
    return LevelProduct(
        m=m,
        n=n,
        k=k,
        d_a=d_a,
        d_b=d_b,
        d_acc=tile.acc_bytes_per_element or workload.acc_bytes,
        units=(math.lcm(units[0], tile.block_m), math.lcm(units[1], tile.block_n), math.lcm(units[2], tile.block_k)),
        block=(tile.block_m, tile.block_n, tile.block_k),
        block_cycles=tile.block_cycles(d_a) if tile.partial_blocks == "padded" else None,
        macs=tile.macs(d_a),
        fill=tile.fill,
        drain=tile.drain,
        levels=tuple(storages),
        rates=(rates[0], rates[1], rates[2]),
        latency=machine.memory("external").latency,
        turns=2 if tile.double_buffer else 1,
        store_queues=tuple(machine.queue_of(f"store_{level.name}") for level in hardware.levels),
        issue=machine.issue.issue_cycles,
        token=machine.issue.token_cycles,
        ports=machine.memory("external").ports,
        pj=(
            machine.mac_pj(d_a),
            machine.byte_pj("external"),
            *(level.byte_pj for level in hardware.levels),
        ),
    )


def levels_tiling(p: LevelProduct, choice: Choice) -> LevelsTiling:
    """Return the decision of a configuration, with its reasons."""
    b, found, _ = choice
    configs = tuple(_level_config(p, choice, level) for level in range(len(p.levels)))
    split_level = p.levels[b.split].name if b.split < len(p.levels) and b.depth < p.k else ""
    return LevelsTiling(
        levels=configs,
        tile_m=b.rows[-1],
        tile_n=b.columns[-1] * p.points,
        tile_k=min(b.depth, p.k) * p.summed,
        tile_order=b.orders[-1],
        split_level=split_level,
        sum_slots=b.sums,
        load_a=configs[0].load_a,
        load_b=configs[0].load_b,
        cycles=found.cycles,
        utilisation=p.repeats * p.peak_cycles / found.cycles,
        points=p.points,
        groups=p.groups,
        reasons=_reasons(p, choice, split_level),
    )


def _level_config(p: LevelProduct, choice: Choice, level: int) -> LevelConfig:
    b, found, _ = choice
    traffic = found.traffic[level]
    depth = b.depth_at(level, p.k) * p.summed
    bytes_a, bytes_b = p.loaded(b, level, traffic.load_a, traffic.load_b)
    held = found.held[level]
    return LevelConfig(
        name=p.levels[level].name,
        left=(b.rows_at(level), depth),
        right=(depth, b.columns_at(level) * p.points),
        result=(b.rows[-1], b.columns[-1] * p.points),
        order=b.orders[min(level, b.split)],
        instances=p.levels[level].instances,
        across_m=b.across_m[level],
        across_n=b.across_n[level],
        load_a=traffic.load_a,
        load_b=traffic.load_b,
        bytes_a=bytes_a * p.repeats,
        bytes_b=bytes_b * p.repeats,
        bytes_out=p.all_out * p.repeats,
        slots_a=held.slots_a,
        slots_b=held.slots_b,
        slots_out=held.slots_out,
        a_first=traffic.a_first,
        cycles=found.loads[level],
    )


def _reasons(p: LevelProduct, choice: Choice, split_level: str) -> tuple[Reason, ...]:
    b, found, _ = choice
    tiles = p.blocks_m(b.rows[-1]) * p.blocks_n(b.columns[-1])
    whole = "all of K: no split-K"
    busiest = max(
        ("the matrix engines", found.products),
        *((f"loads into {s.name}", cycles) for s, cycles in zip(p.levels, found.loads, strict=True)),
        *((f"results out of {s.name}", cycles) for s, cycles in zip(p.levels, found.stores, strict=True)),
        key=lambda pair: pair[1],
    )
    sums = (
        f"{b.sums} blocks of sums fit"
        if b.sums > 1
        else "a larger block saves more than waiting for the store of its sums costs"
    )
    peak = f"{p.repeats * p.peak_cycles:.0f} cycles at peak on {quantity(p.arrays, 'engine')}"
    split = (
        f"outer levels hold all of K, this one and inner ones {b.depth * p.summed} elements" if split_level else whole
    )
    return (
        Reason(
            "tile_m",
            b.rows[-1],
            f"{quantity(ceil_div(p.m, b.rows[-1]), 'block')} of rows on {quantity(b.across_m[-1], 'engine')}",
        ),
        Reason("tile_n", b.columns[-1] * p.points, _columns_why(p, b)),
        Reason(
            "tile_k", min(b.depth, p.k) * p.summed, f"{ceil_div(p.k, b.depth)} steps of K" if split_level else whole
        ),
        Reason("split_level", split_level, split),
        Reason("sum_slots", b.sums if tiles > 1 else 1, sums if tiles > 1 else "one block of sums"),
        Reason("load_a", found.traffic[0].load_a, _loads_why(found.traffic[0].stays_a, b, 0)),
        Reason("load_b", found.traffic[0].load_b, _loads_why(found.traffic[0].stays_b, b, 0)),
        Reason(
            "cycles",
            found.cycles,
            f"{busiest[0]} take the most cycles, {busiest[1]:.0f}; the other cycles do not overlap them",
        ),
        Reason("utilisation", p.repeats * p.peak_cycles / found.cycles, peak),
        *(_level_reason(p, choice, level) for level in range(len(p.levels))),
    )


def _columns_why(p: LevelProduct, b: Blocks) -> str:
    lines = "" if p.image is None else f", of {quantity(b.columns[-1], 'row')} of {quantity(p.points, 'output')}"
    return f"{quantity(p.blocks_n(b.columns[-1]), 'block')} of columns{lines} on {quantity(b.across_n[-1], 'engine')}"


def _loads_why(stays: bool, b: Blocks, level: int) -> str:
    if stays:
        return "stays resident as a whole"
    return "loop over blocks of m outside n" if b.orders[level] == "mn" else "loop over blocks of n outside m"


def _level_reason(p: LevelProduct, choice: Choice, level: int) -> Reason:
    config = _level_config(p, choice, level)
    spread = (
        "" if config.instances == 1 else f", rows over {config.across_m} and columns over {config.across_n} instances"
    )
    order = f"loops: {'m outside n' if config.order == 'mn' else 'n outside m'}"
    return Reason(
        config.reason,
        f"{config.left[0]} x {config.right[1]} x {config.left[1]}",
        f"{order}; A is loaded {times(config.load_a)}, B {times(config.load_b)}, in {config.cycles:.0f} cycles{spread}",
    )


def _nothing_fits(p: LevelProduct, workload: GemmWorkload | ConvWorkload, hardware: Hardware) -> str:
    """Return the error text that names the level which is too small for the smallest blocks."""
    what = (
        f"{workload.op} of m = {p.m}, n = {p.n}, k = {p.k} in {workload.dtype} on hardware {hardware.name!r}: nothing "
        "fits"
    )
    if isinstance(workload, ConvWorkload):
        p = least_convolution(p, workload)
    rows, columns, depth = p.units
    need = [p.turns * p.bytes_a(rows, depth), p.turns * p.bytes_b(columns, depth), p.bytes_out(rows, columns)]
    for storage in p.levels:
        if storage.capacity is not None and storage.capacity < sum(need):
            return f"{what}; level {storage.name!r} has {storage.capacity} bytes; expected at least {sum(need)}"
        for operand, capacity, size in zip(OPERANDS, storage.capacities, need, strict=True):
            if storage.capacity is None and capacity < size:
                return (
                    f"{what}; level {storage.name!r} has bytes_{operand} = {capacity}; expected at least {size}, the "
                    "smallest blocks"
                )
    return f"{what}; expected levels with more capacity for results"
