"""The configurations of a shape that are worth measuring: the neighbourhood of the decision, minus what a named limit
rejects."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from ...decide.configs.config import Blocks, Config
from ...decide.configs.neighbourhood import neighbourhood
from ...decide.gemm.traffic import operand_bytes
from ...errors import DatabaseError
from ...hardware.description import Hardware
from ...hardware.memory import Level
from ...workload import GemmWorkload
from .kept_config import tiling_if_possible
from .key import Workload
from .padding import points_of

MOST = 8
Limit = Callable[[Config, Workload, Hardware], bool]


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """The remaining configurations, the decision's own first and then by predicted cost, and how many each limit
    rejected."""

    configs: tuple[Config, ...]
    refused: Mapping[str, int]


def candidates(
    workload: Workload,
    hardware: Hardware,
    *,
    limit: int = MOST,
    prepacked: bool = False,
    limits: Mapping[str, Limit] | None = None,
) -> Candidates:
    """Return up to `limit` configurations of a shape that pass all `limits` (default: LIMITS).

    The decision's own configuration is always included. HardwareError if the machine does not support the shape,
    UnsupportedOperator if no algorithm does.
    """
    if type(limit) is not int or limit < 1:
        raise DatabaseError(f"candidates = {limit!r}; expected a whole number of at least 1")
    space = neighbourhood(workload, hardware, prepacked=prepacked)
    kept, refused = [space.start], dict.fromkeys(LIMITS if limits is None else limits, 0)
    for config in space.configs():
        if len(kept) == limit:
            break
        if config == space.start:
            continue
        name = refused_by(config, workload, hardware, LIMITS if limits is None else limits)
        if name is None:
            kept.append(config)
        else:
            refused[name] += 1
    return Candidates(configs=tuple(kept), refused=refused)


def refused_by(config: Config, workload: Workload, hardware: Hardware, limits: Mapping[str, Limit]) -> str | None:
    """Return the first limit that a configuration violates, or None."""
    return next((name for name, keeps in limits.items() if not keeps(config, workload, hardware)), None)


# ---- limits ----------------------------------------------------------------------------------------------------------
#
# They apply to the blocks of the storage levels in the machine description; CPU cache blocks are not limited.


def capacity(config: Config, workload: Workload, hardware: Hardware) -> bool:
    """Return whether the smallest share of the operands' blocks that each instance of a level holds fits its
    capacity."""
    for level, blocks, instances in _levels(config, hardware):
        left, right = (
            -(-math.prod(extents) * each // instances)
            for extents, each in zip((blocks.left, blocks.right), operand_bytes(workload), strict=True)
        )
        if level.bytes is not None and max(left, right) > level.bytes:
            return False
        if level.bytes is None and (left > level.capacity("a") or right > level.capacity("b")):
            return False
    return True


def alignment(config: Config, workload: Workload, hardware: Hardware) -> bool:
    """Return whether blocks are whole units of their level, or cover the whole axis."""
    rows, columns, depth = _whole(workload)
    return not any(
        extent % unit and extent < whole
        for level, blocks, _ in _levels(config, hardware)
        for extent, whole, unit in (
            (blocks.left[0], rows, level.unit_m),
            (blocks.right[1], columns, level.unit_n),
            (blocks.left[1], depth, level.unit_k),
        )
    )


def nesting(config: Config, workload: Workload, hardware: Hardware) -> bool:
    """Return whether the blocks of a level are multiples of those of the next one, except for an axis that they cover
    completely."""
    rows, columns, depth = _whole(workload)
    levels = [blocks for _, blocks, _ in _levels(config, hardware)]
    return not any(
        size < whole and size % piece
        for outer, inner in pairwise(levels)
        for size, piece, whole in (
            (outer.left[0], inner.left[0], rows),
            (outer.right[1], inner.right[1], columns),
            (outer.left[1], inner.left[1], depth),
        )
    )


def queue_depth(config: Config, workload: Workload, hardware: Hardware) -> bool:
    """Return whether the tiles loaded for one block of a level fit in a queue, so that the next block can be requested
    while this one is processed."""
    depth = None if hardware.queues is None else hardware.queues.depth
    levels = [blocks for _, blocks, _ in _levels(config, hardware)]
    return depth is None or not any(
        math.prod(getattr(outer, side)) > depth * math.prod(getattr(inner, side))
        for outer, inner in pairwise(levels)
        for side in ("left", "right")
    )


def software(config: Config, workload: Workload, hardware: Hardware) -> bool:
    """Return whether a schedule exists."""
    return tiling_if_possible(config, workload, hardware) is not None


LIMITS: Mapping[str, Limit] = {
    "capacity": capacity,
    "alignment": alignment,
    "nesting": nesting,
    "queue depth": queue_depth,
    "software": software,
}


def _levels(config: Config, hardware: Hardware) -> list[tuple[Level, Blocks, int]]:
    """Return the levels of the machine, outermost first, with their blocks and their number of instances."""
    blocks = {own.level: own for own in config.levels}
    found, instances = [], 1
    for level in hardware.levels:
        instances *= level.instances
        if level.name in blocks:
            found.append((level, blocks[level.name], instances))
    return found


def _whole(workload: Workload) -> tuple[int, int, int]:
    """Return rows, columns and depth of the matrix multiplication that an operator is equivalent to."""
    if isinstance(workload, GemmWorkload):
        return workload.m, workload.n, workload.k
    taps = workload.kd * workload.kh * workload.kw
    return workload.co // workload.groups, points_of(workload), workload.ci // workload.groups * taps
