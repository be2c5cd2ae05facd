"""Energy of a matrix multiplication's program, by the coefficients of the machine description.

The terms are those of the simulator: multiply-accumulates; every byte read from external memory and written to a
buffer, and the reverse for results; and the accesses of the matrix engine to its buffers for each block.
"""

from __future__ import annotations

from ...hardware.description import Hardware
from ...hardware.machine import Machine
from ..tiling import ProductChunks
from .traffic import Product, ceil_div


def product_energy(p: Product, chunks: ProductChunks, hardware: Hardware, load_a: int, load_b: int) -> float:
    """Return the energy in pJ with the given load counts of the operands, without the vector engine."""
    machine, unit = Machine(hardware), hardware.near_tile
    assert unit is not None  # product_on has refused machines without it
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
    """Return the sizes of the pieces of a dimension that is divided into steps, and each step into pieces."""
    steps = [min(step, size - start) for start in range(0, size, step)]
    return [min(piece, own - start) for own in steps for start in range(0, own, piece)]


def _ceil(value: float) -> int:
    whole = int(value)
    return whole + (value > whole)
