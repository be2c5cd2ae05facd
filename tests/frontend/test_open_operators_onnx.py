"""ONNX operators with dynamic shapes, compiled once and compared with onnxruntime's results at several sizes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx_judge import newer_judge, session_of

import tvm_tiling as tt
from tvm_tiling.errors import UnsupportedOperator, WorkloadError

KINDS = {"f": onnx.TensorProto.FLOAT, "i": onnx.TensorProto.INT64, "u": onnx.TensorProto.UINT8}


def floats(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


def model(nodes, inputs, constants=None, opset=18):
    """Nodes are (operator, inputs, outputs, attributes), whose results are all outputs; inputs are shapes by name,
    whose first letter gives the type."""
    graph = helper.make_graph(
        [helper.make_node(op, ins.split(","), outs.split(","), **more) for op, ins, outs, more in nodes],
        "graph",
        [helper.make_tensor_value_info(name, KINDS[name[0]], shape) for name, shape in inputs.items()],
        [onnx.ValueInfoProto(name=name) for _, _, outs, _ in nodes for name in outs.split(",")],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def check(made, *at, below=2, **options):
    """At each of these sizes one executable gives onnxruntime's results."""
    executable, session = tt.compile(made, cache=False, **options), session_of(made)
    random = np.random.default_rng(7)
    for sizes in at:
        given = {}
        for value in made.graph.input:
            kind = value.type.tensor_type
            shape = [sizes[dim.dim_param] if dim.dim_param else dim.dim_value for dim in kind.shape.dim]
            floating = kind.elem_type == KINDS["f"]
            dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
            drawn = random.normal(size=shape) if floating else random.integers(0, below, shape)
            given[value.name] = drawn.astype(dtype)
        found = executable.run(*(given[name] for name in executable.signature.input_names))
        for result, want in zip(found if isinstance(found, tuple) else (found,), session.run(None, given), strict=True):
            assert (result.dtype, result.shape) == (want.dtype, want.shape), sizes
            np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-5, err_msg=str(sizes))
    return executable


SIZES = [{"n": 2, "h": 5, "v": 8}, {"n": 1, "h": 12, "v": 5}]


def check_pools(*nodes):
    check(model(nodes, {"f": ["n", 3, "h", "v"], "u": ["n", 1, "h", "v"]}, opset=19), *SIZES, below=200)


def test_pools_whose_windows_depend_on_sizes():
    check_pools(
        ("MaxPool", "f", "a,b", {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("MaxPool", "u", "c", {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}),
        ("LpPool", "f", "g", {"kernel_shape": [2, 3], "pads": [1, 1, 0, 1], "strides": [2, 1]}),
    )


@newer_judge
def test_pools_whose_borders_depend_on_sizes():
    check_pools(
        ("MaxPool", "f", "c", {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}),
        ("AveragePool", "f", "d", {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
        ("AveragePool", "f", "e", {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1, "pads": [1, 0, 1, 1],
                                   "count_include_pad": 1}),
        ("MaxPool", "u", "k", {"kernel_shape": [3, 2], "strides": [1, 2], "auto_pad": "SAME_LOWER"}),
    )  # fmt: skip


RESIZES = {
    "scales": [{"mode": "linear"}, "f,,fraction"],
    "nearest": [{"mode": "nearest"}, "f,,fraction"],
    "sizes": [{"mode": "linear", "coordinate_transformation_mode": "asymmetric"}, "f,,,sizes"],
    "corners": [{"mode": "linear", "coordinate_transformation_mode": "align_corners"}, "f,,,sizes"],
    "cubic": [{"mode": "cubic", "exclude_outside": 1}, "f,,fraction"],
    "smaller": [{"mode": "linear", "antialias": 1}, "f,,half"],
}


def test_images_are_resized_by_any_scale_and_to_any_size():
    constants = {
        "fraction": np.array([1, 1, 1.5, 0.6], "float32"),
        "half": np.array([1, 1, 0.5, 0.5], "float32"),
        "sizes": np.array([2, 3, 7, 9]),
    }
    nodes = [("Resize", read, f"y{place}", more) for place, (more, read) in enumerate(RESIZES.values())]
    check(model(nodes, {"f": [2, 3, "h", "v"]}, constants), *SIZES)


@pytest.mark.parametrize("opened", [False, True])
def test_a_scale_times_an_extent_is_rounded_to_float32(opened):
    """0.7 of 10 elements are 7, and 6.9999998 by the exact value of the float32 next to 0.7."""
    made = model([("Resize", "f,,s", "y", {})], {"f": ["n"] if opened else [10]}, {"s": np.array([0.7], "float32")})
    x = floats(10)
    (want,) = session_of(made).run(None, {"f": x})
    assert tt.compile(made, cache=False).run(x).shape == want.shape == (7,)


def test_transposed_convolutions():
    nodes = [
        ("ConvTranspose", "f,w,b", "y", {"strides": [2, 3], "pads": [1, 0, 1, 1], "output_padding": [1, 0]}),
        ("ConvTranspose", "f,g", "z", {"strides": [2, 2], "group": 2, "dilations": [2, 1], "auto_pad": "SAME_UPPER"}),
    ]
    constants = {"w": floats(4, 3, 3, 2), "g": floats(4, 2, 3, 2), "b": floats(3)}
    check(model(nodes, {"f": ["n", 4, "h", "v"]}, constants), *SIZES)


@newer_judge
def test_elements_that_are_chosen():
    nodes = [
        ("TopK", "f,two", "a,b", {"axis": 1}),
        ("TopK", "f,two", "c,d", {"axis": 0, "largest": 0}),
        ("Hardmax", "f", "e", {"axis": 1}),
        ("OneHot", "i,five,pair", "g", {"axis": 0}),
        ("EyeLike", "f", "k", {"k": 1}),
        ("Unique", "i", "l", {}),
        ("Pad", "f,pads", "m", {"mode": "wrap"}),
        ("Split", "f", "o,p,q", {"axis": 1, "num_outputs": 3}),
        ("ReverseSequence", "f,i_lengths", "r", {"batch_axis": 0, "time_axis": 1}),
    ]
    constants = {"two": np.array([2]), "five": np.array([5]), "pair": np.array([0, 1], "float32")}
    constants["pads"] = np.array([0, 2, 0, 1])
    inputs = {"f": ["n", "v"], "i": ["n"], "i_lengths": ["n"]}
    check(model(nodes, inputs, constants, 19), {"n": 3, "v": 7}, {"n": 2, "v": 3}, below=3)


def test_images_that_are_moved_and_normalised():
    nodes = [
        ("LRN", "f", "a", {"size": 3}),
        ("DepthToSpace", "f", "b", {"blocksize": 2, "mode": "CRD"}),
        ("GridSample", "f,f_grid", "c", {}),
        ("DFT", "f_signal", "e", {"axis": 1, "onesided": 1}),
        ("Det", "f_matrices", "g", {}),
    ]
    inputs = {
        "f": ["n", 4, "h", "v"],
        "f_grid": ["n", 3, "v", 2],
        "f_signal": ["n", "v", 1],
        "f_matrices": ["n", 2, 2],
    }
    check(model(nodes, inputs), {"n": 2, "h": 6, "v": 8}, {"n": 1, "h": 2, "v": 4})


def test_boxes_that_are_kept():
    made = model([("NonMaxSuppression", "f,f_scores,most,overlap", "y", {})],
                 {"f": ["n", "k", 4], "f_scores": ["n", 2, "k"]},
                 {"most": np.array([3]), "overlap": np.array([0.3], "float32")})  # fmt: skip
    check(made, {"n": 2, "k": 9}, {"n": 1, "k": 1})


def test_scans_of_fixed_length_over_open_elements():
    names = ("state", "element", "sum", "shown")
    state, element, total, shown = (helper.make_tensor_value_info(name, KINDS["f"], None) for name in names)
    nodes = [helper.make_node("Add", names[:2], ["sum"]), helper.make_node("Identity", ["sum"], ["shown"])]
    body = helper.make_graph(nodes, "body", [state, element], [total, shown])
    made = model([("Scan", "f,f_rows", "y,z", {"body": body, "num_scan_inputs": 1})], {"f": ["n"], "f_rows": [4, "n"]})
    check(made, {"n": 5}, {"n": 1})


def test_integer_convolutions_of_any_size():
    weights = np.random.default_rng(0).integers(0, 9, (2, 3, 3, 3)).astype("uint8")
    made = model([("ConvInteger", "u,w,z", "y", {"pads": [1, 1, 1, 1]})], {"u": ["n", 3, "h", "v"]},
                 {"w": weights, "z": np.uint8(3)})  # fmt: skip
    check(made, *SIZES, below=200)


# ---- no elements ----------------------------------------------------------------------------------------------------


def cache():
    """A step of attention over previous and new rows, with positions that follow from it."""
    nodes = [
        ("Shape", "f", "x_shape", {}),
        ("Gather", "x_shape,i1", "new", {}),
        ("Shape", "f_past", "past_shape", {}),
        ("Gather", "past_shape,i1", "past", {}),
        ("Add", "past,new", "total", {}),
        ("Range", "past,total,i1", "rows", {}),
        ("Gather", "table,rows", "places", {}),
        ("Add", "f,places", "x", {}),
        ("Concat", "f_past,x", "keys", {"axis": 1}),
        ("Transpose", "keys", "turned", {"perm": [0, 2, 1]}),
        ("MatMul", "x,turned", "scores", {}),
        ("Softmax", "scores", "shares", {"axis": -1}),
        ("MatMul", "shares,keys", "read", {}),
        ("MatMul", "read,w", "y", {}),
        ("ReduceMax", "f_past,axes", "most", {"keepdims": 0}),
    ]
    constants = {"i1": np.int64(1), "table": floats(99, 16), "w": floats(16, 8), "axes": np.array([1])}
    return model(nodes, {"f": ["b", "s", 16], "f_past": ["b", "past", 16]}, constants)


def test_an_empty_past_of_a_cache():
    sizes = [{"b": b, "s": s, "past": past} for b, s, past in ((1, 5, 0), (2, 1, 3), (1, 1, 0), (1, 0, 2), (0, 1, 1))]
    executable = check(cache(), *sizes, batch=(0, 8), dims={"past": (0, 64), "s": (0, 9)})
    assert [size.least for size in executable.signature.open_sizes.sizes] == [0, 0, 0]


def test_sizes_are_above_0_where_nothing_is_said():
    executable = tt.compile(cache(), cache=False)
    with pytest.raises(WorkloadError, match=r"size 'past' of the inputs is 0; expected 1 to"):
        executable.run(floats(1, 2, 16), floats(1, 0, 16))


# ---- precision ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_open_sizes_in_half_precision(precision):
    made = model([("MatMul", "f,w", "a", {}), ("Relu", "a", "y", {})], {"f": ["b", "s", 64]}, {"w": floats(64, 48)})
    executable = tt.compile(made, precision=precision, cache=False)
    for shape in ((1, 3, 64), (2, 17, 64)):
        x = floats(*shape)
        exact = x @ floats(64, 48)
        results = executable.run(x)
        np.testing.assert_allclose(results[0], exact, atol=0.02 * np.abs(exact).max())
        assert np.abs(results[0] - exact).max() > 0
        np.testing.assert_array_equal(results[1], np.maximum(results[0], 0))


@pytest.mark.parametrize("precision", ["int8", "auto"])
def test_quantising_takes_sizes(precision):
    made = model([("Relu", "f", "y", {})], {"f": ["b", "s"]})
    said = rf"precision = '{precision}' requires a size for every .* 'b', 's' are dynamic"
    with pytest.raises(WorkloadError, match=said):
        tt.compile(made, precision=precision, calibration=[floats(2, 3)], cache=False)


# ---- what is between ------------------------------------------------------------------------------------------------


def test_a_change_at_the_end_of_a_known_axis_leaves_no_piece_without_elements():
    made = model([("Pad", "f,pads", "y", {"mode": "reflect"})], {"f": ["n", 8]}, {"pads": np.array([2, 2, 0, 0])})
    check(made, {"n": 3}, {"n": 9})


def test_attention_beside_elements_whose_number_the_data_decides():
    nodes = [
        ("NonZero", "i", "found", {}),
        ("Squeeze", "found,first", "places", {}),
        ("Transpose", "f", "turned", {"perm": [0, 2, 1]}),
        ("MatMul", "f,turned", "scores", {}),
        ("Softmax", "scores", "shares", {"axis": 2}),
        ("MatMul", "shares,f", "y", {}),
    ]
    check(model(nodes, {"i": ["n"], "f": ["n", "v", 3]}, {"first": np.array([0])}), {"n": 5, "v": 7})


def test_a_reshape_that_tvm_cannot_simplify_copies():
    """An image whose extents are sums of products of sizes."""
    more = {"strides": [1, 3], "group": 2, "pads": [2, 2, 1, 0], "dilations": [1, 2]}
    made = model([("ConvTranspose", "f,w", "y", more)], {"f": [2, 2, "h", "v"]}, {"w": floats(2, 3, 2, 3)})
    check(made, {"h": 3, "v": 7}, {"h": 5, "v": 13})


def test_what_has_no_rule_is_refused_by_name():
    inputs = {"f": ["n", 1, 2, 2], "i": ["n", 1, 2, 2]}
    made = model([("MaxUnpool", "f,i", "y", {"kernel_shape": [2, 2]})], inputs)
    with pytest.raises(
        UnsupportedOperator, match=r"'-> y' \(MaxUnpool\).*not supported for tensors of dynamic shape, such as 'f'"
    ):
        tt.compile(made, cache=False)
