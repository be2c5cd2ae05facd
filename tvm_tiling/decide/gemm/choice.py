"""Candidates for a matrix multiplication on a CPU, and the decision of each.

K blocks       a tile of A fits L1, and all K blocks are equal
column blocks  a block of B fits L2
cores          every factorisation into batch, rows, columns and, where those are too few, the reduction axis
rows           the tallest tile that the registers allow, and tiles that divide m evenly
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...errors import HardwareError
from ...figures import quantity
from ...hardware.description import Cpu
from ...hardware.dot_instructions import DotInstruction
from ...operand_types import holds_sums, is_integer
from ...workload import GemmWorkload
from ..tiling import GemmTiling
from .dot_engine import dot_engine
from .gemm_cost import CpuConfig, CpuModel
from .gemm_reasons import blocked_reasons, stream_reasons, with_reasons
from .microkernel import registers_of, rows_in_place, tallest
from .one_order import deterministic_depths
from .traffic import ceil_div

# Above this many rows, the sums of the streaming kernel no longer stay in L1 and a blocked kernel is faster.
STREAM_ROWS = 4
# The same limit if B is stored as [n, k] and sums are kept in registers: two columns of this many rows fill them.
STREAM_ROWS_DENSE = 12


class StreamConfig(NamedTuple):
    """A candidate of the streaming kernel for few rows: division of batch and columns among cores, rows of B (columns
    if it is stored as [n, k]) that are read side by side, and columns whose sums are kept in L2."""

    threads_batch: int
    threads_n: int
    side: int
    columns: int


class ProductChoice:
    """The candidates for one matrix multiplication on one CPU.

    packing: "run" if B, where packing pays, is packed at run time; "ahead" if B is prepacked. plain_a, plain_b: whether
    the operand can be read in place. form: the forced kernel variant. deterministic: only candidates that add in
    the order of one_order.py.
    """

    def __init__(
        self,
        workload: GemmWorkload,
        cpu: Cpu,
        *,
        packing: str,
        plain_a: bool,
        plain_b: bool,
        form: str | None = None,
        deterministic: bool = False,
    ) -> None:
        self.w, self.cpu, self.packing = workload, cpu, packing
        self.deterministic = deterministic and not is_integer(workload.types.a)  # whose sums are exact
        self.engine: DotInstruction = dot_engine(
            workload, cpu, form=form, prepacked=packing == "ahead", any_rows=deterministic
        )
        self.plain_a, self.plain_b = plain_a and self.engine.in_place, plain_b and self.engine.in_place
        self.model = CpuModel(workload, cpu, self.engine)
        self.lanes = self.model.lanes
        l1 = cpu.cache(1)
        self.ways = l1.ways if l1 else 8
        self.output_holds_sums = holds_sums(workload.types.out)
        self.keep_rows = rows_in_place(self.ways, cpu.priority_ratio)

    # ---- blocked --------------------------------------------------------------------------------------------------

    def configs(self, form: str | None, microkernel: tuple[int, int] | None, *, whole_k: bool) -> Iterator[CpuConfig]:
        """Yield every candidate that meets the limits. `whole_k`: partial sums may not be kept in the output, which is
        also true of half precision."""
        whole_k = whole_k or not self.output_holds_sums
        pairs = list(self.register_tiles(form)) if microkernel is None else self.forced_tile(microkernel)
        for rows, vectors in pairs:
            for keep in self.ways_to_read_a(form, rows):
                for threads in self.shares(rows, vectors):
                    yield from self.blocks(rows, vectors, keep, threads, whole_k)

    def forced_tile(self, microkernel: tuple[int, int]) -> list[tuple[int, int]]:
        rows, vectors = microkernel
        legal = rows >= 1 and vectors >= 1 and self.registers(rows, vectors) <= self.cpu.vector_registers
        return [(rows, vectors)] if legal else []

    def registers(self, rows: int, vectors: int) -> int:
        """Vector registers of a tile."""
        return registers_of(rows, vectors, rows=self.engine.rows)

    def register_tiles(self, form: str | None) -> Iterator[tuple[int, int]]:
        """Yield (m, z) within the registers: the tallest for each z, and even divisions of m, in whole blocks of a
        matrix instruction."""
        registers = self.cpu.kernel_registers
        widest = ceil_div(self.w.n, self.lanes)
        # A single vector needs more loads than multiply-adds, m * z / (m + z) < 1, so it is used only for a single row
        # or vector.
        narrowest = 1 if widest == 1 or self.w.m == 1 else 2
        for vectors in range(narrowest, min(widest, (registers - 1) // 2) + 1):
            most = tallest(registers, vectors, rows=self.engine.rows)
            if most < 1:
                break
            if vectors > most and most < self.w.m and vectors > 1:
                break  # wider than tall: fewer multiply-adds per load than the transposed tile
            top = min(most, self.w.m)
            parts = ceil_div(self.w.m, top)
            heights = {top, ceil_div(self.w.m, parts), ceil_div(self.w.m, parts + 1)}
            if self.model.is_bad(top):
                heights |= {min(top, self.ways), min(top, ceil_div(self.w.m, ceil_div(self.w.m, self.ways)))}
            if self.model.costs.arriving_row and self.model.far:
                heights.add(ceil_div(top, 2))  # fewer rows wait for A at once
            if form == "nocopy":
                heights = {h for h in heights | {min(top, self.ways)} if h <= self.ways}
            if form == "inline":
                heights = {h for h in heights if h > self.keep_rows}
            block = self.engine.rows
            for rows in sorted({min(ceil_div(h, block) * block, top) for h in heights}):
                yield rows, vectors

    def ways_to_read_a(self, form: str | None, rows: int) -> list[int]:
        """Return the candidates for the number of a tile's rows that are read in place."""
        if not self.plain_a:
            return [0] if form in (None, "pack") else []
        if form is None:
            if not self.model.is_bad(rows):
                return [rows, 0] if self.w.trans_a or self.model.widened_a else [rows]
            return [rows, 0] + ([self.keep_rows] if rows > self.keep_rows else [])
        if form == "pack":
            return [0]
        if form == "inline":
            return [self.keep_rows] if rows > self.keep_rows else []
        return [rows]

    def shares(self, rows: int, vectors: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield factorisations of the cores into batch, m, n and k that leave no core idle, and a single core."""
        w, cores = self.w, self.cpu.cores
        tiles, panels = ceil_div(w.m, rows), ceil_div(w.n, vectors * self.lanes)
        few = tiles * panels < 4 * cores and not self.deterministic
        yield 1, 1, 1, 1
        if cores == 1:
            return
        for tb in self.batch_shares(cores):
            left = cores // tb
            for tm in _divisors(left):
                for tn in _divisors(left // tm):
                    tk = left // (tm * tn)
                    if tm <= tiles and tn <= panels and (tk == 1 or (few and w.k >= 256 * tk)):
                        yield tb, tm, tn, tk

    def batch_shares(self, cores: int) -> list[int]:
        """Return the possible divisions of a batch: the divisors of the number of cores and the batch itself, largest
        first."""
        most = min(cores, self.w.batch)
        return sorted({most, *(d for d in _divisors(cores) if d <= most)}, reverse=True)

    def blocks(
        self, rows: int, vectors: int, keep: int, threads: tuple[int, int, int, int], whole_k: bool
    ) -> Iterator[CpuConfig]:
        """Yield the cache blocks in both loop orders, with B packed and, if possible, read in place."""
        w, word, nr = self.w, self.model.word, vectors * self.lanes
        tk = threads[3]
        packs = ["ahead"] if self.packing == "ahead" else ["pack", "none"] if self.plain_b else ["pack"]
        for deep in sorted({w.k} if whole_k and tk == 1 else self.depths(rows, nr, packs), reverse=True):
            count = ceil_div(max(tk, ceil_div(w.k, deep)), tk) * tk
            depth = min(w.k, ceil_div(ceil_div(w.k, count), self.engine.group) * self.engine.group)
            panel = ceil_div(depth, self.engine.group) * word * nr
            of_core = ceil_div(ceil_div(w.n, nr), threads[2])
            spreads = keep == rows and of_core * panel * count > self.bytes_of_a(rows, threads[1])
            columns = min(of_core, self.panels_in_block(panel, spreads)) * nr
            for pack_b in packs:
                if pack_b == "none" and w.trans_b:
                    continue
                yield CpuConfig(threads, rows, vectors, depth, columns, True, keep, pack_b)
                if keep == rows:
                    yield CpuConfig(threads, rows, vectors, depth, columns, False, keep, pack_b)

    def bytes_of_a(self, rows: int, threads: int) -> int:
        """Return the bytes of a core's share of A."""
        rows_of_core = ceil_div(ceil_div(self.w.m, rows), threads) * rows
        return rows_of_core * ceil_div(self.w.k, self.engine.group) * self.model.word

    def panels_in_block(self, panel: int, spreads: bool) -> int:
        """Return the panels of `panel` bytes in a block of B: what fits L2, or if `spreads`, the block that is
        prefetched during the one before. That pays where B is larger than A, and A is read in place: each block reads
        A, or copies it, again."""
        costs = self.cpu.kernel_costs
        fits = max(1, int(self.model.l2 * costs.l2_block) // panel)
        if self.packing != "ahead" or not costs.spread_block or not spreads:
            return fits
        return min(fits, max(1, int(costs.spread_block) // panel))

    def prefetches_next(self, config: CpuConfig) -> bool:
        """Return whether the tiles of a block of B prefetch the next one: if there are several, each for at least
        three tiles of rows, which read A in place."""
        w, (_, tm, tn, tk) = self.w, config.threads
        blocks = ceil_div(w.n, config.columns * tn) * ceil_div(w.k, config.depth)
        tiles = ceil_div(ceil_div(w.m, config.rows), tm)
        in_rows = config.rows_outside and config.keep == config.rows
        several = blocks > tk and tiles >= 3
        return self.cpu.kernel_costs.spread_block > 0 and self.model.prefetches(config) and in_rows and several

    def depths(self, rows: int, columns: int, packs: Sequence[str]) -> set[int]:
        """Return the depths of K blocks for a register tile of `rows` rows and `columns` columns."""
        w, word = self.w, self.model.word
        deepest = max(64, int(self.model.l1 * self.cpu.kernel_costs.l1_deepest) // (rows * word)) * self.engine.group
        # A shallower block is wider, so rows of B are read from memory in longer pieces.
        depths = {min(w.k, deepest), min(w.k, max(64, deepest // 3))}
        if w.k * columns * word <= self.cpu.kernel_costs.l2_whole_panel * self.model.l2:
            depths.add(w.k)  # sums are written only once
        if self.deterministic:
            return deterministic_depths(w.k, depths)
        if self.cpu.kernel_costs.l2_ways < 1 and "none" in packs and not w.trans_b:
            depths |= {self.model.shallow(depth) for depth in depths}
        return depths

    def tiling(self, config: CpuConfig, cycles: float, forced: str | None) -> GemmTiling:
        """Return the decision of a configuration, with its reasons."""
        w, nr = self.w, config.vectors * self.lanes
        tb, tm, tn, tk = config.threads
        if forced in ("normal", "nocopy"):
            form = forced
        elif config.keep == config.rows:
            form = "nocopy" if self.model.is_bad(min(w.m, self.cpu.vector_registers)) else "normal"
        else:
            form = "pack" if config.keep == 0 else "inline"
        columns_per_core = ceil_div(ceil_div(w.n, nr), tn) * nr
        rows_per_core = ceil_div(ceil_div(w.m, config.rows), tm) * config.rows
        tiling = GemmTiling(
            partition_m=min(w.m, rows_per_core),
            partition_n=min(config.columns, columns_per_core),
            partition_k=config.depth,
            tile_m=config.rows,
            tile_n=nr,
            outer_order="nm",
            inner_order="mn" if config.rows_outside else "nm",
            split_k=config.depth < w.k,
            need_acc_buffer=tk > 1,
            acc_bytes=tk * w.batch * w.m * w.n * self.engine.acc_bytes if tk > 1 else 0,
            load_a=ceil_div(columns_per_core, config.columns),
            load_b=1 if config.pack_b != "none" else rows_per_core // config.rows,
            utilisation=self.utilisation(cycles),
            form=form,
            mr=config.rows,
            nr=nr,
            lanes=self.lanes,
            keep=config.keep,
            threads_batch=tb,
            threads_m=tm,
            threads_n=tn,
            threads_k=tk,
            pack_a={0: "pack"}.get(config.keep, "none" if config.keep == config.rows else "inline"),
            pack_b=config.pack_b,
            prefetch_b=self.model.prefetches(config) or None,
            prefetch_next=self.prefetches_next(config) or None,
            predicted_seconds=self.seconds(cycles),
        )
        bad = self.model.is_bad(config.rows)
        why = blocked_reasons(w, self.cpu, self.engine, tiling, bad=bad, plain_a=self.plain_a, forced=bool(forced))
        return with_reasons(tiling, why)

    def utilisation(self, cycles: float) -> float:
        """Return the predicted share of the cores' peak multiply-add throughput."""
        per_cycle = self.lanes * self.cpu.fma_units * self.engine.speed * self.cpu.cores
        return min(1.0, self.w.macs / per_cycle / cycles)

    def seconds(self, cycles: float) -> float:
        return cycles / (self.cpu.mhz * 1e6)

    # ---- few rows -------------------------------------------------------------------------------------------------

    @property
    def no_stream(self) -> str:
        """Return why the streaming kernel cannot be used; "" if it can. It needs few rows, and a B that is read in
        place.
        """
        w = self.w
        if self.deterministic:
            return "its order of sums depends on the rows, which deterministic=True excludes"
        if self.packing == "ahead":
            return "B is prepacked"
        if self.engine.group != 1:
            return f"{self.engine.name} takes {w.dtype} in groups"
        if not self.plain_b:
            return "B is computed"
        return f"there are {quantity(w.m, 'row')}" if w.m > self.most_stream_rows else ""

    @property
    def most_stream_rows(self) -> int:
        """Largest number of rows that the streaming kernel supports."""
        return STREAM_ROWS_DENSE if self.w.trans_b else STREAM_ROWS

    def best_stream(self, *, forced: bool) -> tuple[float, GemmTiling] | None:
        """Return the best configuration of the streaming kernel with its cycles, None if the kernel cannot be used."""
        if refused := self.no_stream:
            if forced:
                raise HardwareError(
                    f"algorithm = 'stream' supports at most {self.most_stream_rows} rows with B read in place, but "
                    f"{refused}; expected 'normal', 'nocopy', 'inline', 'pack'"
                )
            return None
        cycles, config = min((self.stream_cycles(config), config) for config in self.stream_configs())
        return cycles, self.stream_tiling(config, cycles)

    def stream_configs(self) -> Iterator[StreamConfig]:
        """Yield every candidate of the streaming kernel: on one core and on all cores."""
        w, lanes = self.w, self.lanes
        side = power_of_two(min(8, lanes, 24 // w.m, w.n)) if w.trans_b else max(1, min(8, 16 // w.m, w.k))
        room = max(lanes, int(self.model.l2) // 4 // (w.m * self.model.word) // lanes * lanes)
        for cores in sorted({1, self.cpu.cores}):
            for tb in self.batch_shares(cores):
                tn = cores // tb
                yield StreamConfig(tb, tn, side, min(room, self.stream_share(tn)))

    def stream_share(self, threads: int) -> int:
        """Return the columns per core, in whole vectors."""
        return ceil_div(ceil_div(self.w.n, self.lanes), threads) * self.lanes

    def stream_cycles(self, config: StreamConfig) -> float:
        """Return the predicted cycles of the slowest core."""
        along = self.model.stream_along_k if self.w.trans_b else self.model.stream_along_n
        return along(config.threads_batch * config.threads_n, config.side)

    def stream_tiling(self, config: StreamConfig, cycles: float) -> GemmTiling:
        """Return the decision of a streaming-kernel configuration, with its reasons."""
        w, lanes = self.w, self.lanes
        tiling = GemmTiling(
            partition_m=w.m,
            partition_n=config.columns,
            partition_k=w.k if w.trans_b else config.side,
            tile_m=w.m,
            tile_n=config.side if w.trans_b else lanes,
            outer_order="nm",
            inner_order="nm",
            split_k=False,
            need_acc_buffer=False,
            acc_bytes=0,
            load_a=ceil_div(self.stream_share(config.threads_n), config.columns),
            load_b=1,
            utilisation=self.utilisation(cycles),
            form="stream",
            mr=w.m,
            nr=config.side if w.trans_b else lanes,
            lanes=lanes,
            keep=w.m,
            threads_batch=config.threads_batch,
            threads_m=1,
            threads_n=config.threads_n,
            threads_k=1,
            pack_a="none",
            pack_b="none",
            predicted_seconds=self.seconds(cycles),
        )
        return with_reasons(tiling, stream_reasons(w, self.cpu, tiling))


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


def power_of_two(number: int) -> int:
    """Return the largest power of two that is at most `number`."""
    return 1 << (number.bit_length() - 1)
