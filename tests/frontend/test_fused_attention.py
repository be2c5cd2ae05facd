"""MultiHeadAttention and Attention of the domain com.microsoft, compared with onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_judge import by_onnxruntime, check, newer_judge

import tvm_tiling as tt
from tvm_tiling.errors import UnsupportedOperator

RNG = np.random.default_rng(0)
BATCH, LENGTH, KEYS, PAST, HEADS, WIDTH = 2, 5, 7, 3, 4, 8
HIDDEN = HEADS * WIDTH


def floats(*shape):
    return RNG.standard_normal(shape).astype("float32")


def model(operator, given, outputs, shapes=None, **attributes):
    """Return a node on `given`, inputs by name; None for one that is left out. `shapes`: of inputs, with names of
    sizes."""
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), (shapes or {}).get(name, value.shape)
        )
        for name, value in given.items()
        if value is not None
    ]
    names = [name if value is not None else "" for name, value in given.items()]
    node = helper.make_node(operator, names, outputs, domain="com.microsoft", num_heads=HEADS, **attributes)
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(
        helper.make_graph([node], "attention", inputs, results), opset_imports=opsets, ir_version=10
    )


def present(given):
    return {name: value for name, value in given.items() if value is not None}


def mask_of(kind, length, total, batch=BATCH):
    found = np.ones((batch, total), "int32")
    found[-1, : total // 2] = 0
    return {
        "": None,
        "lengths": np.resize(np.array([total, total - 2], "int32"), batch),
        "ends": np.array([total] * batch + [total // 3] * batch, "int32"),
        "begins": np.array([total - 1] * batch + [0] * (2 * batch + 2), "int32"),
        "keys": found,
        "rows": np.repeat(found[:, None], length, axis=1),
        "one column": np.ones((batch, 1), "int32"),  # hides nothing
    }[kind]


@pytest.mark.parametrize(
    ("keys", "past", "mask", "bias", "added", "causal"),
    [
        ("own", 0, "", True, False, 0),
        ("own", PAST, "", False, False, 1),
        pytest.param("own", PAST, "rows", False, True, 1, marks=newer_judge),
        ("other", 0, "lengths", True, False, 0),
        ("other", PAST, "keys", False, True, 0),
        ("heads", 0, "keys", False, False, 0),
        ("heads", 0, "begins", True, False, 0),  # the queries' part of the bias
        ("wide values", 0, "", True, True, 1),
    ],
)
def test_multi_head_attention(keys, past, mask, bias, added, causal):
    count = KEYS if keys in ("other", "heads") else LENGTH
    width = 12 if keys == "wide values" else WIDTH
    total = count + past
    by_head = keys == "heads"
    given = {
        "q": floats(BATCH, LENGTH, HIDDEN),
        "k": floats(BATCH, HEADS, count, WIDTH) if by_head else floats(BATCH, count, HIDDEN),
        "v": floats(BATCH, HEADS, count, width) if by_head else floats(BATCH, count, HEADS * width),
        "bias": floats(2 * HIDDEN + HEADS * width) if bias else None,
        "mask": mask_of(mask, LENGTH, total),
        "added": floats(1, HEADS, LENGTH, total) if added else None,
    }
    if past:
        given |= {name: floats(BATCH, HEADS, past, WIDTH) for name in ("past_k", "past_v")}
    outputs = ["y", "present_k", "present_v"] if past else ["y"]
    check(model("MultiHeadAttention", given, outputs, unidirectional=causal), present(given), atol=1e-5)


def test_scores_are_returned_as_the_causal_mask_leaves_them():
    given = {name: floats(BATCH, LENGTH, HIDDEN) for name in "qkv"}
    check(model("MultiHeadAttention", given, ["y", "keys", "values", "scores"], unidirectional=1), given, atol=1e-5)


def test_a_session_keeps_keys_and_values():
    shapes = {name: ["batch", "length", HIDDEN] for name in "qkv"}
    shapes |= {f"past_key_values.0.{name}": ["batch", HEADS, "past", WIDTH] for name in ("key", "value")}
    given = {name: floats(1, 6, HIDDEN) for name in "qkv"}
    past = {name: floats(1, HEADS, 1, WIDTH) for name in shapes if name.startswith("past")}
    operands = {**given, "bias": None, "mask": None, "added": None, **past}
    outputs = ["y", "present.0.key", "present.0.value"]
    made = model("MultiHeadAttention", operands, outputs, shapes, unidirectional=1)
    session = tt.compile(made, cache=False, batch=1, dims={"past": (0, 64)}).session()
    (wanted,) = by_onnxruntime(model("MultiHeadAttention", given, ["y"], unidirectional=1), given)
    for first, end in ((0, 3), (3, 4), (4, 6)):
        found = session.run(**{name: value[:, first:end] for name, value in given.items()})
        np.testing.assert_allclose(found, wanted[:, first:end], atol=1e-5)


def test_packed_operands_are_those_apart():
    """onnxruntime computes them on GPUs only."""
    parts = [floats(BATCH, LENGTH, HEADS, WIDTH) for _ in range(3)]
    flat = dict(zip("qkv", (part.reshape(BATCH, LENGTH, HIDDEN) for part in parts), strict=True))
    (wanted,) = by_onnxruntime(model("MultiHeadAttention", flat, ["y"]), flat)
    for given in ({"q": np.stack(parts, axis=3)}, {"q": flat["q"], "k": np.stack(parts[1:], axis=3)}):
        found = tt.compile(model("MultiHeadAttention", given, ["y"]), cache=False).run(**given)
        np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("past", "mask", "added", "causal"),
    [
        (0, "lengths", False, 0),
        (0, "ends", False, 0),
        (0, "begins", False, 0),
        (0, "one column", False, 0),
        (0, "", True, 1),
        (PAST, "keys", False, 1),
        (PAST, "", False, 1),
    ],
)
def test_attention_with_its_gemms(past, mask, added, causal):
    total = LENGTH + past
    given = {
        "x": floats(BATCH, LENGTH, 12),
        "w": floats(12, 3 * HIDDEN),
        "bias": floats(3 * HIDDEN),
        "mask": mask_of(mask, LENGTH, total),
        "past": floats(2, BATCH, HEADS, past, WIDTH) if past else None,
        "added": floats(BATCH, HEADS, LENGTH, total) if added else None,
    }
    outputs = ["y", "present"] if past else ["y"]
    check(model("Attention", given, outputs, unidirectional=causal), present(given), rtol=1e-4, atol=1e-5)


def test_attention_with_heads_of_values_of_another_width():
    given = {"x": floats(BATCH, LENGTH, 12), "w": floats(12, 2 * HIDDEN + 16), "bias": floats(2 * HIDDEN + 16)}
    check(model("Attention", given, ["y"], qkv_hidden_sizes=[HIDDEN, HIDDEN, 16], scale=0.3), given, atol=1e-5)


@pytest.mark.parametrize(
    ("mask", "causal", "form"),
    [pytest.param("keys", 1, "fused", marks=pytest.mark.slow), ("", 1, "cached"), ("keys", 0, "fused")],
)
def test_symbolic_sizes_take_the_kernels_of_attention(mask, causal, form):
    shapes = {name: ["batch", "length", HIDDEN] for name in "qkv"}
    shapes |= {name: ["batch", HEADS, "past", WIDTH] for name in ("past_k", "past_v")} | {"mask": ["batch", "total"]}
    made = ours = None
    for batch, length, past in ((2, 5, 3), (1, 1, 0), (1, 1, 20), (1, 33, 40)):
        given = {name: floats(batch, length, HIDDEN) for name in "qkv"}
        given |= {"bias": None, "mask": mask_of(mask, length, length + past, batch), "added": None}
        given |= {name: floats(batch, HEADS, past, WIDTH) for name in ("past_k", "past_v")}
        if made is None:
            outputs = ["y", "present_k", "present_v"]
            made = model("MultiHeadAttention", given, outputs, shapes, unidirectional=causal)
            ours = tt.compile(made, cache=False, dims={"past": (0, 64)})
            assert [op.form for op in ours.report().operators if op.kind == "attention"] == [form]
        wanted = by_onnxruntime(made, present(given))
        for found, value in zip(ours.run(**present(given)), wanted, strict=True):
            np.testing.assert_allclose(found, value, atol=1e-5, err_msg=str((batch, length, past)))


@pytest.mark.parametrize(
    ("operator", "changed", "attributes", "said"),
    [
        ("MultiHeadAttention", {"k": floats(2, 7, 32), "v": floats(2, 7, 32)}, {"unidirectional": 1}, "5 and 7"),
        ("MultiHeadAttention", {"bias": floats(33)}, {}, r"bias has shape \[33\]; expected \[96\]"),
        ("MultiHeadAttention", {"mask": np.ones((2, 6), "int32")}, {}, r"mask has shape \[2, 6\]; expected \[2, 5\]"),
        ("MultiHeadAttention", {"v": None}, {}, "key and value do not have the same number of axes"),
        ("MultiHeadAttention", {"added": floats(1, 3, 5, 5)}, {}, "attention_bias has shape"),
        ("MultiHeadAttention", {"mask": np.ones(7, "int32")}, {}, "mask has 7 numbers for a batch of 2"),
        ("Attention", {}, {"do_rotary": 1}, "do_rotary is set; expected 0"),
        ("Attention", {}, {"qkv_hidden_sizes": [32, 32, 30]}, "three multiples of the heads"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(operator, changed, attributes, said):
    if operator == "Attention":
        given = {"x": floats(2, 5, 12), "w": floats(12, 96), **changed}
    else:
        given = {name: floats(2, 5, 32) for name in "qkv"} | {"bias": None, "mask": None, "added": None} | changed
    with pytest.raises(UnsupportedOperator, match=said):
        tt.compile(model(operator, given, ["y"], **attributes), cache=False)
