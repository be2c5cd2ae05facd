"""The configurations of a shape that are worth measuring: all that are near the decision, less what a named limit
refuses."""

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
    """The configurations that are left, the decision's own first and then by predicted cost, and how many each limit
    refused."""

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
    """Up to `limit` cuts of a shape that pass all `limits`, LIMITS where they are left out.

    The decision's own configuration is always one of them. HardwareError where the machine cannot do it,
    UnsupportedOperator where no form serves it.
    """
    if type(limit) is not int or limit < 1:
        raise DatabaseError(f"candidates = {limit!r}, accepted: a whole number of at least 1")
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
    """The first limit that a configuration does not keep, None where it keeps all."""
    return next((name for name, keeps in limits.items() if not keeps(config, workload, hardware)), None)


# ---- limits ----------------------------------------------------------------------------------------------------------
#
# They look at the blocks of the storage levels that the machine describes; those of a CPU's caches no limit forces.


def capacity(config: Config, workload: Workload, hardware: Hardware) -> bool:
    """The share of the operands' blocks that each instance of a level has at least finds room in it."""
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
    """Blocks are whole units of their level, or all of an axis."""
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
    """Blocks of a level are whole multiples of those of the next one, but for an axis of which they are all."""
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
    """What is loaded for one block of a level is not more pieces than a queue holds, so that the next can be asked for
    while it is worked on."""
    depth = None if hardware.queues is None else hardware.queues.depth
    levels = [blocks for _, blocks, _ in _levels(config, hardware)]
    return depth is None or not any(
        math.prod(getattr(outer, side)) > depth * math.prod(getattr(inner, side))
        for outer, inner in pairwise(levels)
        for side in ("left", "right")
    )


def software(config: Config, workload: Workload, hardware: Hardware) -> bool:
    """There is a schedule for it."""
    return tiling_if_possible(config, workload, hardware) is not None


LIMITS: Mapping[str, Limit] = {
    "capacity": capacity,
    "alignment": alignment,
    "nesting": nesting,
    "queue depth": queue_depth,
    "software": software,
}


def _levels(config: Config, hardware: Hardware) -> list[tuple[Level, Blocks, int]]:
    """The levels of the machine, the outermost first, with their blocks and how many instances there are of them."""
    blocks = {own.level: own for own in config.levels}
    found, instances = [], 1
    for level in hardware.levels:
        instances *= level.instances
        if level.name in blocks:
            found.append((level, blocks[level.name], instances))
    return found


def _whole(workload: Workload) -> tuple[int, int, int]:
    """Rows, columns and depth of the matrix product that an operator is."""
    if isinstance(workload, GemmWorkload):
        return workload.m, workload.n, workload.k
    taps = workload.kd * workload.kh * workload.kw
    return workload.co // workload.groups, points_of(workload), workload.ci // workload.groups * taps
