"""Matrix multiplications with block-quantised weights, 1 to 16 rows, compared with onnxruntime.

    python -m benchmarks.blocked_products --bits 4 8 --level 0 4

The shapes are those of decoder layers (language_graph.py). Each is a model with one MatMulNBits, compiled once for
every number of rows and run alternately with onnxruntime on the same number of threads. Results are compared before
timing. `--turns` sets how often each model is built and measured; the median is reported.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

import tvm_tiling as tt
from tvm_tiling.cli.table import print_table
from tvm_tiling.measure import Condition, Side, Status, paired
from tvm_tiling.runtime.threads import own_core

from .language_graph import DECODERS, DOMAIN, Decoder
from .peers.onnxruntime_peer import session_options
from .run import SETTLE

ROWS = (1, 2, 4, 8, 16)


def shapes_of(sizes: Decoder) -> list[tuple[int, int]]:
    """Return the distinct (n, k) of a layer's matrix multiplications."""
    keys = sizes.groups * sizes.head
    found = [(sizes.width, sizes.width), (keys, sizes.width), (sizes.inner, sizes.width), (sizes.width, sizes.inner)]
    return list(dict.fromkeys(found))


def product(n: int, k: int, bits: int, block: int, level: int) -> ModelProto:
    """A model with one MatMulNBits with random weights and a dynamic number of rows."""
    rng = np.random.default_rng(n + k)
    blocks = -(-k // block)
    values = rng.integers(0, 256, (n, blocks, block * bits // 8), np.uint8)
    scales = (rng.random(n * blocks, np.float32) + np.float32(0.5)) / np.float32(k)
    node = helper.make_node(
        "MatMulNBits",
        ["x", "values", "scales"],
        ["y"],
        domain=DOMAIN,
        K=k,
        N=n,
        bits=bits,
        block_size=block,
        accuracy_level=level,
    )
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", width])]
        for name, width in (("x", k), ("y", n))
    ]
    constants = [numpy_helper.from_array(values, "values"), numpy_helper.from_array(scales, "scales")]
    graph = helper.make_graph([node], "product", *ends, constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def measured(model: ModelProto, k: int, level: int) -> dict[int, float]:
    """Return our latency relative to onnxruntime's, by number of rows."""
    import onnxruntime

    executable = tt.compile(model, cache=False)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), session_options(), providers=["CPUExecutionProvider"]
    )
    found = {}
    for rows in ROWS:
        x = np.random.default_rng(rows).standard_normal((rows, k), np.float32)
        wanted = session.run(None, {"x": x})[0]
        y: Any = executable.run(x)
        far = np.linalg.norm(np.asarray(y) - wanted) / np.linalg.norm(wanted)
        if not far < (1e-3 if level == 0 else 0.05):
            raise SystemExit(f"{rows} rows: results differ from onnxruntime's by {far:.2g}")
        pair = paired(
            Side(lambda x=x: executable.run(x), own_core),
            Side(lambda x=x: session.run(None, {"x": x})),
            condition=Condition(settle=SETTLE),
        )
        if pair.status is not Status.OK:
            raise SystemExit(f"{rows} rows: {pair.reason}")
        found[rows] = 1 / pair.ratio
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.blocked_products",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("model", nargs="?", choices=list(DECODERS), default="llama-3.2-1b", help="whose shapes")
    parser.add_argument("--bits", type=int, nargs="*", default=[4], choices=(4, 8), help="bits per weight (default: 4)")
    parser.add_argument("--level", type=int, nargs="*", default=[0, 4], help="accuracy_level (default: 0 and 4)")
    parser.add_argument("--block", type=int, default=32, help="number of weights that share a scale (default: 32)")
    parser.add_argument("--turns", type=int, default=1, help="number of times to run the suite (default: 1)")
    given = parser.parse_args(arguments)
    for bits in given.bits:
        for level in given.level:
            table = []
            parts = []
            for n, k in shapes_of(DECODERS[given.model]):
                model = product(n, k, bits, given.block, level)
                turns = [measured(model, k, level) for _ in range(given.turns)]
                of_rows = {rows: statistics.median(turn[rows] for turn in turns) for rows in ROWS}
                parts += of_rows.values()
                table.append((f"{n} x {k}", *(f"{part:.2f}" for part in of_rows.values())))
            print(f"\n{given.model}, {bits} bits, accuracy_level {level}: latency relative to onnxruntime's, by rows")
            print_table(("columns x k", *map(str, ROWS)), table)
            print(f"geometric mean {statistics.geometric_mean(parts):.2f}, worst {max(parts):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
