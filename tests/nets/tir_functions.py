"""Random tensor-expression functions: unusual index maps, mixed types, casts everywhere, several stages.

Every decision is one of `Choices`, with 0 as the simplest, so that failures can be shrunk. A function is built twice
from the same choices: as it is, and `exact`, with float64 instead of every float.

Undefined operations are not drawn: casts of floats to integers, and comparisons that determine a choice, apply only to
elements of an input, which do not depend on the implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
from choices import Choices
from tvm import te, tirx
from tvm.ir import Call

SIZES = (3, 1, 2, 5, 7, 8, 9, 16, 17, 33)
FLOATS = ("float32", "float16", "bfloat16", "float64")
INTEGERS = ("int32", "int8", "uint8", "int16", "int64", "uint16", "uint32")
TYPES = (*FLOATS, *INTEGERS, "bool")
MOST_WORK = 60_000  # values that one stage computes, counting each term of a sum
MOST_ELEMENTS = 60_000  # of an input

Expr = tirx.Expr


@dataclass
class Drawn:
    """A function under construction. `tensors`: what later stages may read."""

    draw: Choices
    exact: bool
    inputs: list[te.Tensor] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)  # of the inputs, as they are drawn
    tensors: list[te.Tensor] = field(default_factory=list)
    floats: set[str] = field(default_factory=set)  # all float types in which something is computed
    guarded: bool = False  # some element is read conditionally
    extremes: bool = False  # a maximum or minimum occurs
    stages: int = 0

    def kind(self, name: str) -> str:
        if name in FLOATS:
            self.floats.add(name)
            return "float64" if self.exact else name
        return name


@dataclass(frozen=True)
class Function:
    """Inputs and outputs of a drawn function."""

    inputs: tuple[te.Tensor, ...]
    kinds: tuple[str, ...]
    outputs: tuple[te.Tensor, ...]
    floats: frozenset[str]
    guarded: bool
    extremes: bool


# ---- index maps --------------------------------

Range = tuple[Expr, int, int]  # an index, its smallest and its largest value


def _index(d: Drawn, axes: Sequence[tuple[Expr, int]]) -> Range:
    """Return one index over one or two axes; it starts at 0 or later."""
    draw = d.draw
    if not axes or draw.often(4):
        at = draw.below(3)
        return tirx.const(at, "int32"), at, at
    var, size = draw.one(axes)
    kind = draw.below(12)
    if kind == 7:
        return size - 1 - var, 0, size - 1
    if kind == 8:
        step, start = 1 + draw.below(3), draw.below(3)
        return var * step + start, start, (size - 1) * step + start
    if kind == 9 and len(axes) > 1:
        other, extent = draw.one(axes)
        step, gap = 1 + draw.below(3), 1 + draw.below(3)
        return var * step + other * gap, 0, (size - 1) * step + (extent - 1) * gap
    if kind == 10:
        by = 1 + draw.below(4)
        return tirx.floordiv(var, by), 0, (size - 1) // by
    if kind == 11:
        by = 1 + draw.below(4)
        return tirx.floormod(var, by), 0, min(by, size) - 1
    if kind == 6 and len(axes) > 1:
        other, extent = draw.one(axes)
        return var * extent + other, 0, size * extent - 1
    return var, 0, size - 1


def _read(d: Drawn, axes: Sequence[tuple[Expr, int]], kind: str, rank: int, plain: Sequence[int] | None) -> Expr:
    """Return an element of a new input or of an earlier stage, perhaps conditionally; `plain`: the axes that index
    it."""
    draw = d.draw
    if plain is not None:
        indices: list[Range] = [(axes[a][0], 0, axes[a][1] - 1) for a in plain]
    else:
        indices = [_index(d, axes) for _ in range(rank)]
    while len(indices) > 1 and np.prod([high + 1 for _, _, high in indices]) > MOST_ELEMENTS:
        indices.pop()
    earlier = [t for t in d.tensors if len(t.shape) == len(indices)]
    if earlier and draw.often(40):
        tensor = draw.one(earlier)
        sizes = [int(s) for s in tensor.shape]
        at = [tirx.floormod(i, s) if high >= s else i for (i, _, high), s in zip(indices, sizes, strict=True)]
        return tensor(*at)
    shape, at, inside = [], [], []
    for index, _, high in indices:
        beyond = draw.below(3) if draw.often(12) else 0  # outside of the input on either side
        size = max(1, high + 1 - 2 * beyond)
        shape.append(size)
        if beyond:
            inside += [index >= beyond, index < beyond + size]
            index = index - beyond
        at.append(index)
    tensor = te.placeholder(tuple(shape), d.kind(kind), f"in{len(d.inputs)}")
    d.inputs.append(tensor)
    d.kinds.append(kind)
    if not inside:
        return tensor(*at)
    d.guarded = True
    value = tirx.const(draw.one((0, 0, 1)), str(tensor.dtype))
    if draw.often(25):  # Select computes both sides, so that the index must be valid whatever the condition
        kept = [tirx.max(0, tirx.min(i, s - 1)) for i, s in zip(at, shape, strict=True)]
        return tirx.Select(tirx.all(*inside), tensor(*kept), value)
    return tirx.if_then_else(tirx.all(*inside), tensor(*at), value)


# ---- values --------------------------------


def _is_read(value: Expr) -> bool:
    """Return whether a value is an unmodified element of an input."""
    loads = isinstance(value, Call) and value.op.name == "te.tensor_load"
    return loads and isinstance(value.args[0].op, te.PlaceholderOp)


def _cast(d: Drawn, value: Expr, kind: str) -> Expr:
    """Return `value` in another type; floats only if they are elements of an input, within the range of integers."""
    source, target = str(value.ty), d.kind(kind)
    if source == target:
        return value
    if "float" in source and "float" not in target:
        if not _is_read(value):
            return value
        low = 0 if target.startswith(("uint", "bool")) else -50
        value = tirx.Max(tirx.Min(value, tirx.const(50, source)), tirx.const(low, source))
    if target == "bool":  # TVM's own conversion to it has no defined meaning
        return tirx.NE(value, tirx.const(0, source))
    if source == "bool" and "float" in target and target != "float32":
        value = tirx.Cast("float32", value)
    return tirx.Cast(target, value)


def _same(d: Drawn, a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Return both in one type, that of either, or float32 if neither can be converted to the other's."""
    one, other, either = str(a.ty), str(b.ty), d.draw.below(2)
    if one == other:
        return a, b
    if "float" in one and "float" not in other:
        return a, tirx.Cast(one, b) if other != "bool" else tirx.Cast(one, tirx.Cast("int32", b))
    if "float" in other and "float" not in one:
        return (tirx.Cast(other, a) if one != "bool" else tirx.Cast(other, tirx.Cast("int32", a))), b
    return (a, tirx.Cast(one, b)) if either == 0 else (tirx.Cast(other, a), b)


def _pair(d: Drawn, a: Expr, b: Expr) -> Expr:
    draw = d.draw
    a, b = _same(d, a, b)
    if str(a.ty) == "bool":
        return draw.one((tirx.And, tirx.Or, tirx.EQ, tirx.NE))(a, b)
    kind = draw.below(7)
    if kind in (2, 3):
        d.extremes = True
        return (tirx.Max if kind == 2 else tirx.Min)(a, b)
    return (tirx.Mul, tirx.Add, None, None, tirx.Sub, tirx.Mul, tirx.Add)[kind](a, b)


def _one(d: Drawn, a: Expr) -> Expr:
    draw, kind = d.draw, str(a.ty)
    step = draw.below(6)
    if kind == "bool":
        return tirx.Not(a) if step % 2 else tirx.Cast("int32", a)
    if step == 1:  # TVM's plain build assumes that a difference of unsigned numbers is not below 0
        by = tirx.const(1 + draw.below(5), kind)
        return a + by if kind.startswith("uint") else a - by
    if step == 2:
        d.extremes = True
        return tirx.Max(a, tirx.const(0, kind))
    if step == 3:
        d.extremes = True
        return tirx.Min(tirx.Max(a, tirx.const(0 if kind.startswith("uint") else -3, kind)), tirx.const(6, kind))
    if "float" in kind:
        if step == 4:
            wide = d.kind("float32")
            return draw.one((tirx.tanh, tirx.sigmoid))(a if kind == wide else tirx.Cast(wide, a))
        return a * tirx.const(0.5, kind)
    if step == 4:
        by = tirx.const(1 + draw.below(4), kind)
        return draw.one((tirx.floordiv, tirx.floormod, tirx.truncdiv, tirx.truncmod))(a, by)
    negated = step == 5 and not kind.startswith("uint")
    return tirx.Sub(tirx.const(0, kind), a) if negated else a + tirx.const(1, kind)


def _term(d: Drawn, axes: Sequence[tuple[Expr, int]], kinds: Sequence[str], rank: int) -> Expr:
    """Return a value over axes: one to three elements, with casts and steps before and after."""
    draw = d.draw
    value: Expr | None = None
    for _ in range(1 + draw.below(3)):
        element = _read(d, axes, draw.one(kinds), 1 + draw.below(rank), None)
        if draw.often(25):
            element = _cast(d, element, draw.one(TYPES))
        if draw.often(20):
            element = _one(d, element)
        value = element if value is None else _pair(d, value, element)
    assert value is not None
    if draw.often(25) and "float" not in str(value.ty):
        value = _cast(d, value, draw.one(TYPES))
    if draw.often(15):
        element = _read(d, axes, draw.one(kinds), 1, None)
        chosen = tirx.GT(element, tirx.const(0, str(element.ty))) if str(element.ty) != "bool" else element
        if _is_read(element):
            value = tirx.Select(chosen, value, tirx.const(1, str(value.ty)))
    return _one(d, value) if draw.often(20) else value


# ---- stages --------------------------------


def _extents(draw: Choices, count: int, most: int) -> list[int]:
    sizes = [draw.one(SIZES) for _ in range(count)]
    while np.prod(sizes) > most:
        sizes[int(np.argmax(sizes))] = 3
    return sizes


def _elementwise(d: Drawn) -> te.Tensor:
    draw = d.draw
    sizes = _extents(draw, 1 + draw.below(4), MOST_WORK)
    kinds = [draw.one(TYPES) for _ in range(2)]

    def value(*of: Expr) -> Expr:
        return _term(d, list(zip(of, sizes, strict=True)), kinds, 4)

    return _compute(d, sizes, value)


def _reduction(d: Drawn) -> te.Tensor:
    """Return a reduction of a term."""
    draw = d.draw
    sizes, summed = _extents(draw, draw.below(4), 2000), _extents(draw, 1 + draw.below(2), 60)
    kinds = [draw.one(TYPES) for _ in range(2)]
    how = draw.below(6)
    axes = [te.reduce_axis((0, size), f"r{n}_{d.stages}") for n, size in enumerate(summed)]

    def value(*of: Expr) -> Expr:
        places = [*zip(of, sizes, strict=True), *((axis.var, size) for axis, size in zip(axes, summed, strict=True))]
        term = _term(d, places, kinds, 4)
        if str(term.ty) == "bool":
            term = tirx.Cast("int32", term)
        if how in (3, 4):
            d.extremes = True
            return (te.max if how == 3 else te.min)(term, axis=axes)
        return te.sum(term, axis=axes)

    return _compute(d, sizes, value)


def _product(d: Drawn) -> te.Tensor:
    """Return something like a matrix multiplication or convolution: two operands, usually of one type, usually
    unmodified."""
    draw = d.draw
    convolves = draw.often(40)
    batch, rows, columns, depth = (
        (
            draw.one(
                ((),),
            )
            if draw.often(70)
            else (2,)
        ),
        draw.one(SIZES),
        draw.one(SIZES),
        draw.one(SIZES),
    )
    taps = draw.one((3, 1, 2, 5)) if convolves else 0
    step, gap, border = 1 + draw.below(2) * draw.below(3), 1 + draw.below(2) * draw.below(2), draw.below(3)
    kinds = [draw.one(TYPES[:-1])]
    kinds.append(draw.one(TYPES[:-1]) if draw.often(15) else kinds[0])
    casts = draw.below(6)
    between, total = draw.one(TYPES[:-1]), draw.one(TYPES[:-1])
    swapped, last = draw.often(20), draw.below(6)
    sizes = [*batch, rows, columns]
    k = te.reduce_axis((0, depth), f"k_{d.stages}")
    t = te.reduce_axis((0, taps), f"t_{d.stages}") if convolves else None
    strange = draw.often(25)

    def value(*of: Expr) -> Expr:
        places = list(zip(of, sizes, strict=True))
        b, i, j = places[:-2], places[-2], places[-1]
        if convolves:
            row = (i[0] * step + t.var * gap, (rows - 1) * step + (taps - 1) * gap + 1)
            left_axes, right_axes = [*b, row, (k.var, depth)], [(t.var, taps), (k.var, depth), j]
        else:
            left_axes, right_axes = [*b, i, (k.var, depth)], [*b[: draw.below(2)], (k.var, depth), j]
        operands = []
        for axes, kind in ((left_axes, kinds[0]), (right_axes, kinds[1])):
            order = list(range(len(axes)))
            if draw.often(40):
                order = order[::-1]
            if strange and draw.often(50):
                operands.append(_read(d, axes, kind, 4, None))
            elif convolves and axes is left_axes and border:
                operands.append(_bordered(d, axes, order, kind, len(b), border))
            else:
                operands.append(_read(d, axes, kind, len(axes), order))
        if draw.often(10):
            operands[0] = operands[0] - tirx.const(3, str(operands[0].ty))
        left, right = operands
        if casts in (1, 2):
            left, right = (_cast(d, operand, between if casts == 1 else total) for operand in (left, right))
        left, right = _same(d, left, right)
        term = tirx.Mul(right, left) if swapped else tirx.Mul(left, right)
        if casts in (3, 4) and "float" not in str(term.ty):
            term = _cast(d, term, total)
        elif casts in (3, 4) and "float" in total:
            term = tirx.Cast(d.kind(total), term)
        return te.sum(term, axis=[k] if t is None else [k, t] if last % 2 else [t, k])

    return _compute(d, sizes, value)


def _bordered(
    d: Drawn, axes: Sequence[tuple[Expr, int]], order: Sequence[int], kind: str, row: int, border: int
) -> Expr:
    """Return an element of an input with zeros around its rows."""
    shape = [max(1, axes[a][1] - (2 * border if a == row else 0)) for a in order]
    tensor = te.placeholder(tuple(shape), d.kind(kind), f"in{len(d.inputs)}")
    d.inputs.append(tensor)
    d.kinds.append(kind)
    d.guarded = True
    place = axes[row][0] - border
    size = shape[list(order).index(row)]
    at = [place if a == row else axes[a][0] for a in order]
    return tirx.if_then_else(tirx.all(place >= 0, place < size), tensor(*at), tirx.const(0, str(tensor.dtype)))


def _behind(d: Drawn, source: te.Tensor) -> te.Tensor:
    """Add element-wise operators to a stage: steps, a bias, another element, a conversion."""
    draw = d.draw
    sizes = [int(s) for s in source.shape]
    turned = draw.often(10) and len(sizes) > 1
    shape = sizes[::-1] if turned else sizes

    def value(*of: Expr) -> Expr:
        element: Expr = source(*(tuple(reversed(of)) if turned else of))
        for _ in range(1 + draw.below(3)):
            kind = draw.below(4)
            if kind == 1 and shape:
                axis = draw.below(len(shape))
                bias = _read(d, [(of[axis], shape[axis])], draw.one(TYPES), 1, [0])
                element = _pair(d, element, bias)
            elif kind == 2 and "float" not in str(element.ty):
                element = _cast(d, element, draw.one(TYPES))
            elif kind == 2 and draw.below(2):
                element = tirx.Cast(d.kind(draw.one(FLOATS)), element)
            else:
                element = _one(d, element)
        return element

    return _compute(d, shape, value)


def _compute(d: Drawn, sizes: Sequence[int], value: Callable[..., Expr]) -> te.Tensor:
    d.stages += 1
    tensor = te.compute(tuple(sizes), value, f"stage{d.stages}")
    d.tensors.append(tensor)
    return tensor


def _among(tensor: te.Tensor, tensors: Sequence[te.Tensor]) -> bool:
    return any(tensor.same_as(other) for other in tensors)


def draw_function(draw: Choices, exact: bool = False) -> Function:
    """Return a function of one to four stages; every stage that no other reads is an output, and perhaps one that is
    read."""
    d = Drawn(draw, exact)
    first = draw.one((_product, _product, _elementwise, _reduction))
    first(d)
    for _ in range(draw.below(4)):
        if draw.below(3) < 2:
            _behind(d, d.tensors[-1])
        else:
            draw.one((_elementwise, _reduction, _product))(d)
    read = [source for tensor in d.tensors for source in tensor.op.input_tensors]
    outputs = [t for t in d.tensors if not _among(t, read)]
    if draw.often(10) and not _among(d.tensors[0], outputs):
        outputs.insert(0, d.tensors[0])
    used = [t for t in d.inputs if _among(t, read)]
    kinds = [kind for t, kind in zip(d.inputs, d.kinds, strict=True) if _among(t, read)]
    return Function(tuple(used), tuple(kinds), tuple(outputs), frozenset(d.floats), d.guarded, d.extremes)


def numbers(function: Function, draw: Choices) -> list[np.ndarray]:
    """Return values of the inputs: all values of small integers; floats of moderate size, some with infinities or
    NaN."""
    rng = np.random.default_rng(draw.below(1 << 16))
    special = draw.one((None, None, None, np.inf, np.nan))
    found = []
    for tensor, kind in zip(function.inputs, function.kinds, strict=True):
        shape = tuple(int(s) for s in tensor.shape)
        if kind == "bool":
            array = rng.integers(0, 2, shape).astype(bool)
        elif kind in ("int8", "uint8", "int16", "uint16"):
            info = np.iinfo(kind)
            array = rng.integers(info.min, info.max, shape, endpoint=True, dtype=kind)
            array[rng.random(shape) < 0.2] = info.min
            array[rng.random(shape) < 0.2] = info.max
        elif "int" in kind:
            array = rng.integers(0 if kind[0] == "u" else -90, 90, shape).astype(kind)
        else:
            array = rng.uniform(-2, 2, shape).astype(ml_dtypes.bfloat16 if kind == "bfloat16" else kind)
            if special is not None and not function.guarded and not (function.extremes and np.isnan(special)):
                array[rng.random(shape) < 0.03] = special
        found.append(array)
    return found
