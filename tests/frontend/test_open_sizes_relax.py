"""Relax modules with dynamic shapes."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from open_judge import check, guards
from tvm import relax, tirx

from tvm_tiling.errors import ModelFormatError
from tvm_tiling.frontend import load_model
from tvm_tiling.sizes import Named, Operation


def module_of(build, *shapes):
    """Return a module whose function is the result of `build` for parameters of these shapes."""
    builder = relax.BlockBuilder()
    given = [relax.Var(f"x{place}", relax.TensorType(shape, "float32")) for place, shape in enumerate(shapes)]
    with builder.function("main", given):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(build(*given)))
        builder.emit_func_output(result)
    return builder.get()


def test_variables_are_the_open_sizes():
    b, s = (tirx.Var(name, "int64") for name in ("b", "s"))
    imported = load_model(module_of(relax.op.add, (b, s, 3), (b, 1, 3)), leave_open=True)
    assert imported.input_shapes == ((Named("b"), Named("s"), 3), (Named("b"), 1, 3))
    assert imported.open_sizes.names == ("b", "s")
    check(imported, [{"b": 2, "s": 5}, {"b": 1, "s": 1}], lambda arrays: [arrays[0] + arrays[1]])


def test_some_sizes_may_be_given():
    b, s = (tirx.Var(name, "int64") for name in ("b", "s"))
    module = module_of(relax.op.add, (b, s, 3), (b, 1, 3))
    assert load_model(module, leave_open=True, batch=4).open_sizes.names == ("s",)
    assert not load_model(module, leave_open=True, dims={"b": 1, "s": 2}).open_sizes
    with pytest.raises(ModelFormatError, match="is dynamic; expected"):
        load_model(module)


def test_two_variables_of_one_name_are_two_sizes():
    first, second = (tirx.Var("n", "int64") for _ in range(2))
    imported = load_model(module_of(lambda x, y: relax.op.matmul(x, y), (first, 3), (3, second)), leave_open=True)
    assert imported.open_sizes.names == ("n", "n_")
    check(imported, [{"n": 2, "n_": 5}], lambda arrays: [arrays[0] @ arrays[1]])


def test_a_computed_size_has_to_be_one():
    n = tirx.Var("n", "int64")
    imported = load_model(module_of(lambda x, y: relax.op.concat([x, y]), (n,), (n - 3,)), leave_open=True)
    assert imported.input_shapes[1] == (Operation("-", Named("n"), 3),)
    assert guards(imported) == ["1 <= n - 3"]
    check(imported, [{"n": 4}, {"n": 9}], lambda arrays: [np.concatenate(arrays)])


def test_windows_have_to_fit_the_images():
    h = tirx.Var("h", "int64")
    weights = relax.const(np.ones((2, 3, 5, 5), "float32"))
    imported = load_model(module_of(lambda x: relax.op.nn.conv2d(x, weights), (1, 3, h, 8)), leave_open=True)
    assert guards(imported) == ["1 <= h - 4"]


def test_shapes_of_unknown_extents_are_refused():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(ndim=2, dtype="float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.exp(x)))
    with pytest.raises(ModelFormatError, match=r"parameter 'x' \(of any shape\) is dynamic"):
        load_model(builder.get(), leave_open=True)
    assert isinstance(builder.get(), tvm.IRModule)
