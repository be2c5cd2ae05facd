"""Blocks of the W-fold engine as WCONV instructions (design page 05).

Their six innermost loops are those of the instruction, in its order: output channels, rows, columns, kernel rows,
kernel columns, channels. They keep their positions even with one iteration, since the cost of the engine depends on
them. Annotations give the channel granularities: "vsim.pci" and "vsim.pco" in bytes, "vsim.block" in output channels.
"""

from __future__ import annotations

import numpy as np
from tvm import tirx

from ..instructions.table import Opcode
from ..program.isa import LOOPS, Flag
from .buffers import Places
from .engines import operands_of_product, starts_sum
from .instances import Instances
from .rows import Rows, StridedAccess

LOOP_NAMES = "output channels, rows, columns, kernel rows, kernel columns, channels"


def record_fold(found: Instances, places: Places, rows: Rows, queue: str) -> None:
    """Record a block of the engine "wfold". A sum over several instructions leaves the chip with the last of them."""
    left, right, target = operands_of_product(found, places)
    if len(found.inner) != LOOPS:
        raise found.nest.refuse(
            f"block {found.leaf.name!r} gives an instruction of the W-fold engine {len(found.inner)} loops; "
            f"expected vsim.loops = {LOOPS}, the innermost loops being {LOOP_NAMES}, each with independent "
            "bounds"
        )
    if not _is_convolution(left, right, target):
        left, right = right, left
    if not _is_convolution(left, right, target):
        raise found.nest.refuse(
            f"block {found.leaf.name!r}: the loops of its instruction are not {LOOP_NAMES}, in this order"
        )
    pci, pco, block = (_annotation(found, name) for name in ("vsim.pci", "vsim.pco", "vsim.block"))
    immediate = np.zeros((len(found), 2))
    immediate[:, 0], immediate[:, 1] = pci, np.where(_ends_sum(found), pco, 0)
    rows.add(
        found,
        Opcode.WCONV,
        queue,
        [[loop] for loop in range(LOOPS)],
        a=left,
        b=right,
        c=target,
        flags=np.where(starts_sum(found), 0, int(Flag.ACCUMULATE)).astype(np.uint8),
        immediate=immediate,
        block=block,
    )


def _is_convolution(a: StridedAccess, b: StridedAccess, c: StridedAccess) -> bool:
    """Return whether the kernel does not depend on the output position, the image not on the output channel, and the
    sums not on the reduction axes."""
    return not any((*a.steps[1:3], b.steps[0], *c.steps[3:]))


def _annotation(found: Instances, name: str) -> int:
    value = found.leaf.annotation(name)
    if value is None:
        return 0
    if not isinstance(value, int) or not 0 <= value < 256:
        raise found.nest.refuse(f"block {found.leaf.name!r} has {name} = {value!r}; expected 0 to 255")
    return value


def _ends_sum(found: Instances) -> np.ndarray:
    """Return where a sum is complete: all reduction axes reach their last value."""
    ends = np.ones(len(found), dtype=bool)
    for axis in found.leaf.block.iter_vars:
        if int(axis.iter_type) == tirx.IterVar.CommReduce:
            first, steps = found.affine(axis.var)
            last = first + (np.array(steps, dtype=np.int64) * (found.extents - 1)).sum(axis=1)
            ends &= last == int(axis.dom.min) + int(axis.dom.extent) - 1
    return ends
