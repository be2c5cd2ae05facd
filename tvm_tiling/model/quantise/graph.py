"""Quantisation of tensors in a float32 graph: insertion of quantize and dequantize pairs.

For machines that only multiply integers, every tensor that integers can represent is quantised. CPUs have floats as
well: there, the operands of convolutions and matrix multiplications by weights are quantised, and their results on the
way to the next one through a sum, a mean or a reordering.

Weights are symmetric, with one scale per output channel. Other tensors have one scale, for integer machines from their
range over calibration data; their zero point is 0 there if they are padded by a convolution or multiplied by each
other, because the multipliers take the integers unchanged, and otherwise the one with the tightest range. For CPUs the
scale is the one with the least error (distribution.py), and a layer that still loses too much accuracy (loss.py) stays
in floats.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from ...frontend import ImportedModel
from ...frontend.node_names import names_in, numbers_of, without_mark
from ..kernel_cache import KernelCache
from ..passes.dataflow import Expr, Rewriter, array, constant, ints, is_op, rewrite, shape_of
from .chain import Chain, chain, is_pointwise
from .distribution import Distribution
from .integers import VIEWS
from .loss import decibels
from .ranges import ranges, tensors
from .scale import HIGH, Scale, quantised_weights, scale_of

SUMS = ("nn.conv2d", "matmul", "add", "subtract", "multiply", "mean", "nn.avg_pool2d", "nn.adaptive_avg_pool2d")
FUNCTIONS = ("nn.softmax", "nn.layer_norm")
LEAST_DECIBELS = 20.0  # minimum signal-to-noise ratio of a layer's results with 8-bit operands: an error of one tenth
SHARE = Scale(float(np.float32(1 / HIGH)))  # scale of softmax, whose results are in 0 .. 1


def with_quantised_tensors(imported: ImportedModel, mod: tvm.IRModule, calibration: Sequence[Any]) -> tvm.IRModule:
    """`mod`, simplified, whose "main" computes the same as `imported`, quantised by its ranges over `calibration`."""
    plan = _Plan(mod["main"])
    measured = dict(zip(plan.measured, ranges(imported, mod, plan.measured, calibration), strict=True))
    scales: dict[relax.Var, Scale] = {}
    for variable in plan.quantised:
        source = plan.sources.get(variable)
        if source is not None and source in scales:
            scales[variable] = scales[source]
        elif is_op(plan.bound.get(variable), "nn.softmax"):
            scales[variable] = SHARE
        else:
            low, high = measured[variable]
            scales[variable] = scale_of(low, high, variable in plan.symmetric)
    return rewrite(mod, _Pairs(scales, plan))


def with_quantised_products(
    imported: ImportedModel, mod: tvm.IRModule, calibration: Sequence[Any], cache: KernelCache | None = None
) -> tuple[tvm.IRModule, tuple[str, ...]]:
    """The same for a CPU, and the names of nodes that multiply by weights and stay in floats, because their inputs lose
    too much accuracy in 8 bits. `cache`: compiled kernels for running the model."""
    main = mod["main"]
    plan = _Plan(main, everything=False)
    taken = {value.args[0] for value in plan.bound.values() if is_product(value)}
    scales: dict[relax.Var, Scale] = {}
    lossy: set[relax.Var] = set()
    looked_at = [v for v in plan.quantised if v in taken or v not in plan.sources]
    for variable, arrays in tensors(imported, mod, looked_at, calibration, cache):
        source = plan.sources.get(variable)
        scale = scales[variable] = scales[source] if source in scales else Distribution.of(arrays).best_scale()
        for product in plan.uses.get(variable, ()):
            value = plan.bound[product]
            if is_product(value) and decibels(value, arrays, scale) < LEAST_DECIBELS:
                lossy.add(product)
    plan = _Plan(main, everything=False, floats=lossy)
    for variable in plan.quantised:  # views without a matrix multiplication as a consumer
        if variable not in scales:
            scales[variable] = scales[plan.sources[variable]]
    kept = {variable: scales[variable] for variable in plan.quantised}
    names = names_in(mod)
    left = dict.fromkeys(_shown(variable, names) for variable in plan.bound if variable in lossy)
    return rewrite(mod, _Pairs(kept, plan)), tuple(left)


def _shown(variable: relax.Var, names: Sequence[str]) -> str:
    """The nodes of a variable; its own name if there are none."""
    known = [names[number] for number in numbers_of(variable.name) if number < len(names)]
    return ", ".join(known) or without_mark(variable.name)


def is_product(value: Expr) -> bool:
    """Return whether a value is a convolution or matrix multiplication by float32 weights, of a matrix or an image."""
    if not is_op(value, "nn.conv2d", "matmul") or len(value.args) < 2:
        return False
    weights = array(value.args[1])
    return weights is not None and weights.dtype == np.float32 and (is_op(value, "nn.conv2d") or weights.ndim == 2)


class _Plan:
    """Decides which values become 8-bit values, and which of them share the scale of the tensor of which they are a
    view. `everything`: all that integers can represent; otherwise the operands of multiplications by weights, and their
    sources, except for the multiplications in `floats`."""

    def __init__(
        self, main: relax.Function, everything: bool = True, floats: Collection[relax.Var] = frozenset()
    ) -> None:
        self.floats = floats
        self.bound: dict[relax.Var, Expr] = {}
        self.uses: dict[relax.Var, list[relax.Var]] = {}
        order: list[relax.Var] = list(main.params)
        for block in main.body.blocks:
            for binding in block.bindings:
                self.bound[binding.var] = binding.value
                order.append(binding.var)
                for used in relax.analysis.free_vars(binding.value):
                    self.uses.setdefault(used, []).append(binding.var)
        self.outputs = set(relax.analysis.free_vars(main.body.body))
        self.inner = self._inner(order) if everything else set()
        self.wanted = None if everything else self._wanted(order)
        self.sources: dict[relax.Var, relax.Var] = {}
        kept: dict[relax.Var, None] = {}
        for variable in order:
            if self._is_quantised(variable, kept):
                kept[variable] = None
                call = self.lookup(variable)
                if is_op(call, *VIEWS) and not is_op(call, "concat") and call.args[0] in kept:
                    self.sources[variable] = call.args[0]
        self.quantised = tuple(kept)
        self.symmetric = self._symmetric()
        self.measured = [
            v for v in self.quantised if v not in self.sources and not is_op(self.bound.get(v), "nn.softmax")
        ]

    def lookup(self, expr: Expr) -> Expr:
        return self.bound.get(expr, expr) if isinstance(expr, relax.Var) else expr

    def chain(self, variable: relax.Var) -> Chain:
        """The chain that ends in a variable."""
        return chain(variable, self.lookup, array)

    def _once(self, variable: relax.Var) -> bool:
        return len(self.uses.get(variable, ())) == 1 and variable not in self.outputs

    def _inner(self, order: Sequence[relax.Var]) -> set[relax.Var]:
        """Intermediate values of a chain or an element-wise function that have no other uses."""
        inner: set[relax.Var] = set()
        for variable in reversed(order):
            if variable in inner or variable not in self.bound:
                continue
            found = self.chain(variable)
            # As long as each is used once; the rest of the chain belongs to another one.
            for passed in found.through:
                if not self._once(passed) or passed not in self.bound:
                    break
                if passed is found.through[-1] and not is_op(self.bound[passed], *SUMS):
                    break
                inner.add(passed)
        roots: dict[relax.Var, relax.Var] = {}
        for variable in order:
            roots[variable] = self._root(variable, roots, inner)
        for variable in order:
            users = self.uses.get(variable, ())
            together = users and all(roots[user] is roots[variable] for user in users)
            if together and roots[variable] is not variable and variable not in self.outputs:
                inner.add(variable)
        return inner

    def _root(self, variable: relax.Var, roots: dict[relax.Var, relax.Var], inner: set[relax.Var]) -> relax.Var:
        """The only tensor of which a value is an element-wise function; the value itself if there is none."""
        call = self.lookup(variable)
        if not is_pointwise(call) or variable in inner:
            return variable
        operands = [argument for argument in call.args if not _is_scalar(argument)]
        found = {roots[a] if isinstance(a, relax.Var) else a for a in operands}
        if len(found) != 1:
            return variable
        root = found.pop()
        # A continuation of a sum is computed with the sum.
        return variable if not isinstance(root, relax.Var) or any(a in inner for a in operands) else root

    def _wanted(self, order: Sequence[relax.Var]) -> set[relax.Var]:
        """The operands of multiplications by weights, the tensors of which they are views, and the terms of sums and
        means."""
        found: set[relax.Var] = set()
        for variable in reversed(order):
            call = self.bound.get(variable)
            if call is None:
                continue
            if is_product(call) and variable not in self.floats:
                found |= {a for a in call.args[:1] if isinstance(a, relax.Var)}
            if variable not in found:
                continue
            made = call if is_op(call, *VIEWS) else self.lookup(self.chain(variable).core)
            if is_op(made, *VIEWS, "mean", "nn.avg_pool2d", "nn.adaptive_avg_pool2d"):
                found |= {operand for operand in _operands(made, self.lookup) if isinstance(operand, relax.Var)}
            elif is_op(made, "add", "subtract") and not any(_is_known(a) for a in made.args):
                found |= {a for a in made.args if isinstance(a, relax.Var)}
        return found

    def _is_quantised(self, variable: relax.Var, kept: dict[relax.Var, None]) -> bool:
        """Return whether an operator uses its integers, or it is computed from integers."""
        dtype = str(getattr(variable.ty, "dtype", ""))
        if dtype != "float32" or shape_of(variable) is None or variable in self.inner:
            return False
        if self.wanted is not None:
            return variable in self.wanted
        if any(self._takes(user) for user in self.uses.get(variable, ())):
            return True
        call = self.bound.get(variable)
        if is_op(call, *VIEWS):
            return all(source in kept for source in _operands(call, self.lookup))
        return call is not None and is_op(self.lookup(self.chain(variable).core), *SUMS, "nn.layer_norm")

    def _takes(self, variable: relax.Var) -> bool:
        return is_op(self.bound[variable], *SUMS, *VIEWS, *FUNCTIONS) or is_pointwise(self.bound[variable])

    def _symmetric(self) -> set[relax.Var]:
        """Values with zero point 0: operands of multiplications of two tensors, and padded inputs of convolutions."""
        found: set[relax.Var] = set()
        for variable in reversed(list(self.bound)):
            call = self.bound[variable]
            if is_op(call, "nn.conv2d") and any(ints(call.attrs.padding)):
                found.add(call.args[0])
            elif is_op(call, "matmul") and not any(_is_known(a) for a in call.args):
                found |= set(call.args)
            elif variable in found and variable in self.sources:
                found.add(self.sources[variable])
        return found


def _operands(call: relax.Call, lookup: Any) -> list[Expr]:
    if not is_op(call, "concat"):
        return [call.args[0]]
    fields = lookup(call.args[0])
    return list(fields.fields) if isinstance(fields, relax.Tuple) else [call.args[0]]


def _is_known(expr: Expr) -> bool:
    return array(expr) is not None


def _is_scalar(expr: Expr) -> bool:
    value = array(expr)
    return (value is not None and value.size == 1) or isinstance(expr, tvm.tirx.FloatImm | tvm.tirx.IntImm)


class _Pairs:
    """Inserts a quantize and a dequantize after each value that has a scale, and before constants."""

    def __init__(self, scales: dict[relax.Var, Scale], plan: _Plan) -> None:
        self.scales, self.plan = scales, plan
        self.inputs: dict[relax.Var, Expr] = {}

    def __call__(self, rewriter: Rewriter, variable: relax.Var, value: Expr) -> Expr | None:
        if self._is_multiplied_in_8_bits(variable):
            value = self._in_8_bits(rewriter, value)
        scale = self.scales.get(variable)
        if scale is None:
            return value
        return _pair(rewriter, rewriter.emit(value), scale)

    def _is_multiplied_in_8_bits(self, variable: relax.Var) -> bool:
        if self.plan.wanted is None:
            return True
        call = self.plan.bound[variable]
        return is_product(call) and call.args[0] in self.scales and variable not in self.plan.floats

    def _in_8_bits(self, rewriter: Rewriter, value: Expr) -> Expr:
        """A call with inputs of the model, and weights, in 8 bits."""
        if not isinstance(value, relax.Call):
            return value
        arguments = list(value.args)
        for place, argument in enumerate(arguments):
            if isinstance(argument, relax.Var) and argument in self.scales and argument not in self.plan.bound:
                if argument not in self.inputs:
                    self.inputs[argument] = _pair(rewriter, argument, self.scales[argument])
                arguments[place] = self.inputs[argument]
        weights = array(arguments[1]) if len(arguments) > 1 else None
        if weights is not None and weights.dtype == np.float32:
            if is_op(value, "nn.conv2d"):
                arguments[1] = _weights(rewriter, weights, str(value.attrs.kernel_layout).index("O"))
            elif is_op(value, "matmul") and weights.ndim == 2:
                arguments[1] = _weights(rewriter, weights, 1)
        return relax.Call(value.op, arguments, value.attrs, value.ty_args)


def _pair(rewriter: Rewriter, value: Expr, scale: Scale) -> Expr:
    parameters = (relax.const(np.float32(scale.scale), "float32"), relax.const(scale.zero, "int8"))
    stored = rewriter.emit(relax.op.quantize(value, *parameters, axis=0, out_dtype="int8"))
    return rewriter.emit(relax.op.dequantize(stored, *parameters, axis=0, out_dtype="float32"))


def _weights(rewriter: Rewriter, values: np.ndarray, axis: int) -> Expr:
    q, scales = quantised_weights(values, axis)
    zeros = constant(np.zeros(len(scales), np.int8))
    return rewriter.emit(relax.op.dequantize(constant(q), constant(scales), zeros, axis=axis, out_dtype="float32"))
