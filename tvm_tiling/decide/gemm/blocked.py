"""Products whose weights are stored in blocks of few bits (weight-only quantisation): form, register tile, shares.

A column's weights along k lie in blocks that share a scale and a zero point: w = (q - zero) scale. With few rows such a
product waits for the weights to arrive, so that they are packed as they are stored and decoded in registers. A tile of
`rows` x `vectors` vectors sums a block in registers of its own and adds it, scaled, to the totals; so it takes two
registers for each vector. Forms:

    dot       rows were quantised to 8 bits for each block; a dot instruction takes weights as unsigned bytes
    dot16     the kernel rounds rows to 16 bits of each block's largest element, two bytes: a dot for each, 256 of the
              upper one's sums are one of the lower one's. An error of at most 2^-16 of that element, in half the time
              of floats, which are not decoded either
    floats    weights become floats in registers, in every tile
    unpacked  they do once for all rows, into a buffer that stays in L2: what decoding costs is paid once

Zero points cost nothing for each weight: the sum over a block of x (q - zero) is that of x q less `zero` times the sum
of x, which is given with the rows. So do offsets, of w = q scale - offset. Scales and offsets of 8 bits are multiplied
by float16s that several blocks share.
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

MOST_ROWS = 8  # of a tile: each more is a kernel more where only a run brings the rows
MOST_VECTORS = 4
UNPACKED_ROWS = 33  # from which on decoding once pays (measured; the buffer is written and read again)
ENDING = 4  # instructions that add a block's sums to a total
WINDOW = 230  # instructions that a core has in flight
SERVED_ROWS = (1, 2, 4, 8, 16, 128)  # that one configuration is to be good at where only a run brings the rows
OTHERS = 3  # registers for a vector of weights, a scale, an element of x


@dataclass(frozen=True, kw_only=True)
class BlockedProduct:
    """What the kernel computes: y = x w' for `rows` rows of x, float32, and n rows of k weights in blocks.

    `activations`: "float32"; "int16" where the kernel may round x to 16 bits in the weights' blocks; "int8" where x
    comes quantised in these.
    """

    rows: Any  # a number, or what TIR has for one that only a run brings
    n: int
    k: int
    encoding: Encoding
    activations: str = "float32"

    @property
    def blocks(self) -> int:
        """Blocks of a row of weights; the last may have more elements than there are."""
        return ceil_div(self.k, self.encoding.block)

    @property
    def bits(self) -> int:
        """Of a weight."""
        assert self.encoding.how.bits is not None
        return self.encoding.how.bits

    @property
    def centre(self) -> int:
        """The zero point where none is stored."""
        return 1 << (self.bits - 1)

    @property
    def value_bytes(self) -> int:
        """Of the weights of a block."""
        return self.encoding.block * self.bits // 8

    @property
    def scale_bytes(self) -> int:
        """Of a block's scale."""
        return element_bytes(self.encoding.scales)

    @property
    def zero_place(self) -> int:
        """The byte of a record where its zero point or its offset lies."""
        return self.value_bytes + self.scale_bytes

    @property
    def factor_place(self) -> int:
        """The byte of a record where the factors that blocks share lie: that of the scale, that of the offset."""
        return self.zero_place + (self.scale_bytes if self.encoding.offsets else 1)

    @property
    def factors(self) -> int:
        """How many factors a block shares with others."""
        return (1 + self.encoding.offsets) if self.encoding.grouped else 0

    @property
    def record(self) -> int:
        """Bytes of a block as it is given: weights, the one of lower k in the lower bits; scale; zero point, or offset;
        the factors of both."""
        return self.factor_place + 2 * self.factors

    @property
    def inputs(self) -> dict[str, tuple[tuple[Any, ...], str]]:
        """Names, shapes and types of what the kernel takes; of rows in 8 bits as BlockRows gives them."""
        weights = ((self.n, self.blocks, self.record), "uint8")
        if self.activations != "int8":
            return {"x": ((self.rows, self.k), "float32"), "weights": weights}
        given = self.ready("int8").outputs
        return {"x": given["x_blocks"], "scales": given["scales"], "sums": given["sums"], "weights": weights}

    def ready(self, to: str) -> BlockRows:
        """The rows as a kernel takes them."""
        return BlockRows(rows=self.rows, k=self.k, block=self.encoding.block, to=to)

    @property
    def outputs(self) -> dict[str, tuple[tuple[Any, ...], str]]:
        """The same of what it gives."""
        return {"y": ((self.rows, self.n), "float32")}

    @property
    def workload(self) -> GemmWorkload:
        """The product as a workload; its rows have to be a number."""
        floats = GemmWorkload(m=self.rows, n=self.n, k=self.k, trans_b=True, encoding=self.encoding)
        if self.activations == "float32":
            return floats
        return replace(floats, dtype=self.activations, acc_dtype=None, out_dtype="float32")


@dataclass(frozen=True, kw_only=True)
class BlockedTiling(Decision):
    """A tile of `mr` rows by `nr` columns, `nr` / `lanes` vectors; cores share rows in `threads_m` parts and columns in
    `threads_n`. `instruction`: what multiplies. `unpacked_rows`: the number of rows from which on weights are decoded
    once into a buffer, for `partition_k` elements of k at a time; None where that never is."""

    op: ClassVar[str] = "gemm of weights in blocks"

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


def decide_blocked(workload: GemmWorkload, cpu: Cpu, rows: Range | None = None) -> BlockedTiling:
    """The configuration of a product whose `encoding` has blocks; A is float32, int16 where it may be rounded to that
    in these blocks, or int8 quantised in them. Where only a run brings the rows, `rows` is their range: one
    configuration then serves few and many, whose times are weighed as parts of the best for each. UnsupportedOperator
    for other types, batches, and blocks that no kernel reads."""
    block = workload.encoding.block
    if not workload.encoding.how.emitted or block < 16 or block & (block - 1):
        refuse_encoding(workload.encoding)
    if workload.types.a not in ("float32", "int16", "int8") or workload.types.out != "float32" or workload.batch > 1:
        raise UnsupportedOperator(
            f"weights in blocks by {workload.types.a}, batch {workload.batch}, to {workload.types.out}; expected one "
            "product of float32, int16 or int8, integers quantised in the same blocks, to float32"
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
    unpacked = None if by_dots else UNPACKED_ROWS
    depth = _unpacked_depth(workload, cpu, vectors * lanes)
    moved = workload.k * workload.n * workload.b_bytes
    form = ("dot" if parts == 1 else "dot16") if by_dots else "floats"
    why = {
        "dot": f"rows come in 8 bits, and {engine.name} multiplies them by unsigned bytes",
        "dot16": f"rows are rounded to 16 bits of a block's largest; {engine.name} multiplies each of both bytes",
        "floats": "weights become floats: " + ("rows are floats" if workload.dtype == "float32" else "no dot of bytes"),
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
            Reason("encoding", str(workload.encoding), f"{moved / 1e6:.1f} MB of weights and scales arrive once"),
            *(
                [Reason("unpacked_rows", unpacked, "so many rows use what is decoded once")]
                if unpacked is not None
                else []
            ),
        ),
    )


def _engine(workload: GemmWorkload, cpu: Cpu) -> DotInstruction:
    """A dot instruction of unsigned by signed bytes where rows are in 8 or 16 bits and there is one that sums a block
    without leaving 32 bits, else multiply-adds."""
    most = LARGEST.get(workload.dtype, math.inf) * ((1 << (workload.encoding.how.bits or 0)) - 1)
    if most * workload.encoding.block < 1 << 31:
        found = fastest(cpu, "uint8", "int8", "int32")
        if found is not None and found.group == 4 and not found.offset and not found.takes:
            return found
    found = fastest(cpu, "float32", "float32", "float32")
    return found or FMA_FLOAT32


def _parts(workload: GemmWorkload, engine: DotInstruction) -> int:
    """Registers of a vector's sums over a block: bytes of an element of x where dots multiply these, else 1."""
    return element_bytes(workload.dtype) if engine.group > 1 else 1


def _shares(workload: GemmWorkload, cpu: Cpu) -> list[tuple[int, int]]:
    """Ways to share rows and columns among some of the cores."""
    return [
        (m, n)
        for m in range(1, min(cpu.cores, workload.m) + 1)
        for n in range(1, cpu.cores // m + 1)
        if n <= ceil_div(workload.n, cpu.lanes(4))
    ]


def _unpacked_depth(workload: GemmWorkload, cpu: Cpu, columns: int) -> int:
    """Elements of k whose weights, as floats, fill half of L2: whole blocks."""
    block = workload.encoding.block
    most = max(1, int(cpu.l2_bytes // 2) // (4 * columns * block))
    return min(most, ceil_div(workload.k, block)) * block


def _cycles(
    workload: GemmWorkload, cpu: Cpu, engine: DotInstruction, tile: tuple[int, int], share: tuple[int, int]
) -> float:
    """Of the slowest core: the longer of computing and of what arrives, and the start of the threads."""
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
    """Of one tile over all of k: the longest of its multiply-adds, of all its instructions, and of their latency."""
    blocks, steps = ceil_div(workload.k, workload.encoding.block), workload.encoding.block / engine.group
    parts = _parts(workload, engine)
    sums, ending = height * vectors, height * vectors * (ENDING + 2 * (parts - 1))
    adding = parts * steps * sums / engine.rate / cpu.fma_units
    latency = steps * float(engine.latency or cpu.fma_latency)
    if unpacked:
        loads = steps * (height + vectors) / 2
        arriving = steps * vectors * cpu.vector_bits / 8 / cpu.l2_bytes_per_cycle
        return blocks * max(adding, loads, latency, arriving) + cpu.kernel_costs.tile_start
    of_block = workload.encoding.block * workload.b_bytes * cpu.lanes(4)  # bytes of a vector's columns
    loads = (parts * steps * height + vectors * of_block / (cpu.vector_bits / 8)) / 2
    # A float of x that several vectors take is spread into a register first; one takes it from memory as an operand.
    spread = steps * height if vectors > 1 and engine.group == 1 else 0.0
    instructions = parts * steps * sums + spread + _decoding(workload, engine, vectors) + ending
    overlapped = max(1.0, WINDOW / instructions)  # blocks whose sums do not wait for each other
    arriving = vectors * of_block / cpu.l2_bytes_per_cycle  # tiles after the first find them in L2
    one = max(adding, loads, instructions / _issued(cpu), latency / overlapped, arriving)
    return blocks * (one + ending / _issued(cpu)) + cpu.kernel_costs.tile_start


def _decoding(workload: GemmWorkload, engine: DotInstruction, vectors: int) -> float:
    """Instructions that make a block of a tile's weights what is multiplied. A dot instruction takes bytes, which are
    separated, of 8 bits not even that."""
    how, block = workload.encoding.how, workload.encoding.block
    if engine.group > 1:
        return how.separate * vectors * block / engine.group
    return how.decode * vectors * block


def _issued(cpu: Cpu) -> float:
    """Vector instructions that a core starts in a cycle."""
    return 2.0 * cpu.fma_units
