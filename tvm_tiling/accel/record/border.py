"""Blocks that load within a border: buffer[...] = other[...] inside an image, otherwise a constant.

The condition bounds loops of the instruction from below and above, each independently. The inside becomes a LOAD whose
border is what remains of its loops, computed for each instance; an instance entirely outside becomes a FILL.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tvm import tirx
from tvm.ir import TensorLoad

from ...match.evaluate import conditional
from ..instructions.table import Opcode
from .instances import Coupled, Instances, conjuncts, margin_of
from .rows import Rows, StridedAccess, grouped

PADDED, OTHERS = (1, 2), (0, 3)  # the loops of a copy that may have a border, and the other loops


def bordered_load(value: tirx.Expr) -> tuple[tirx.Expr, TensorLoad, tirx.Expr] | None:
    """Return (condition, element inside, value outside) of a value that is loaded within a border."""
    branches = conditional(value)
    if branches is None or not isinstance(branches[1], TensorLoad):
        return None
    return branches[0], branches[1], branches[2]


def inside_of(found: Instances, condition: tirx.Expr) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return whether any part of each instance meets the condition, and from where to where each inner loop does:
    bool[instances], int64[instances, inner loops] twice. Raises Coupled if the region is not a box."""
    low, high = np.zeros_like(found.extents), found.extents.copy()
    some = np.ones(len(found), dtype=bool)
    for part in conjuncts(condition):
        space = margin_of(part)
        if space is None:
            raise Coupled
        start, steps = found.affine(space)  # the condition requires this to be positive
        bounded = [number for number, step in enumerate(steps) if step]
        if not bounded:
            some &= start > 0
        elif len(bounded) > 1:
            raise Coupled
        elif (step := steps[bounded[0]]) > 0:
            low[:, bounded[0]] = np.maximum(low[:, bounded[0]], -start // step + 1)
        else:
            high[:, bounded[0]] = np.minimum(high[:, bounded[0]], -(-start // -step))
    return some & (low < high).all(axis=1), low, high


def record_bordered_load(
    found: Instances,
    rows: Rows,
    queue: str,
    source: StridedAccess,
    target: StridedAccess,
    box: tuple[np.ndarray, np.ndarray],
    border: float,
    copies: tuple[int, int] | None = None,
) -> None:
    """Record LOADs of the `box` (start and end of each inner loop) of every instance, within `border`. `copies` =
    (count, elements between them) writes several copies."""
    low, high = box
    padded = [loop for loop in range(len(found.inner)) if (low[:, loop] > 0).any() or _short(found, high, loop)]
    others = OTHERS if copies is None else OTHERS[:-1]
    groups = grouped(found, (source, target), len(PADDED) + len(others), alone=padded)
    if groups is None or len(padded) > len(PADDED) or len(groups) - len(padded) > len(others):
        raise Coupled
    loops: list[list[int]] = [[], [], [], []]
    for places, some in ((PADDED, True), (others, False)):
        own = [group for group in groups if (group[0] in padded) == some]
        for place, group in zip(places, own, strict=False):
            loops[place] = group
    pad = np.zeros((len(found), 4), dtype=np.int32)
    for place, loop in zip(PADDED, padded, strict=False):
        pad[:, 2 * place - 2] = low[:, loop]
        pad[:, 2 * place - 1] = found.extents[:, loop] - high[:, loop]
    first = source.start + (low * np.array(source.steps, dtype=np.int64)).sum(axis=1) * source.kind.bytes
    part = replace(found, extents=high - low)
    moved = replace(source, start=first)
    rows.add(part, Opcode.LOAD, queue, loops, a=moved, c=target, pad=pad, immediate=(border, 0.0))
    if copies is not None:
        rows.tables[-1]["extent"][:, OTHERS[-1]] = copies[0]
        rows.tables[-1]["c_stride"][:, OTHERS[-1]] = copies[1]


def _short(found: Instances, high: np.ndarray, loop: int) -> bool:
    return bool((high[:, loop] < found.extents[:, loop]).any())


def those(found: Instances, kept: np.ndarray) -> Instances:
    """Return the instances that `kept` marks."""
    part = replace(found)
    part.only(kept)
    return part


def accesses_of(access: StridedAccess, kept: np.ndarray) -> StridedAccess:
    """Return the access pattern restricted to the marked instances."""
    return replace(access, start=access.start[kept])
