"""Half precision for a float32 graph: operands of matrix multiplications and convolutions are stored in 16 bits,
everything else is computed in float32.

A tensor used as such an operand is rounded once, in the epilogue of its producer, and its other consumers use the
rounded values too, so that it is stored only in 16 bits. Transposed tensors, slices and maxima have the same values in
either type. Sums, biases, activations, normalisation and softmax are in float32, as are the model's inputs and outputs.
Recurrent layers have 16-bit weights and float32 states.
"""

from __future__ import annotations

from dataclasses import replace

import tvm
from tvm import relax
from tvm.relax import op

from ...lowering.recurrent_loops import recurrent_function
from ...match.recurrent import recurrence_of
from ..passes.dataflow import Expr, Rewriter, array, is_op, rewrite, shape_of
from ..passes.layout import CONVOLUTIONS
from ..passes.simplify import simplify

# Operators on one tensor whose results are elements of it. Kernels compare them in float32.
MOVES = ("reshape", "permute_dims", "squeeze", "expand_dims", "flatten", "strided_slice")
SAME_NUMBERS = (*MOVES, "nn.max_pool2d")


def in_half(mod: tvm.IRModule, dtype: str, *, dots: bool) -> tvm.IRModule:
    """`mod`, simplified, with the matrix multiplication operands in its function "main" stored in `dtype`, one of
    HALVES. `dots`: the CPU has a dot product instruction for it."""
    return simplify(rewrite(mod, _Halves(mod, dtype, dots)))


class _Halves:
    """Inserts a rounding after every tensor that is multiplied. `halves`: their 16-bit values."""

    def __init__(self, mod: tvm.IRModule, dtype: str, dots: bool) -> None:
        self.mod, self.dtype, self.dots = mod, dtype, dots
        self.kept = _kept(mod["main"], dots)
        self.halves: dict[Expr, Expr] = {}

    def __call__(self, rewriter: Rewriter, variable: relax.Var, value: Expr) -> Expr | None:
        if _multiplies(value, self.dots):
            operands = [self._half(rewriter, argument) for argument in value.args]
            made = rewriter.emit(_wide(value, operands))
        elif is_op(value, *MOVES) and value.args[0] in self.halves:
            half = rewriter.emit(_call(value, [self.halves[value.args[0]], *value.args[1:]]))
            return self._widened(rewriter, half)
        elif is_op(value, "concat") and (parts := self._parts(rewriter, value)) is not None:
            half = rewriter.emit(op.concat(parts, value.attrs.axis))
            return self._widened(rewriter, half)
        else:
            recurrent = self._recurrent(rewriter, value)
            made = value if recurrent is None else recurrent
        if variable not in self.kept:
            return made
        return self._widened(rewriter, rewriter.emit(op.astype(rewriter.emit(made), self.dtype)))

    def _recurrent(self, rewriter: Rewriter, value: Expr) -> Expr | None:
        """A recurrent layer with 16-bit weights and unchanged states and gates; None for anything else."""
        if not is_op(value, "call_tir"):
            return None
        recurrence = recurrence_of(self.mod[value.args[0]])
        if recurrence is None or recurrence.stored != "float32":
            return None
        fields, place = list(value.args[1].fields), list(recurrence.inputs).index("weights")
        if array(fields[place]) is None:
            return None
        fields[place] = self._half(rewriter, fields[place])
        function = recurrent_function(replace(recurrence, stored=self.dtype)).without_attr("global_symbol")
        types = list(value.ty_args[0].fields)
        return relax.call_tir(
            rewriter.builder.add_func(function, f"recurrence_{self.dtype}"), relax.Tuple(fields), types
        )

    def _widened(self, rewriter: Rewriter, half: Expr) -> Expr:
        """The values of `half` in float32, which are only computed if they are used."""
        wide = rewriter.emit(op.astype(half, "float32"))
        self.halves[wide] = half
        return wide

    def _half(self, rewriter: Rewriter, operand: Expr) -> Expr:
        """An operand in 16 bits."""
        if operand in self.halves:
            return self.halves[operand]
        half = rewriter.emit(op.astype(operand, self.dtype))
        if array(operand) is None:
            self.halves[operand] = half
        return half

    def _parts(self, rewriter: Rewriter, value: Expr) -> list[Expr] | None:
        """The concatenated tensors in 16 bits; None if one of them is not available in 16 bits."""
        together = rewriter.value(value.args[0])
        parts = list(together.fields) if isinstance(together, relax.Tuple) else []
        return [self.halves[part] for part in parts] if parts and all(part in self.halves for part in parts) else None


def _kept(main: relax.Function, dots: bool) -> set[relax.Var]:
    """Variables whose values are multiplied, directly or in another order."""
    found: set[relax.Var] = set()
    for block in reversed(main.body.blocks):
        for binding in reversed(block.bindings):
            value = binding.value
            if _multiplies(value, dots):
                found |= {a for a in value.args if isinstance(a, relax.Var)}
            elif binding.var in found and is_op(value, *SAME_NUMBERS):
                found.add(value.args[0])
            elif binding.var in found and isinstance(value, relax.Var):
                found.add(value)
            elif binding.var in found and is_op(value, "concat") and isinstance(value.args[0], relax.Tuple):
                found |= {a for a in value.args[0].fields if isinstance(a, relax.Var)}
    return found


def _multiplies(value: Expr, dots: bool) -> bool:
    """Return whether a value is a float32 convolution or matrix multiplication with operands to round. Without dot
    product instructions, multiplications of two tensors, as in attention, stay in float32: they are read once from a
    cache, and would have to be widened again. So do depthwise convolutions, which use a widened value only once per
    tap."""
    if not is_op(value, *CONVOLUTIONS, "matmul") or any(str(a.ty.dtype) != "float32" for a in value.args):
        return False
    if is_op(value, "matmul"):
        return dots or any(array(a) is not None for a in value.args)
    kernels = shape_of(value.args[1])
    return kernels is None or kernels[str(value.attrs.kernel_layout).index("I")] > 1


def _wide(value: relax.Call, operands: list[Expr]) -> Expr:
    """A matrix multiplication or convolution of these operands with float32 accumulators and results."""
    if is_op(value, "matmul"):
        return op.matmul(*operands, out_dtype="float32")
    a = value.attrs
    make = {"nn.conv1d": op.nn.conv1d, "nn.conv2d": op.nn.conv2d, "nn.conv3d": op.nn.conv3d}[value.op.name[6:]]
    return make(
        *operands,
        strides=a.strides,
        padding=a.padding,
        dilation=a.dilation,
        groups=a.groups,
        data_layout=a.data_layout,
        kernel_layout=a.kernel_layout,
        out_layout=a.out_layout,
        out_dtype="float32",
    )


def _call(value: relax.Call, operands: list[Expr]) -> Expr:
    return relax.Call(value.op, operands, value.attrs, value.ty_args)
