"""Tensors interleaved along a short axis, as by a channel shuffle: copied in vectors, whatever each element comes
from."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, topi

import tvm_tiling as tt
from tvm_tiling.schedule import this_cpu
from tvm_tiling.schedules.fallback import schedule_fallback


def shuffled(tensors: list[te.Tensor], kind: str) -> te.Tensor:
    """The channels of several images, last, one of each in turn."""
    joined = topi.concatenate(tensors, axis=-1) if len(tensors) > 1 else tensors[0]
    *before, channels = (int(extent) for extent in joined.shape)
    groups = len(tensors) if len(tensors) > 1 else 3
    wide = topi.reshape(joined, (*before, groups, channels // groups))
    turned = topi.transpose(wide, (*range(len(before)), len(before) + 1, len(before)))
    return topi.cast(topi.reshape(turned, joined.shape), kind)


@pytest.mark.parametrize(
    ("count", "shape", "kind", "result_kind"),
    [
        (2, (5, 7, 116), "float32", "float32"),
        (2, (3, 58), "float32", "float32"),
        (3, (4, 31), "float32", "float32"),
        (4, (9, 17), "float64", "float64"),
        (2, (6, 130), "int8", "int8"),
        (3, (2, 70), "int8", "int32"),
        (1, (2, 93), "float64", "float32"),
        (5, (2, 19), "int32", "int32"),
        (2, (3, 1), "float32", "float32"),
        (8, (3, 40), "float16", "float16"),
        (1, (5, 93), "float32", "float32"),
    ],
)
def test_channel_shuffles(count, shape, kind, result_kind):
    tensors = [te.placeholder(shape, kind, f"x{number}") for number in range(count)]
    out = shuffled(tensors, result_kind)
    func = schedule_fallback(te.create_prim_func([*tensors, out]), "main", this_cpu())
    built = tvm.compile(tvm.IRModule({"main": func}), target=tt.llvm_target())
    generator = np.random.default_rng(count)
    arrays = [generator.integers(-100, 100, shape).astype(kind) for _ in tensors]
    result = tvm.runtime.empty([int(extent) for extent in out.shape], result_kind)
    built["main"](*(tvm.runtime.tensor(array) for array in arrays), result)
    joined = np.concatenate(arrays, -1)
    groups = count if count > 1 else 3
    want = joined.reshape(*joined.shape[:-1], groups, -1).swapaxes(-1, -2).reshape(joined.shape)
    np.testing.assert_array_equal(result.numpy(), want)
    if shape[-1] >= 16 and kind != "bfloat16":
        assert "T.Shuffle" in func.script() and "if_then_else" not in func.script()
