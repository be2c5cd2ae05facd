"""Kernels of these tests are compiled as those of models: without named blocks, which take a third of the time to write
(test_named_blocks.py), and without the code by which TVM checks its arguments, a third of LLVM's time.

A fourth of the tests, and those marked `blocks`, keep both.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import pytest
import tvm

from tvm_tiling.lowering.named_blocks import without_blocks


@pytest.fixture(autouse=True)
def as_in_models(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.node.get_closest_marker("blocks") or zlib.crc32(request.node.nodeid.encode()) % 4 == 0:
        yield
        return
    # opt_level is TVM's default
    with tvm.transform.PassContext(opt_level=2, config={"tirx.disable_assert": True}), without_blocks():
        yield
