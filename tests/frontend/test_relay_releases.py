"""Changes between TVM releases, one test each: old files keep their original meaning.

Where only the notation changed, the old notation gives the same module as the new one, in text and JSON.
"""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from relay_cases import Case, check, outputs
from relay_files import JsonWriter
from relay_json import json_of
from relay_reference import transposed

from tvm_tiling.frontend import load_model
from tvm_tiling.frontend.relay.import_relay import read_relay

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3)).astype("float32")
OLD = "v0.0.4\n"


def module(model: str | bytes) -> tvm.IRModule:
    content = model.encode() if isinstance(model, str) else model
    return read_relay(content, shapes={}, batch=None, params=None, where="model").imported.module


def program(inputs: dict[str, str], body: str, header: str = "") -> str:
    """Return a text with inputs of types such as "(2, 3) float32"."""
    listed = []
    for name, kind in inputs.items():
        shape, _, dtype = kind.rpartition(" ")
        listed.append(f"%{name}: Tensor[{shape}, {dtype}]")
    return f"{header}def @main({', '.join(listed)}) {{ {body} }}"


def check_same(inputs: dict[str, str], old: str, new: str, release: str) -> None:
    """An expression of `release` and a current one give the same module, the old one from text and from JSON."""
    wanted = module(program(inputs, new))
    tvm.ir.assert_structural_equal(module(program(inputs, old)), wanted)
    tvm.ir.assert_structural_equal(module(json_of(program(inputs, old), release)), wanted)


def test_batch_matmul_had_no_flags_before_0_8():
    a, b, square = RNG.normal(size=(2, 3, 4)), RNG.normal(size=(2, 5, 4)), RNG.normal(size=(2, 4, 4))
    a, b, square = (np.asarray(value, "float32") for value in (a, b, square))
    # By the shapes, only A B^T is possible.
    check([Case("nn.batch_matmul(%a, %b)", {"a": a, "b": b}, a @ b.transpose(0, 2, 1))], release="0.7.0")
    # A square operand: unchanged since 0.8, transposed before.
    check([Case("nn.batch_matmul(%a, %b)", {"a": a, "b": square}, a @ square)])
    check([Case("nn.batch_matmul(%a, %b)", {"a": a, "b": square}, a @ square.transpose(0, 2, 1))], OLD, release="0.7.0")


def test_transposed_weights_had_another_name_before_0_12():
    """Until 0.11 the layout was called OIHW with inputs first; the release determines the meaning of a square
    weight."""
    x, w = RNG.normal(size=(1, 3, 4, 4)), RNG.normal(size=(3, 3, 2, 2))
    x, w = np.asarray(x, "float32"), np.asarray(w, "float32")
    for release, weight in (("0.11.0", w), ("0.12.0", w.transpose(1, 0, 2, 3))):
        writer = JsonWriter(release)
        given, kernel = writer.var("x", writer.tensor(x.shape)), writer.constant(np.ascontiguousarray(weight))
        attrs = writer.add(
            "relay.attrs.Conv2DTransposeAttrs", kernel_layout=writer.text("OIHW"), strides=writer.numbers([1, 1])
        )
        body = writer.call(writer.op("nn.conv2d_transpose"), [given, kernel], attrs)
        model = load_model(writer.module({"main": writer.function([given], body)}))
        wanted = np.asarray(transposed(x, w, [1, 1], [0] * 4, [0, 0]), "float32")
        np.testing.assert_allclose(outputs(model.module, [x])[0], wanted, rtol=1e-4, atol=1e-4)


def test_the_value_of_pad_was_an_attribute_before_0_8():
    padded = np.pad(X, [(0, 1), (2, 0)], constant_values=1.5)
    check(
        [
            Case("nn.pad(%a, pad_width=[[0, 1], [2, 0]], pad_value=1.5f)", {"a": X}, padded),
            Case("nn.pad(%a, 1.5f, pad_width=[[0, 1], [2, 0]])", {"a": X}, padded),
            Case("nn.pad(%a, pad_width=[[0, 1], [2, 0]])", {"a": X}, np.pad(X, [(0, 1), (2, 0)])),
        ]
    )
    widths = "pad_width=[[0, 1], [2, 0]]"
    check_same({"a": "(2, 3) float32"}, f"nn.pad(%a, {widths}, pad_value=1.5f)", f"nn.pad(%a, 1.5f, {widths})", "0.7.0")


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        (
            "float32",
            'qnn.quantize(%x, output_zero_point=3, output_scale=0.5f, out_dtype="int8")',
            'qnn.quantize(%x, 0.5f, 3, out_dtype="int8")',
        ),
        ("int8", "qnn.dequantize(%x, input_zero_point=3, input_scale=0.5f)", "qnn.dequantize(%x, 0.5f, 3)"),
        (
            "int32",
            "qnn.requantize(%x, input_scale=0.3f, input_zero_point=1, output_scale=0.5f, output_zero_point=2, "
            'rounding="UPWARD", out_dtype="int8")',
            'qnn.requantize(%x, 0.3f, 1, 0.5f, 2, out_dtype="int8")',
        ),
    ],
    ids=["quantize", "dequantize", "requantize"],
)
def test_scales_were_attributes_before_0_7(kind, old, new):
    check_same({"x": f"(2, 3) {kind}"}, old, new, "0.6.0")


def test_requantize_rounded_upward_unless_told_otherwise_until_0_8():
    body = 'qnn.requantize(%x, 0.5f, 0, 1f, 0, {}out_dtype="int8")'
    inputs = {"x": "(4) int32"}
    for stated, release in (('rounding="UPWARD", ', "0.8.0"), ("", "0.9.0"), ('rounding="None", ', "0.9.0")):
        check_same(inputs, body.format(stated), body.format('rounding="UPWARD", '), release)
    away, upward = (module(program(inputs, body.format(f'rounding="{how}", '))) for how in ("TONEAREST", "UPWARD"))
    with pytest.raises(ValueError, match="StructuralEqual"):
        tvm.ir.assert_structural_equal(away, upward)


def test_thresholds_of_boxes_were_attributes_before_0_8():
    check_same(
        {"x": "(1, 4, 6) float32"},
        "vision.get_valid_counts(%x, score_threshold=0.25f)",
        "vision.get_valid_counts(%x, 0.25f)",
        "0.7.0",
    )
    inputs = {"x": "(1, 4, 6) float32", "n": "(1) int32", "i": "(1, 4) int32"}
    new = "vision.non_max_suppression(%x, %n, %i, 3, 0.25f, return_indices=False)"
    # The maximum number of boxes became an operand in 0.7, the threshold in 0.8.
    attributes = "max_output_size=3, iou_threshold=0.25f, return_indices=False"
    check_same(inputs, f"vision.non_max_suppression(%x, %n, %i, {attributes})", new, "0.6.0")
    check_same(
        inputs,
        "vision.non_max_suppression(%x, %n, %i, 3, iou_threshold=0.25f, return_indices=False)",
        new,
        "0.7.0",
    )


@pytest.mark.parametrize(
    ("codes", "shape"),
    [
        ("0, -1", "2, 12"),
        ("-1, 0, 0", "2, 3, 4"),
        ("-2", "2, 3, 4"),
        ("-3, 4", "6, 4"),
        ("-4, 1, 2, -2", "1, 2, 3, 4"),
        ("-4, -1, 2, -3", "1, 2, 12"),
        ("0, -3", "2, 12"),
    ],
)
def test_codes_of_reshape(codes, shape):
    """0 keeps, -1 is the remainder, -2 all remaining, -3 merges two, -4 splits one in two."""
    check_same(
        {"x": "(2, 3, 4) float32"}, f"reshape(%x, newshape=[{codes}])", f"reshape(%x, newshape=[{shape}])", "0.7.0"
    )


def test_slices_had_no_mode_before_0_7_and_no_axes_before_0_8():
    inputs = {"x": "(4, 6, 5) float32"}
    whole = "strided_slice(%x, begin=[1, 2, 0], end=[3, 5, 5], strides=[1, 1, 1])"
    check_same(inputs, "strided_slice(%x, begin=[1, 2], end=[3, 5], strides=[1, 1])", whole, "0.6.0")
    check_same(inputs, 'strided_slice(%x, begin=[1, 2], end=[2, 3], strides=[1], slice_mode="size")', whole, "0.7.0")
    chosen = "strided_slice(%x, begin=[2, 1], end=[5, 3], strides=[1, 1], axes=[1, 0])"
    check_same(inputs, chosen, chosen, "0.8.0")
    assert "(2, 3, 5)" in str(module(program(inputs, chosen))["main"].ret_ty)


def test_where_chose_rows_before_0_8():
    rows, columns = np.array([True, False]), np.array([False, True, True])
    by_row, by_column = np.where(rows[:, None], X, -X), np.where(columns, X, -X)
    # A vector that fits only one way is used that way.
    check([Case("where(%c, %a, %b)", {"c": rows, "a": X, "b": -X}, by_row)], release="0.7.0")
    check([Case("where(%c, %a, %b)", {"c": columns, "a": X, "b": -X}, by_column)])
    square = X[:, :2]
    case = {"c": rows, "a": square, "b": -square}
    check([Case("where(%c, %a, %b)", case, np.where(rows, square, -square))])
    check([Case("where(%c, %a, %b)", case, np.where(rows[:, None], square, -square))], OLD, release="0.7.0")


def test_the_number_of_the_best_was_an_attribute_alone_before_0_7():
    inputs = {"x": "(4, 6) float32"}
    check_same(inputs, 'topk(%x, k=2, dtype="int32")', 'dyn.topk(%x, 2, dtype="int32")', "0.6.0")


def test_images_were_resized_by_one_operator_before_0_8():
    inputs = {"x": "(1, 3, 4, 6) float32"}
    check_same(
        inputs,
        'image.resize(%x, size=[8, 12], method="nearest_neighbor", coordinate_transformation_mode="asymmetric")',
        'image.resize(%x, size=[8, 12], method="nearest_neighbor", align_corners=False, '
        'coordinate_transformation_mode="asymmetric")',
        "0.7.0",
    )
