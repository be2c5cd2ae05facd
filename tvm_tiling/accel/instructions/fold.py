"""WCONV: sums of products on the W-fold engine (page 05).

m: output channels, n0, n1: output rows and columns, k0, k1, k2: kernel rows, columns, channels; immediate = (PCI, PCO)
in bytes: how channels are cut. PCI 0 takes the one of fewest cycles, PCO 0 leaves the results on the chip. `block`
output channels of a sub-unit share a pass over the input, 0: all of them. It takes as long as the slowest of the
multipliers and the ports; results that leave have the size that w_fold.output_element_bytes says.
"""

from __future__ import annotations

import numpy as np

from ...decide.fold.fold_nest import FoldNest, Layer
from ...errors import HardwareError
from ...hardware.machine import Machine
from ...hardware.w_fold import WFold
from .products import summing
from .row import Batch, Cycles


def _cycles(batch: Batch, machine: Machine) -> Cycles:
    unit = machine.hardware.w_fold
    assert unit is not None
    distinct, which = fold_nests(batch, machine)
    busy = np.array([_slowest(nest, leaves) for nest, leaves in distinct], dtype=np.int64)[which]
    return np.maximum(busy, unit.interval), unit.latency


def _traffic(batch: Batch, machine: Machine) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rows of weights and inputs that the engine reads; the sums are written once, and read where they are added
    to."""
    distinct, which = fold_nests(batch, machine)
    weights = np.array([nest.weight_rows * nest.pci for nest, _ in distinct], dtype=np.int64)
    reads = np.array([nest.reads * nest.unit.row_bytes for nest, _ in distinct], dtype=np.int64)
    return weights[which], reads[which], (1 + batch.adds) * batch.m * batch.n * batch.result


def fold_nests(batch: Batch, machine: Machine) -> tuple[list[tuple[FoldNest, bool]], np.ndarray]:
    """The distinct walks of the engine, each with whether its results leave; and the one of each instruction."""
    unit = machine.hardware.w_fold
    assert unit is not None
    keys = np.concatenate(
        [
            batch.column("extent"),
            batch.element[:, None],
            batch.column("immediate").astype(np.int64),
            batch.column("block")[:, None],
        ],
        axis=1,
    )
    distinct, which = np.unique(keys, axis=0, return_inverse=True)
    return [_nest(unit, *row) for row in distinct.tolist()], which.reshape(-1)


def _nest(
    unit: WFold, co: int, ho: int, wo: int, kh: int, kw: int, ci: int, d_s: int, pci: int, pco: int, block: int
) -> tuple[FoldNest, bool]:
    d_out = unit.output_element_bytes or d_s
    layer = Layer(
        groups=1, rows=ho, wo=wo, w=wo + kw - 1, ci_bytes=ci * d_s, co=co, taps_high=kh, kw=kw, d_s=d_s, d_out=d_out
    )
    for name, value, element in (("PCI", pci, d_s), ("PCO", pco, d_out)):
        possible = [granularity for granularity in unit.granularities if granularity % element == 0]
        if value and value not in possible:
            raise HardwareError(
                f"w_fold: a WCONV with {name} = {value} bytes; accepted: 0, {', '.join(map(str, possible))}"
            )
    choices = [pci] if pci else [g for g in unit.granularities if g % d_s == 0 and unit.row_bytes // g <= layer.w]
    nests = [FoldNest(layer, unit, g, pco or unit.row_bytes, block or -(-co // unit.sub_units)) for g in choices]
    return min(nests, key=lambda nest: (_slowest(nest, pco > 0), -nest.pci)), pco > 0


def _slowest(nest: FoldNest, leaves: bool) -> int:
    """Cycles of the slowest of the multipliers and the ports; that of results only if they leave."""
    return max(cycles for port, cycles in nest.port_cycles.items() if leaves or port != "write-out")


WCONV = summing(5, "WCONV", "w_fold", _cycles, _traffic, block=True)
