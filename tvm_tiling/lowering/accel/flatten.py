"""Rewrites a matrix multiplication whose rows, columns or reduction axis consist of several loops, or none, to have
exactly one loop for each.

Blocks and the on-chip buffers between them then use fused axes, and only accesses to parameters contain divisions.
Since parameters are contiguous in memory, a division and its remainder recombine in the address.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TypeAlias

from tvm import s_tir, tirx

from ...match.access import loads
from .moves import Block

Groups: TypeAlias = Sequence[Sequence[tirx.Var]]  # the axes of the matrix multiplication: batch, m, n, k


def flatten_axes(
    sch: s_tir.Schedule, product: Block, loading: tuple[Block, Block], behind: Sequence[Block], groups: Groups
) -> None:
    """Fuse the axes of each group except the first: in the matrix multiplication, in the blocks that load its operands
    (a: batch, m, k; b: batch, n, k) and in the blocks of the epilogue, the first of which reads the sums."""
    names = [[variable.name for variable in group] for group in groups]
    batch, m, n, k = names
    block = sch.get(product)
    axes_of_product = [axis.var.name for axis in block.iter_vars]
    extents = {axis.var.name: int(axis.dom.extent) for axis in block.iter_vars}
    place = [index.name for index in block.body.indices]  # the axis of each dimension of the sums
    sums = block.body.buffer
    _flatten_behind(sch, sums, place, behind, [batch, m, n], extents)
    for load, of in zip(loading, ([batch, m, k], [batch, n, k]), strict=True):
        axes = [axis.var.name for axis in sch.get(load).iter_vars]
        own = [[name for name in group if name in axes] for group in of]
        sch.transform_block_layout(load, _fusing(axes, own, extents))
        sch.transform_layout(load, ("write", 0), _fusing([name for group in own for name in group], own, extents))
    sch.transform_layout(product, ("write", 0), _fusing(place, [batch, m, n], extents))
    sch.transform_block_layout(product, _fusing(axes_of_product, names, extents))


def _flatten_behind(
    sch: s_tir.Schedule,
    sums: tirx.Buffer,
    place: Sequence[str],
    behind: Sequence[Block],
    groups: Sequence[Sequence[str]],
    extents: dict[str, int],
) -> None:
    """Fuse the axes of the epilogue's blocks, each of which reads what the previous one wrote at its own axes."""
    found = []
    for after in behind:
        block = sch.get(after)
        read = next(load for load in loads(block.body.value) if load.source.same_as(sums))
        called = {index.name: name for index, name in zip(read.indices, place, strict=True)}
        axes = [called[axis.var.name] for axis in block.iter_vars]
        sums, place = block.body.buffer, [called[index.name] for index in block.body.indices]
        found.append((after, axes, place))
    for after, axes, written in found:
        sch.transform_block_layout(after, _fusing(axes, groups, extents))
        if after is not behind[-1]:
            sch.transform_layout(after, ("write", 0), _fusing(written, groups, extents))


def _fusing(axes: Sequence[str], groups: Sequence[Sequence[str]], extents: dict[str, int]) -> tirx.IndexMap:
    """Return the map from indices along `axes` to those of the first group and one index for each other group."""
    fresh = {name: tirx.Var(name, "int32") for name in axes}
    indices: list[tirx.Expr] = [fresh[name] for name in groups[0]]
    for group in groups[1:]:
        total: tirx.Expr = tirx.IntImm("int32", 0)
        for number, name in enumerate(group):
            total = total + fresh[name] * prod(extents[inner] for inner in group[number + 1 :])
        indices.append(total)
    return tirx.IndexMap([fresh[name] for name in axes], indices, None)
