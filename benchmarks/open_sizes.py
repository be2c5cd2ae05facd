"""Executables of open sizes beside those compiled for each size, and beside onnxruntime.

    python -m benchmarks.open_sizes bert            a BERT-like encoder, lengths log-uniform in 1..512, batch 1
    python -m benchmarks.open_sizes products        products of m open rows alone, n and k of BERT and llama

The model is made here, in ONNX, with dimensions "batch" and "length" that it leaves open; all weights are random. For
each length the executable of open sizes takes turns with one that was compiled for that length, then with onnxruntime
on as many threads. Results are compared first. The time of the first run of a length, beyond that of the second, is
told as well.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

import tvm_tiling as tt
from tvm_tiling.cli.table import print_table
from tvm_tiling.measure import Condition, Side, Status, paired
from tvm_tiling.runtime.threads import own_core

from .run import SETTLE

Row: TypeAlias = tuple[float, float, float, float]
PRODUCTS = {"BERT 768 to 768": (768, 768), "BERT 768 to 3072": (3072, 768), "BERT 3072 to 768": (768, 3072)}
PRODUCTS |= {"llama 2048 to 2048": (2048, 2048), "llama 2048 to 5632": (5632, 2048)}


class _Graph:
    """An ONNX graph in the making, with random weights."""

    def __init__(self) -> None:
        self.nodes: list[object] = []
        self.constants: dict[str, np.ndarray] = {}
        self._rng = np.random.default_rng(0)

    def add(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def constant(self, value: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def weights(self, *shape: int) -> str:
        return self.constant(self._rng.standard_normal(shape, np.float32) / np.float32(math.sqrt(shape[0])))

    def linear(self, x: str, before: int, after: int) -> str:
        return self.add("Add", self.add("MatMul", x, self.weights(before, after)), self.weights(after))

    def norm(self, x: str, width: int) -> str:
        return self.add("LayerNormalization", x, self.weights(width), self.weights(width), axis=-1)

    def model(self, x: str, y: str, before: int, after: int) -> ModelProto:
        lead = ["batch", "length"]
        graph = helper.make_graph(
            self.nodes,
            "open",
            [helper.make_tensor_value_info(x, TensorProto.FLOAT, [*lead, before])],
            [helper.make_tensor_value_info(y, TensorProto.FLOAT, [*lead, after])],
            [numpy_helper.from_array(value, name) for name, value in self.constants.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def product(n: int, k: int) -> ModelProto:
    """x w + b, k to n, for any number of rows."""
    graph = _Graph()
    return graph.model("x", graph.linear("x", k, n), k, n)


def encoder(width: int = 768, heads: int = 12, layers: int = 4) -> ModelProto:
    """Layers of BERT's encoder over embedded tokens, attention by products, Gelu by erf."""
    graph, x = _Graph(), "x"
    parts = graph.constant(np.array([0, 0, heads, width // heads]))
    whole = graph.constant(np.array([0, 0, width]))
    scale = graph.constant(np.float32(math.sqrt(width / heads)))
    numbers = [graph.constant(np.float32(value)) for value in (math.sqrt(2), 1.0, 0.5)]

    def split(value: str, order: Sequence[int]) -> str:
        return graph.add("Transpose", graph.add("Reshape", value, parts), perm=list(order))

    for _ in range(layers):
        q, k, v = (graph.linear(x, width, width) for _ in range(3))
        scores = graph.add("MatMul", split(q, (0, 2, 1, 3)), split(k, (0, 2, 3, 1)))
        weights = graph.add("Softmax", graph.add("Div", scores, scale), axis=-1)
        joined = graph.add("Transpose", graph.add("MatMul", weights, split(v, (0, 2, 1, 3))), perm=[0, 2, 1, 3])
        attended = graph.linear(graph.add("Reshape", joined, whole), width, width)
        x = graph.norm(graph.add("Add", x, attended), width)
        wide = graph.linear(x, width, 4 * width)
        bent = graph.add("Add", graph.add("Erf", graph.add("Div", wide, numbers[0])), numbers[1])
        gelu = graph.add("Mul", graph.add("Mul", wide, bent), numbers[2])
        x = graph.norm(graph.add("Add", x, graph.linear(gelu, 4 * width, width)), width)
    return graph.model("x", x, width, width)


def lengths(count: int, most: int) -> list[int]:
    """So many sizes from 1 to `most`, log-uniform, the same each time."""
    draws = np.random.default_rng(0).uniform(0, math.log(most + 1), count)
    return sorted({max(1, min(most, int(math.exp(draw)))) for draw in draws})


def compared(model: ModelProto, sizes: Sequence[int], width: int, threads: int) -> list[Row]:
    """For each size: ms of the open executable, its time as part of the fixed one's and of onnxruntime's, and ms that
    the first run takes beyond the second."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    opened = tt.compile(model, cache=False)
    rows = []
    for size in sizes:
        x = np.random.default_rng(size).standard_normal((1, size, width), np.float32)
        start = time.perf_counter()
        found = opened.run(x)
        between = time.perf_counter()
        opened.run(x)
        extra = 2 * between - start - time.perf_counter()
        fixed = tt.compile(model, batch=1, dims={"length": size}, cache=False)
        wanted = session.run(None, {"x": x})[0]
        for result in (found, fixed.run(x)):
            np.testing.assert_allclose(result, wanted, rtol=2e-3, atol=2e-3)
        ours = Side(lambda x=x: opened.run(x), own_core)
        pairs = [
            paired(ours, Side(lambda x=x, fixed=fixed: fixed.run(x), own_core), condition=Condition(settle=SETTLE)),
            paired(ours, Side(lambda x=x: session.run(None, {"x": x})), condition=Condition(settle=SETTLE)),
        ]
        if bad := [pair.reason for pair in pairs if pair.status is not Status.OK]:
            raise SystemExit(f"length {size}: {bad[0]}")
        rows.append((1e3 * pairs[0].ours.median, 1 / pairs[0].ratio, 1 / pairs[1].ratio, 1e3 * extra))
    return rows


def _mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def report(name: str, sizes: Sequence[int], rows: Sequence[Row]) -> None:
    """Print the table of one model."""
    print(name)
    table = [
        (str(size), f"{ms:.2f}", f"{fixed:.3f}", f"{peer:.3f}", f"{extra:.2f}")
        for size, (ms, fixed, peer, extra) in zip(sizes, rows, strict=True)
    ]
    means = [_mean([row[place] for row in rows]) for place in (1, 2)]
    worst = [max(row[place] for row in rows) for place in (1, 2)]
    table.append(("mean", "", *(f"{value:.3f}" for value in means), ""))
    table.append(("worst", "", *(f"{value:.3f}" for value in worst), ""))
    print_table(("rows", "ms", "of the fixed", "of onnxruntime", "first run, ms more"), table)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.open_sizes", description=__doc__)
    parser.add_argument("what", nargs="*", choices=[[], "bert", "products"], default=["products", "bert"])
    parser.add_argument("--count", type=int, default=32, help="lengths to draw (default: 32)")
    parser.add_argument("--most", type=int, default=512, help="the largest length (default: 512)")
    parser.add_argument("--layers", type=int, default=4, help="of the encoder (default: 4)")
    given = parser.parse_args(arguments)
    threads, sizes = tt.Hardware.detect().cpu.cores, lengths(given.count, given.most)
    if "products" in given.what:
        for name, (n, k) in PRODUCTS.items():
            report(name, sizes, compared(product(n, k), sizes, k, threads))
    if "bert" in given.what:
        report("encoder", sizes, compared(encoder(layers=given.layers), sizes, 768, threads))
    return 0


if __name__ == "__main__":
    sys.exit(main())
