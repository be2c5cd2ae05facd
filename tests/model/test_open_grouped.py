"""Depthwise and grouped convolutions of dynamic size, and products of matrices by one vector each: computed with
vectors along the channels or along K, and equal to onnxruntime at every size."""

from __future__ import annotations

import warnings

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from same_bits import on_cores

import tvm_tiling as tt
from tvm_tiling.hardware.instruction_sets import instruction_set_of_this_cpu

OWN = instruction_set_of_this_cpu()
RNG = np.random.default_rng(0)
SIZES = (1, 2, 5, 16, 33)


def model(nodes, shape, constants, rank):
    """`nodes` are (operator, inputs, output, attributes); the input is x, the output y."""
    graph = helper.make_graph(
        [helper.make_node(op, ins.split(","), [out], **more) for op, ins, out, more in nodes],
        "open",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [f"y{axis}" for axis in range(rank)])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def check(made, shapes, **options):
    """Compare with onnxruntime, and return the operators of the report."""
    judge = onnxruntime.InferenceSession(made.SerializeToString())
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # there are no slow plain loops
        compiled = tt.compile(made, cache=False, **options)
    for shape in shapes:
        x = RNG.standard_normal(shape, np.float32)
        wanted = judge.run(None, {"x": x})[0]
        tolerance = 1e-5 if not options.get("precision") else 2e-2
        np.testing.assert_allclose(compiled.run(x), wanted, rtol=tolerance, atol=tolerance * np.abs(wanted).max())
    return compiled.report().operators


def windows(channels, groups, *kernel, out=None, **attributes):
    out = out or channels
    weights = RNG.standard_normal((out, channels // groups, *kernel), np.float32) / np.sqrt(np.prod(kernel))
    bias = RNG.standard_normal(out, np.float32)
    nodes = [("Conv", "x,w,b", "c", {"group": groups, **attributes}), ("Relu", "c", "y", {})]
    return nodes, {"w": weights.astype("float32"), "b": bias}


@pytest.mark.parametrize(
    ("channels", "groups", "kernel", "attributes"),
    [
        (24, 24, (3, 3), {"pads": (1, 1, 1, 1)}),
        (40, 40, (3, 3), {"pads": (1, 1, 1, 1), "strides": (2, 2)}),
        (17, 17, (7, 5), {"pads": (3, 2, 3, 2)}),
        (16, 16, (3, 3), {"pads": (2, 2, 2, 2), "dilations": (2, 2)}),
    ],
    ids=str,
)
def test_depthwise_on_images_of_any_size(channels, groups, kernel, attributes):
    nodes, constants = windows(channels, groups, *kernel, **attributes)
    made = model(nodes, ("n", channels, "h", "w"), constants, 4)
    shapes = [
        (batch, channels, high, wide) for batch, high, wide in zip((1, 2, 1, 1, 3), SIZES, SIZES[::-1], strict=True)
    ]
    (layer,) = [o for o in check(made, shapes) if o.name.startswith("fused_conv2d")]
    assert (layer.kind, layer.form) == ("convolution", "reduction") and layer.flops > 0


# Groups of fewer output channels than lanes, of as many, and of more. The last vector of channels may hold fewer
# groups, or lanes that are not in use, and the window of its inputs may have to end with the last channel.
GROUPED = [
    (64, 32, (3, 3), {"pads": (1, 1, 1, 1)}),
    (24, 6, (3, 3), {"pads": (1, 1, 1, 1), "strides": (2, 1)}),
    (40, 5, (3, 3), {"pads": (1, 1, 1, 1), "strides": (2, 2)}),
    (33, 11, (3, 3), {"pads": (2, 2, 2, 2), "dilations": (2, 2)}),
    (6, 2, (5, 3), {"pads": (2, 1, 2, 1)}),
    (32, 2, (3, 3), {"pads": (1, 1, 1, 1)}),
    (52, 2, (3, 3), {"pads": (0, 1, 1, 0)}),
    (34, 2, (1, 3), {"pads": (0, 2, 0, 2)}),
    (24, 8, (1, 1), {}),
    (18, 9, (3, 3), {"pads": (1, 1, 1, 1), "out": 27}),
    (48, 4, (3, 3), {"pads": (1, 1, 1, 1), "out": 12}),
    (12, 12, (3, 3), {"pads": (1, 1, 1, 1), "out": 36}),
    (90, 6, (3, 3), {"pads": (1, 1, 1, 1), "out": 6}),
    (20, 4, (7, 7), {"pads": (3, 3, 3, 3), "out": 52}),
]


@pytest.mark.parametrize(("channels", "groups", "kernel", "attributes"), GROUPED, ids=str)
def test_groups_on_images_of_any_size(channels, groups, kernel, attributes):
    nodes, constants = windows(channels, groups, *kernel, **attributes)
    made = model(nodes, ("n", channels, "h", "w"), constants, 4)
    sizes = [(batch, channels, 2 + high, 2 + wide) for batch, high, wide in ((1, 1, 1), (2, 2, 30), (1, 33, 5))]
    sizes += [(1, channels, 4, wide) for wide in range(5, 20)]
    (layer,) = [o for o in check(made, sizes) if o.kind == "convolution"]
    assert layer.form == "grouped" and layer.flops > 0


def test_groups_with_one_dynamic_side():
    nodes, constants = windows(24, 3, 3, 3, pads=(1, 1, 1, 1))
    for shape, sizes in (((1, 24, 9, "w"), [(1, 24, 9, size) for size in SIZES]), ((2, 24, "h", 9), [(2, 24, 4, 9)])):
        operators = check(model(nodes, shape, constants, 4), sizes)
        assert [o.form for o in operators if o.kind == "convolution"] == ["grouped"]


def test_pixels_outside_the_windows_have_no_effect():
    """An infinity reaches the results whose windows contain it, and no others."""
    nodes, constants = windows(24, 3, 3, 3, pads=(1, 1, 1, 1))
    alone = [("Conv", "x,w,b", "y", nodes[0][3])]
    compiled = tt.compile(model(alone, (1, 24, "h", "w"), constants, 4), cache=False)
    x = RNG.standard_normal((1, 24, 9, 21), np.float32)
    x[0, 8, 0, 20] = np.inf
    reached = ~np.isfinite(compiled.run(x))
    assert reached[0, 8:16, :2, 19:].all() and reached.sum() == 8 * 2 * 2


def test_bits_of_groups_are_the_same_for_every_batch_and_number_of_cores():
    nodes, constants = windows(40, 5, 3, 3, pads=(1, 1, 1, 1))
    x = RNG.standard_normal((3, 40, 11, 37), np.float32)

    def compiled(batch, cores):
        made = model(nodes, (batch, 40, "h", "w"), constants, 4)
        return tt.compile(made, target=on_cores(cores), cache=False, deterministic=True)

    one, any_number = compiled(1, 1), compiled("n", 4)
    np.testing.assert_array_equal(any_number.run(x), np.concatenate([one.run(x[i : i + 1]) for i in range(3)]))


def test_weights_given_at_run_time():
    """They are packed in every run."""
    nodes, constants = windows(33, 11, 3, 3, pads=(1, 1, 1, 1))
    made = model(nodes, (1, 33, "h", "w"), {"b": constants["b"]}, 4)
    made.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, constants["w"].shape))
    judge = onnxruntime.InferenceSession(made.SerializeToString())
    compiled = tt.compile(made, cache=False)
    values = {"x": RNG.standard_normal((1, 33, 7, 18), np.float32), "w": constants["w"]}
    np.testing.assert_allclose(compiled.run(**values), judge.run(None, values)[0], rtol=1e-5, atol=1e-5)
    assert [o.form for o in compiled.report().operators if o.kind == "convolution"] == ["grouped"]


@pytest.mark.skipif(
    OWN is None or not {"avx512f", "avx2"} <= set(OWN.extensions), reason="needs a CPU with more than AVX2"
)
def test_groups_in_vectors_of_eight():
    nodes, constants = windows(33, 11, 3, 3, pads=(1, 1, 1, 1))
    operators = check(model(nodes, (1, 33, "h", "w"), constants, 4), [(1, 33, 7, 18)], target="skylake-desktop-8c")
    assert [o.form for o in operators if o.kind == "convolution"] == ["grouped"]


def test_lower_precision():
    nodes, constants = windows(24, 24, 3, 3, pads=(1, 1, 1, 1))
    made = model(nodes, (1, 24, "h", "w"), constants, 4)
    operators = check(made, [(1, 24, size, 20) for size in SIZES], precision="bfloat16")
    assert any((o.kind, o.form) == ("convolution", "reduction") for o in operators)


def test_signals_of_any_length():
    nodes, constants = windows(20, 20, 31, pads=(15, 15))
    turn = [("Transpose", "x", "t", {"perm": (0, 2, 1)}), ("Conv", "t,w,b", "c", nodes[0][3])]
    made = model([*turn, ("Transpose", "c", "y", {"perm": (0, 2, 1)})], (1, "length", 20), constants, 3)
    operators = check(made, [(1, size, 20) for size in SIZES])
    assert any((o.kind, o.form) == ("convolution", "reduction") for o in operators)


@pytest.mark.parametrize("deterministic", [False, True])
def test_one_vector_for_each_matrix(deterministic):
    constants = {"w": RNG.standard_normal((5, 48, 1), np.float32)}
    made = model([("MatMul", "x,w", "y", {})], (5, "n", 48), constants, 3)
    (product,) = check(made, [(5, size, 48) for size in SIZES], deterministic=deterministic)
    # A fixed number of rows is a matrix multiplication, which adds in another order.
    assert (product.kind, product.form) == ("gemm", "open" if deterministic else "reduction") and product.flops > 0


def test_a_dot_product_of_fixed_size_is_not_told_as_slow_in_a_model_of_dynamic_size():
    constants = {"w": RNG.standard_normal((64, 1), np.float32), "first": np.array([0])}
    nodes = [("Gather", "x,first", "row", {}), ("MatMul", "row,w", "y", {})]
    operators = check(model(nodes, ("n", 64), constants, 2), [(size, 64) for size in SIZES])
    assert any((o.kind, o.form, o.flops) == ("gemm", "reduction", 128) for o in operators)


def test_sums_of_squares_are_reductions():
    made = model([("ReduceL2", "x", "y", {"axes": [2], "keepdims": 0})], (2, "n", 70), {}, 2)
    assert {o.kind for o in check(made, [(2, size, 70) for size in SIZES])} == {"other"}
