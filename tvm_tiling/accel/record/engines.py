"""Blocks as instructions of the transfer and matrix engines: LOAD, STORE, FILL and GEMM."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import tirx
from tvm.ir import TensorLoad

from ...match.access import multiplied, strip_cast
from ..instructions.table import Opcode
from ..program.isa import Flag
from .border import accesses_of, bordered_load, inside_of, record_bordered_load, those
from .buffers import EXTERNAL, Places
from .instances import Coupled, Instances
from .rows import Rows, StridedAccess, access, grouped

COPY_LOOPS = 4  # of LOAD, STORE, FILL and ALU


def record_copy(found: Instances, places: Places, rows: Rows, queue: str) -> None:
    """Record a block of the engines "load" and "store": buffer[...] = other[...], or a constant."""
    nest, leaf, store = found.nest, found.leaf, found.leaf.block.body
    if not isinstance(store, tirx.BufferStore) or leaf.block.init is not None:
        raise nest.refuse(f"block {leaf.name!r} must load or store; expected one copy of an element")
    target = access(found, places, store.buffer, store.indices)
    if constant(store.value) is not None:
        record_fill(found, rows, queue, target, constant(store.value) or 0.0)
        return
    within = bordered_load(store.value)
    element = store.value if within is None else within[1]
    if not isinstance(element, TensorLoad):
        raise nest.refuse(f"block {leaf.name!r} must load or store, but computes {store.value}; expected a plain copy")
    source = access(found, places, element.source, element.indices)
    if source.kind != target.kind:
        raise nest.refuse(f"block {leaf.name!r} copies {source.kind.name} to {target.kind.name}; expected equal types")
    if (source.memory == EXTERNAL) == (target.memory == EXTERNAL):
        raise nest.refuse(
            f"block {leaf.name!r} copies from memory {source.memory!r} to {target.memory!r}; expected one of them "
            f"{EXTERNAL!r}, the other on the chip"
        )
    if within is not None:
        _record_bordered(found, rows, queue, source, target, within)
        return
    loops = _copy_loops(found, (source, target))
    op = Opcode.LOAD if source.memory == EXTERNAL else Opcode.STORE
    rows.add(found, op, queue, loops, a=source, c=target)


def _record_bordered(
    found: Instances,
    rows: Rows,
    queue: str,
    source: StridedAccess,
    target: StridedAccess,
    within: tuple[tirx.Expr, TensorLoad, tirx.Expr],
) -> None:
    """Record a load within a border: instances entirely outside are filled, the others loaded."""
    condition, _, outside = within
    border = constant(outside)
    if border is None or source.memory != EXTERNAL:
        raise found.nest.refuse(
            f"block {found.leaf.name!r} copies where {condition}, otherwise takes {outside}; expected loads "
            "from external memory within a border of one constant"
        )
    some, low, high = inside_of(found, condition)
    if not some.all():
        nothing = ~some
        record_fill(those(found, nothing), rows, queue, accesses_of(target, nothing), border)
    if some.any():
        box = low[some], high[some]
        record_bordered_load(
            those(found, some), rows, queue, accesses_of(source, some), accesses_of(target, some), box, border
        )


def records_start(found: Instances, places: Places, rows: Rows, queue: str) -> bool:
    """Record the block if it stores a constant that initialises sums. Return whether it does."""
    store = found.leaf.block.body
    assert isinstance(store, tirx.BufferStore)
    value = constant(store.value)
    if value is None:
        return False
    record_fill(found, rows, queue, access(found, places, store.buffer, store.indices), value)
    return True


def record_fill(found: Instances, rows: Rows, queue: str, target: StridedAccess, value: float) -> None:
    """Set every element of `target` to `value`."""
    loops = _copy_loops(found, (target,))
    rows.add(found, Opcode.FILL, queue, loops, number=0, c=target, immediate=(value, 0.0))


def _copy_loops(found: Instances, accesses: Sequence[StridedAccess]) -> list[list[int]]:
    loops = grouped(found, accesses, COPY_LOOPS)
    if loops is None:
        raise Coupled
    return loops


def constant(expr: tirx.Expr) -> float | None:
    """Return the value of a constant, with or without casts; None for anything else."""
    while isinstance(expr, tirx.Cast):
        expr = expr.value
    value = getattr(expr, "value", None)
    return float(value) if isinstance(value, (int, float)) else None


def record_product(found: Instances, places: Places, rows: Rows, queue: str) -> None:
    """Record a block of the matrix engine: c[...] = c[...] + a[...] * b[...], or the constant that initialises such a
    sum.

    The sum restarts where all reduction axes are at their first value and the block has an initial value, which must be
    0: this is the instruction without ACCUMULATE.
    """
    if records_start(found, places, rows, queue):
        return
    left, right, target = operands_of_product(found, places)
    loops = _product_loops(found, left, right, target)
    if loops is None:
        left, right = right, left
        loops = _product_loops(found, left, right, target)
    if loops is None:
        raise Coupled
    flags = np.where(starts_sum(found), 0, int(Flag.ACCUMULATE)).astype(np.uint8)
    rows.add(found, Opcode.GEMM, queue, loops, a=left, b=right, c=target, flags=flags)


def operands_of_product(found: Instances, places: Places) -> tuple[StridedAccess, StridedAccess, StridedAccess]:
    """Return the two factors of a sum of products and the sum, all on the chip."""
    nest, leaf, store = found.nest, found.leaf, found.leaf.block.body
    assert isinstance(store, tirx.BufferStore)
    target = access(found, places, store.buffer, store.indices)
    left, right = _factors(found, store)
    accesses = [access(found, places, load.source, load.indices) for load in (left, right)]
    for operand, load in zip((*accesses, target), (left.source, right.source, store.buffer), strict=True):
        if operand.memory == EXTERNAL:
            raise nest.refuse(
                f"block {leaf.name!r}: its engine uses {load.name} in external memory; expected on-chip "
                "buffers (cache_read, cache_write)"
            )
    if accesses[0].kind != accesses[1].kind:
        raise nest.refuse(
            f"block {leaf.name!r} multiplies {accesses[0].kind.name} by {accesses[1].kind.name}; expected equal types"
        )
    return accesses[0], accesses[1], target


def _factors(found: Instances, store: tirx.BufferStore) -> tuple[TensorLoad, TensorLoad]:
    value = _of_floats(store.value)
    terms = [value.a, value.b] if isinstance(value, tirx.Add) else []
    rest = [term for term in terms if not _is_load_of(_of_floats(term), store.buffer)]
    product = multiplied(_of_floats(rest[0])) if len(terms) == 2 and len(rest) == 1 else None
    factors = [strip_cast(f) for f in (product.a, product.b)] if product is not None else []
    if len(factors) != 2 or not all(isinstance(f, TensorLoad) for f in factors):
        raise found.nest.refuse(
            f"block {found.leaf.name!r} must accumulate products, but computes {store.value}; expected c = c "
            "+ a * b, both of them buffers"
        )
    return factors[0], factors[1]


def _is_load_of(expr: tirx.Expr, buffer: tirx.Buffer) -> bool:
    return isinstance(expr, TensorLoad) and expr.source.same_as(buffer)


def _of_floats(expr: tirx.Expr) -> tirx.Expr:
    """Strip conversions between float types: the engine accumulates in the type of its sums, whatever the source rounds
    to in between."""
    while isinstance(expr, tirx.Cast) and "float" in str(expr.ty) and "float" in str(expr.value.ty):
        expr = expr.value
    return expr


def _product_loops(found: Instances, a: StridedAccess, b: StridedAccess, c: StridedAccess) -> list[list[int]] | None:
    """Return the inner loops as m, n0, n1, k0, k1, k2; None if they do not fit."""
    kinds: dict[str, list[list[int]]] = {"m": [], "n": [], "k": []}
    for group in grouped(found, (a, b, c), len(found.inner)) or []:
        in_a, in_b, in_c = (operand.steps[group[-1]] != 0 for operand in (a, b, c))
        if in_c and in_b and not in_a:
            kind = "n"
        elif in_c and not in_b:
            kind = "m"
        elif not in_c:
            kind = "k"
        else:
            return None  # a batch axis: iterated outside the instruction
        kinds[kind].append(group)
    if len(kinds["m"]) > 1 or len(kinds["n"]) > 2 or len(kinds["k"]) > 3:
        return None
    m, n, k = kinds["m"], kinds["n"], kinds["k"]
    return [*(m or [[]]), *([[]] * (2 - len(n))), *n, *([[]] * (3 - len(k))), *k]


def starts_sum(found: Instances) -> np.ndarray:
    """Return where a sum of products starts from 0."""
    init = found.leaf.block.init
    if init is not None and (not isinstance(init, tirx.BufferStore) or constant(init.value) != 0):
        raise found.nest.refuse(
            f"block {found.leaf.name!r} starts its sum from a value other than 0; expected sums from 0"
        )
    return begins(found)


def begins(found: Instances) -> np.ndarray:
    """Return where a reduction starts: all reduction axes at their first value."""
    block = found.leaf.block
    starts = np.full(len(found), block.init is not None)
    for axis in block.iter_vars if block.init is not None else ():
        if int(axis.iter_type) == tirx.IterVar.CommReduce:
            first, _ = found.affine(axis.var)
            starts &= first == int(axis.dom.min)
    return starts
