"""Random chains of integer arithmetic on values at the limits of their types: overflowing sums, zero divisors, the
lowest number, oversized shifts.

NumPy is the reference: a chain that divides by zero must be refused with one sentence, at compile time if the divisors
are constants, else at run time. All others give NumPy's results, which keep the lowest bits of overflowing values.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from case import Case
from tvm import relax

import tvm_tiling as tt

DTYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DRAWS = 4  # sets of inputs for each compiled model


def _towards_zero(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.floor_divide(a - np.fmod(a, b), b)


Function = Callable[..., Any]

# In NumPy, in Relax.
BINARY: dict[str, tuple[Function, Function]] = {
    "add": (np.add, relax.op.add),
    "subtract": (np.subtract, relax.op.subtract),
    "multiply": (np.multiply, relax.op.multiply),
    "bitwise_and": (np.bitwise_and, relax.op.bitwise_and),
    "bitwise_or": (np.bitwise_or, relax.op.bitwise_or),
    "bitwise_xor": (np.bitwise_xor, relax.op.bitwise_xor),
    "maximum": (np.maximum, relax.op.maximum),
    "minimum": (np.minimum, relax.op.minimum),
    "divide": (_towards_zero, relax.op.divide),
    "floor_divide": (np.floor_divide, relax.op.floor_divide),
    "mod": (np.fmod, relax.op.mod),
    "floor_mod": (np.remainder, relax.op.floor_mod),
    "left_shift": (np.left_shift, relax.op.left_shift),
    "right_shift": (np.right_shift, relax.op.right_shift),
}


def _chosen(name: str) -> tuple[Function, Function]:
    """Select one operand where the comparison `name` holds, the other elsewhere."""
    compared, in_relax = getattr(np, name), getattr(relax.op, name)
    return (
        lambda a, b: np.where(compared(a, b), b, a),
        lambda a, b: relax.op.where(in_relax(a, b), b, a),
    )


def _there_and_back(dtype: str) -> tuple[Function, Function]:
    return (
        lambda a: a.astype(dtype).astype(a.dtype),
        lambda a: relax.op.astype(relax.op.astype(a, dtype), str(a.ty.dtype)),
    )


for _name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
    BINARY[_name] = _chosen(_name)

UNARY: dict[str, tuple[Function, Function]] = {
    "negative": (np.negative, relax.op.negative),
    "abs": (np.abs, relax.op.abs),
    "relu": (lambda a: np.maximum(a, np.zeros_like(a)), relax.op.nn.relu),
    "square": (np.square, relax.op.square),
    "sum": (lambda a: np.sum(a, -1, a.dtype, keepdims=True), lambda a: relax.op.sum(a, -1, keepdims=True)),
    "prod": (lambda a: np.prod(a, -1, a.dtype, keepdims=True), lambda a: relax.op.prod(a, -1, keepdims=True)),
    "cumsum": (lambda a: np.cumsum(a, -1, a.dtype), lambda a: relax.op.cumsum(a, -1)),
    **{f"through {dtype}": _there_and_back(dtype) for dtype in DTYPES},
}
DIVISIONS = ("divide", "floor_divide", "mod", "floor_mod")


@dataclass(frozen=True)
class Leaf:
    """An operand: a constant, or an input that is drawn anew for every run."""

    shape: tuple[int, ...]
    dtype: str
    is_constant: bool
    has_zeros: bool

    def drawn(self, rng: random.Random) -> np.ndarray:
        """Return values of which most are at a limit."""
        limits, bits = np.iinfo(self.dtype), 8 * np.dtype(self.dtype).itemsize
        edges = [
            limits.min,
            limits.min + 1,
            limits.max,
            limits.max - 1,
            -1,
            -2,
            1,
            2,
            3,
            7,
            bits - 1,
            bits,
            bits + 1,
            -bits,
        ]
        edges = [value for value in edges if limits.min <= value <= limits.max and value]
        count = int(np.prod(self.shape, dtype="int64"))
        values = [rng.choice(edges) if rng.random() < 0.7 else rng.randint(1, limits.max) for _ in range(count)]
        if self.has_zeros and count:
            values[rng.randrange(count)] = 0
        return np.array(values, self.dtype).reshape(self.shape)


@dataclass(frozen=True)
class Step:
    """Apply one operator to the value so far, with another operand in either order if it takes two."""

    name: str
    leaf: int
    is_behind: bool  # the leaf is the second operand

    def apply(self, which: int, value: Any, leaves: list[Any]) -> Any:
        """Evaluate by NumPy (0) or by Relax (1)."""
        if self.name in UNARY:
            return UNARY[self.name][which](value)
        function = BINARY[self.name][which]
        return function(value, leaves[self.leaf]) if self.is_behind else function(leaves[self.leaf], value)


def _expected(steps: list[Step], leaves: list[np.ndarray]) -> np.ndarray | None:
    """Return NumPy's result; None if an operator divides by zero."""
    value = leaves[0]
    for step in steps:
        if step.name in DIVISIONS and not (leaves[step.leaf] if step.is_behind else value).all():
            return None
        with np.errstate(all="ignore"):
            value = np.asarray(step.apply(0, value, leaves))
    return value


def _model(steps: list[Step], leaves: list[Leaf], constants: dict[int, np.ndarray]) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    operands: list[Any] = [
        relax.const(constants[place], leaf.dtype)
        if place in constants
        else relax.Var(f"in_{place}", relax.TensorType(leaf.shape, leaf.dtype))
        for place, leaf in enumerate(leaves)
    ]
    with builder.function("main", [operand for place, operand in enumerate(operands) if place not in constants]):
        with builder.dataflow():
            value = operands[0]
            for step in steps:
                value = builder.emit(step.apply(1, value, operands))
            output = builder.emit_output(value)
        builder.emit_func_output(output)
    return builder.get()


def random_integers(rng: random.Random) -> Case:
    """A chain of up to six operators."""
    dtype = rng.choice(DTYPES)
    shape = tuple(rng.choice((1, 2, 3, 7, 33)) for _ in range(rng.randint(1, 2)))
    shapes = [shape] + [rng.choice((shape, shape[-1:], (), tuple(1 for _ in shape))) for _ in range(3)]
    leaves = [Leaf(s, dtype, place > 0 and rng.random() < 0.4, rng.random() < 0.15) for place, s in enumerate(shapes)]
    names = [*BINARY, *UNARY, "add", "subtract", "multiply"]  # these twice as often
    steps = []
    for _ in range(rng.randint(1, 6)):
        name = rng.choice(names)
        steps.append(Step(name, rng.randrange(4), rng.random() < 0.7))
    constants = {place: leaf.drawn(rng) for place, leaf in enumerate(leaves) if leaf.is_constant}
    runs = [[constants.get(place, leaf.drawn(rng)) for place, leaf in enumerate(leaves)] for _ in range(DRAWS)]
    inputs = [place for place in range(len(leaves)) if place not in constants]

    def check() -> None:
        expected = [_expected(steps, values) for values in runs]
        try:
            executable = tt.compile(_model(steps, leaves, constants), cache=False)
        except tt.TilingError as error:
            assert "division by zero" in str(error), error
            assert all(wanted is None for wanted in expected), "refused when compiled"
            return
        for values, wanted in zip(runs, expected, strict=True):
            try:
                found = executable.run(*[values[place] for place in inputs])
            except tt.TilingError as error:
                assert "division by zero" in str(error), error
                assert wanted is None, "refused in the run"
                continue
            assert wanted is not None, "a division by zero gave a result"
            np.testing.assert_array_equal(found, wanted)

    return Case(
        f"{dtype} {shapes} {steps} constants {sorted(constants)} {[v.tolist() for v in constants.values()]}", check
    )
