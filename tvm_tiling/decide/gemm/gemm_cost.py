"""Cost model of a matrix multiplication on a CPU, which ranks the candidates of gemm/cpu_gemm.py.

The cost is the cycles of the slowest core. A microkernel step is bound by multiply-adds, by their latency if there are
too few, by loads, or by the cache that an operand is read from. Tiles, packing, copies and the first touch of memory
are added. All machine-dependent quantities are fields of the machine description.

Cores pay for writing where others read: a line that another core has read must be fetched from it before it can be
written again. Packing an operand for all cores therefore costs several times as much as packing for one core, 10 to 35
ns per 64-byte line instead of 1 ns on a Zen 4 server. Where two cores write adjacent columns, the lines that they share
move back and forth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from math import ceil
from typing import NamedTuple, TypeVar

from ...hardware.description import Cpu
from ...hardware.dot_instructions import DotInstruction
from ...operand_types import element_bytes
from ...workload import GemmWorkload
from .cache_conflict import is_bad_leading_dimension
from .traffic import ceil_div

Candidate = TypeVar("Candidate")

PAGE = 4096  # bytes
CROWDED = 1.5  # rows of A per way of L1 from which on, if they collide, none of their lines stays
HUGE_PAGES = 4 << 20  # bytes from which NumPy asks for huge pages, on which rows lie as in virtual memory
HIDDEN_ROWS = 4  # rows of a tile whose cache lines arrive while earlier steps are computed
UNTRAINED_LINES = 4  # cache lines of a row of A in a K block before the hardware prefetcher follows it
ROUNDED = 1 - 1e-9  # relative tolerance of a lower bound, which is summed in another order


class CpuConfig(NamedTuple):
    """A candidate: division among cores, register tile, cache blocks, loop order and packing."""

    threads: tuple[int, int, int, int]  # batch, m, n, k
    rows: int
    vectors: int
    depth: int  # elements of K in a block
    columns: int  # of a column block: a multiple of the panel width, or all columns
    rows_outside: bool  # within a block, the loop over tiles of A is outside that over panels of B
    keep: int  # rows of a tile read in place
    pack_b: str

    @property
    def cores(self) -> int:
        tb, tm, tn, tk = self.threads
        return tb * tm * tn * tk


class CpuModel:
    """Cost of any configuration of one matrix multiplication on one CPU. `apart`: the rows of A that a matrix
    instruction takes together are joined in the loop, not stored side by side in a copy."""

    def __init__(self, workload: GemmWorkload, cpu: Cpu, engine: DotInstruction, *, apart: bool = False) -> None:
        self.w, self.cpu, self.engine, self.costs = workload, cpu, engine, cpu.kernel_costs
        self.lanes = cpu.lanes(engine.acc_bytes)
        self.groups = ceil_div(workload.k, engine.group)
        self.word = engine.group_bytes  # bytes of one packed group
        self.sum = engine.acc_bytes
        self.apart = apart
        # The same for B, which may be packed in its stored type, and the cycles to widen a vector of it.
        self.b_word = engine.group * workload.b_bytes if engine.stored else self.word
        self.decoding = self.costs.widened_vector if engine.stored else 0.0
        # Cycles to widen an element of A and a vector of B that are read in place.
        self.widened_a = self.costs.widened_element if engine.widens(workload.types.a) else 0.0
        self.widened_b = self.costs.widened_vector if engine.widens(workload.types.b) else 0.0
        self.vector_load = 1.0 if cpu.fma_units == 1 else 0.5
        self.fma = 1 / engine.rate / cpu.fma_units  # cycles per vector multiply-add
        # On AArch64 the multiply units also broadcast elements that the instruction cannot take from a lane: as
        # compiled by LLVM one element of A per step, and every group of a dot product without lane operands.
        self.copying = 1 / cpu.fma_units if cpu.arch == "aarch64" else 0.0
        self.latency = float(engine.latency or cpu.fma_latency)
        self.l1, self.l2, self.line = cpu.l1_bytes, cpu.l2_bytes, cpu.caches[0].line
        self._bad: dict[int, bool] = {}
        self._collisions: dict[int, bool] = {}
        self._steps: dict[tuple[int, int], float] = {}

    def is_bad(self, rows: int) -> bool:
        """Return whether `rows` rows of A, read in place column by column, evict each other from L1."""
        if rows not in self._bad:
            l1 = self.cpu.cache(1)
            lda = self.w.lda or self.w.k
            self._bad[rows] = (
                not self.w.trans_a and l1 is not None and is_bad_leading_dimension(lda, self.w.a_bytes, l1, rows=rows)
            )
        return self._bad[rows]

    def _missed(self, rows: int) -> float:
        """Return how many lines per row of A arrive at each step, if the rows evict each other from L1. With many more
        rows than ways, no line stays until its next element is read."""
        l1 = self.cpu.cache(1)
        crowded = l1 is not None and rows > CROWDED * l1.ways
        return max(self.costs.colliding_line, 1.0) if crowded else self.costs.colliding_line

    def collides(self, depth: int) -> bool:
        """Return whether `depth` rows of B, read in place, evict each other from L2."""
        if depth not in self._collisions:
            l2 = self.cpu.cache(2)
            ldb = self.w.ldb or self.w.n
            size = element_bytes(self.w.types.b)
            rows = ceil(depth / self.costs.l2_ways)
            if self.costs.l2_ways < 1 and ldb * size > PAGE and self.w.k * ldb * size < HUGE_PAGES:
                # Physical addresses index L2, of which only the offset within a small page is known.
                ldb = (PAGE + ldb * size % PAGE) // size
            self._collisions[depth] = l2 is not None and is_bad_leading_dimension(ldb, size, l2, rows=rows)
        return self._collisions[depth]

    @cached_property
    def row(self) -> float:
        """Bytes between the starts of two rows of B."""
        return (self.w.ldb or self.w.n) * self.w.b_bytes

    @property
    def pages(self) -> bool:
        """Return whether rows of B are so long that few of them share a memory page."""
        return self.row >= 1024

    def uneven_piece(self, width: int) -> float:
        """Return the cycles lost per row of a panel of `width` columns whose rows are longer than a cache line but not
        a multiple of it.
        """
        piece = width * self.w.b_bytes
        uneven = piece > self.line and piece % self.line and not self.row % self.line
        return self.costs.uneven_piece if uneven else 0.0

    def shallow(self, depth: int) -> int:
        """Return the largest depth of equal K blocks, at most `depth`, whose rows of B do not collide in L2; `depth` if
        no depth of at least a quarter of it qualifies.
        """
        blocks = next((n for n in range(1, 5) if not self.collides(ceil_div(depth, n))), 1)
        return ceil_div(depth, blocks)

    def step(self, rows: int, vectors: int) -> float:
        """Return the cycles of one microkernel step with both operands in L1."""
        key = (rows, vectors)
        if key not in self._steps:
            block = self.engine.rows
            rows = ceil_div(rows, block) * block  # an odd row is computed with itself
            loads = vectors * block * self.vector_load + (rows if self.apart else rows / block) * 0.5
            computing = rows * vectors * self.fma + vectors * self.decoding + self._copied(rows) * self.copying
            self._steps[key] = max(computing, self.latency, loads)
        return self._steps[key]

    def _copied(self, rows: int) -> int:
        """Return the number of elements or groups of A that a step broadcasts to all lanes, or joins with those of
        another row."""
        if self.engine.rows > 1:
            return rows - rows // self.engine.rows if self.apart else 0
        if self.engine.group == 1:
            return 1
        return 0 if self.engine.by_lane else rows

    def line_transfer(self, written: float) -> float:
        """Return the cycles to write this many bytes to lines that another core has read since they were last
        written."""
        return written / self.cpu.handed_over_bytes_per_cycle

    def shared_lines(self, rows: float, width: int, cores: int) -> float:
        """Return the cycles for cache lines that straddle the columns of two cores, `cores` of which write `width`
        columns of `rows` rows each: every write of such a line needs a cross-core transfer."""
        if cores == 1 or width * self.w.out_bytes % self.line == 0:
            return 0.0
        return self.line_transfer(rows * self.line)

    @cached_property
    def home_bytes_per_cycle(self) -> float:
        """Bandwidth of the place where the operands are before the computation: memory if they do not all fit the
        last-level cache."""
        return self.cpu.bytes_per_cycle(float(self.w.bytes))

    def least_of_tile(self, rows: int, vectors: int, groups: float) -> float:
        """Return a lower bound of the cycles per row and vector of a register tile, with `groups` steps, whatever the
        blocks and wherever the operands are. Smaller tiles at the edges take more."""
        block, size = self.engine.rows, rows * vectors
        loads = block * self.vector_load / rows + 0.5 / ((1 if self.apart else block) * vectors)
        step = max(self.fma, self.latency / size, loads)
        return groups * step + self.costs.tile_start / size + 2.0 * self.vector_load

    def least(self, config: CpuConfig) -> float:
        """Return a lower bound of `cycles`, by which candidates are pruned."""
        tb, tm, tn, tk = config.threads
        tile = self.least_of_tile(config.rows, config.vectors, self.groups / tk)
        found = ceil_div(self.w.batch, tb) * self.w.m * self.w.n / self.lanes / (tm * tn) * tile
        return ROUNDED * found + (self.cpu.parallel_start if config.cores > 1 else 0.0)

    def cycles(self, config: CpuConfig) -> float:
        """Return the predicted cycles of the slowest core, including the start of the threads."""
        return sum(self.parts(config).values())

    def parts(self, config: CpuConfig) -> dict[str, float]:
        """Return the predicted cycles by cause."""
        w = self.w
        tb, tm, tn, tk = config.threads
        nr = config.vectors * self.lanes
        tiles = ceil_div(ceil_div(w.m, config.rows), tm)
        panels = ceil_div(w.n, nr)
        my_panels = ceil_div(panels, tn)
        k_blocks = ceil_div(w.k, config.depth)
        my_blocks = ceil_div(k_blocks, tk)
        groups = self.groups / k_blocks * my_blocks
        batches = ceil_div(w.batch, tb)

        # The slowest core has only full tiles and panels, unless it has all of them.
        kernel = 0.0
        for height, tall in pieces(w.m, config.rows, tiles, alone=tm == 1):
            for width, wide in pieces(w.n, nr, my_panels, alone=tn == 1):
                kernel += tall * wide * self._tile(config, height, ceil_div(width, self.lanes), groups, my_blocks)
        column_blocks = ceil_div(my_panels * nr, config.columns)
        copies = self._copies(config, tiles, groups, my_blocks, column_blocks)
        packing = self._packing(config, my_panels * nr, groups)
        # Prepacked elements have the width that is multiplied.
        b_bytes = self.b_word / self.engine.group if config.pack_b == "ahead" else w.b_bytes
        b_share = my_panels * nr * w.k / tk * b_bytes if self.overlaps_b(config) else 0.0
        rows_share = tiles * config.rows
        my_rows = min(w.m, rows_share)
        first = kernel * min(1.0, config.rows / my_rows)
        times = column_blocks if config.rows_outside else my_panels
        kernel += self.arriving_rows(config.rows, config.depth, groups, tiles, times)
        kernel += self._result_pieces(config, my_panels, my_rows, my_blocks)
        touched = rows_share * (w.k / tk * w.a_bytes + my_panels * nr * w.out_bytes)
        if not self.costs.first_tile:
            touched += b_share
        # A is read again for every column block, from memory if it is too large for L2.
        a_share = rows_share * w.k / tk * w.a_bytes
        if column_blocks > 1 and a_share > self.l2 / 2:
            touched += (column_blocks - 1) * a_share * self.cpu.memory_bytes_per_cycle / self.cpu.l3_bytes_per_cycle
        memory = touched / self.home_bytes_per_cycle
        found = overlapped(kernel, memory, self.costs.exposed_lesser)
        found["late"] = self._late(config, b_share, first)
        found["transfer"] = self._transfer(config, a_share, b_share)
        if config.pack_b == "none" and self.pages and b_share:
            # The first read of B: short pieces of rows on different pages, which no hardware prefetcher follows.
            packing += b_share / self.home_bytes_per_cycle * self.costs.near_piece / (nr * w.b_bytes)
        found.update(copies=copies, packing=packing, lines=my_blocks * self.shared_lines(ceil_div(w.m, tm), w.n, tn))
        found = {name: batches * cycles for name, cycles in found.items()}
        starts = 1 + (tk > 1) + (config.pack_b == "pack" and tm > 1) if config.cores > 1 else 0
        sums = w.m * w.n * tk * self.sum if tk > 1 else 0
        found.update(
            start=self.cpu.parallel_start * starts, sums=2.0 * sums / config.cores / self.cpu.bytes_per_cycle(sums)
        )
        return found

    @cached_property
    def far(self) -> bool:
        """Return whether the operands and the result together exceed L2."""
        return self.w.bytes > self.l2 * self.costs.l2_share

    def prefetches(self, config: CpuConfig) -> bool:
        """Return whether kernels prefetch B."""
        return config.pack_b == "ahead" and self.w.m >= self.costs.prefetching_rows

    def _late(self, config: CpuConfig, b_share: float, first: float) -> float:
        """Return the cycles for which the first tile of rows, `first` cycles, waits for B to arrive;
        later tiles read B from L2."""
        if not self.costs.first_tile or not self.far or not b_share:
            return 0.0
        if self.cpu.cores == 1 and config.pack_b == "none" and config.vectors * self.lanes >= self.w.n:
            return 0.0  # whole rows are one stream, which the hardware prefetcher follows
        arrival = b_share / self.home_bytes_per_cycle
        return max(0.0, arrival - self.costs.first_tile * first)

    def _transfer(self, config: CpuConfig, a_share: float, b_share: float) -> float:
        """Return the cycles for which a layer of a model waits for operands because of how the cores divide it.

        The layer before has left a share of the rows of A in the cache of each core. Cores that divide the columns read
        all rows, most of them from the caches of others. Cores that divide the rows read all weights, which come from
        memory if they exceed L2: then so do those of the other layers, which displace them.
        """
        _, tm, tn, _ = config.threads
        if not self.costs.operand_transfer or config.pack_b != "ahead":
            return 0.0
        w = self.w
        large = w.k * w.n * w.b_bytes > self.l2 * self.costs.l2_share
        rate = self.cpu.memory_bytes_per_cycle if large else self.cpu.l3_bytes_per_cycle
        waited = self.line_transfer(a_share * (1 - 1 / tn)) + b_share * (1 - 1 / tm) / rate
        return self.costs.operand_transfer * waited

    def _result_pieces(self, config: CpuConfig, panels: int, rows: int, blocks: int) -> float:
        """Return the cycles lost because rows of a result beyond L2 are written in pieces: as wide as a block of
        columns if the loop over tiles of A is outside, otherwise as wide as a panel."""
        if self.w.m * self.w.n * self.sum <= self.l2 * self.costs.l2_share:
            return 0.0
        width = config.columns // (config.vectors * self.lanes) if config.rows_outside else 1
        return self.costs.result_piece * rows * (ceil_div(panels, max(1, width)) - 1) * blocks

    def arriving_rows(self, rows: int, depth: int, groups: float, tiles: int, times: int) -> float:
        """Return the cycles lost because all rows of a tile need their next cache lines of A at the same step, as far
        as A has to arrive from beyond L2: of `tiles` tiles of `rows` rows that are read `times` times."""
        if rows <= HIDDEN_ROWS or not self.costs.arriving_row or not self.far:
            return 0.0
        waiting = max(0, min(rows, self.w.m) - HIDDEN_ROWS)
        blocks = ceil_div(self.w.k, depth)
        lines = min(UNTRAINED_LINES * blocks, groups * self.engine.group * self.w.a_bytes / self.line)
        stays, beyond = self._beyond
        return self.costs.arriving_row * waiting * lines * tiles * (1 if stays else times) * beyond

    @cached_property
    def _beyond(self) -> tuple[bool, float]:
        """Return whether A stays in L2, and the share of all operands that L2 does not hold."""
        stays = self.w.m * self.w.k * self.w.a_bytes <= self.l2 * self.costs.l2_share
        return stays, max(0.0, 1.0 - self.l2 / self.w.bytes)

    def _tile(self, config: CpuConfig, rows: int, vectors: int, groups: float, blocks: int) -> float:
        """Return the cycles of one register tile over the task's share of K."""
        word, b_word = self.word, self.b_word
        in_place = config.pack_b == "none"
        # With one panel per block the two orders coincide: a tile of A is read once.
        rows_outside = config.rows_outside and config.columns > config.vectors * self.lanes
        widened = min(config.keep, rows) * self.widened_a + (vectors * self.widened_b if in_place else 0.0)
        compute = self.step(rows, vectors) + widened
        exposed = 0.0
        nr = vectors * self.lanes
        block_groups = groups / blocks
        panel = block_groups * nr * b_word
        block = block_groups * config.columns * b_word
        if in_place and self.w.k * self.row <= self.l1 / 2:
            b_bytes = 0.0  # all of B stays in L1
        elif in_place:
            # Each step reads one row of B, on a page of its own unless rows are short. If the rows collide in L2, the
            # panel does not stay there from one tile to the next.
            stays = panel <= self.l2 * self.costs.l2_share and not self.collides(int(block_groups))
            b_bytes = nr * word / (self.cpu.l2_bytes_per_cycle if stays else self.cpu.l3_bytes_per_cycle)
            if self.pages:
                b_bytes += self.costs.page_step
            if self.row % PAGE == 0:
                b_bytes += self.costs.whole_page_step
            exposed += self.uneven_piece(nr)
            if self.row % self.line:
                b_bytes *= self.costs.straddling_bytes  # vectors straddle cache lines
                exposed += (
                    self.costs.straddled_stream if config.rows_outside else self.costs.straddled_panel
                ) * b_bytes
            if self.w.k * self.w.n * self.w.b_bytes > self.l2 * self.costs.l2_share:
                exposed += self.costs.exposed_pages * compute
            if not stays:
                exposed += self.costs.exposed_collision * b_bytes
        elif not rows_outside and panel <= self.l1 / 2:
            b_bytes = 0.0
        else:
            b_bytes = nr * b_word / self.cpu.bytes_per_cycle(block if rows_outside else panel)
            if self.prefetches(config):
                b_bytes *= self.costs.prefetched_panel
            exposed += self.costs.exposed_panel * b_bytes
        a_tile = rows * block_groups * word
        if rows_outside and a_tile <= self.l1 * self.costs.l1_share:
            a_bytes = 0.0
        elif rows_outside:
            a_bytes = rows * word / self.cpu.l2_bytes_per_cycle
        else:
            a_bytes = rows * word / self.cpu.bytes_per_cycle(self.w.m * block_groups * word)
        if config.keep >= rows and self.is_bad(rows):
            missed = self._missed(rows) * rows * self.line / self.cpu.l2_bytes_per_cycle
            a_bytes += missed
            exposed += self.costs.exposed_miss * missed
        step = max(compute, a_bytes + b_bytes) + exposed
        around = self.costs.tile_start + rows * vectors * 2.0 * self.vector_load
        near = self.w.m * self.w.n * self.sum <= self.l2 * self.costs.l2_share
        line = self.costs.resumed_near if near else self.costs.resumed_far
        resumed = (blocks - 1) * rows * ceil_div(nr * self.sum, self.line) * line
        return groups * step + blocks * around + resumed

    def _copies(self, config: CpuConfig, tiles: int, groups: float, blocks: int, column_blocks: int) -> float:
        copied = max(0, config.rows - config.keep)
        if not copied:
            return 0.0
        vectors = groups / self.lanes * copied * self.word / self.sum
        return tiles * column_blocks * (vectors * 2.0 + blocks * copied * self.costs.block_start)

    def overlaps_b(self, config: CpuConfig) -> bool:
        """Return whether the transfer of B overlaps with the multiply-adds: B is prepacked, or read in place from a
        cache."""
        near = self.home_bytes_per_cycle > self.cpu.memory_bytes_per_cycle
        return config.pack_b == "ahead" or (config.pack_b == "none" and near)

    def _packing(self, config: CpuConfig, columns: int, groups: float) -> float:
        """Return the cycles to write this core's share of packed B; the cores divide the packing of a shared operand.

        B is read from memory piece by piece; a piece is as wide as the block, or as the panel if B is not packed.
        """
        share, line_transfer = columns / config.threads[1], 0.0
        arrival = share * groups * self.engine.group * self.w.b_bytes / self.home_bytes_per_cycle
        if self.overlaps_b(config):
            return 0.0
        if config.pack_b == "none":
            return (
                arrival
                * config.threads[1]
                * (1 + self.costs.piece_start / (config.vectors * self.lanes * self.w.b_bytes))
            )
        if config.threads[1] > 1:
            # A shared operand is packed completely before the multiplication starts: written to the nearest level with
            # enough capacity and read back.
            packed = columns * groups * self.b_word
            arrival += 2.0 * share * groups * self.b_word / self.cpu.bytes_per_cycle(packed)
            line_transfer = self.line_transfer(share * groups * self.b_word)
        vectors, costs = share * groups / self.lanes, self.costs
        each = costs.packed_vector + self.engine.group * costs.packed_group
        if self.w.trans_b:
            each = costs.transposed_vector * self.word / self.sum
        work = vectors * each
        nr = config.vectors * self.lanes
        pieces_read = share / nr * groups * self.engine.group
        work += pieces_read * self.uneven_piece(nr) * self.cpu.l2_bytes_per_cycle / self.cpu.l3_bytes_per_cycle
        width = min(config.columns, columns)
        block = config.depth / self.engine.group * self.b_word * width
        # The part of a block that has left L2 is written to the last-level cache and read from it.
        displaced = costs.displaced_block * min(1.0, block / self.l2) * share * groups * self.b_word
        work = max(work, arrival * (1 + costs.piece_start / (width * self.w.b_bytes)))
        return line_transfer + work + 2.0 * displaced / self.cpu.l3_bytes_per_cycle

    # ---- few rows -------------------------------------------------------------------------------------------------

    def stream_along_n(self, cores: int, depth: int) -> float:
        """Return the cycles if B is stored as [k, n] and streamed `depth` rows at a time, with sums in L1."""
        w = self.w
        vectors = w.k * ceil_div(w.n, self.lanes) / min(cores, max(1, w.n // self.lanes))
        per_vector = max(
            w.m * self.fma + self.decoding + self.widened_b,
            (1 + w.m / depth) * self.vector_load,
            w.m / depth * 2.0,
            self._vector_arrival(),
        )
        return w.batch * (vectors * per_vector + w.k / depth * self.costs.block_start) + (
            self.cpu.parallel_start if cores > 1 else 0.0
        )

    def stream_along_k(self, cores: int, width: int) -> float:
        """Return the cycles if B is stored as [n, k] and streamed `width` columns at a time, with sums in registers."""
        w = self.w
        columns = ceil_div(w.n, min(cores, w.n))
        vectors = ceil_div(w.k, self.lanes) * columns
        computing = w.m * self.fma + self.decoding + self.widened_b
        per_vector = max(computing, (1 + w.m / width) * self.vector_load, self._vector_arrival())
        ends = columns * w.m * (self.lanes + 8.0)
        return w.batch * (vectors * per_vector + ends) + (self.cpu.parallel_start if cores > 1 else 0.0)

    def _vector_arrival(self) -> float:
        return (
            self.lanes * self.w.b_bytes / self.cpu.bytes_per_cycle(self.w.k * self.w.n * self.w.b_bytes * self.w.batch)
        )


def cheapest(
    configs: Iterable[Candidate], least: Callable[[Candidate], float], cycles: Callable[[Candidate], float]
) -> tuple[float, Candidate] | None:
    """Return (cycles, candidate) of the fastest candidate, the first on a tie; None without candidates. Candidates
    whose lower bound `least` exceeds the best so far are skipped.
    """
    best: tuple[float, Candidate] | None = None
    for config in configs:
        if best is not None and least(config) > best[0]:
            continue
        found = cycles(config)
        if best is None or found < best[0]:
            best = found, config
    return best


def overlapped(kernel: float, memory: float, exposed: float) -> dict[str, float]:
    """Combine the cycles of multiply-adds and of memory transfers; of the smaller one only the part `exposed`
    counts."""
    if kernel < memory:
        return {"kernel": exposed * kernel, "memory": memory}
    return {"kernel": kernel, "memory": exposed * memory}


def pieces(extent: int, size: int, share: int, *, alone: bool) -> list[tuple[int, int]]:
    """Return (size, count) of the pieces in the largest share of range(extent) divided into pieces of `size`."""
    whole, tail = divmod(extent, size)
    if alone or not whole:
        return [(s, c) for s, c in ((size, whole), (tail, 1)) if s and c]
    return [(size, min(share, whole))]
