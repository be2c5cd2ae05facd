"""Blocks of the column engine as COLMV instructions (design page 04).

Their innermost loops iterate over rows of a matrix and over its columns; the vector does not depend on the row. The
annotations "vsim.ep" and "vsim.vp" give the columns and rows that the engine processes at once.
"""

from __future__ import annotations

import numpy as np

from ..instructions.table import Opcode
from ..program.isa import Flag
from .buffers import Places
from .engines import operands_of_product, records_start, starts_sum
from .instances import Coupled, Instances
from .rows import Rows, grouped


def record_column(found: Instances, places: Places, rows: Rows, queue: str) -> None:
    """Record a block of the engine "column": c[row] = c[row] + matrix[row, column] * vector[column], or the constant
    that initialises such sums."""
    if records_start(found, places, rows, queue):
        return
    left, right, target = operands_of_product(found, places)
    groups = grouped(found, (left, right, target), len(found.inner)) or []
    if any(right.steps[group[-1]] and target.steps[group[-1]] for group in groups):
        left, right = right, left
    over_rows = [group for group in groups if target.steps[group[-1]]]
    over_columns = [group for group in groups if not target.steps[group[-1]]]
    if any(right.steps[group[-1]] for group in over_rows):
        raise found.nest.refuse(
            f"block {found.leaf.name!r} multiplies two matrices on the column engine; expected a matrix by a vector"
        )
    if len(over_rows) > 1 or len(over_columns) > 3:
        raise Coupled
    ep, vp = (_annotation(found, name) for name in ("vsim.ep", "vsim.vp"))
    rows.add(
        found,
        Opcode.COLMV,
        queue,
        [*(over_rows or [[]]), [], [], *([[]] * (3 - len(over_columns))), *over_columns],
        a=left,
        b=right,
        c=target,
        flags=np.where(starts_sum(found), 0, int(Flag.ACCUMULATE)).astype(np.uint8),
        immediate=(float(ep), float(vp)),
    )


def _annotation(found: Instances, name: str) -> int:
    value = found.leaf.annotation(name)
    if not isinstance(value, int) or value < 1:
        raise found.nest.refuse(
            f"block {found.leaf.name!r} has {name} = {value!r}; expected a whole number of at least 1"
        )
    return value
