"""Recognition of single steps of LSTM, GRU and plain RNN in a graph, as unrolled by exporters.

A tensor is treated as rows by columns, with the last axis as columns; reshapes, splits and slices that preserve this
order are transparent. Each sigmoid or tanh is applied to a sum of matrix multiplications by weights, rows that are the
same in every step (biases), and other terms. A cell is recognised by the computation of its gates, not by their layout
in the weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from itertools import product as combinations
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import relax

from .dataflow import Expr, array, ints, is_op, shape_of

_VIEWS = ("reshape", "squeeze", "expand_dims", "flatten")
_ADDENDS = 16  # of one sum, more than any cell has


@dataclass(frozen=True)
class Part:
    """Columns [start, end) of a tensor."""

    tensor: Expr
    start: int
    end: int

    @property
    def whole(self) -> bool:
        return (self.start, self.end) == (0, (shape_of(self.tensor) or (0,))[-1])


@dataclass(frozen=True)
class Product:
    """`source` times the rows [first, first + its columns) and columns [start, end) of `weights`."""

    source: Part
    weights: Expr
    first: int
    start: int
    end: int

    @property
    def columns(self) -> int:
        """Number of columns of the source."""
        return self.source.end - self.source.start


@dataclass(frozen=True)
class Sum:
    """Terms of a gate: matrix multiplications, rows that are constant or broadcast, and other tensors."""

    products: tuple[Product, ...] = ()
    rows: tuple[Part, ...] = ()
    others: tuple[Part, ...] = ()

    def of(self, source: Part) -> list[Product]:
        return [product for product in self.products if product.source == source]

    def without(self, source: Part) -> tuple[Product, ...]:
        return tuple(product for product in self.products if product.source != source)


@dataclass(frozen=True, eq=False)
class Cell:
    """One step. `sums` by gate, with the letters of a Recurrence; `inner` is the term that a GRU's reset gate
    multiplies, or None if it multiplies the state. `before` is h before the step, None if any source of a matrix
    multiplication may be it; `c` and `c_before` belong to an LSTM."""

    kind: str
    h: Part
    sums: dict[str, Sum]
    before: Part | None = None
    inner: Sum | None = None
    activation: str = "tanh"
    c: Part | None = None
    c_before: Part | None = None
    reset: Part | None = field(default=None)  # r * h, if the reset gate multiplies the state

    def states(self) -> list[Part]:
        """Candidates for h before the step."""
        if self.before is not None:
            return [self.before]
        return list(dict.fromkeys(product.source for product in next(iter(self.sums.values())).products))


class Graph:
    """The bindings of a function, and its tensors as parts of each other."""

    def __init__(self, func: relax.Function) -> None:
        self.bindings = tuple(binding for block in func.body.blocks for binding in block.bindings)
        self.bound = {b.var: b.value for b in self.bindings if not isinstance(b, relax.MatchCast)}
        self._digests: dict[Any, str] = {}

    def value(self, expr: Expr) -> Expr:
        """The value bound to a variable, or the expression itself."""
        return self.bound.get(expr, expr) if isinstance(expr, relax.Var) else expr

    # ---- views ------------------------------------------------------------------------------------------------------

    def part(self, expr: Expr, start: int = 0, end: int | None = None) -> Part | None:
        """Columns of `expr` as columns of the tensor that computes them; None if its shape is unknown."""
        shape = shape_of(expr)
        if not shape:
            return None
        stop = shape[-1] if end is None else end
        while (found := self._step(expr)) is not None:
            expr, offset = found
            start, stop = start + offset, stop + offset
        return Part(expr, start, stop)

    def _step(self, expr: Expr) -> tuple[Expr, int] | None:
        """The tensor of which `expr` is a view, and its first column there."""
        value, shape = self.value(expr), shape_of(expr)
        if value is expr or not shape:
            return None
        if isinstance(value, relax.Var):
            return value, 0
        if isinstance(value, relax.TupleGetItem):
            return self._item(value)
        if not is_op(value, *_VIEWS, "permute_dims", "strided_slice"):
            return None
        source = value.args[0]
        before = shape_of(source)
        if not before:
            return None
        if is_op(value, *_VIEWS):
            return (source, 0) if before[-1] == shape[-1] and prod(before) == prod(shape) else None
        if is_op(value, "permute_dims"):
            axes = ints(value.attrs.axes) if value.attrs.axes is not None else tuple(reversed(range(len(before))))
            moved = [axis for axis in axes if before[axis] > 1]
            last = axes[-1] == len(before) - 1
            return (source, 0) if last and moved == sorted(moved) else None
        slices = sliced(value)
        if slices is None:
            return None
        others = {axis: span for axis, span in slices.items() if span != (0, before[axis])}
        first = others.pop(len(before) - 1, (0, 0))[0]
        return None if others else (source, first)

    def _item(self, value: relax.TupleGetItem) -> tuple[Expr, int] | None:
        source = self.value(value.tuple_value)
        if isinstance(source, relax.Tuple):
            return source.fields[value.index], 0
        if is_op(source, "nn.dropout") and value.index == 0:
            return source.args[0], 0
        if is_op(source, "split"):
            whole = shape_of(source.args[0])
            if whole and int(source.attrs.axis) % len(whole) == len(whole) - 1:
                return source.args[0], places(source, whole[-1])[value.index]
        return None

    def element(self, expr: Expr) -> tuple[Expr, int, int] | None:
        """(tensor, axis, index) if `expr` is one index of an axis of a tensor, with the other axes complete."""
        found = self.part(expr)
        if found is None or not found.whole:
            return None
        value = self.value(found.tensor)
        if isinstance(value, relax.TupleGetItem):
            source = self.value(value.tuple_value)
            shape = shape_of(source.args[0]) if is_op(source, "split") else None
            if not shape:
                return None
            axis = int(source.attrs.axis) % len(shape)
            starts = places(source, shape[axis])
            return (source.args[0], axis, value.index) if starts == list(range(shape[axis])) else None
        if is_op(value, "take") and value.attrs.axis is not None:
            place, shape = array(value.args[1]), shape_of(value.args[0])
            if place is None or place.size != 1 or not shape:
                return None
            axis = int(value.attrs.axis) % len(shape)
            return value.args[0], axis, int(place.reshape(())) % shape[axis]
        if is_op(value, "strided_slice"):
            shape, slices = shape_of(value.args[0]), sliced(value)
            slices = {a: s for a, s in (slices or {}).items() if shape and s != (0, shape[a])}
            if len(slices) == 1:
                ((axis, (start, end)),) = slices.items()
                return (value.args[0], axis, start) if end == start + 1 else None
        return None

    # ---- sums -------------------------------------------------------------------------------------------------------

    def sum(self, part: Part) -> Sum | None:
        """The terms of a part; None if there are more than a gate has."""
        products: list[Product] = []
        rows: list[Part] = []
        others: list[Part] = []
        shape = shape_of(part.tensor)
        front = [part]
        while front:
            if not shape or len(front) + len(products) + len(rows) + len(others) > _ADDENDS:
                return None
            one = front.pop()
            value = self.value(one.tensor)
            if is_op(value, "add"):
                for operand in value.args:
                    own = shape_of(operand)
                    if not own or own[-1] != (shape_of(one.tensor) or (0,))[-1]:
                        return None
                    addend = self.part(operand, one.start, one.end)
                    assert addend is not None
                    broadcast = prod(own[:-1]) < prod(shape[:-1])
                    if broadcast or isinstance(addend.tensor, tvm.ir.GenericConst):
                        if prod(own[:-1]) != 1:
                            return None
                        rows.append(addend)
                    else:
                        front.append(addend)
            elif is_op(value, "matmul") and len(shape_of(value.args[1]) or ()) == 2:
                products += self._products(value, one)
            else:
                others.append(one)
        return Sum(tuple(reversed(products)), tuple(reversed(rows)), tuple(reversed(others)))

    def _products(self, matmul: relax.Call, part: Part) -> Iterator[Product]:
        """One matrix multiplication, or one for each tensor concatenated in its left operand."""
        left, weights = matmul.args
        source = self.part(left)
        assert source is not None  # operands of a matrix multiplication have shapes
        beside = self.value(source.tensor)
        shape = shape_of(source.tensor) or ()
        last = is_op(beside, "concat") and beside.attrs.axis is not None
        if not last or int(beside.attrs.axis) % len(shape) != len(shape) - 1 or not source.whole:
            yield Product(source, weights, 0, part.start, part.end)
            return
        first = 0
        for operand in self.value(beside.args[0]).fields:
            own = self.part(operand)
            if own is not None:
                yield Product(own, weights, first, part.start, part.end)
            first += (shape_of(operand) or (0,))[-1]

    # ---- equality ---------------------------------------------------------------------------------------------------

    def key(self, expr: Expr) -> Hashable:
        """A key that is equal for expressions with the same value for all inputs."""
        if isinstance(expr, tvm.ir.GenericConst):
            tensor = expr.value
            if tensor not in self._digests:
                value = np.asarray(array(expr), order="C")
                digest = hashlib.blake2b(value.reshape(-1).view(np.uint8).data)
                digest.update(str(value.shape).encode())
                self._digests[tensor] = digest.hexdigest()
            return self._digests[tensor]
        value = self.value(expr)
        if is_op(value, *_VIEWS, "permute_dims", "strided_slice", "broadcast_to"):
            return value.op.name, str(value.attrs), shape_of(expr), *map(self.key, value.args)
        if isinstance(value, relax.Tuple):
            return tuple(map(self.key, value.fields))
        return expr if isinstance(expr, relax.Var) else str(expr)

    # ---- cells ------------------------------------------------------------------------------------------------------

    def cells(self) -> Iterator[Cell]:
        """Every step of a cell in the function, in order."""
        for binding in self.bindings:
            value = binding.var if isinstance(binding, relax.MatchCast) else binding.value
            if not is_op(value, "multiply", "add", "tanh", "nn.relu") or str(value.ty.dtype) != "float32":
                continue
            h = self.part(binding.var)
            if h is None:
                continue
            if is_op(value, "multiply"):
                yield from self._lstm(h, value)
            elif is_op(value, "add"):
                yield from self._gru(h, value)
            else:
                yield from self._rnn(h, value)

    def _operands(self, call: Expr) -> list[tuple[Part, Part]]:
        """The two operands of a call, in both orders."""
        found = [self.part(operand) for operand in call.args]
        if any(one is None for one in found) or len({shape_of(operand) for operand in call.args}) != 1:
            return []
        left, right = found
        return [(left, right), (right, left)]  # type: ignore[list-item]

    def _gate(self, part: Part, function: str) -> Sum | None:
        """The sum to which a function is applied; the part may be some of the function's columns."""
        value = self.value(part.tensor)
        if not is_op(value, function):
            return None
        below = self.part(value.args[0], part.start, part.end)
        return None if below is None else self.sum(below)

    def _calls(self, part: Part, *names: str) -> Expr | None:
        """The operator that computes the whole part."""
        value = self.value(part.tensor)
        return value if part.whole and is_op(value, *names) else None

    def _lstm(self, h: Part, value: Expr) -> Iterator[Cell]:
        """h = sigmoid(o) * tanh(c), c = sigmoid(f) * c + sigmoid(i) * tanh(g)."""
        for opened, through in self._operands(value):
            o, tanh = self._gate(opened, "sigmoid"), self._calls(through, "tanh")
            c = None if o is None or tanh is None else self.part(tanh.args[0])
            state = None if c is None else self._calls(c, "add")
            if state is None:
                continue
            for kept, new in self._operands(state):
                forget, enter = self._calls(kept, "multiply"), self._calls(new, "multiply")
                if forget is None or enter is None:
                    continue
                for (a, before), (b, inner) in combinations(self._operands(forget), self._operands(enter)):
                    f, i, g = self._gate(a, "sigmoid"), self._gate(b, "sigmoid"), self._gate(inner, "tanh")
                    if f is not None and i is not None and g is not None and o is not None:
                        yield Cell("lstm", h, {"i": i, "f": f, "g": g, "o": o}, c=c, c_before=before)

    def _rnn(self, h: Part, value: Expr) -> Iterator[Cell]:
        below = self.part(value.args[0])
        found = None if below is None else self.sum(below)
        if found is not None and len(found.products) + len(found.others) > 1:
            yield Cell("rnn", h, {"h": found}, activation="tanh" if is_op(value, "tanh") else "relu")

    def _gru(self, h: Part, value: Expr) -> Iterator[Cell]:
        """h = n + z * (h - n), or (1 - z) * n + z * h."""
        for first, second in self._operands(value):
            blended = self._calls(second, "multiply")
            for gate, of in self._operands(blended) if blended is not None else []:
                z = self._gate(gate, "sigmoid")
                if z is None:
                    continue
                difference = self._calls(of, "subtract")
                if difference is not None:
                    before, n = (self.part(operand) for operand in difference.args)
                    if n == first and before is not None:
                        yield from self._candidate(h, z, n, before)
                rest = self._calls(first, "multiply")
                for turned, n in self._operands(rest) if rest is not None else []:
                    if self._is_rest(turned, gate):
                        yield from self._candidate(h, z, n, of)

    def _is_rest(self, part: Part, gate: Part) -> bool:
        """Return whether a part is 1 - gate."""
        value = self._calls(part, "subtract")
        if value is None:
            return False
        one = array(value.args[0])
        return one is not None and bool((one == 1).all()) and self.part(value.args[1]) == gate

    def _candidate(self, h: Part, z: Sum, n: Part, before: Part) -> Iterator[Cell]:
        """n = tanh(x part + r * (h part)), or tanh(x part + (r * h) times weights)."""
        total = self._gate(n, "tanh")
        if total is None:
            return
        for place, other in enumerate(total.others):
            reset = self._calls(other, "multiply")
            for gate, of in self._operands(reset) if reset is not None else []:
                r, inner = self._gate(gate, "sigmoid"), self.sum(of)
                if r is not None and inner is not None and inner.products:
                    rest = Sum(total.products, total.rows, total.others[:place] + total.others[place + 1 :])
                    yield Cell("gru", h, {"r": r, "z": z, "n": rest}, before=before, inner=inner)
        for product in total.products:
            reset = self._calls(product.source, "multiply")
            for gate, of in self._operands(reset) if reset is not None else []:
                r = self._gate(gate, "sigmoid")
                if r is not None and of == before:
                    yield Cell("gru", h, {"r": r, "z": z, "n": total}, before=before, reset=product.source)


def places(split: relax.Call, extent: int) -> list[int]:
    """The start indices of the pieces of a split."""
    given = split.attrs.indices_or_sections
    if isinstance(given, (int, tvm.tirx.IntImm)):
        step = -(-extent // int(given))
        return list(range(0, extent, step))
    return [0, *ints(given)]


def sliced(call: relax.Call) -> dict[int, tuple[int, int]] | None:
    """[start, end) by axis of a strided_slice with steps of 1; None for other steps, or unknown ones."""
    shape = shape_of(call.args[0])
    axes, starts, ends = (getattr(argument, "fields", None) for argument in call.args[1:4])
    if not shape or axes is None or starts is None or ends is None:
        return None
    steps = call.args[4].fields if len(call.args) > 4 else []
    try:
        if any(int(step.value) != 1 for step in steps):
            return None
        found = {}
        for axis, start, end in zip(axes, starts, ends, strict=True):
            place = int(axis.value) % len(shape)
            extent = shape[place]
            low, high = (int(v.value) + (extent if int(v.value) < 0 else 0) for v in (start, end))
            found[place] = (min(max(low, 0), extent), min(max(high, 0), extent))
    except AttributeError:
        return None
    return found
