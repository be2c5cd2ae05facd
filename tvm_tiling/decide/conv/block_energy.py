"""Energy of the blocks of a convolution on a matrix engine, for many candidates at once.

The terms are those of the simulator: multiply-accumulates, every byte read from external memory and written to a
buffer, the reverse for results, and the accesses of the matrix engine to its buffers for each block. Padding values
written on the chip are not counted.
"""

from __future__ import annotations

import numpy as np

from .block_time import BlockTimes, ConvFacts


def block_energy(facts: ConvFacts, times: BlockTimes) -> np.ndarray:
    """Return float64[candidates]: the energy of each in pJ, without the vector engine."""
    conv, p, unit, machine = facts.conv, facts.product, facts.unit, facts.machine
    taps = conv.kh * conv.kw
    reach = max(unit.macs(p.d_a) / (unit.block_m * unit.block_n), unit.block_k)
    read_a, read_b, passed = (np.zeros(len(times.at.rows)) for _ in range(3))
    for count, m, n, c in times.tiles():
        depth = c * taps
        read_a += count * m * depth * p.d_a * -(-n // unit.block_n)
        read_b += count * depth * n * p.d_b * -(-m // unit.block_m)
        passed += count * m * n * facts.d_acc * 2 * np.ceil(depth / reach)
    results = conv.n * conv.do * conv.ho * conv.wo * conv.co
    out = results * p.d_out
    sums = passed - results * facts.d_acc + out  # the first block of a sum does not read it
    of_sums = np.where(times.in_acc, machine.byte_pj("acc"), machine.byte_pj("out"))
    moved = times.bytes_a + times.bytes_b
    pj: np.ndarray = (
        conv.macs * machine.mac_pj(p.d_a)
        + (moved + out) * machine.byte_pj("external")
        + (times.bytes_a + read_a) * machine.byte_pj("a")
        + (times.bytes_b + read_b) * machine.byte_pj("b")
        + sums * of_sums
    )
    return pj
