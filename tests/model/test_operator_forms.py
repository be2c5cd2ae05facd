"""What reports say about operators without a decision."""

from __future__ import annotations

import pytest
from tvm import relax, te, tirx

import tvm_tiling as tt
from tvm_tiling.model.operator_forms import form_of

IMAGE = te.placeholder((4, 6), name="image")
K = te.reduce_axis((0, 6), name="k")
COMPUTED = {
    "element-wise": te.compute((4, 6), lambda i, j: te.exp(IMAGE[i, j]) + 1),
    "reduction": te.compute((4,), lambda i: te.sum(IMAGE[i, K], axis=K)),
    "data movement": te.compute((6, 4), lambda i, j: IMAGE[j, i]),
}
PADDED = te.compute((6, 6), lambda i, j: tirx.if_then_else(i < 4, IMAGE[tirx.min(i, 3), j], tirx.const(0, "float32")))


@pytest.mark.parametrize("form", COMPUTED)
def test_functions_are_named_by_what_they_compute(form):
    assert form_of(te.create_prim_func([IMAGE, COMPUTED[form]])) == form


def test_padding_moves_data():
    assert form_of(te.create_prim_func([IMAGE, PADDED])) == "data movement"


def test_functions_that_are_never_fused_have_no_name():
    scan = te.create_prim_func([IMAGE, COMPUTED["element-wise"]]).with_attr("op_pattern", 8)
    assert form_of(scan) is None


def test_reports_do_not_say_other():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 6), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.nn.softmax(builder.emit(relax.op.permute_dims(x))))
        builder.emit_func_output(out)
    exe = tt.compile(builder.get(), cache=False)
    assert {operator.form for operator in exe.operators} <= set(COMPUTED)
