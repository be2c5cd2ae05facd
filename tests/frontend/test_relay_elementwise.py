"""Relay's unary and binary element-wise operators and reductions, compared with NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from relay_cases import Case, check

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3, 4)).astype("float32")
P = RNG.uniform(0.1, 2, (2, 3, 4)).astype("float32")
S = RNG.uniform(-0.9, 0.9, (2, 3, 4)).astype("float32")
I = RNG.integers(-9, 9, (2, 3, 4)).astype("int32")  # noqa: E741
J = np.where(RNG.integers(0, 2, (2, 3, 4)) == 1, 1, -1).astype("int32") * RNG.integers(1, 5, (2, 3, 4)).astype("int32")
T = RNG.integers(0, 2, (2, 3, 4)).astype(bool)
U = RNG.integers(0, 2, (2, 3, 4)).astype(bool)
HALVES = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997, -0.2, 3.0, 8388609.0], "float32")
ODD = np.array([1, np.inf, -np.inf, np.nan, 0], "float32")
erf = np.vectorize(math.erf)


def f32(values):
    return np.asarray(values, dtype="float32")


UNARY = [
    *(
        Case(f"{name}(%a)", {"a": X}, f32(getattr(np, name)(X)))
        for name in ["abs", "ceil", "cos", "exp", "floor", "negative", "sign"]
    ),
    *(
        Case(f"{name}(%a)", {"a": X}, f32(getattr(np, name)(X)))
        for name in ["sin", "sinh", "cosh", "tan", "tanh", "trunc"]
    ),
    *(Case(f"{name}(%a)", {"a": P}, f32(getattr(np, name)(P))) for name in ["log", "log2", "log10", "sqrt"]),
    Case("asin(%a)", {"a": S}, np.arcsin(S)),
    Case("acos(%a)", {"a": S}, np.arccos(S)),
    Case("atan(%a)", {"a": X}, np.arctan(X)),
    Case("asinh(%a)", {"a": X}, np.arcsinh(X)),
    Case("acosh(%a)", {"a": P + 1}, np.arccosh(P + 1)),
    Case("atanh(%a)", {"a": S}, np.arctanh(S)),
    Case("rsqrt(%a)", {"a": P}, f32(1 / np.sqrt(P))),
    Case("sigmoid(%a)", {"a": X}, f32(1 / (1 + np.exp(-X)))),
    Case("erf(%a)", {"a": X}, f32(erf(X)), tolerance=1e-5),
    Case("fast_erf(%a)", {"a": X}, f32(erf(X)), tolerance=1e-5),
    Case("fast_exp(%a)", {"a": X}, np.exp(X)),
    Case("fast_tanh(%a)", {"a": X}, np.tanh(X)),
    Case("round(%a)", {"a": HALVES}, np.array([-3, -2, -1, 1, 2, 3, 0, 0, 3, 8388609], "float32")),
    Case("round(%a)", {"a": I}, I),
    Case("floor(%a)", {"a": I}, I),
    Case("bitwise_not(%a)", {"a": I}, ~I),
    Case("logical_not(%a)", {"a": T}, ~T),
    Case("isnan(%a)", {"a": ODD}, np.isnan(ODD)),
    Case("isinf(%a)", {"a": ODD}, np.isinf(ODD)),
    Case("isfinite(%a)", {"a": ODD}, np.isfinite(ODD)),
    Case("clip(%a, a_min=-0.5f, a_max=0.25f)", {"a": X}, np.clip(X, -0.5, 0.25)),
    Case("clip(%a, a_min=-3f, a_max=1000f)", {"a": I.astype("int8")}, np.clip(I, -3, 127).astype("int8")),
    Case('cast(%a, dtype="int32")', {"a": X * 10}, (X * 10).astype("int32")),
    Case('cast(%a, dtype="float32")', {"a": T}, T.astype("float32")),
    Case("cast_like(%a, %b)", {"a": X, "b": I}, X.astype("int32")),
    Case('reinterpret(%a, dtype="int32")', {"a": X}, X.view("int32")),
    Case("copy(%a)", {"a": X}, X),
    Case("annotation.stop_fusion(%a)", {"a": X}, X),
    *(Case(f'annotation.compiler_{end}(%a, compiler="dnnl")', {"a": X}, X) for end in ("begin", "end")),
    Case("annotation.checkpoint(%a)", {"a": X}, X),
    Case('annotation.cast_hint(%a, dtype="float32")', {"a": X}, X),
    Case("identity(%a)", {"a": X}, X),
    Case("device_copy(%a, src_dev_type=1, dst_dev_type=2)", {"a": X}, X),
    Case("on_device(%a, virtual_device=meta[VirtualDevice][0], constrain_result=True)", {"a": X}, X),
    Case("nn.relu(%a)", {"a": X}, np.maximum(X, 0)),
    Case("nn.leaky_relu(%a)", {"a": X}, f32(np.where(X > 0, X, X * 0.25))),
    Case("nn.leaky_relu(%a, alpha=0.1f)", {"a": X}, f32(np.where(X > 0, X, X * 0.1))),
    Case("nn.prelu(%a, %b)", {"a": X, "b": P[0, :, 0]}, f32(np.where(X > 0, X, X * P[0, :, 0][:, None]))),
    Case("nn.prelu(%a, %b, axis=-1)", {"a": X, "b": P[0, 0]}, f32(np.where(X > 0, X, X * P[0, 0]))),
    Case("hardswish(%a)", {"a": X * 4}, f32(X * 4 * np.clip(X * 4 + 3, 0, 6) / 6)),
    Case("nn.dropout(%a, rate=0.1f)", {"a": X}, [X, np.ones_like(X)]),
    Case("nn.dropout(%a).0", {"a": X}, X),
    Case(
        "fixed_point_multiply(%a, multiplier=1288490189, shift=-2)",
        {"a": I * 1000},
        ((I.astype("int64") * 1000 * 1288490189 + (1 << 32)) >> 33).astype("int32"),
    ),
]

ROW = RNG.uniform(0.5, 2, (3, 1)).astype("float32")
BINARY = [
    *(
        Case(f"{name}(%a, %b)", {"a": X, "b": ROW}, f32(getattr(np, name)(X, ROW)))
        for name in ["add", "subtract", "multiply", "divide", "maximum", "minimum"]
    ),
    *(
        Case(f"{name}(%a, %b)", {"a": I, "b": J}, getattr(np, name)(I, J))
        for name in [
            "equal",
            "not_equal",
            "greater",
            "greater_equal",
            "less",
            "less_equal",
            "bitwise_and",
            "bitwise_or",
            "bitwise_xor",
        ]
    ),
    *(
        Case(f"{name}(%a, %b)", {"a": T, "b": U}, getattr(np, name)(T, U))
        for name in ["logical_and", "logical_or", "logical_xor"]
    ),
    Case("power(%a, 2.5f)", {"a": P}, f32(P**2.5)),
    Case("divide(%a, %b)", {"a": I, "b": J}, np.trunc(I / J).astype("int32")),
    Case("mod(%a, %b)", {"a": I, "b": J}, np.fmod(I, J)),
    Case("trunc_divide(%a, %b)", {"a": I, "b": J}, np.trunc(I / J).astype("int32")),
    Case("trunc_divide(%a, %b)", {"a": X, "b": ROW}, f32(np.trunc(X / ROW))),
    Case("trunc_mod(%a, %b)", {"a": I, "b": J}, np.fmod(I, J)),
    Case("trunc_mod(%a, %b)", {"a": X * 9, "b": ROW}, f32(np.fmod(X * 9, ROW)), tolerance=1e-4),
    Case("floor_divide(%a, %b)", {"a": I, "b": J}, I // J),
    Case("floor_mod(%a, %b)", {"a": I, "b": J}, I % J),
    Case("left_shift(%a, 3)", {"a": I}, I << 3),
    Case("right_shift(%a, 1)", {"a": I}, I >> 1),
    Case("where(%c, %a, %b)", {"c": T, "a": X, "b": P}, np.where(T, X, P)),
    Case("where(%c, %a, 0f)", {"c": I, "a": X}, np.where(I, X, 0)),
]


def reduction(text, function, **how):
    return Case(text, {"a": X}, f32(function(X, **how)))


REDUCTIONS = [
    reduction("sum(%a)", np.sum, axis=None),
    reduction("sum(%a, axis=[])", np.sum, axis=None),
    reduction("sum(%a, axis=[1], exclude=True)", np.sum, axis=(0, 2)),
    reduction("sum(%a, axis=[-1], keepdims=True)", np.sum, axis=-1, keepdims=True),
    reduction("mean(%a, axis=[0, 2])", np.mean, axis=(0, 2)),
    reduction("max(%a, axis=[1])", np.max, axis=1),
    reduction("min(%a, axis=[1], keepdims=True)", np.min, axis=1, keepdims=True),
    reduction("prod(%a, axis=[2])", np.prod, axis=2),
    Case("mean(%a, axis=[2])", {"a": I}, np.trunc(I.sum(2) / 4).astype("int32")),
    Case("all(%a, axis=[1])", {"a": T}, T.all(1)),
    Case("any(%a, axis=[1], keepdims=True)", {"a": T}, T.any(1, keepdims=True)),
    Case("argmax(%a, axis=[1])", {"a": X}, X.argmax(1).astype("int32")),
    Case("argmin(%a, axis=[1], keepdims=True)", {"a": X}, X.argmin(1, keepdims=True).astype("int32")),
    Case("argmax(%a)", {"a": X}, np.array(X.argmax(), "int32")),
    Case("argmax(%a, axis=[2])", {"a": I}, I.argmax(2).astype("int32")),
    Case("argmax(%a, axis=[2], select_last_index=True)", {"a": I}, (3 - I[..., ::-1].argmax(2)).astype("int32")),
    Case("variance(%a, %m, axis=[1])", {"a": X, "m": X.mean(1, keepdims=True)}, X.var(1)),
    Case(
        "variance(%a, %m, axis=[1], keepdims=True, unbiased=True)",
        {"a": X, "m": X.mean(1, keepdims=True)},
        X.var(1, keepdims=True, ddof=1),
    ),
    Case("cumsum(%a, axis=1)", {"a": X}, f32(X.cumsum(1))),
    Case('cumsum(%a, axis=2, dtype="int64")', {"a": I}, I.astype("int64").cumsum(2)),
    Case("cumsum(%a)", {"a": X}, f32(X.reshape(-1).cumsum())),
    Case(
        "cumprod(%a, axis=1, exclusive=True)",
        {"a": X},
        f32(np.concatenate([np.ones((2, 1, 4)), X.cumprod(1)[:, :2]], 1)),
    ),
]


@pytest.mark.parametrize("cases", [UNARY, BINARY, REDUCTIONS], ids=["unary", "binary", "reductions"])
def test_operators(cases):
    check(cases)
