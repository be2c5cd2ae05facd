"""One statement of a stage over the lanes of a vector.

Addresses that are contiguous along the lanes become vector loads, constant ones are broadcast. For a stride of two to
four, elements are selected from one long load by a shuffle. The rest is gathered element by element.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..match.access import loads, substitute, variables
from ..match.evaluate import conditional
from ..match.loop_axes import stride
from .extents import as_index, times
from .registers import register
from .samples import Extent, is_open
from .vector_math import (
    holds_bfloat16,
    holds_function,
    nested_functions,
    reads_bfloat16,
    rounded_functions,
    with_vector_math,
)

Expr: TypeAlias = tirx.Expr
Resolve: TypeAlias = Callable[[TensorLoad], Expr]
_MOST_STRIDE = 4


def resolved(expr: Expr, at: Mapping[tirx.Var, Expr], resolve: Resolve) -> Expr:
    """Return `expr` at the indices `at`, with its loads redirected to the actual buffers."""
    return tvm_ffi.structural_map(substitute(expr, dict(at)), (TensorLoad, resolve))


def constant(value: int, like: tirx.Var | None) -> Expr:
    """Return an integer constant of the type of an axis."""
    return tirx.const(value, str(like.ty) if like is not None else "int64")


def compute(
    expr: Expr,
    at: Mapping[tirx.Var, Expr],
    lane_axis: tirx.Var | None,
    width: int,
    resolve: Resolve,
    store: Callable[[Expr, Expr], None],
    held: Sequence[tuple[TensorLoad, tirx.Var]] = (),
) -> None:
    """Call store(value, lane) for each of `width` lanes along `lane_axis`, which starts at its position in `at`.

    `held` lists loads of `expr` whose lanes are in registers already.
    """
    part = _first_of_all(expr)
    if part is not None:
        kept = register(width, str(part.ty))
        compute(part, at, lane_axis, width, resolve, lambda value, lane: T.buffer_store(kept, value, [lane]), held)
        read = tirx.BufferLoad(kept, [tirx.const(0, "int32")])
        rest = tvm_ffi.structural_map(expr, (type(part), lambda e: read if tvm_ffi.structural_equal(e, part) else e))
        compute(rest, at, lane_axis, width, resolve, store, [*held, (read, kept)])
        return
    if lane_axis is None or width == 1:
        store(with_vector_math(resolved(expr, at, resolve)), tirx.const(0, "int32"))
        return
    staged = [*held, *_staged(expr, at, lane_axis, width, resolve)]
    zero, many = constant(0, lane_axis), constant(width, lane_axis)
    # TVM cannot store a vector whose lanes are one bfloat16.
    one_by_one = not variables(expr, {lane_axis}) and holds_bfloat16(expr)
    with T.serial(zero, many) if one_by_one else T.vectorized(zero, many) as lane:
        moved = {**at, lane_axis: at[lane_axis] + lane}

        def known(load: TensorLoad) -> Expr:
            for source, kept in staged:
                if tvm_ffi.structural_equal(source, load):
                    return kept[lane]
            return load

        # Staged loads are matched before their axes are replaced.
        early = tvm_ffi.structural_map(expr, (TensorLoad, known)) if staged else expr
        own = [kept for _, kept in staged]

        def elsewhere(load: TensorLoad) -> Expr:
            return load if any(load.source.same_as(kept) for kept in own) else resolve(load)

        store(with_vector_math(resolved(early, moved, elsewhere)), lane)


def _first_of_all(expr: Expr) -> Expr | None:
    """Return a part of `expr` that needs its own statement, with its values in a register; None if there is none.

    This is a function within another's argument. For functions of bfloat16 it is also the conversion of an element in
    memory to float32, and a value before its conversion to bfloat16: TVM does not look into named values, and cannot
    repeat them.
    """
    if not holds_function(expr):
        return None
    if isinstance(expr, tirx.Cast) and str(expr.ty) == "bfloat16":
        return expr.value
    if holds_choice(expr):
        return None
    parts = [*reads_bfloat16(expr), *nested_functions(expr), *rounded_functions(expr)]
    return parts[0] if parts else None


def _staged(
    expr: Expr, at: Mapping[tirx.Var, Expr], lane_axis: tirx.Var, width: int, resolve: Resolve
) -> list[tuple[TensorLoad, tirx.Var]]:
    """Return strided loads, each gathered into a register before the statement."""
    if holds_choice(expr):
        return []  # conditional reads may be out of bounds
    staged: list[tuple[TensorLoad, tirx.Var]] = []
    for load in loads(expr):
        step = stride(load.indices[0], lane_axis)
        if step is None or not 2 <= step <= _MOST_STRIDE or loads(load.indices[0]):
            continue
        if any(tvm_ffi.structural_equal(load, other) for other, _ in staged):
            continue
        first = resolved(load, at, resolve)
        dtype = str(load.ty)
        if dtype == "bool" or not isinstance(first, TensorLoad):
            continue
        kept = register(width, dtype)
        long = tirx.BufferLoad(first.source, [T.ramp(first.indices[0], constant(1, lane_axis), (width - 1) * step + 1)])
        T.buffer_store(kept, T.Shuffle([long], [step * lane for lane in range(width)]), [T.ramp(0, 1, width)])
        staged.append((load, kept))
    return staged


def holds_choice(expr: Expr) -> bool:
    """Return whether `expr` evaluates only one of two values, depending on a condition."""
    found: list[object] = []

    def note(node: Expr) -> None:
        if conditional(node) is not None and not isinstance(node, tirx.Select):
            found.append(node)

    tvm_ffi.structural_walk(expr, (tirx.Expr, note))
    return bool(found)


@contextlib.contextmanager
def loop(like: tirx.Var, first: Expr | int, end: Expr | int) -> Iterator[Expr]:
    """Open a loop over [first, end) whose index has the type of an axis.

    Its variable starts at 0: TVM's CanonicalizeLoop shifts other loops, but loses the bounds of inner loops that depend
    on the variable.
    """
    start, stop = _typed(first, like), _typed(end, like)
    if isinstance(start, tirx.IntImm) and int(start) == 0:
        with T.serial(start, stop) as variable:
            yield variable
    else:
        with T.serial(constant(0, like), stop - start) as variable:
            yield variable + start


def _typed(value: Expr | int, like: tirx.Var) -> Expr:
    if isinstance(value, int):
        return constant(value, like)
    return value if str(value.ty) == str(like.ty) else tirx.Cast(str(like.ty), value)


_OWN_MEMORY = "extern_scope"


def last_vectors(
    whole: Extent, rest: Extent, lanes: int, like: tirx.Var, emit: Callable[[Expr, int, Expr | None], None]
) -> None:
    """Call emit(start, width, done) for the `rest` elements after `whole` vectors of an axis.

    If their number is static, they form one vector. Otherwise a whole vector that ends with the axis repeats some
    elements: those below `done`. An axis shorter than a vector is covered by two vectors of half, a quarter ... of the
    lanes, as wide as fit, the second of which repeats elements likewise.

    Repeated elements must find their operands unchanged. TVM lets a buffer reuse the memory of one that an element-wise
    statement reads last, but not within a scope of this name.
    """
    behind = as_index(times(whole, lanes), like)
    if not is_open(rest):
        if int(rest):
            emit(behind, int(rest), None)
        return
    one, extent = constant(1, like), behind + rest
    if is_open(whole) or whole:
        # A loop with one or zero iterations: see by_edge().
        with (
            T.attr({_OWN_MEMORY: 1}),
            T.serial(constant(0, like), tirx.min(tirx.min(rest, as_index(whole, like)), one)),
        ):
            emit(extent - constant(lanes, like), lanes, behind)
    width = 1 << (lanes - 1).bit_length()
    while width > 1:
        width //= 2
        size = constant(width, like)
        # Two vectors if width < extent < 2 * width, one if extent = width.
        fits = tirx.Cast(str(like.ty), tirx.all(extent >= size, extent < constant(2 * width, like)))
        twice = tirx.Cast(str(like.ty), extent > size) if width > 1 else constant(0, like)
        with T.attr({_OWN_MEMORY: 1}), T.serial(constant(0, like), fits * (one + twice)) as turn:
            emit(turn * (extent - size), width, turn * size)


def on_last_task(task: Expr, tasks: int) -> T.frame.ForFrame:
    """Return a loop whose statements only the last task runs."""
    return T.serial(0, 1) if tasks == 1 else T.serial(0, tirx.max(0, task - (tasks - 2)))
