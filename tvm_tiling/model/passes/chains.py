"""Chains of cells: the unrolled steps of one sequence.

A cell continues another one if its state is the output of that cell, and everything else is the same: the computation
of the gates, their weights, their biases. Inputs may differ. A chain is as long as possible.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace

from ...decide.rnn.recurrence import GATES
from .cells import Cell, Graph, Part, Product, Sum
from .dataflow import shape_of


@dataclass(frozen=True)
class Side:
    """The input part or the state part of a gate's sum: matrix multiplications in `products`, biases in `rows`, and
    other terms in `others`."""

    products: tuple[Product, ...] = ()
    rows: tuple[Part, ...] = ()
    others: tuple[Part, ...] = ()


@dataclass(frozen=True, eq=False)
class Step:
    """A cell with a known state: matrix multiplications of the `state` by gate, `inputs` by gate, `inner` rows that a
    GRU's reset gate multiplies; `sources` of the inputs' matrix multiplications, the same for every gate."""

    cell: Cell
    before: Part
    state: dict[str, Product]
    inputs: dict[str, Side]
    inner: tuple[Part, ...]
    sources: tuple[Part, ...]
    signature: Hashable


def chains(graph: Graph) -> list[list[Step]]:
    """All chains of at least two cells; no cell is in two chains."""
    by_state: dict[Part, list[Cell]] = {}
    found: list[list[Step]] = []
    ends: dict[Part, list[Step]] = {}  # by h of the last step
    for cell in graph.cells():
        chain = _continued(graph, cell, ends) or _begun(graph, cell, by_state)
        by_state.setdefault(cell.h, []).append(cell)
        if chain is None:
            continue
        if len(chain) == 2:
            found.append(chain)
        else:
            del ends[chain[-2].cell.h]
        ends[cell.h] = chain
    return found


def _continued(graph: Graph, cell: Cell, ends: dict[Part, list[Step]]) -> list[Step] | None:
    """The chain that the cell continues, including the cell."""
    for state in cell.states():
        chain = ends.get(state)
        step = None if chain is None or not _follows(chain[-1].cell, cell) else step_of(graph, cell, state)
        if chain is not None and step is not None and step.signature == chain[-1].signature:
            chain.append(step)
            return chain
    return None


def _begun(graph: Graph, cell: Cell, by_state: dict[Part, list[Cell]]) -> list[Step] | None:
    """A chain of the cell and its predecessor."""
    for state in cell.states():
        for earlier in by_state.get(state, ()):
            step = step_of(graph, cell, state) if _follows(earlier, cell) else None
            for start in earlier.states() if step is not None else ():
                first = step_of(graph, earlier, start)
                if step is not None and first is not None and first.signature == step.signature:
                    return [first, step]
    return None


def _follows(earlier: Cell, later: Cell) -> bool:
    return earlier.kind == later.kind and (later.c_before is None or later.c_before == earlier.c)


def step_of(graph: Graph, cell: Cell, before: Part) -> Step | None:
    """`cell` with `before` as h; None if that does not form a cell."""
    hidden, rows = before.end - before.start, _rows(before)
    if not before.whole or not cell.h.whole or cell.h.end != hidden or rows != _rows(cell.h):
        return None
    state: dict[str, Product] = {}
    inputs: dict[str, Side] = {}
    inner: tuple[Part, ...] = ()
    for gate in GATES[cell.kind]:
        total = cell.sums[gate]
        source, own = before, total
        if gate == "n" and cell.inner is not None:
            if len(cell.inner.products) != 1 or cell.inner.others:
                return None
            inner, own = cell.inner.rows, Sum(cell.inner.products)
        elif gate == "n" and cell.reset is not None:
            source = cell.reset
        products = own.of(source)
        if len(products) != 1 or products[0].columns != hidden:
            return None
        state[gate] = products[0]
        left = total.products if own is not total else total.without(source)
        inputs[gate] = Side(left, total.rows, total.others)
    sources = tuple(product.source for product in inputs[GATES[cell.kind][0]].products)
    for side in inputs.values():
        if tuple(product.source for product in side.products) != sources or before in sources:
            return None
        if any(part.end - part.start != hidden or _rows(part) != rows for part in side.others):
            return None
    if any(_rows(source) != rows or not source.whole for source in sources):
        return None
    inputs = {gate: _with_rows(side, rows) for gate, side in inputs.items()}
    signature = (
        cell.kind,
        cell.activation,
        cell.inner is None,
        hidden,
        rows,
        tuple(_product_key(graph, state[gate]) for gate in state),
        tuple(_side_key(graph, side) for side in inputs.values()),
        tuple(_row_key(graph, row) for row in inner),
    )
    return Step(cell, before, state, inputs, inner, sources, signature)


def _with_rows(side: Side, rows: int) -> Side:
    """Treat one-dimensional parameters as biases: for a single sequence, a bias that is not constant looks like any
    other tensor."""
    if rows != 1:
        return side
    biases = tuple(part for part in side.others if len(shape_of(part.tensor) or ()) == 1)
    return replace(side, rows=(*side.rows, *biases), others=tuple(part for part in side.others if part not in biases))


def _rows(part: Part) -> int:
    count = 1
    for extent in (shape_of(part.tensor) or ())[:-1]:
        count *= extent
    return count


def _product_key(graph: Graph, product: Product) -> Hashable:
    return graph.key(product.weights), product.first, product.start, product.end, product.columns


def _row_key(graph: Graph, row: Part) -> Hashable:
    return graph.key(row.tensor), row.start, row.end


def _side_key(graph: Graph, side: Side) -> Hashable:
    products: Iterable[Hashable] = (_product_key(graph, product) for product in side.products)
    return tuple(products), tuple(_row_key(graph, row) for row in side.rows), len(side.others)
