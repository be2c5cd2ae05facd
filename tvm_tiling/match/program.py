"""The common part of matched programs: the output, and the epilogue fused to the sum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import tvm_ffi
from tvm import s_tir, sym, tirx
from tvm.ir import TensorLoad

from ..lowering.named_values import TOGETHER
from ..lowering.samples import Extent
from ..lowering.vector_math import holds_function, with_vector_math
from ..lowering.wrapping import plain_value
from ..operand_types import OPERAND_TYPES
from .access import Index, at_indices, bind, compares_indices, loads, substitute
from .evaluate import shortest
from .function import refuse

Value: TypeAlias = Callable[[tirx.Expr], tirx.Expr]

LARGEST_PRODUCT = {"int8": 128 * 128, "uint8": 255 * 255, "int16": 1 << 30}


@dataclass(frozen=True)
class MatchedProgram:
    """A sum of products whose result is stored once, with a fused epilogue. The axes depend on the kind of program."""

    func: tirx.PrimFunc
    name: str
    out: tirx.Buffer
    out_indices: tuple[tirx.Expr, ...]  # in terms of the variables in `out_axes`
    out_axes: tuple[tuple[tirx.Var, ...], ...]  # the variables of each fused axis, outermost first
    out_extents: tuple[tuple[Extent, ...], ...]
    value: Value  # accumulator -> stored value, over `out_axes`
    has_epilogue: bool

    @property
    def out_dtype(self) -> str:
        return str(self.out.dtype)

    def reads(self, buffer: tirx.Buffer | None) -> int:
        """The number of expressions in the function that read `buffer`."""
        found: list[TensorLoad] = []

        def note(load: TensorLoad) -> None:
            if load.source.same_as(buffer):
                found.append(load)

        tvm_ffi.structural_walk(self.func.body, (TensorLoad, note))
        return len(found)

    def out_at(self, *indices: Index) -> list[tirx.Expr]:
        """Indices into `out` of the element at fused `indices`, one per axis."""
        mapping = bind(self.out_axes, self.out_extents, indices)
        return [substitute(e, mapping) for e in self.out_indices]

    def result(self, accumulator: tirx.Expr, *indices: Index) -> tirx.Expr:
        """The value stored at fused `indices`: the epilogue applied to the final accumulator, in the output's type.

        Math functions are expanded: kernels store vectors, and a vector of calls would be scalarised.
        """
        place = bind(self.out_axes, self.out_extents, indices)
        kind = str(accumulator.ty)
        if kind not in self._plain_results:
            self._plain_results[kind] = self._plain_result(kind)
        plain = self._plain_results[kind]
        if plain is not None:
            total, value = plain
            return substitute(value, {total: accumulator, **place})
        return with_vector_math(self._typed(at_indices(self.value(accumulator), place)))

    @cached_property
    def stored_together(self) -> int:
        """The number of vectors whose results kernels compute at once: several if a result takes functions."""
        return TOGETHER if holds_function(self.value(tirx.Var("total", "float32"))) else 1

    def _typed(self, value: tirx.Expr) -> tirx.Expr:
        return value if str(value.ty) == self.out_dtype else tirx.Cast(self.out_dtype, value)

    @cached_property
    def _plain_results(self) -> dict[str, tuple[tirx.Var, tirx.Expr] | None]:
        """A cache by accumulator type, because kernels request the result for each vector."""
        return {}

    def _plain_result(self, kind: str) -> tuple[tirx.Var, tirx.Expr] | None:
        """A variable for an accumulator of this type and its stored value, over `out_axes`; None if more than variable
        substitution is needed."""
        total = tirx.Var("total", kind)
        value = self._typed(self.value(total))
        return (total, value) if not compares_indices(value) and with_vector_math(value).same_as(value) else None


def operand_types(name: str, left: str, right: str) -> dict[str, Any]:
    """The type fields of a workload with such operands."""
    if left != right and {left, right} != {"uint8", "int8"}:
        raise refuse(name, f"its operands are {left} and {right}; expected one type")
    if left not in OPERAND_TYPES:
        raise refuse(name, f"operands of type {left} are not supported; expected {', '.join(OPERAND_TYPES)}")
    return {"dtype": left, "b_dtype": right}


def acc_dtype(name: str, types: dict[str, Any], sum_type: str, terms: int) -> str | None:
    """The accumulator type of a workload whose source adds `terms` products in `sum_type`; None for the default one.

    Sums of a type narrower than the default are rounded to it at the end. Integers accumulate in int32; a source that
    accumulates in more bits, or in floats, is rejected if the sum could exceed int32.
    """
    if types["dtype"] not in LARGEST_PRODUCT:
        return "float64" if sum_type == "float64" else None
    dtype = max(types.values(), key=LARGEST_PRODUCT.__getitem__)
    largest = terms * LARGEST_PRODUCT[dtype]
    wraps = "int" in sum_type and not sum_type.endswith("64")  # like int32, and so does its truncation
    if not wraps and largest >= 2**31:
        raise refuse(name, f"{terms} products of {dtype} may exceed int32, but accumulate in {sum_type}")
    return None


def write_back(
    name: str, block: s_tir.SBlock, epilogue: s_tir.SBlock | None
) -> tuple[tirx.Buffer, tuple[tirx.Expr, ...], Value]:
    """The destination of the sum of `block`: the buffer, its indices, and the stored value as a function of an
    accumulator."""
    store = block.body
    if epilogue is None:
        return store.buffer, tuple(store.indices), lambda accumulator: accumulator
    out, indices, template = _fused_epilogue(name, block, epilogue)
    sum_type = str(store.buffer.dtype)

    def value(accumulator: tirx.Expr) -> tirx.Expr:
        return template(accumulator if str(accumulator.ty) == sum_type else tirx.Cast(sum_type, accumulator))

    return out, indices, value


def _is_one(axis: tirx.IterVar) -> bool:
    """Return whether an axis has a single index, regardless of dynamic dimensions."""
    return isinstance(axis.dom.extent, tirx.IntImm) and int(axis.dom.extent) == 1


def _check_use(name: str, epilogue: s_tir.SBlock, stored: tirx.Expr, produced: tirx.Buffer) -> None:
    """Raise UnsupportedOperator if `stored` does not depend on the sum, so that TVM would fold it."""
    still = {v.var: tirx.const(0, str(v.var.ty)) for v in epilogue.iter_vars if _is_one(v)}
    if still and not any(
        load.source.same_as(produced) for load in loads(shortest(substitute(plain_value(stored), still)))
    ):
        raise refuse(name, f"block {epilogue.name_hint!r} after the sum of products does not depend on it")


def _fused_epilogue(
    name: str, block: s_tir.SBlock, epilogue: s_tir.SBlock
) -> tuple[tirx.Buffer, tuple[tirx.Expr, ...], Value]:
    """The last block, rewritten over the variables of the sum: its output, indices, and stored value as a function of
    an accumulator."""
    produced = block.body.buffer
    last = epilogue.body
    if not isinstance(last, tirx.BufferStore):
        raise refuse(name, f"block {epilogue.name_hint!r} after the sum of products is not element-wise")
    reads = [load for load in loads(last.value) if load.source.same_as(produced)]
    read = reads[0].indices
    own = {v.var for v in epilogue.iter_vars if not _is_one(v)}
    one_place = all(tvm_ffi.structural_equal(x, y) for load in reads for x, y in zip(load.indices, read, strict=True))
    if not one_place or not own <= {i for i in read if isinstance(i, tirx.Var)}:
        raise refuse(
            name, f"block {epilogue.name_hint!r} after the sum of products does not read it element by element"
        )
    one = tirx.IntImm("int64", 1)
    extents = {v.var: v.dom.extent for v in (*block.iter_vars, *epilogue.iter_vars)}
    for theirs, ours in zip(read, block.body.indices, strict=True):
        wanted, summed = (extents.get(i, one) if isinstance(i, tirx.Var) else one for i in (theirs, ours))
        if not sym.Analyzer().can_prove_equal(wanted, summed):
            raise refuse(
                name,
                f"block {epilogue.name_hint!r} after the sum of products writes {wanted} elements for "
                f"{summed} of its sums",
            )
    mapping = {
        theirs: ours for theirs, ours in zip(read, block.body.indices, strict=True) if isinstance(theirs, tirx.Var)
    }
    mapping.update((v.var, tirx.IntImm("int32", 0)) for v in epilogue.iter_vars if v.var not in mapping)
    indices = tuple(substitute(i, mapping) for i in last.indices)
    stored = last.value
    _check_use(name, epilogue, stored, produced)

    def value(accumulator: tirx.Expr) -> tirx.Expr:
        done = tvm_ffi.structural_map(
            stored,
            (TensorLoad, lambda load: accumulator if load.source.same_as(produced) else load),
        )
        return substitute(done, mapping)

    return last.buffer, indices, value
