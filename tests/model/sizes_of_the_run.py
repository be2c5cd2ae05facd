"""Run models that compute sizes from data-dependent sizes; print a line of JSON for each."""

from __future__ import annotations

import json

import numpy as np
from tvm import relax, tirx

import tvm_tiling as tt

op = relax.op
N, M = tirx.Var("n", "int64"), tirx.Var("m", "int64")
L = N - 4 * M  # 0 where there are four times as many
CASES = {
    "zeros": lambda p: op.zeros((N // M, 3), "float32"),
    "remainder": lambda p: op.full((N % M, 3), relax.const(2.0), "float32"),
    "truncated": lambda p: op.full((tirx.truncdiv(N, M),), relax.const(2.0), "float32"),
    "quotient of a quotient": lambda p: op.zeros((N // (N // M), 3), "float32"),
    # If M is 0: 81 * 2**64 bytes, and 81 * 2**64 elements, so 0 in 64 bits.
    "bytes": lambda p: op.zeros((L * N * N * N * 2**54,), "float32"),
    "elements": lambda p: op.full((L * N * N * N * 2**56,), relax.const(2.0), "float32"),
    "bytes of several axes": lambda p: op.zeros((L * N, L * N * 2**26, L * 2**26), "float32"),
    "bytes on the way": lambda p: op.sum(op.exp(op.zeros((L * N * N * N * 2**54,), "float32"))),
    "negative": lambda p: op.zeros((M - 3,), "float32"),
    "slice": lambda p: op.strided_slice(p, [0], [0], [N], [M]),
}


def places(builder: relax.BlockBuilder, values: relax.Var, count: tirx.Var) -> relax.Var:
    """The positions at which `values` are nonzero; there are `count`."""
    found = builder.match_cast(builder.emit(op.nonzero(values)), relax.TensorType((1, count), "int64"))
    return builder.emit(op.reshape(found, (count,)))


def main() -> None:
    many, few, none = np.ones(12, "float32"), np.eye(3, 12, dtype="float32").sum(0), np.zeros(12, "float32")
    for name, case in CASES.items():
        x, y = (relax.Var(name, relax.TensorType((12,), "float32")) for name in "xy")
        builder = relax.BlockBuilder()
        with builder.function("main", [x, y]):
            with builder.dataflow():
                p, _ = places(builder, x, N), places(builder, y, M)
                out = builder.emit_output(builder.emit(case(p)))
            builder.emit_func_output(out)
        model = tt.compile(builder.finalize(), cache=False)
        line: dict[str, object] = {"name": name, "shape": model.run(many, few).shape}
        try:
            line["said"] = str(model.run(many, none).shape)
        except Exception as error:
            line["said"] = f"{type(error).__name__}: {error}"
        line["again"] = model.run(many, few).shape
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
