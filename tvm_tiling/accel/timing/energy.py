"""What a program costs in energy, by where it goes (page 06).

Counted are multiply-accumulates, elements of the vector engine, and every byte that an instruction reads from or writes
to a memory or a buffer. A matrix engine reads, for each cycle's block of block_m x block_n sums, both operands of the
block, and reads and writes the sums; the block is block_k deep, or as deep as its multipliers reach. A W-fold engine
reads the rows that page 05 counts; a column engine the matrix once and the vector for every VP rows. Leakage is not
modelled, nor what the front end takes.
"""

from __future__ import annotations

import numpy as np

from ...hardware.energy import MAC_PJ
from ...hardware.machine import Machine
from ..program.isa import Opcode
from ..program.work import Products, Work
from .cost import fold_walks


def energy_by_level(work: Work, machine: Machine) -> dict[str, float]:
    """pJ by name: "mac", "vector", and each memory and buffer that is touched."""
    spent: dict[str, float] = {}
    by_bytes = machine.energy.mac_pj
    if work.products:
        spent["mac"] = sum(
            float(own.macs[own.element == element].sum()) * by_bytes[_mac_bytes(element)]
            for own in work.products.values()
            for element in np.unique(own.element).tolist()
        )
    if work.vectors:
        elements = sum(int(own.elements.sum()) for own in work.vectors.values())
        spent["vector"] = elements * machine.energy.vector_pj
    for name, count in bytes_touched(work, machine).items():
        spent[name] = count * machine.byte_pj(name)
    return spent


def bytes_touched(work: Work, machine: Machine) -> dict[str, int]:
    """Bytes read and written of each memory and buffer that is touched, by name, in the order of the table."""
    total = dict(work.bytes)
    for kind, own in work.products.items():
        for memory, count in zip(own.memory, _product_bytes(kind, work, own, machine), strict=True):
            for number, name in enumerate(total):
                total[name] += int(count[memory == number].sum())
    return {name: count for name, count in total.items() if count}


def _product_bytes(
    kind: Opcode, work: Work, own: Products, machine: Machine
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bytes that each product reads of a and of b, and reads and writes of c."""
    sums = own.m * own.n * own.result
    if kind == Opcode.WCONV:
        assert machine.hardware.w_fold is not None  # else it had no cost
        distinct, which = fold_walks(work, own, machine.hardware.w_fold)
        weights = np.array([walk.weight_rows * walk.pci for walk, _ in distinct], dtype=np.int64)
        reads = np.array([walk.reads * walk.unit.row_bytes for walk, _ in distinct], dtype=np.int64)
        return weights[which], reads[which], 2 * sums
    if kind == Opcode.COLMV:
        lines = work.program.instructions["immediate"][own.number, 1].astype(np.int64)
        return own.m * own.k * own.n * own.element, own.k * own.n * own.element * -(-own.m // lines), 2 * sums
    tile = machine.hardware.near_tile
    assert tile is not None
    across, down = -(-own.n // tile.block_n), -(-own.m // tile.block_m)
    reach = np.array([tile.macs(element) for element in own.element.tolist()]) / (tile.block_m * tile.block_n)
    deep = -(-own.k // np.maximum(reach, tile.block_k).astype(np.int64))
    return own.m * own.k * own.element * across, own.k * own.n * own.element * down, 2 * sums * deep


def _mac_bytes(element: int) -> str:
    return str(element) if str(element) in MAC_PJ else max(MAC_PJ)
