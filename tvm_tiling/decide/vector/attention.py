"""Attention on a CPU: how many rows of scores stay in L2 from q k^T through the softmax to the multiplication by v.

For each matrix of the batch, keys and values are packed once into panels; then blocks of rows pass through all three
steps. The scores of a block are written and read in place, so a block is as tall as a quarter of L2 allows. Taller
blocks would only read the packed operands less often, and those come from the same cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...figures import quantity
from ...hardware.description import Cpu
from ...hardware.dot_instructions import DotInstruction, fastest
from ..explain import Sections
from ..gemm.traffic import ceil_div
from ..tiling import Decision, Reason
from .elementwise import SHARES_PER_CORE

# Rows of a block beyond which there is no further gain.
MOST_ROWS = 64
# Passes of simple operations over the scores: scale and mask, maximum, difference, sum, quotient.
PASSES = 5


@dataclass(frozen=True, kw_only=True)
class AttentionShape:
    """`batch` times softmax(q k^T) v; q is rows x depth, k is keys x depth, v is keys x width.

    `dtype` is the type that is multiplied, including the result of the softmax; sums and softmax are in float32.
    """

    batch: int
    rows: int
    keys: int
    depth: int
    width: int
    dtype: str = "float32"

    @property
    def flops(self) -> int:
        """Floating-point operations of the two matrix multiplications."""
        return 2 * self.batch * self.rows * self.keys * (self.depth + self.width)


@dataclass(frozen=True, kw_only=True)
class RegisterTile:
    """`height` rows by `vectors` vectors of sums in registers."""

    height: int
    vectors: int

    def __str__(self) -> str:
        return f"{self.height} x {self.vectors}"


@dataclass(frozen=True, kw_only=True)
class AttentionTiling(Decision):
    """Blocks of `block_rows` rows; a register tile for each matrix multiplication; division of batch and rows among
    cores."""

    op: ClassVar[str] = "attention"

    shape: AttentionShape
    lanes: int
    block_rows: int
    scores: RegisterTile
    values: RegisterTile
    threads_batch: int
    threads_rows: int
    predicted_seconds: float
    form: str = "fused"

    sections: ClassVar[Sections] = (
        ("block", ("form", "block_rows", "lanes")),
        ("register tiles", ("scores", "values")),
        ("cores", ("threads_batch", "threads_rows")),
        ("predicted", ("predicted_seconds",)),
    )


def attention_engine(shape: AttentionShape, cpu: Cpu) -> DotInstruction | None:
    """Return the instruction of both matrix multiplications; None if the CPU has none for the type."""
    return fastest(cpu, shape.dtype, shape.dtype, "float32")


def scores_space(cpu: Cpu) -> int:
    """Return the bytes available for the scores of a block."""
    return int(cpu.kernel_costs.l2_scores * cpu.l2_bytes)


def decide_attention(shape: AttentionShape, cpu: Cpu) -> AttentionTiling:
    """Return the configuration of an attention operator for which attention_engine returns an instruction."""
    lanes, engine = cpu.lanes(4), attention_engine(shape, cpu)
    assert engine is not None
    share = cpu.kernel_costs.l2_scores
    most = max(1, min(MOST_ROWS, scores_space(cpu) // (4 * shape.keys)))
    rows = ceil_div(shape.rows, ceil_div(shape.rows, most))
    scores, values = (_tile(columns, rows, lanes, cpu) for columns in (shape.keys, shape.width))
    # Round to whole register tiles if the block holds several.
    if rows < shape.rows and rows > scores.height:
        rows = rows // scores.height * scores.height
    even = shape.batch % cpu.cores == 0 or shape.batch >= SHARES_PER_CORE * cpu.cores
    cycles = _cycles(shape, scores, values, lanes, cpu, engine.speed)
    serial = cpu.cores == 1 or cycles * (1 - 1 / cpu.cores) <= cpu.parallel_start
    tb = 1 if serial or not even else cpu.cores
    tr = 1 if serial or even else min(cpu.cores, ceil_div(shape.rows, rows))
    if tb * tr > 1:
        cycles = cycles / (tb * tr) + cpu.parallel_start
    whole = f"{shape.batch} matrices"
    return AttentionTiling(
        shape=shape,
        lanes=lanes,
        block_rows=rows,
        scores=scores,
        values=values,
        threads_batch=tb,
        threads_rows=tr,
        predicted_seconds=cycles / (cpu.mhz * 1e6),
        reasons=(
            Reason("form", "fused", f"scores of {quantity(rows, 'row')}, {4 * rows * shape.keys} bytes, stay in L2"),
            Reason(
                "block_rows",
                rows,
                f"{share:.0%} of L2 holds {quantity(most, 'row')} of {shape.keys}",
            ),
            Reason("scores", str(scores), f"the fewest idle lanes and loads for {quantity(shape.keys, 'column')}"),
            Reason("values", str(values), f"the fewest idle lanes and loads for {quantity(shape.width, 'column')}"),
            Reason("threads_batch", tb, f"{whole} are {'divided evenly' if even else 'too few to divide'}"),
            Reason(
                "threads_rows",
                tr,
                "each task packs its own keys and values" if tr > 1 else "one task processes all rows",
            ),
        ),
    )


def _tile(columns: int, rows: int, lanes: int, cpu: Cpu) -> RegisterTile:
    """Return the tile with the least work: idle lanes, and loads relative to multiply-adds."""
    found = []
    for vectors in range(1, min(4, ceil_div(columns, lanes)) + 1):
        height = min(rows, (cpu.vector_registers - 1) // vectors - 1)
        if height < 1:
            continue
        height = ceil_div(rows, ceil_div(rows, height))
        padded = ceil_div(columns, vectors * lanes) * vectors * lanes / columns
        found.append((padded * (1 + (height + vectors) / (height * vectors)), height, vectors))
    _, height, vectors = min(found)
    return RegisterTile(height=height, vectors=vectors)


def _cycles(
    shape: AttentionShape, scores: RegisterTile, values: RegisterTile, lanes: int, cpu: Cpu, speed: float
) -> float:
    """Return the cycles on one core: multiply-adds of whole tiles at `speed` relative to float32, the softmax, and
    packing."""

    def product(tile: RegisterTile, columns: int, depth: int) -> float:
        wide = ceil_div(columns, tile.vectors * lanes) * tile.vectors
        return shape.rows * wide * depth / cpu.fma_units / speed

    elements, costs = shape.rows * shape.keys / lanes, cpu.kernel_costs
    softmax = elements * (PASSES * costs.plain_operation + costs.function)
    packing = 2.0 * shape.keys * (shape.depth + shape.width) / lanes
    both = product(scores, shape.keys, shape.depth) + product(values, shape.width, shape.keys)
    return shape.batch * (both + softmax + packing)
