"""Products of weights in blocks alone, 1 to 16 rows, beside onnxruntime.

    python -m benchmarks.blocked_products --bits 4 8 --level 0 4

Shapes are those of a decoder's layers (language_graph.py), each a model of one MatMulNBits, compiled once for every
number of rows and run in turns with onnxruntime on as many threads. Results are compared first. With `--turns` each
model is made and measured so often, and the median is told.
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
    """(n, k) of the products of a layer, each once."""
    keys = sizes.groups * sizes.head
    found = [(sizes.width, sizes.width), (keys, sizes.width), (sizes.inner, sizes.width), (sizes.width, sizes.inner)]
    return list(dict.fromkeys(found))


def product(n: int, k: int, bits: int, block: int, level: int) -> ModelProto:
    """One MatMulNBits of random weights, its rows open."""
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
    """The part of onnxruntime's time by rows."""
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
            raise SystemExit(f"{rows} rows: results are {far:.2g} from onnxruntime's")
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
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.blocked_products",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("model", nargs="?", choices=list(DECODERS), default="llama-3.2-1b", help="whose shapes")
    parser.add_argument("--bits", type=int, nargs="*", default=[4], choices=(4, 8), help="of a weight (default: 4)")
    parser.add_argument("--level", type=int, nargs="*", default=[0, 4], help="accuracy_level (default: 0 and 4)")
    parser.add_argument("--block", type=int, default=32, help="weights that share a scale (default: 32)")
    parser.add_argument("--turns", type=int, default=1, help="how often the suite is run (default: once)")
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
            print(f"\n{given.model}, {bits} bits, accuracy_level {level}: part of onnxruntime's time by rows")
            print_table(("columns x k", *map(str, ROWS)), table)
            print(f"geometric mean {statistics.geometric_mean(parts):.2f}, worst {max(parts):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
