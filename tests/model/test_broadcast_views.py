"""Broadcasts to a reshaped tensor become broadcasts to the original tensor, if no axis is broadcast in part."""

from __future__ import annotations

import numpy as np
import pytest

from tvm_tiling.model.passes.views import _broadcast_before


@pytest.mark.parametrize(
    ("own", "shape", "before", "moved"),
    [
        ((1, 4, 1, 49, 49), (1, 4, 12, 49, 49), (4, 12, 49, 49), (4, 1, 49, 49)),
        ((49, 49), (1, 4, 12, 49, 49), (4, 12, 49, 49), (1, 1, 49, 49)),
        ((1, 4, 1, 49, 49), (1, 4, 12, 49, 49), (48, 49, 49), None),
        ((1, 12, 1, 1), (2, 12, 49, 49), (24, 49, 49), None),
        ((2, 1, 1, 49), (2, 12, 49, 49), (2, 12, 49, 49), (2, 1, 1, 49)),
        ((1, 1, 12, 1, 1), (1, 4, 12, 49, 49), (4, 12, 49, 49), (1, 12, 1, 1)),
        ((3, 1, 5), (3, 1, 5), (1, 3, 5), (1, 3, 5)),
        ((1, 1, 5), (3, 1, 5), (3, 5), (1, 5)),
        ((6,), (2, 6), (12,), None),
        ((2, 6), (2, 6), (12,), (12,)),
        ((4, 1), (4, 6), (4, 2, 3), (4, 1, 1)),
        ((1, 6), (4, 6), (4, 2, 3), (1, 2, 3)),
        ((1, 6), (4, 6), (2, 2, 6), (1, 1, 6)),
    ],
)
def test_the_same_sum_before_and_after_the_reshape(own, shape, before, moved):
    assert _broadcast_before(own, shape, before) == moved
    if moved is not None:
        rng = np.random.default_rng(0)
        x, y = rng.random(before), rng.random(own)
        np.testing.assert_array_equal(x.reshape(shape) + y, (x + y.reshape(moved)).reshape(shape))
