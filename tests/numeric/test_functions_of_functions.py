"""Functions of functions of one vector, each step by step in registers: the second one waits for the first."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

import tvm_tiling as tt

op = relax.op
FUNCTIONS = {
    "exp": np.exp,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "sin": np.sin,
    "cos": np.cos,
}


@pytest.mark.parametrize("size", [7, 150])
def test_every_pair(size):
    """Equal functions have equal numbers of steps: those of several vectors alternate, those of one must not."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((size,), "float32"))
    pairs = [(inner, outer) for inner in FUNCTIONS for outer in FUNCTIONS]
    with builder.function("main", [x]):
        with builder.dataflow():
            results = [builder.emit(getattr(op, o)(builder.emit(getattr(op, i)(x)))) for i, o in pairs]
            out = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(out)
    mod: tvm.IRModule = builder.finalize()
    values = np.linspace(-2, 2, size, dtype="float32")
    for (inner, outer), got in zip(pairs, tt.compile(mod, cache=False)(values), strict=True):
        want = FUNCTIONS[outer](FUNCTIONS[inner](values.astype("float64")))
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6, err_msg=f"{outer} of {inner}")
