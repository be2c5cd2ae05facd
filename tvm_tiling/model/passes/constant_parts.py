"""Parts of a graph that depend on constants only, computed once instead of in every run.

Exporters leave them in the graph: tables made by a small network (Swin v2), weights that are normalised before each use
(NFNet, wav2vec 2.0), projections of relative positions (DeBERTa), resized position embeddings. Simplification computes
the operators that NumPy has; here the kernels compute that would run.

A result replaces its computation if it is small, or no larger than the constants that it depends on, or than a sum on
the way. A broadcast constant, or a comparison of positions, remains: the kernel that reads it computes it faster than
it could read it from memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx

from ...match.described import description_of
from ...runtime.arrays import numpy_type
from .dataflow import Expr, array, is_op, replace_operands, rewrite, shape_of, static_shape
from .layout import CONVOLUTIONS

Compute: TypeAlias = Callable[[tvm.IRModule], Sequence[tvm.runtime.Tensor] | None]

_SMALL = 64 << 10  # bytes
_LARGEST = 256 << 20  # bytes, also of a value on the way
_LEAST = 1 << 18  # elements computed in every run, below which compiling the parts is not worth it
_MOST = 1e10  # multiply-adds, about a second

_SUMS = (
    *("matmul", *CONVOLUTIONS, "image.resize2d", "cumsum", "cumprod"),
    *("sum", "mean", "variance", "std", "max", "min", "prod"),
    *("nn.softmax", "nn.log_softmax", "nn.layer_norm", "nn.rms_norm", "nn.group_norm", "nn.instance_norm"),
)
# Matrix multiplications read the stored integers.
_STORED = ("quantize", "dequantize")


@dataclass(frozen=True)
class _Part:
    """A value that depends on constants only: these, by their identity, with their bytes; and the bytes of the largest
    sum on the way, itself included."""

    constants: frozenset[tuple[int, int]] = frozenset()
    sum_bytes: int = 0

    def pays(self, variable: relax.Var) -> bool:
        """Whether the value is kept instead of computed in every run."""
        size = _bytes(variable)
        return size is not None and size <= max(_SMALL, self.sum_bytes, sum(size for _, size in self.constants))


def with_constant_parts(mod: tvm.IRModule, compute: Compute) -> tvm.IRModule:
    """`mod` with constants in place of values of its function "main" that depend on constants only. `compute` returns
    the results of a function "main" without parameters, None if it cannot."""
    func = mod["main"]
    bound = {binding.var: binding.value for block in func.body.blocks for binding in block.bindings}
    parts: dict[relax.Var, _Part] = {}
    for variable, value in bound.items():
        part = _part(mod, variable, value, parts)
        if part is not None:
            parts[variable] = part
    read = set(relax.analysis.free_vars(func.body.body))
    chosen: list[relax.Var] = []
    for variable, value in reversed(bound.items()):
        if variable in read and variable in parts and parts[variable].pays(variable):
            chosen.append(variable)
        elif variable in read or variable not in parts:
            read.update(relax.analysis.free_vars(value))
    needed = _needed(bound, chosen)
    values = [value for variable, value in bound.items() if variable in needed]
    elements = [_elements(value) for value in values]
    if sum(elements) < _LEAST or max(elements) > _LARGEST // 4 or sum(map(_products, values)) > _MOST:
        return mod
    results = compute(_alone(mod, {v: value for v, value in bound.items() if v in needed}, chosen))
    if results is None:
        return mod
    known = {variable: relax.const(result) for variable, result in zip(chosen, results, strict=True)}
    return rewrite(mod, lambda _rewriter, variable, _value: known.get(variable))


def _part(mod: tvm.IRModule, variable: relax.Var, value: Expr, parts: dict[relax.Var, _Part]) -> _Part | None:
    """The constants that a value depends on; None if it depends on inputs, or is not to be computed ahead."""
    if isinstance(value, relax.Call):
        if not _is_computable(mod, value):
            return None
    elif not isinstance(value, relax.TupleGetItem | relax.Tuple):
        return None
    constants: frozenset[tuple[int, int]] = frozenset()
    sum_bytes = (_bytes(variable) or 0) if is_op(value, *_SUMS) else 0
    for operand in _operands(value):
        if isinstance(operand, relax.Var):
            if operand not in parts:
                return None
            constants |= parts[operand].constants
            sum_bytes = max(sum_bytes, parts[operand].sum_bytes)
        elif (known := array(operand)) is not None:
            constants |= {(known.ctypes.data, known.nbytes)}
        elif isinstance(operand, relax.ShapeExpr) and not all(isinstance(s, tirx.IntImm) for s in operand.values):
            return None
    return _Part(constants, sum_bytes)


def _is_computable(mod: tvm.IRModule, call: relax.Call) -> bool:
    """Whether a call with constant operands is computed ahead: it is pure, its results have a shape, and it is not a
    storage format that kernels read."""
    if not isinstance(call.op, tvm.ir.Op) or not call.op.get_attr("FPurity") or is_op(call, *_STORED):
        return False
    if any(static_shape(result) is None for result in _results(call.ty)):
        return False
    if is_op(call, "call_tir"):
        func = mod[call.args[0]]
        return len(call.args) == 2 and description_of(func) is None and not _reduces(func)
    return not call.op.name.startswith("relax.call_")


def _reduces(func: tirx.PrimFunc) -> bool:
    """Whether a function sums, so that its work is not known from the size of its results."""
    axes: list[tirx.IterVar] = []
    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, lambda block: axes.extend(block.iter_vars)))
    return any(axis.iter_type == tirx.IterVar.CommReduce for axis in axes)


def _operands(value: Expr) -> Iterator[Expr]:
    fields = [value.tuple_value] if isinstance(value, relax.TupleGetItem) else getattr(value, "fields", None)
    for operand in value.args if isinstance(value, relax.Call) else fields or ():
        if isinstance(operand, relax.Tuple):
            yield from operand.fields
        else:
            yield operand


def _results(kind: tvm.ir.Type) -> Iterator[tvm.ir.Type]:
    if isinstance(kind, relax.TupleType):
        for field in kind.fields:
            yield from _results(field)
    else:
        yield kind


def _bytes(variable: relax.Var) -> int | None:
    """The size of a tensor; None for a tuple."""
    shape = shape_of(variable)
    return None if shape is None else math.prod(shape) * numpy_type(str(variable.ty.dtype)).itemsize


def _elements(value: Expr) -> int:
    return (
        sum(math.prod(static_shape(each) or ()) for each in _results(value.ty)) if isinstance(value, relax.Call) else 0
    )


def _products(value: Expr) -> float:
    """The multiply-adds of a matrix multiplication or convolution."""
    if is_op(value, "matmul"):
        return float(_elements(value) * (shape_of(value.args[0]) or (1,))[-1])
    if is_op(value, *CONVOLUTIONS):
        return float(_elements(value) * math.prod((shape_of(value.args[1]) or (1,))[1:]))
    return 0.0


# ---- computing ------------------------------------------------------------------------------------------------------


def _needed(bound: dict[relax.Var, Expr], chosen: Sequence[relax.Var]) -> set[relax.Var]:
    """The variables from which `chosen` are computed, these included."""
    needed: set[relax.Var] = set()
    left = list(chosen)
    while left:
        variable = left.pop()
        if variable not in needed:
            needed.add(variable)
            left.extend(relax.analysis.free_vars(bound[variable]))
    return needed


def _alone(mod: tvm.IRModule, bound: dict[relax.Var, Expr], chosen: Sequence[relax.Var]) -> tvm.IRModule:
    """A module whose "main" has no parameters and returns the values of `chosen`."""
    builder = relax.BlockBuilder()
    renamed: dict[relax.Var, Expr] = {}
    with builder.function("main", []):
        with builder.dataflow():
            for variable, value in bound.items():
                renamed[variable] = builder.emit(replace_operands(value, renamed), variable.name)
            output = builder.emit_output(relax.Tuple([renamed[variable] for variable in chosen]))
        builder.emit_func_output(output)
    functions = {v: f for v, f in mod.functions.items() if v.name_hint != "main"}
    return tvm.IRModule({**functions, **dict(builder.finalize().functions)}, attrs=mod.attrs)
