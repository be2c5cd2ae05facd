"""Small Relax networks with constant weights, and the results of TVM's default pipeline."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

op = relax.op


class Network:
    """Builder of a function "main"; `c` creates a constant with random weights."""

    def __init__(self, *shapes: tuple[int, ...], seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.builder = relax.BlockBuilder()
        self.inputs = [relax.Var(f"x{n}", relax.TensorType(shape, "float32")) for n, shape in enumerate(shapes)]
        self.shapes = shapes

    def c(self, *shape: int) -> relax.Expr:
        return relax.const(self.rng.uniform(-0.5, 0.5, shape).astype("float32"))

    def module(self, body) -> tvm.IRModule:
        """`body(network, *inputs)` returns the output; `emit` binds the calls that it makes."""
        with self.builder.function("main", self.inputs):
            with self.builder.dataflow():
                out = self.builder.emit_output(body(self, *self.inputs))
            self.builder.emit_func_output(out)
        return self.builder.finalize()

    def emit(self, expr: relax.Expr) -> relax.Var:
        return self.builder.emit(expr)

    def arrays(self) -> list[np.ndarray]:
        return [self.rng.uniform(-1, 1, shape).astype("float32") for shape in self.shapes]


def conv_bn_relu(net: Network, x: relax.Expr, ci: int, co: int, kernel: int = 3, stride: int = 1, groups: int = 1):
    """Convolution, batch norm and ReLU, channels first."""
    weights = net.c(co, ci // groups, kernel, kernel)
    pad = kernel // 2
    y = net.emit(op.nn.conv2d(x, weights, strides=stride, padding=pad, groups=groups))
    variance = relax.const(net.rng.uniform(0.5, 1.5, co).astype("float32"))
    normed = net.emit(
        op.nn.batch_norm(y, net.c(co), net.c(co), net.c(co), variance, axis=1, epsilon=1e-5, training=False)
    )
    return net.emit(op.nn.relu(net.emit(relax.TupleGetItem(normed, 0))))


def residual_network(net: Network, x: relax.Expr):
    """A stem, pooling, two residual blocks, one of them depthwise, a classifier."""
    y = conv_bn_relu(net, x, 3, 16, kernel=7, stride=2)
    y = net.emit(op.nn.max_pool2d(y, (3, 3), (2, 2), (1, 1, 1, 1)))
    left = conv_bn_relu(net, conv_bn_relu(net, y, 16, 16), 16, 16)
    y = net.emit(op.nn.relu(net.emit(op.add(left, y))))
    wide = conv_bn_relu(net, y, 16, 48, kernel=1)
    deep = conv_bn_relu(net, wide, 48, 48, groups=48)
    y = net.emit(op.add(conv_bn_relu(net, deep, 48, 16, kernel=1), y))
    y = net.emit(op.concat([y, conv_bn_relu(net, y, 16, 8)], axis=1))
    y = net.emit(op.mean(y, [2, 3], keepdims=True))
    flat = net.emit(op.reshape(y, (1, 24)))
    logits = net.emit(op.add(net.emit(op.matmul(flat, net.c(24, 10))), net.c(10)))
    return op.nn.softmax(logits)


def attention(net: Network, x: relax.Expr):
    """One attention head over 17 tokens of 24 numbers, followed by a layer norm and a feed-forward part."""
    q, k, v = (net.emit(op.matmul(x, net.c(24, 24))) for _ in range(3))
    scores = net.emit(op.matmul(q, net.emit(op.permute_dims(k, (0, 2, 1)))))
    weights = net.emit(op.nn.softmax(net.emit(op.multiply(scores, relax.const(0.2, "float32"))), axis=-1))
    y = net.emit(op.add(net.emit(op.matmul(weights, v)), x))
    y = net.emit(op.nn.layer_norm(y, net.c(24), net.c(24), axes=-1))
    hidden = net.emit(op.nn.gelu(net.emit(op.matmul(y, net.c(24, 50)))))
    return op.add(net.emit(op.matmul(hidden, net.c(50, 24))), y)


def default(mod: tvm.IRModule, arrays: list[np.ndarray]) -> np.ndarray:
    """Return the output of TVM's default build, without LLVM's optimisations, which take a fifth of the time of such
    tests."""
    built = relax.build(mod, target=tvm.target.Target({"kind": "llvm", "opt-level": 0}))
    machine = relax.VirtualMachine(built, tvm.cpu())
    return machine["main"](*(tvm.runtime.tensor(a) for a in arrays)).numpy()
