"""Relax modules are used unchanged."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from default_build import run
from tvm import relax

from tvm_tiling.errors import ModelFormatError
from tvm_tiling.frontend import load_model


def product(rows=2, name="main"):
    builder = relax.BlockBuilder()
    x, w = relax.Var("x", relax.TensorType((rows, 3), "float32")), relax.Var("w", relax.TensorType((3, 4), "float32"))
    with builder.function(name, [x, w]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.matmul(x, w))
        builder.emit_func_output(result)
    return builder.get()


def test_a_module_is_copied():
    module = product()
    loaded = load_model(module)
    assert (loaded.input_names, loaded.input_shapes) == (("x", "w"), ((2, 3), (3, 4)))
    assert (loaded.input_dtypes, loaded.output_names, loaded.source) == (("float32",) * 2, ("output",), "relax")
    assert not loaded.module.same_as(module)
    tvm.ir.assert_structural_equal(loaded.module, module)


@pytest.mark.parametrize("wrap", [np.asarray, tvm.runtime.tensor])
def test_params_become_constants(wrap):
    x, w = (np.random.default_rng(0).normal(size=shape).astype("float32") for shape in ((2, 3), (3, 4)))
    loaded = load_model(product(), params={"w": wrap(w)})
    assert loaded.input_names == ("x",)
    np.testing.assert_allclose(run(loaded, [x])[0], x @ w, rtol=1e-5)


@pytest.mark.parametrize(
    "module, options, words",
    [
        (product(name="other"), {}, "no Relax function 'main' but 'other'"),
        (tvm.IRModule(), {}, "no Relax function 'main' but none"),
        (product(tvm.tirx.Var("n", "int64")), {}, "shape of parameter 'x'.*is dynamic; expected batch=.*dims=\\{'n'"),
        (product(), {"params": {"v": np.zeros(1)}}, "params names 'v'; the parameters are 'x', 'w'"),
        (product(), {"params": {"w": np.zeros((3, 4))}}, "float64 .*expected float32 of shape \\(3, 4\\)"),
        (product(), {"shapes": {"x": (1, 3)}}, "shapes cannot be given"),
    ],
)
def test_modules_that_are_refused(module, options, words):
    with pytest.raises(ModelFormatError, match=words):
        load_model(module, **options)
