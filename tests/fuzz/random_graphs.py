"""Small random graphs: each node is built in Relax and computed by NumPy in float64, then all results are compared."""

from __future__ import annotations

import random

import numpy as np
from case import Case
from convs import Conv
from tvm import relax

import tvm_tiling as tt

op = relax.op
MOST_ELEMENTS = 40_000
ERROR = 2e-5  # of the largest number that occurred


class Graph:
    """Values so far, each as a Relax variable and as NumPy's array."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.arrays = rng, np.random.default_rng(rng.randrange(1000))
        self.builder, self.largest = relax.BlockBuilder(), 1.0
        self.nodes: list[tuple[relax.Expr, np.ndarray]] = []
        self.text: list[str] = []

    def constant(self, *shape: int) -> tuple[relax.Expr, np.ndarray]:
        value = self.arrays.uniform(-1, 1, shape).astype("float32")
        return relax.const(value), value.astype(np.float64)

    def put(self, text: str, expr: relax.Expr, value: np.ndarray) -> None:
        self.text.append(text)
        self.largest = max(self.largest, float(np.abs(value).max(initial=0)))
        self.nodes.append((self.builder.emit(expr), value))


def _unary(g: Graph, x: relax.Expr, v: np.ndarray) -> None:
    name, relaxed, by_numpy = g.rng.choice(
        (
            ("relu", op.nn.relu, lambda a: np.maximum(a, 0)),
            ("tanh", op.tanh, np.tanh),
            ("sigmoid", op.sigmoid, lambda a: 1 / (1 + np.exp(-a))),
            ("negative", op.negative, np.negative),
            ("abs", op.abs, np.abs),
        )
    )
    g.put(name, relaxed(x), by_numpy(v))


def _binary(g: Graph, x: relax.Expr, v: np.ndarray) -> None:
    same = [(y, w) for y, w in g.nodes if w.shape == v.shape]
    if g.rng.random() < 0.5:
        y, w = g.rng.choice(same)
    else:
        wider = g.rng.randint(2, 5) if g.rng.random() < 0.3 else 1  # than its operand, if that is 1
        y, w = g.constant(*(max(extent, wider) if g.rng.random() < 0.5 else 1 for extent in v.shape))
        if any(1 < extent < size for extent, size in zip(v.shape, w.shape, strict=True)):
            y, w = g.constant(*v.shape)
    name, relaxed, by_numpy = g.rng.choice(
        (
            ("add", op.add, np.add),
            ("subtract", op.subtract, np.subtract),
            ("multiply", op.multiply, np.multiply),
            ("maximum", op.maximum, np.maximum),
        )
    )
    g.put(f"{name} {w.shape}", relaxed(x, y), by_numpy(v, w))


def _product(g: Graph, x: relax.Expr, v: np.ndarray) -> None:
    w, weights = g.constant(v.shape[-1], g.rng.randint(1, 40))
    scale = v.shape[-1] ** -0.5
    g.put(f"matmul {weights.shape}", op.multiply(g.builder.emit(op.matmul(x, w)), relax.const(scale, "float32")), 0.0)
    g.nodes[-1] = (g.nodes[-1][0], v @ weights * np.float32(scale))


def _conv(g: Graph, x: relax.Expr, v: np.ndarray) -> None:
    if v.ndim != 4:
        return _product(g, x, v)
    n, ci, *space = v.shape
    kernel = tuple(g.rng.randint(1, 3) for _ in range(2))
    groups = g.rng.choice((1, 1, ci))
    conv = Conv(
        space=tuple(space),
        kernel=kernel,
        stride=tuple(g.rng.randint(1, 2) for _ in range(2)),
        before=(1, 1),
        behind=(1, 1),
        n=n,
        ci=ci,
        co=ci if groups > 1 else g.rng.randint(1, 20),
        groups=groups,
    )
    if not conv.possible:
        return None
    w, weights = g.constant(conv.co, ci // groups, *kernel)
    scaled = weights.transpose(0, 2, 3, 1)
    want = conv.result(v.transpose(0, 2, 3, 1), scaled).transpose(0, 3, 1, 2)
    expr = op.nn.conv2d(x, w, strides=conv.stride, padding=(1, 1, 1, 1), groups=groups)
    return g.put(f"conv2d {weights.shape} {conv.stride} {groups}", expr, want)


def _reduction(g: Graph, x: relax.Expr, v: np.ndarray) -> None:
    axis, keep = g.rng.randrange(v.ndim), g.rng.random() < 0.7 or v.ndim == 1
    name = g.rng.choice(("sum", "mean", "max", "min"))
    by_numpy = getattr(np, name)(v, axis=axis, keepdims=keep)
    g.put(f"{name} {axis} {keep}", getattr(op, name)(x, axis=axis, keepdims=keep), by_numpy)


def _softmax(g: Graph, x: relax.Expr, v: np.ndarray) -> None:
    e = np.exp(v - v.max(axis=-1, keepdims=True))
    g.put("softmax", op.nn.softmax(x, axis=-1), e / e.sum(axis=-1, keepdims=True))


def _move(g: Graph, x: relax.Expr, v: np.ndarray) -> None:
    kind = g.rng.choice(("permute", "reshape", "concat", "slice", "pad"))
    if kind == "permute":
        axes = list(range(v.ndim))
        g.rng.shuffle(axes)
        g.put(f"permute {axes}", op.permute_dims(x, axes), v.transpose(axes))
    elif kind == "reshape":
        shape = g.rng.choice(((v.size,), (v.shape[0], v.size // v.shape[0]), (1, *v.shape), (*v.shape, 1)))[:4]
        if np.prod(shape) == v.size:
            g.put(f"reshape {shape}", op.reshape(x, shape), v.reshape(shape))
    elif kind == "concat":
        axis = g.rng.randrange(v.ndim)
        g.put(f"concat {axis}", op.concat([x, x], axis), np.concatenate([v, v], axis))
    elif kind == "slice":
        axis = g.rng.randrange(v.ndim)
        begin = g.rng.randrange(v.shape[axis])
        end, step = g.rng.randint(begin + 1, v.shape[axis]), g.rng.randint(1, 2)
        at = tuple(slice(begin, end, step) if a == axis else slice(None) for a in range(v.ndim))
        g.put(f"slice {axis} {begin}:{end}:{step}", op.strided_slice(x, [axis], [begin], [end], [step]), v[at])
    else:
        widths = [(g.rng.randint(0, 2), g.rng.randint(0, 2)) for _ in v.shape]
        flat = [width for pair in widths for width in pair]
        g.put(f"pad {widths}", op.nn.pad(x, flat), np.pad(v, widths))


STEPS = (_unary, _unary, _binary, _binary, _product, _conv, _conv, _reduction, _softmax, _move, _move)


def random_graph(rng: random.Random) -> Case:
    """A graph that is compiled as a model."""
    g = Graph(rng)
    rank = rng.choice((2, 3, 4, 4))
    shape = tuple(rng.randint(1, {2: 40, 3: 16, 4: 10}[rank]) for _ in range(rank))
    x, value = relax.Var("x", relax.TensorType(shape, "float32")), g.arrays.uniform(-1, 1, shape).astype("float32")
    with g.builder.function("main", [x]):
        with g.builder.dataflow():
            g.nodes.append((x, value.astype(np.float64)))
            for _ in range(rng.randint(1, 8)):
                step = rng.choice(STEPS)
                expr, known = rng.choice(g.nodes[-3:])
                if known.size * 8 <= MOST_ELEMENTS and known.size and known.ndim:
                    step(g, expr, known)
            last, want = g.nodes[-1]
            out = g.builder.emit_output(op.add(last, relax.const(0.5, "float32")))
        g.builder.emit_func_output(out)

    def check() -> None:
        got = tt.compile(g.builder.finalize(), cache=False).run(value)
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want + 0.5, rtol=0, atol=ERROR * g.largest)

    return Case(f"{shape}: {'; '.join(g.text)}", check)
