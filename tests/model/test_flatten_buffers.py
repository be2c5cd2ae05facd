"""Index quotients and remainders keep their values through code generation."""

from __future__ import annotations

import random

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, s_tir, te, tirx

import tvm_tiling as tt
from tvm_tiling.model.flatten_buffers import flatten_buffers, joined

POINTS, ELEMENTS = 24, 400


def dividend(draw: random.Random, v):
    factor = draw.choice([-7, -3, -2, -1, 1, 2, 3, 5])
    return v * factor + draw.randint(-30, 30)


def term(draw: random.Random, v):
    c, k = draw.choice([2, 3, 4, 7, 8]), draw.choice([2, 3, 4])
    kind = draw.randrange(4)
    if kind == 0:
        return dividend(draw, v) // c * draw.choice([1, c])
    if kind == 1:
        return dividend(draw, v) % c
    if kind == 2:
        return dividend(draw, v) // c % k
    falling = dividend(draw, v)
    return falling // c * c + (falling + c * draw.choice([-1, 0, 2])) % c


def index(seed: int, v):
    """Of a TIR variable, or of numbers; // and % round down in both."""
    draw = random.Random(seed)
    total = term(draw, v)
    for _ in range(draw.randrange(2)):
        total = total + term(draw, v)
    return total + ELEMENTS // 2


class Floor:
    """A TIR variable whose // and % round down."""

    def __init__(self, value):
        self.value = value

    def __add__(self, other):
        return Floor(self.value + (other.value if isinstance(other, Floor) else other))

    def __mul__(self, other):
        return Floor(self.value * other)

    def __floordiv__(self, other):
        return Floor(tirx.floordiv(self.value, tirx.const(other, "int64")))

    def __mod__(self, other):
        return Floor(tirx.floormod(self.value, tirx.const(other, "int64")))


def mapped(a: te.Tensor, seed: int) -> te.Tensor:
    return te.compute((POINTS,), lambda v: a[index(seed, Floor(v)).value], f"map_{seed}")


def test_random_index_maps():
    rows = 24
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((ELEMENTS,), "int32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            parts = [builder.emit_te(mapped, x, seed) for seed in range(rows)]
            result = builder.emit_output(relax.op.stack(parts, 0))
        builder.emit_func_output(result)
    values = np.arange(ELEMENTS, dtype="int32")
    found = tt.compile(builder.get(), cache=False).run(values)
    points = np.arange(POINTS)
    np.testing.assert_array_equal(found, np.stack([index(seed, points) for seed in range(rows)]))


def test_rows_in_reverse_after_a_reshape():
    for dtype in ("float16", "float32", "int8"):
        builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((3, 7), dtype))
        with builder.function("main", [x]):
            with builder.dataflow():
                lined = builder.emit(relax.op.reshape(x, (21, 1)))
                result = builder.emit_output(relax.op.flip(lined, 0))
            builder.emit_func_output(result)
        values = np.arange(21).reshape(3, 7).astype(dtype)
        found = tt.compile(builder.get(), cache=False).run(values)
        np.testing.assert_array_equal(found, values.reshape(21, 1)[::-1])


def test_quotient_and_remainder_of_fused_axes_add_up():
    v = tirx.Var("v", "int32")
    assert "%" not in str(joined(v * 196 + (v + 16) // 14 * 14 + (v + 2) % 14))
    assert "%" in str(joined(v * 196 + (v + 16) // 14 * 14 + (v + 3) % 14))


def test_innermost_loops_share_a_variable_while_buffers_are_flattened(monkeypatch):
    """TVM's pass considers every variable that it has seen for each element: its time was quadratic."""
    seen = []
    flatten = tirx.transform.FlattenBuffer

    def loops(mod):
        found = []
        for func in mod.functions.values():
            tvm_ffi.structural_walk(func.body, (tirx.For, found.append))
        return found

    def watched():
        return lambda mod: seen.append(loops(mod)) or flatten()(mod)

    monkeypatch.setattr(tirx.transform, "FlattenBuffer", watched)
    a = te.placeholder((4, 8), name="a")
    stages = [a]
    for number in range(20):
        last = stages[-1]
        stages.append(te.compute((4, 8), lambda i, j: last[i, j] + 1, f"s{number}"))  # noqa: B023 - called at once
    func = te.create_prim_func([a, stages[-1]]).with_attr("global_symbol", "main")
    plain = s_tir.transform.LowerOpaqueBlock()(s_tir.transform.ConvertBlocksToOpaque()(tvm.IRModule({"main": func})))
    made = loops(flatten_buffers(plain))
    assert len(made) == len({loop.loop_var for loop in made}) == 40
    assert len({loop.loop_var for loop in seen[0]}) == 21
    monkeypatch.undo()
    assert tvm_ffi.structural_equal(flatten_buffers(plain)["main"], tirx.transform.FlattenBuffer()(plain)["main"])
