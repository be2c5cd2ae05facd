"""Kernels of these tests are compiled as those of models: without named blocks, which take a third of the time to write
(test_named_blocks.py), without the code by which TVM checks its arguments, a third of LLVM's time, and at the level of
LLVM's optimisation of models.

A fourth of the tests, and those marked `blocks`, are compiled as TVM does by default.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
import tvm

from tvm_tiling.lowering.named_blocks import without_blocks
from tvm_tiling.model.kernels import LEVEL
from tvm_tiling.model.machine_code import at_level

build: Any = importlib.import_module("tvm.tirx.build")  # tvm.tirx.build is the function of that name
codegen_build = build.codegen_build


@pytest.fixture(autouse=True)
def as_in_models(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if request.node.get_closest_marker("blocks") or zlib.crc32(request.node.nodeid.encode()) % 4 == 0:
        yield
        return
    monkeypatch.setattr(build, "codegen_build", lambda mod, target: codegen_build(mod, at_level(target, LEVEL)))
    # opt_level is TVM's default
    with tvm.transform.PassContext(opt_level=2, config={"tirx.disable_assert": True}), without_blocks():
        yield
