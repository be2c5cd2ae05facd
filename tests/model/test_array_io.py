"""Results of a run belong to the caller, wherever they come from; inputs may be anywhere in memory."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import tvm_tiling as tt
from tvm_tiling.runtime.array_io import as_arrays, spans

SHAPE = (6, 16)
WEIGHT = np.arange(96, dtype="float32").reshape(SHAPE)


@pytest.fixture(scope="module")
def compiled():
    """x itself, x reshaped, a constant, x plus the constant, and that reshaped."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            weight = relax.const(WEIGHT)
            total = builder.emit(op.add(x, weight))
            results = [x, op.reshape(x, (16, 6)), weight, total, op.reshape(total, (96,))]
            given = builder.emit_output(relax.Tuple([builder.emit(result) for result in results]))
        builder.emit_func_output(given)
    return tt.compile(builder.finalize(), cache=False)


def wanted(x):
    return [x, x.reshape(16, 6), WEIGHT, x + WEIGHT, (x + WEIGHT).reshape(96)]


def assert_outputs(found, x):
    for got, value in zip(found, wanted(x), strict=True):
        np.testing.assert_array_equal(got, value)


def test_no_output_is_memory_of_anything_else(compiled):
    rng = np.random.default_rng(0)
    x, later = (rng.normal(size=SHAPE).astype("float32") for _ in range(2))
    first, second = compiled.run(x), compiled.run(later)
    assert_outputs(first, x)
    for got in first:
        got[...] = -1
    assert_outputs(second, later)
    assert_outputs(compiled.run(x), x)


def test_inputs_may_be_strided_and_read_only(compiled):
    wide = np.random.default_rng(1).normal(size=(6, 33)).astype("float32")
    x = wide[:, 1::2]
    x.flags.writeable = False
    assert_outputs(compiled.run(x), x)


def test_what_numpy_has_no_type_for_is_copied():
    tensor = tvm.runtime.empty((4,), "bfloat16")
    tensor.copyfrom(np.zeros(4, "uint16"))
    (array,) = as_arrays([tensor], spans([tensor]))
    assert str(array.dtype) == "bfloat16" and not array.astype("float32").any()


def test_an_output_of_its_own_is_not_copied():
    tensor, constant = tvm.runtime.empty((4,), "float32"), tvm.runtime.empty((4,), "float32")
    first, second = as_arrays([tensor, tensor], spans([constant]))
    assert np.shares_memory(first, np.from_dlpack(tensor)) and not np.shares_memory(first, second)
