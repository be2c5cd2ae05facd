"""Relay models with dynamic dimensions."""

from __future__ import annotations

import numpy as np
import pytest
from open_judge import check, guards
from relay_cases import Case
from relay_json import json_of
from relay_open import judged

import tvm_tiling as tt
from tvm_tiling.errors import ModelFormatError, TilingError, UnsupportedOperator
from tvm_tiling.frontend import load_model
from tvm_tiling.sizes import Named

RNG = np.random.default_rng(3)
W = RNG.normal(size=(4, 8)).astype("float32")
B = RNG.normal(size=4).astype("float32")
# Attention as exporters emit it: shapes are computed from shapes.
ATTENTION = """def @main(%x: Tensor[(?, ?, 8), float32], %y: Tensor[(?, ?, 8), float32], %w: Tensor[(4, 8), float32]) {
  %0 = add(%x, %y);
  %1 = shape_of(%0, dtype="int32");
  %2 = take(%1, 0, axis=0);
  %3 = take(%1, 1, axis=0);
  %4 = reshape(%0, newshape=[-1, 8]);
  %5 = nn.dense(%4, %w);
  %6 = stack((%2, %3, -1), axis=0);
  %7 = dyn.reshape(%5, %6);
  %8 = nn.batch_matmul(%7, %7, transpose_b=True);
  (nn.softmax(%8), %1)
}"""


def attention(arrays):
    x, y = arrays
    made = (x + y) @ W.T
    scores = made @ made.transpose(0, 2, 1)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return [shares / shares.sum(-1, keepdims=True), np.array(x.shape, "int32")]


@pytest.mark.parametrize("form", ["text", "json"])
def test_sizes_that_a_model_makes_equal_have_one_name(form):
    model = ATTENTION.encode() if form == "text" else json_of(ATTENTION, "0.14.0")
    imported = load_model(model, params={"w": W}, leave_open=True)
    shape = (Named("x[0]"), Named("x[1]"), 8)
    assert imported.input_shapes == (shape, shape)
    assert guards(imported) == []
    at = [{"x[0]": b, "x[1]": n} for b, n in ((1, 1), (2, 3), (1, 17), (3, 8), (5, 40))]
    check(imported, at, attention)


def test_sizes_that_a_model_fixes_are_not_open():
    text = "def @main(%x: Tensor[(?, ?), float32], %w: Tensor[(4, 8), float32]) { nn.relu(nn.dense(%x, %w)) }"
    imported = load_model(text.encode(), params={"w": W}, leave_open=True)
    assert imported.input_shapes == ((Named("x[0]"), 8),)


def test_inputs_of_other_sizes_are_refused():
    exe = tt.compile(ATTENTION.encode(), params={"w": W}, dims={"x[1]": (1, 16)}, cache=False)
    x = np.ones((2, 3, 8), "float32")
    with pytest.raises(
        TilingError, match=r"input 'y' has shape \(1, 3, 8\), but the model takes \(x\[0\], x\[1\], 8\)"
    ):
        exe.run(x, x[:1])
    with pytest.raises(TilingError, match=r"size 'x\[1\]' of the inputs is 17; expected 1 to 16"):
        exe.run(np.ones((1, 17, 8), "float32"), np.ones((1, 17, 8), "float32"))
    with pytest.raises(ModelFormatError, match=r"dims names 'n'; expected x\[0\]"):
        tt.compile(ATTENTION.encode(), params={"w": W}, dims={"n": (1, 16)}, cache=False)


def test_sizes_may_be_given():
    text = b"def @main(%x: Tensor[(?, ?), float32]) { nn.relu(%x) }"
    assert load_model(text, leave_open=True, batch=4).input_shapes == ((4, Named("x[1]")),)
    assert load_model(text, leave_open=True, dims={"x[1]": 3}).input_shapes == ((Named("x[0]"), 3),)
    assert load_model(text, leave_open=True, shapes={"x": (2, 5)}).input_shapes == ((2, 5),)
    with pytest.raises(ModelFormatError, match=r"is dynamic; expected shapes=.* or dims=\{'x\[0\]': ...\}"):
        load_model(text)


def test_what_takes_sizes_is_named():
    text = b"def @main(%x: Tensor[(?, 3, ?, 8), float32]) { image.resize2d(nn.relu(%x), size=[4, 4]) }"
    with pytest.raises(UnsupportedOperator) as raised:
        load_model(text, leave_open=True)
    said = str(raised.value)
    assert (
        "image.resize2d: not supported for the dynamic dimensions 'x[0]', 'x[2]' (images of dynamic height or width)"
        in said
    )
    assert "expected numbers for them, by batch, dims or shapes (line 1)" in said
    imported = load_model(text, leave_open=True, dims={"x[2]": 8})
    assert imported.input_shapes == ((Named("x[0]"), 3, 8, 8),)


X = RNG.normal(size=(2, 3, 4)).astype("float32")


@pytest.mark.parametrize(
    "case",
    [
        Case("nn.bias_add(nn.dense(%a, %w), %b)", {"a": X[0, :, :].repeat(2, 1)}, X, {"w": W, "b": B}),
        Case("strided_slice(%a, begin=[1, 0, -1], end=[2, 3, -5], strides=[1, 1, -1])", {"a": X}, X[1:, :, ::-1]),
        Case("strided_slice(%a, begin=[0, 1], end=[-1, 2], slice_mode=\"size\", axes=[0, 1])", {"a": X}, X[:, 1:3]),
        Case("variance(%a, mean(%a, axis=[1], keepdims=True), axis=[1])", {"a": X}, X.var(1)),
        Case("split(%a, indices_or_sections=[1], axis=1)", {"a": X}, [X[:, :1], X[:, 1:]]),
        Case("tile(%a, reps=[2, 1, 3])", {"a": X}, np.tile(X, (2, 1, 3))),
        Case("nn.mirror_pad(%a, pad_width=[[0, 0], [1, 1], [0, 0]])", {"a": X}, X[:, [0, 0, 1, 2, 2]]),
        Case("topk(%a, k=2, axis=-1, ret_type=\"values\")", {"a": X}, -np.sort(-X, -1)[..., :2]),
    ],
    ids=lambda case: case.text.split("(")[0],
)  # fmt: skip
def test_operators_at_five_sizes(case):
    if case.text.startswith("nn.bias_add"):
        a = case.inputs["a"]
        case = Case(case.text, case.inputs, (a @ W.T + B).astype("float32"), case.constants)
    assert judged(case, 4) == "right"
