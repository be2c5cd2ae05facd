"""Models compiled for several sizes: the run uses the variant of its inputs, a saved file contains all."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

import tvm_tiling as tt
from tvm_tiling.errors import WorkloadError
from tvm_tiling.model.open_sizes import settings_of

WEIGHTS = np.random.default_rng(0).uniform(-1, 1, (24, 16)).astype("float32")


def open_product() -> tvm.IRModule:
    """relu(x (batch, 24) * weights)."""
    builder, batch = relax.BlockBuilder(), tvm.tirx.Var("batch", "int64")
    x = relax.Var("x", relax.TensorType((batch, 24), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(x, relax.const(WEIGHTS)))
            result = builder.emit_output(relax.op.nn.relu(product))
        builder.emit_func_output(result)
    return builder.get()


@pytest.fixture(scope="module")
def compiled():
    return tt.compile(open_product(), batch=(1, 4, 9), cache=False)


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(count).uniform(-1, 1, (count, 24)).astype("float32")


def check(exe: tt.Executable, count: int) -> None:
    x = rows(count)
    np.testing.assert_allclose(exe.run(x), np.maximum(x @ WEIGHTS, 0), rtol=1e-4, atol=1e-5)


def test_every_size_has_its_variant(compiled):
    assert [variant.signature.input_shapes for variant in compiled.variants] == [((1, 24),), ((4, 24),), ((9, 24),)]
    for count in (1, 4, 9, 4, 1):
        check(compiled, count)
    assert all("outputs: output" in variant.signature.lines() for variant in compiled.variants)


def test_another_size_is_refused_with_those_that_are_there(compiled):
    with pytest.raises(WorkloadError) as refused:
        compiled.run(rows(2))
    assert str(refused.value) == (
        "input 'x' has shape (2, 24), but the model was compiled for (1, 24) or (4, 24) or (9, 24)"
    )


def test_a_saved_file_keeps_every_variant(compiled, tmp_path):
    compiled.save(tmp_path / "model.tar")
    again = tt.load(tmp_path / "model.tar")
    assert again.describe() == compiled.describe() | {"compile_seconds": 0.0}
    for count in (9, 1, 4):
        check(again, count)


def test_equal_weights_are_kept_once(compiled):
    held = sum(place.size for place in compiled._constants.places)
    assert held < sum(variant.memory.weights for variant in compiled.variants)


def test_the_report_is_of_the_variant_measured_last(compiled):
    assert compiled.benchmark(rows(9), seconds=0.02).runs >= 5
    (product,) = (record for record in compiled.report().operators if record.kind == "gemm")
    assert product.flops == 2 * 9 * 24 * 16


def test_one_size_is_one_variant():
    exe = tt.compile(open_product(), dims={"batch": 5}, cache=False)
    assert len(exe.variants) == 1
    check(exe, 5)


def test_combinations_in_order():
    settings = settings_of((1, 4, 1), {"seq": 128, "heads": [2, 8]})
    assert [(s.batch, s.dims) for s in settings] == [
        (1, {"seq": 128, "heads": 2}),
        (1, {"seq": 128, "heads": 8}),
        (4, {"seq": 128, "heads": 2}),
        (4, {"seq": 128, "heads": 8}),
    ]


@pytest.mark.parametrize("wrong", [0, -1, True, (), "4", (1, 2.5), 1.0])
def test_what_is_not_a_size_is_refused(wrong):
    with pytest.raises(WorkloadError, match="expected a whole number from 1 to 2147483647, or several"):
        tt.compile(open_product(), batch=wrong)
    with pytest.raises(WorkloadError, match=r"dims\['seq'\] = .*expected"):
        tt.compile(open_product(), dims={"seq": wrong})


def test_too_many_combinations_are_refused():
    with pytest.raises(WorkloadError, match=r"result in 65 combinations.*expected 64"):
        tt.compile(open_product(), batch=tuple(range(1, 66)))


def test_what_knows_no_configs_is_not_a_database():
    with pytest.raises(tt.DatabaseError, match=r"database = 'sqlite:///shapes.db'; expected a ShapeDatabase"):
        tt.compile(open_product(), database="sqlite:///shapes.db", batch=1)
