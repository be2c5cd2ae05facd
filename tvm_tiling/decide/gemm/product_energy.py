"""The energy of a product's program, by the coefficients of the machine (pages 01 and 06).

Counted is what the simulator counts: multiply-accumulates; every byte that is read from external memory and written to
a buffer, and the other way for results; and what the matrix engine reads and writes of its buffers for each block.
"""

from __future__ import annotations

from ...hardware.description import Hardware
from ...hardware.machine import Machine
from ..tiling import ProductChunks
from .traffic import Product, ceil_div


def product_energy(p: Product, chunks: ProductChunks, hardware: Hardware, load_a: int, load_b: int) -> float:
    """pJ of a product whose operands are loaded so often, without the vector engine."""
    machine, unit = Machine(hardware), hardware.near_tile
    assert unit is not None  # whoever has a Product has it from such a machine
    rows, columns = pieces(p.m, chunks.step_m, chunks.sync_m), pieces(p.n, chunks.step_n, chunks.sync_n)
    reach = max(unit.macs(p.d_a) / (p.block_m * p.block_n), unit.block_k)
    deep = sum(_ceil(depth / reach) for depth in pieces(p.k, p.k, chunks.depth))
    across = sum(ceil_div(size, p.block_n) for size in columns)
    down = sum(ceil_div(size, p.block_m) for size in rows)
    loads_a, loads_b, out = load_a * p.bytes_a, load_b * p.bytes_b, p.m * p.n * p.d_out
    moved = {
        "external": loads_a + loads_b + out,
        "a": loads_a + p.m * p.k * p.d_a * across,
        "b": loads_b + p.k * p.n * p.d_b * down,
        chunks.sums: out + p.m * p.n * (unit.acc_bytes_per_element or 4) * (2 * deep - 1),
    }
    return p.m * p.n * p.k * machine.mac_pj(p.d_a) + sum(count * machine.byte_pj(name) for name, count in moved.items())


def pieces(size: int, step: int, piece: int) -> list[int]:
    """Sizes of the pieces of a dimension that is cut into steps, each of them into pieces."""
    steps = [min(step, size - start) for start in range(0, size, step)]
    return [min(piece, own - start) for own in steps for start in range(0, own, piece)]


def _ceil(value: float) -> int:
    whole = int(value)
    return whole + (value > whole)
