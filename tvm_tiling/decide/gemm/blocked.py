"""Matrix multiplications with weights stored in blocks of few bits (weight-only quantisation): kernel variant, register
tile and division among cores.

The weights of a column are stored along K in blocks that share a scale and a zero point: w = (q - zero) scale. With few
rows, such a matrix multiplication is bound by the transfer of the weights, so they are packed as stored and decoded in
registers. A tile of `rows` x `vectors` vectors sums a block in separate registers and adds the scaled sum to the
totals, which takes two registers per vector. Kernel variants:

    dot       rows are quantised to 8 bits per block; a dot-product instruction takes weights as unsigned bytes
    dot16     the kernel rounds rows to 16 bits relative to each block's largest element, as two bytes with one dot
              product each; the sums of the upper byte count 256 times. The error is at most 2^-16 of that element, in
              half the time of "floats"; weights need no decoding here either
    floats    weights are converted to floats in registers, in every tile
    unpacked  weights are converted once for all rows into a buffer that stays in L2, so decoding is paid once

Zero points cost nothing per weight: the sum over a block of x (q - zero) is the sum of x q minus `zero` times the sum
of x, which is provided with the rows. The same holds for offsets, w = q scale - offset. Scales and offsets of 8 bits
are multiplied by float16 factors that several blocks share.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from operator import truediv
from typing import Any, ClassVar

from ...errors import UnsupportedOperator
from ...hardware.description import Cpu
from ...hardware.dot_instructions import FMA_FLOAT32, DotInstruction, fastest
from ...operand_types import Encoding, element_bytes
from ...sizes import Range
from ...workload import GemmWorkload, refuse_encoding
from ..explain import Sections
from ..tiling import Decision, Reason
from .block_rows import LARGEST, BlockRows
from .traffic import ceil_div

MOST_ROWS = 8  # rows of a tile; with dynamic rows, each additional one adds a kernel
MOST_VECTORS = 4
UNPACKED_ROWS = 33  # number of rows from which decoding once is faster (measured; the buffer is written and read again)
ENDING = 4  # instructions that add a block's sums to the totals
WINDOW = 230  # instructions in flight on a core
SERVED_ROWS = (1, 2, 4, 8, 16, 128)  # row counts for which one configuration is optimised if rows are dynamic
OTHERS = 3  # registers for a vector of weights, a scale and an element of x


@dataclass(frozen=True, kw_only=True)
class BlockedProduct:
    """The computation: y = x w' for `rows` float32 rows of x and n rows of k weights in blocks.

    `activations` is "float32"; "int16" if the kernel may round x to 16 bits in the weights' blocks; "int8" if x is
    already quantised in these blocks.
    """

    rows: Any  # an int, or a TIR expression for a dynamic number of rows
    n: int
    k: int
    encoding: Encoding
    activations: str = "float32"

    @property
    def blocks(self) -> int:
        """Blocks per row of weights; the last one may be padded."""
        return ceil_div(self.k, self.encoding.block)

    @property
    def bits(self) -> int:
        """Bits per weight."""
        assert self.encoding.how.bits is not None
        return self.encoding.how.bits

    @property
    def centre(self) -> int:
        """Zero point if none is stored."""
        return 1 << (self.bits - 1)

    @property
    def value_bytes(self) -> int:
        """Bytes of a block's weights."""
        return self.encoding.block * self.bits // 8

    @property
    def scale_bytes(self) -> int:
        """Bytes of a block's scale."""
        return element_bytes(self.encoding.scales)

    @property
    def zero_place(self) -> int:
        """Byte offset of the zero point or offset in a record."""
        return self.value_bytes + self.scale_bytes

    @property
    def factor_place(self) -> int:
        """Byte offset in a record of the factors shared between blocks: that of the scale, then that of the offset."""
        return self.zero_place + (self.scale_bytes if self.encoding.offsets else 1)

    @property
    def factors(self) -> int:
        """Number of factors that a block shares with others."""
        return (1 + self.encoding.offsets) if self.encoding.grouped else 0

    @property
    def record(self) -> int:
        """Bytes of a stored block: the weights, with lower k in the lower bits; the scale; the zero point or offset;
        the factors of both."""
        return self.factor_place + 2 * self.factors

    @property
    def inputs(self) -> dict[str, tuple[tuple[Any, ...], str]]:
        """Names, shapes and types of the kernel's inputs; rows in 8 bits are in the format of BlockRows."""
        weights = ((self.n, self.blocks, self.record), "uint8")
        if self.activations != "int8":
            return {"x": ((self.rows, self.k), "float32"), "weights": weights}
        given = self.ready("int8").outputs
        return {"x": given["x_blocks"], "scales": given["scales"], "sums": given["sums"], "weights": weights}

    def ready(self, to: str) -> BlockRows:
        """Return the rows in the format that the kernel reads."""
        return BlockRows(rows=self.rows, k=self.k, block=self.encoding.block, to=to)

    @property
    def outputs(self) -> dict[str, tuple[tuple[Any, ...], str]]:
        """Names, shapes and types of the kernel's outputs."""
        return {"y": ((self.rows, self.n), "float32")}

    @property
    def workload(self) -> GemmWorkload:
        """The matrix multiplication as a workload; requires a static number of rows."""
        floats = GemmWorkload(m=self.rows, n=self.n, k=self.k, trans_b=True, encoding=self.encoding)
        if self.activations == "float32":
            return floats
        return replace(floats, dtype=self.activations, acc_dtype=None, out_dtype="float32")


@dataclass(frozen=True, kw_only=True)
class BlockedTiling(Decision):
    """Tiling of a matrix multiplication with block-quantised weights.

    A register tile has `mr` rows by `nr` columns, which are `nr` / `lanes` vectors. Cores divide the rows into
    `threads_m` parts and the columns into `threads_n`. `instruction` is the multiply instruction. From `unpacked_rows`
    rows on, weights are decoded once into a buffer, `partition_k` elements of K at a time; None if they never are.
    """

    op: ClassVar[str] = "gemm of weights in blocks"
    title: ClassVar[str] = "gemm with block-quantised weights"

    form: str
    encoding: str
    instruction: str
    lanes: int
    mr: int
    nr: int
    unpacked_rows: int | None
    partition_k: int
    threads_m: int
    threads_n: int
    predicted_seconds: float

    sections: ClassVar[Sections] = (
        ("weights", ("encoding", "form", "instruction", "unpacked_rows", "partition_k")),
        ("register tile", ("lanes", "mr", "nr")),
        ("cores", ("threads_m", "threads_n")),
        ("predicted", ("predicted_seconds",)),
    )


def decide_blocked(
    workload: GemmWorkload, cpu: Cpu, rows: Range | None = None, *, deterministic: bool = False
) -> BlockedTiling:
    """Decide a matrix multiplication whose `encoding` has blocks.

    A is float32, int16 if it may be rounded to 16 bits in these blocks, or int8 if it is quantised in them. With a
    dynamic number of rows, `rows` is its range: one configuration then serves all row counts, and its times are weighed
    relative to the best for each. Raises UnsupportedOperator for other types, for batches, and for block formats
    without a kernel.

    deterministic: weights are never decoded once for many rows, which would add in another order.
    """
    block = workload.encoding.block
    if not workload.encoding.how.emitted or block < 16 or block & (block - 1):
        refuse_encoding(workload.encoding)
    if workload.types.a not in ("float32", "int16", "int8") or workload.types.out != "float32" or workload.batch > 1:
        raise UnsupportedOperator(
            f"block-quantised weights with {workload.types.a} activations, batch {workload.batch} and "
            f"{workload.types.out} results; expected float32 activations, or int16 or int8 quantised in the same "
            "blocks, batch 1 and float32 results"
        )
    engine = _engine(workload, cpu)
    by_dots = engine.group > 1
    parts = _parts(workload, engine)
    lanes = cpu.lanes(4)
    tiles = [
        (height, vectors)
        for vectors in range(1, MOST_VECTORS + 1)
        for height in range(1, MOST_ROWS + 1)
        if (1 + parts) * height * vectors + vectors + OTHERS <= cpu.vector_registers
    ]
    served = [workload]
    if rows is not None:
        sizes = [m for m in SERVED_ROWS if m in rows] or [rows.first]
        served = [replace(workload, m=m) for m in sizes]
    most = max(each.m for each in served)
    cost = {
        (tile, share): [_cycles(each, cpu, engine, tile, share) for each in served]
        for tile in tiles
        for share in _shares(served[0], cpu)
        if tile[0] <= most
    }
    least = [min(column) for column in zip(*cost.values(), strict=True)]
    beside = {key: sum(map(truediv, cycles, least)) for key, cycles in cost.items()}
    best = min(beside.values())
    (mr, vectors), (threads_m, threads_n) = min(
        (key for key, cycles in beside.items() if cycles <= 1.02 * best),
        key=lambda key: (-key[0][0], -key[0][1], key[1]),
    )
    unpacked = None if by_dots or deterministic else UNPACKED_ROWS
    depth = _unpacked_depth(workload, cpu, vectors * lanes)
    moved = workload.k * workload.n * workload.b_bytes
    form = ("dot" if parts == 1 else "dot16") if by_dots else "floats"
    why = {
        "dot": f"rows are quantised to 8 bits; {engine.name} multiplies them by unsigned bytes",
        "dot16": (
            f"rows are rounded to 16 bits relative to a block's largest element; {engine.name} multiplies both bytes"
        ),
        "floats": "weights are converted to floats: "
        + ("rows are floats" if workload.dtype == "float32" else "the CPU has no dot product of bytes"),
    }[form]
    return BlockedTiling(
        form=form,
        encoding=str(workload.encoding),
        instruction=engine.name,
        lanes=lanes,
        mr=mr,
        nr=vectors * lanes,
        unpacked_rows=unpacked,
        partition_k=depth,
        threads_m=threads_m,
        threads_n=threads_n,
        predicted_seconds=_cycles(workload, cpu, engine, (mr, vectors), (threads_m, threads_n)) / (1e6 * cpu.mhz),
        reasons=(
            Reason("form", form, why),
            Reason(
                "mr",
                mr,
                f"sums of a block and totals, {(1 + parts) * mr * vectors} registers of {cpu.vector_registers}",
            ),
            Reason("encoding", str(workload.encoding), f"{moved / 1e6:.1f} MB of weights and scales are read once"),
            *(
                [Reason("unpacked_rows", unpacked, "from this many rows on, decoding once is faster")]
                if unpacked is not None
                else []
            ),
        ),
    )


def _engine(workload: GemmWorkload, cpu: Cpu) -> DotInstruction:
    """Return a dot-product instruction of unsigned by signed bytes if rows have 8 or 16 bits and the sum of a block
    fits 32 bits; otherwise fused multiply-adds."""
    most = LARGEST.get(workload.dtype, math.inf) * ((1 << (workload.encoding.how.bits or 0)) - 1)
    if most * workload.encoding.block < 1 << 31:
        found = fastest(cpu, "uint8", "int8", "int32")
        if found is not None and found.group == 4 and not found.offset and not found.takes:
            return found
    found = fastest(cpu, "float32", "float32", "float32")
    return found or FMA_FLOAT32


def _parts(workload: GemmWorkload, engine: DotInstruction) -> int:
    """Return the registers per vector of a block's sums: the bytes of an element of x for dot products, else 1."""
    return element_bytes(workload.dtype) if engine.group > 1 else 1


def _shares(workload: GemmWorkload, cpu: Cpu) -> list[tuple[int, int]]:
    """Return the ways to divide rows and columns among some of the cores."""
    return [
        (m, n)
        for m in range(1, min(cpu.cores, workload.m) + 1)
        for n in range(1, cpu.cores // m + 1)
        if n <= ceil_div(workload.n, cpu.lanes(4))
    ]


def _unpacked_depth(workload: GemmWorkload, cpu: Cpu, columns: int) -> int:
    """Return the elements of K whose weights, as floats, fill half of L2, in whole blocks."""
    block = workload.encoding.block
    most = max(1, int(cpu.l2_bytes // 2) // (4 * columns * block))
    return min(most, ceil_div(workload.k, block)) * block


def _cycles(
    workload: GemmWorkload, cpu: Cpu, engine: DotInstruction, tile: tuple[int, int], share: tuple[int, int]
) -> float:
    """Return the cycles of the slowest core: the larger of computation and data transfer, plus the start of the
    threads."""
    (rows, vectors), (threads_m, threads_n) = tile, share
    tiles = ceil_div(workload.m, rows)
    low, taller = divmod(workload.m, tiles)
    pieces = [(low, tiles - taller), (low + 1, taller)]
    panels = ceil_div(ceil_div(workload.n, vectors * cpu.lanes(4)), threads_n)
    unpacked = engine.group == 1 and workload.m >= UNPACKED_ROWS
    work = sum(number * _tile_cycles(workload, cpu, engine, height, vectors, unpacked) for height, number in pieces)
    once = ceil_div(workload.k, workload.encoding.block) * _decoding(workload, engine, vectors) / _issued(cpu)
    computing = panels * (work / threads_m + (once if unpacked else 0.0))
    arriving = workload.bytes / threads_n / cpu.bytes_per_cycle(float(workload.bytes))
    return max(computing, arriving) + (cpu.parallel_start if threads_m * threads_n > 1 else 0.0)


def _tile_cycles(
    workload: GemmWorkload, cpu: Cpu, engine: DotInstruction, height: int, vectors: int, unpacked: bool
) -> float:
    """Return the cycles of one tile over all of K: the largest of its multiply-adds, its instructions and their
    latency."""
    blocks, steps = ceil_div(workload.k, workload.encoding.block), workload.encoding.block / engine.group
    parts = _parts(workload, engine)
    sums, ending = height * vectors, height * vectors * (ENDING + 2 * (parts - 1))
    adding = parts * steps * sums / engine.rate / cpu.fma_units
    latency = steps * float(engine.latency or cpu.fma_latency)
    if unpacked:
        loads = steps * (height + vectors) / 2
        arriving = steps * vectors * cpu.vector_bits / 8 / cpu.l2_bytes_per_cycle
        return blocks * max(adding, loads, latency, arriving) + cpu.kernel_costs.tile_start
    of_block = workload.encoding.block * workload.b_bytes * cpu.lanes(4)  # bytes of the columns of one vector
    loads = (parts * steps * height + vectors * of_block / (cpu.vector_bits / 8)) / 2
    # A float of x that several vectors use is broadcast to a register first; a single vector reads it as a memory
    # operand.
    spread = steps * height if vectors > 1 and engine.group == 1 else 0.0
    instructions = parts * steps * sums + spread + _decoding(workload, engine, vectors) + ending
    overlapped = max(1.0, WINDOW / instructions)  # blocks whose sums are independent and in flight
    arriving = vectors * of_block / cpu.l2_bytes_per_cycle  # later tiles find the weights in L2
    one = max(adding, loads, instructions / _issued(cpu), latency / overlapped, arriving)
    return blocks * (one + ending / _issued(cpu)) + cpu.kernel_costs.tile_start


def _decoding(workload: GemmWorkload, engine: DotInstruction, vectors: int) -> float:
    """Return the instructions that decode a block of a tile's weights. Dot-product instructions take bytes, so bits
    only need to be separated, and 8-bit weights not even that."""
    how, block = workload.encoding.how, workload.encoding.block
    if engine.group > 1:
        return how.separate * vectors * block / engine.group
    return how.decode * vectors * block


def _issued(cpu: Cpu) -> float:
    """Return the vector instructions that a core issues per cycle."""
    return 2.0 * cpu.fma_units
