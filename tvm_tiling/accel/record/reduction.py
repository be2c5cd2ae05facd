"""Blocks of the vector engine that reduce: a FILL with the initial value, then ALUs that accumulate in place."""

from __future__ import annotations

from dataclasses import replace

from tvm import tirx

from ...hardware.machine import Machine
from ...hardware.vector_functions import Function
from ...match.reduction import reduction_of
from ..instructions.table import Opcode
from .border import accesses_of, those
from .buffers import EXTERNAL, Places
from .engines import COPY_LOOPS, begins, record_fill
from .instances import Coupled, Instances
from .rows import Rows, access, grouped


def record_reduction(found: Instances, places: Places, rows: Rows, queue: str, machine: Machine) -> None:
    """Record a block of the engine "vector" with an initial value. UnsupportedOperator names what the engine lacks."""
    nest, leaf, store = found.nest, found.leaf, found.leaf.block.body
    reduction = reduction_of(leaf.block.init, store)
    if reduction is None or not isinstance(store, tirx.BufferStore):
        raise nest.refuse(
            f"block {leaf.name!r} is not a reduction of buffer elements by +, max or min from a constant "
            "initial value; expected those reductions"
        )
    source = access(found, places, reduction.element.source, reduction.element.indices)
    target = access(found, places, store.buffer, store.indices)
    if EXTERNAL in (source.memory, target.memory):
        raise nest.refuse(
            f"block {leaf.name!r}: the vector engine reduces to or from external memory; expected on-chip buffers"
        )
    engine = machine.vector
    _refuse(found, machine, "function", reduction.function, engine.functions)
    for kind in (source.kind, target.kind):
        _refuse(found, machine, "type", kind.name.lower(), engine.dtypes)
    groups = grouped(found, (source, target), COPY_LOOPS)
    if groups is None:
        raise Coupled
    reduced = [loop for loop, step in enumerate(target.steps) if not step]
    if source.kind != target.kind and not (found.extents[:, reduced] > 1).any(axis=1).all():
        raise nest.refuse(
            f"block {leaf.name!r} converts single elements of {source.kind.name}; expected reductions of "
            "several elements"
        )
    starts = begins(found)
    if starts.any():
        once = those(found, starts)
        once = replace(once, extents=once.extents.copy())
        once.extents[:, reduced] = 1
        record_fill(once, rows, queue, accesses_of(target, starts), reduction.start)
    # If the loops of an instruction do not reduce, its second operand is the partial result.
    second = target if source.kind == target.kind else None
    rows.add(
        found,
        Opcode.ALU,
        queue,
        groups,
        number=1,
        a=source,
        b=second,
        c=target,
        function=int(Function[reduction.function.upper()]),
    )


def _refuse(found: Instances, machine: Machine, what: str, name: str, known: tuple[str, ...]) -> None:
    if known and name not in known:
        raise found.nest.refuse(
            f"block {found.leaf.name!r} needs the {what} {name}, which the vector engine of "
            f"{machine.hardware.name} does not support; expected {', '.join(known)}"
        )
