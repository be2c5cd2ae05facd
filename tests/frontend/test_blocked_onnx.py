"""MatMulNBits, GroupQueryAttention and RotaryEmbedding as onnxruntime's tools emit them, compared with onnxruntime."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("onnxruntime")

import onnxruntime
from onnx_judge import newer_judge

import tvm_tiling as tt
from tvm_tiling.errors import UnsupportedOperator

RNG = np.random.default_rng(0)
DOMAIN = "com.microsoft"


def model(nodes, inputs, outputs, constants):
    graph = helper.make_graph(
        nodes,
        "blocks",
        [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in inputs],
        [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def session(proto, *, plain=False):
    """Return onnxruntime's result; `plain`: without its own quantisation of rows."""
    options = onnxruntime.SessionOptions()
    if plain:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def product(n, k, block, bits=4, *, zeros=None, level=0, bias=False, dtype=np.float32, **changed):
    blocks = -(-k // block)
    constants = {
        "b": RNG.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8),
        "s": (0.02 + 0.1 * RNG.random(n * blocks)).astype(dtype),
    }
    names = ["x", "b", "s", "", "", ""]
    if zeros == "packed":
        names[3], constants["z"] = "z", RNG.integers(0, 256, n * -(-blocks * bits // 8)).astype(np.uint8)
    elif zeros is not None:
        names[3], constants["z"] = "z", np.resize(np.asarray(zeros, dtype), (n, blocks))
    if bias:
        names[5], constants["bias"] = "bias", RNG.standard_normal(n).astype(dtype)
    given = {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": level, **changed}
    node = helper.make_node("MatMulNBits", names, ["y"], domain=DOMAIN, **given)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return model([node], [("x", kind, ["batch", "length", k])], [("y", kind, ["batch", "length", n])], constants)


def compare(proto, k, dtype=np.float32, tolerance=6e-5):
    theirs, ours = session(proto), tt.compile(proto, cache=False)
    for shape in ((1, 1), (2, 3), (1, 29)):
        x = RNG.standard_normal((*shape, k)).astype(dtype)
        wanted, found = theirs.run(None, {"x": x})[0], ours.run(x)
        assert found.dtype == wanted.dtype
        scale = np.abs(wanted).max()
        np.testing.assert_allclose(found, wanted, atol=tolerance * float(scale))


@pytest.mark.values
@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("zeros", [None, "packed"])
@pytest.mark.parametrize("size", [(64, 256, 32, 4), (100, 96, 16, 4), (48, 130, 64, 8)], ids=str)
def test_gemms_of_blocks(size, zeros, level):
    n, k, block, bits = size
    compare(product(n, k, block, bits, zeros=zeros, bias=n == 100, level=level), k, tolerance=3e-6 if level else 6e-5)


@pytest.mark.parametrize(("level", "dtype", "tolerance"), [(1, "float32", 3e-6), (2, "int16", 6e-5), (4, "int8", 2e-2)])
def test_rows_are_rounded_as_far_as_the_model_allows(level, dtype, tolerance):
    proto = product(64, 256, 32, zeros="packed", level=level)
    compare(proto, 256, tolerance=tolerance)
    operators = tt.compile(proto, batch=1, dims={"length": 4}, cache=False).report().operators
    (found,) = [operator for operator in operators if operator.kind == "gemm"]
    assert found.workload["dtype"] == dtype
    assert found.workload["encoding"] == "int4:32:float32:zero_points"


@pytest.mark.parametrize(("level", "activations"), [(0, "int8"), (4, "float32")])
def test_rows_are_quantised_where_that_is_asked_for(level, activations):
    proto = product(64, 256, 32, zeros="packed", level=level)
    executable = tt.compile(proto, activations=activations, cache=False)
    (found,) = [operator for operator in executable.report().operators if operator.kind == "gemm"]
    assert found.workload["dtype"] == activations
    x = RNG.standard_normal((2, 3, 256)).astype(np.float32)
    exact = tt.compile(proto, activations="float32", cache=False).run(x)
    error = np.abs(executable.run(x) - exact).max() / np.abs(exact).max()
    assert error == 0 if activations == "float32" else 1e-4 < error < 2e-2


def test_zero_points_may_be_whole_numbers_as_floats():
    compare(product(32, 64, 32, zeros=[3, 7, 8]), 64)


def test_float16():
    compare(product(48, 64, 32, dtype=np.float16), 64, np.float16, 3e-3)


@pytest.mark.parametrize(("least", "kept"), [(1.0, "float16"), (2.0**-30, "float32")])
def test_scales_of_bfloat16_stay_in_two_bytes_where_float16_holds_them(least, kept):
    """Compared with the definition: onnxruntime has no such kernel on CPUs."""
    proto = product(48, 100, 32, dtype=ml_dtypes.bfloat16)
    scales = (0.02 + 0.1 * RNG.random(48 * 4)).astype(ml_dtypes.bfloat16)
    scales[0] *= ml_dtypes.bfloat16(least)
    proto.graph.initializer[1].CopyFrom(numpy_helper.from_array(scales, "s"))
    packed = numpy_helper.to_array(proto.graph.initializer[0])
    values = np.stack([packed & 15, packed >> 4], axis=-1).reshape(48, 4, 32).astype(np.float64) - 8
    weights = (values * scales.astype(np.float64).reshape(48, 4, 1)).reshape(48, 128)[:, :100]
    made = tt.compile(proto, cache=False)
    assert [o.workload["encoding"] for o in made.operators if o.kind == "gemm"] == [f"int4:32:{kept}"]
    x = RNG.standard_normal((1, 3, 100)).astype(ml_dtypes.bfloat16)
    right = x.astype(np.float64) @ weights.T
    assert np.abs(made.run(x).astype(np.float64) - right).max() < 1e-2 * np.abs(right).max()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"bits": 2}, r"bits = 2; expected 4, 8"),
        ({"block_size": 24}, r"block_size = 24; expected a power of two"),
        ({"N": 65}, r"weights are uint8"),
        ({"K": 128}, r"A has 64 columns, but K = 128"),
    ],
)
def test_attributes_that_do_not_fit_are_refused(wrong, said):
    with pytest.raises(UnsupportedOperator, match=said):
        tt.compile(product(64, 64, 32, **wrong), cache=False)


def test_zero_points_between_steps_are_refused():
    with pytest.raises(UnsupportedOperator, match="whole numbers of 4 bits"):
        tt.compile(product(32, 64, 32, zeros=[3.5]), cache=False)


def attention(
    heads,
    groups,
    width,
    *,
    packed=False,
    rotary=True,
    interleaved=False,
    window=0,
    bias=False,
    dtype=np.float32,
    cap=0.0,
):
    pairs = width // 2
    angles = np.arange(64)[:, None] * 10000.0 ** (-np.arange(pairs) / pairs)
    constants = {
        "cos": np.cos(angles).astype(dtype),
        "sin": np.sin(angles).astype(dtype),
        "one": np.array(1),
        "axis": np.array([1]),
    }
    if not rotary:
        del constants["cos"], constants["sin"]
    operands = ["q", "", ""] if packed else ["q", "k", "v"]
    tables = ["cos", "sin"] if rotary else []
    given = {"num_heads": heads, "kv_num_heads": groups, "do_rotary": int(rotary)}
    given |= {"rotary_interleaved": int(interleaved)}
    given |= {"local_window_size": window} if window else {}
    given |= {"softcap": cap} if cap else {}
    tables = [*(tables or ["", ""]), "", "bias"] if bias else tables
    nodes = [
        helper.make_node("Shape", ["mask"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["long"], axis=0),
        helper.make_node("Cast", ["long"], ["total"], to=TensorProto.INT32),
        helper.make_node("ReduceSum", ["mask", "axis"], ["seen"], keepdims=0),
        helper.make_node("Sub", ["seen", "one"], ["less"]),
        helper.make_node("Cast", ["less"], ["lengths"], to=TensorProto.INT32),
        helper.make_node(
            "GroupQueryAttention",
            [*operands, "past_k", "past_v", "lengths", "total", *tables],
            ["y", "present_k", "present_v"],
            domain=DOMAIN,
            **given,
        ),
    ]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    columns = (heads + 2 * groups if packed else heads) * width
    inputs = [("mask", TensorProto.INT64, ["batch", "total"]), ("q", kind, ["batch", "length", columns])]
    if not packed:
        inputs += [(name, kind, ["batch", "length", groups * width]) for name in "kv"]
    inputs += [(f"past_{name}", kind, ["batch", groups, "past", width]) for name in "kv"]
    inputs += [("bias", kind, [1, heads, "length", "total"])] if bias else []
    outputs = [("y", kind, ["batch", "length", heads * width])]
    outputs += [(f"present_{name}", kind, ["batch", groups, "total", width]) for name in "kv"]
    return model(nodes, inputs, outputs, constants)


def step(proto, batch, past, length):
    """Return random inputs of a step: `past` tokens seen, `length` new ones."""
    sizes = {"batch": batch, "past": past, "length": length, "total": past + length}
    found = {}
    for value in proto.graph.input:
        shape = [sizes[d.dim_param] if d.dim_param else d.dim_value for d in value.type.tensor_type.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        found[value.name] = RNG.standard_normal(shape).astype(dtype)
    found["mask"] = np.ones((batch, past + length), np.int64)
    return found


def room_and_bias(columns):
    """Return GroupQueryAttention of 3 rows after 7 in caches with a capacity of 20, with a bias, and its inputs."""
    shapes = {"q": (1, 3, 64), "k": (1, 3, 32), "v": (1, 3, 32), "past_k": (1, 2, 20, 16), "past_v": (1, 2, 20, 16)}
    given = {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    given["bias"] = RNG.standard_normal((1, 1, 3, columns)).astype(np.float32)
    constants = {"less": np.array([9], np.int32), "total": np.array(10, np.int32)}
    operands = [*shapes, "less", "total", "", "", "", "bias"]
    outputs = ["y", "present_k", "present_v"]
    node = helper.make_node("GroupQueryAttention", operands, outputs, domain=DOMAIN, num_heads=4, kv_num_heads=2)
    kind = TensorProto.FLOAT
    inputs = [(name, kind, value.shape) for name, value in given.items()]
    return model([node], inputs, [(name, kind, None) for name in outputs], constants), given


def test_a_bias_has_no_columns_for_room():
    proto, given = room_and_bias(10)
    for found, wanted in zip(tt.compile(proto, cache=False).run(**given), session(proto).run(None, given), strict=True):
        if found.ndim == 4:
            found, wanted = found[:, :, :10], wanted[:, :, :10]  # followed by values that are not read
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(UnsupportedOperator, match=r"attention_bias has shape \[1, 1, 3, 8\]; expected \[1, 4, 3, 10\]"):
        tt.compile(room_and_bias(8)[0], cache=False)


@pytest.mark.parametrize(
    "given",
    [
        {"heads": 4, "groups": 2, "width": 16},
        {"heads": 4, "groups": 4, "width": 16, "interleaved": True},
        {"heads": 6, "groups": 2, "width": 32, "packed": True},
        {"heads": 4, "groups": 1, "width": 16, "rotary": False},
        pytest.param({"heads": 4, "groups": 2, "width": 16, "window": 5}, marks=newer_judge),
        {"heads": 4, "groups": 2, "width": 24, "rotary": False},
        {"heads": 4, "groups": 2, "width": 16, "cap": 1.5},
        {"heads": 4, "groups": 2, "width": 16, "bias": True},
    ],
    ids=str,
)
def test_attention_over_a_cache(given):
    proto = attention(**given)
    theirs, ours = session(proto), tt.compile(proto, cache=False, dims={"past": (0, 64)})
    # For 7, 10 and 31 keys, vectors at the end overlap: they once were normalised twice.
    for sizes in ((1, 0, 7), (1, 7, 1), (2, 9, 1), (2, 0, 5), (1, 30, 1), (1, 12, 4)):
        values = step(proto, *sizes)
        for found, wanted in zip(ours.run(**values), theirs.run(None, values), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5, err_msg=str(sizes))


def test_a_context_that_is_full_is_identified_by_its_size():
    executable = tt.compile(attention(4, 2, 16), cache=False, dims={"past": (0, 64)})
    said = r"^the model's context of 64 tokens: position 64 at \[0, 1\] is out of range; expected 0 to 63$"
    with pytest.raises(tt.WorkloadError, match=said):
        executable.run(**step(attention(4, 2, 16), 1, 63, 3))


def test_attention_in_half_precision():
    proto = attention(4, 2, 16, dtype=np.float16)
    theirs, ours = session(proto), tt.compile(proto, cache=False, dims={"past": (0, 64)})
    values = step(proto, 1, 6, 3)
    for found, wanted in zip(ours.run(**values), theirs.run(None, values), strict=True):
        assert found.dtype == np.float16
        np.testing.assert_allclose(found, wanted, rtol=1e-2, atol=1e-2)


def test_attention_of_fixed_sizes():
    proto = attention(4, 2, 16)
    sizes = {"past": 12, "length": 4, "total": 16}
    theirs, ours = session(proto), tt.compile(proto, cache=False, batch=1, dims=sizes)
    values = step(proto, 1, 12, 4)
    for found, wanted in zip(ours.run(**values), theirs.run(None, values), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.pairs
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("one_place", [True, False])
@pytest.mark.parametrize("by_heads", [True, False])
def test_rotary_positions(by_heads, one_place, interleaved):
    heads, width = 3, 16
    angles = np.arange(32)[:, None] * 100.0 ** (-np.arange(8) / 8)
    constants = {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}
    given = {"interleaved": interleaved} | ({} if by_heads else {"num_heads": heads})
    node = helper.make_node("RotaryEmbedding", ["x", "at", "cos", "sin"], ["y"], domain=DOMAIN, **given)
    shape = ["batch", heads, "length", width] if by_heads else ["batch", "length", heads * width]
    places = [1] if one_place else ["batch", "length"]
    kind = TensorProto.FLOAT
    inputs = [("x", kind, shape), ("at", TensorProto.INT64, places)]
    proto = model([node], inputs, [("y", kind, shape)], constants)
    theirs, ours = session(proto), tt.compile(proto, cache=False)
    for batch, length in ((1, 1), (2, 5)):
        sizes = {"batch": batch, "length": length}
        x = RNG.standard_normal([sizes.get(size, size) for size in shape]).astype(np.float32)
        at = np.array([4]) if one_place else RNG.integers(0, 32, (batch, length))
        wanted = theirs.run(None, {"x": x, "at": at})[0]
        np.testing.assert_allclose(ours.run(x=x, at=at), wanted, rtol=1e-5, atol=1e-5)


def test_the_norm_of_onnxruntimes_tools():
    node = helper.make_node("SimplifiedLayerNormalization", ["x", "g"], ["y", "inverse"], axis=-1, epsilon=1e-6)
    constants = {"g": RNG.standard_normal(24).astype(np.float32)}
    kind = TensorProto.FLOAT
    outputs = [("y", kind, ["rows", 24]), ("inverse", kind, ["rows", 1])]
    proto = model([node], [("x", kind, ["rows", 24])], outputs, constants)
    x = RNG.standard_normal((5, 24)).astype(np.float32)
    for found, wanted in zip(tt.compile(proto, cache=False).run(x), session(proto).run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@newer_judge
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_rows_of_a_table_of_blocks(bits, zeros):
    rows, width, block = 50, 96, 32
    constants = {
        "data": RNG.integers(0, 256, (rows, width * bits // 8)).astype(np.uint8),
        "s": (0.1 + RNG.random((rows, width // block))).astype(np.float32),
    }
    if zeros:
        constants["z"] = RNG.integers(0, 256, (rows, -(-width // block * bits // 8))).astype(np.uint8)
    given = {"bits": bits, "block_size": block, "gather_axis": 0, "quantize_axis": 1}
    operands = ["data", "at", "s", *(["z"] if zeros else [])]
    node = helper.make_node("GatherBlockQuantized", operands, ["y"], domain=DOMAIN, **given)
    inputs = [("at", TensorProto.INT64, ["batch", "length"])]
    proto = model([node], inputs, [("y", TensorProto.FLOAT, ["batch", "length", width])], constants)
    at = RNG.integers(-rows, rows, (2, 7))
    wanted = session(proto).run(None, {"at": at})[0]
    np.testing.assert_allclose(tt.compile(proto, cache=False).run(at), wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "shape", "gathered", "blocked", "zeros"),
    [
        ("INT4", (20, 64), 0, 1, True),
        ("INT4", (20, 37), 0, 1, False),  # of an odd length
        ("UINT4", (20, 64), 0, 1, False),  # zero points of 0
        ("UINT4", (64, 20), 1, 0, True),
        ("INT4", (3, 20, 40), 1, 2, True),
        ("UINT8", (20, 2, 16), 0, 2, True),
        ("UINT8", (20, 2, 32), 0, 2, False),
    ],
)
def test_tables_of_4_bit_types_and_of_other_axes(kind, shape, gathered, blocked, zeros):
    dtype = helper.tensor_dtype_to_np_dtype(getattr(TensorProto, kind))
    low, high = {"INT4": (-8, 8), "UINT4": (0, 16), "UINT8": (0, 256)}[kind]
    elements = [*shape[:-1], shape[-1] * (2 if kind == "UINT8" else 1)]
    blocks = [-(-size // 16) if axis == blocked else size for axis, size in enumerate(elements)]
    constants = {
        "data": RNG.integers(low, high, shape).astype(dtype),
        "s": RNG.standard_normal(blocks).astype(np.float32),
    }
    if zeros:
        stored = [*blocks[:-1], -(-blocks[-1] // 2)] if kind == "UINT8" else blocks
        constants["z"] = RNG.integers(low, high, stored).astype(dtype)
    given = {"block_size": 16, "gather_axis": gathered, "quantize_axis": blocked}
    node = helper.make_node("GatherBlockQuantized", ["data", "at", *list(constants)[1:]], ["y"], domain=DOMAIN, **given)
    inputs, outputs = [("at", TensorProto.INT64, ["n"])], [("y", TensorProto.FLOAT, None)]
    proto = model([node], inputs, outputs, constants)
    at = RNG.integers(-shape[gathered], shape[gathered], 5)
    wanted = session(proto).run(None, {"at": at})[0]
    np.testing.assert_allclose(tt.compile(proto, cache=False).run(at), wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_scales_of_blocks_may_be_of_any_sign(kind):
    constants = {"w": RNG.integers(0, 100, (8, 50)).astype(kind), "s": RNG.standard_normal((8, 4)).astype(np.float32)}
    constants["s"][0] = 0
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=1, block_size=16),
        helper.make_node("Add", ["x", "d"], ["y"]),
    ]
    proto = model(nodes, [("x", TensorProto.FLOAT, [8, 50])], [("y", TensorProto.FLOAT, [8, 50])], constants)
    x = RNG.standard_normal((8, 50)).astype(np.float32)
    wanted = session(proto).run(None, {"x": x})[0]
    np.testing.assert_allclose(tt.compile(proto, cache=False).run(x), wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("columns", "attributes", "said"),
    [
        (96, {"rotary_embedding_dim": 16}, "rotary_embedding_dim = 16 without num_heads; expected both"),
        (96, {"rotary_embedding_dim": 8, "num_heads": 4}, "rotary_embedding_dim = 8 with tables of 8 columns"),
        (64, {"num_heads": 2}, "tables of 8 columns for heads of 32"),
    ],
)
def test_positions_that_do_not_fit_the_heads_are_refused(columns, attributes, said):
    node = helper.make_node("RotaryEmbedding", ["x", "at", "c", "s"], ["y"], domain=DOMAIN, **attributes)
    inputs = [("x", TensorProto.FLOAT, [1, 5, columns]), ("at", TensorProto.INT64, [1, 5])]
    constants = {name: np.ones((20, 8), np.float32) for name in "cs"}
    proto = model([node], inputs, [("y", TensorProto.FLOAT, [1, 5, columns])], constants)
    with pytest.raises(UnsupportedOperator, match=said):
        tt.compile(proto, cache=False)


def test_a_table_of_other_blocks_is_refused():
    constants = {"data": np.zeros((4, 16), np.uint8), "s": np.ones((4, 2), np.float32)}
    node = helper.make_node(
        "GatherBlockQuantized", ["data", "at", "s"], ["y"], domain=DOMAIN, bits=4, block_size=32, quantize_axis=1
    )
    inputs = [("at", TensorProto.INT64, ["n"])]
    proto = model([node], inputs, [("y", TensorProto.FLOAT, ["n", 32])], constants)
    with pytest.raises(UnsupportedOperator, match=r"scales have shape \(4, 2\); expected \(4, 1\)"):
        tt.compile(proto, cache=False)


@pytest.mark.values
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("kind", ["INT4", "UINT4", "INT8", "UINT8"])
@pytest.mark.parametrize("zeros", [False, True])
def test_weights_that_are_dequantised_in_blocks_stay_so(kind, turned, zeros):
    n, k, block = 48, 160, 32
    dtype = helper.tensor_dtype_to_np_dtype(getattr(TensorProto, kind))
    low, high = {"INT4": (-8, 8), "UINT4": (0, 16), "INT8": (-128, 128), "UINT8": (0, 256)}[kind]
    shape, blocks = ((n, k), (n, k // block)) if turned else ((k, n), (k // block, n))
    constants = {
        "w": RNG.integers(low, high, shape).astype(dtype),
        "s": (0.01 + 0.1 * RNG.random(blocks)).astype(np.float32),
    }
    if zeros:
        constants["z"] = RNG.integers(low, high, blocks).astype(dtype)
    operands = ["w", "s", *(["z"] if zeros else [])]
    nodes = [helper.make_node("DequantizeLinear", operands, ["d"], axis=1 if turned else 0, block_size=block)]
    if turned:
        nodes.append(helper.make_node("Transpose", ["d"], ["t"], perm=[1, 0]))
    nodes.append(helper.make_node("MatMul", ["x", "t" if turned else "d"], ["y"], name="product"))
    kind = TensorProto.FLOAT
    proto = model(nodes, [("x", kind, ["rows", k])], [("y", kind, ["rows", n])], constants)
    executable = tt.compile(proto, cache=False)
    (product,) = [operator for operator in executable.report().operators if operator.kind == "gemm"]
    assert product.workload["encoding"].startswith("int4:32" if low in (-8, 0) and high <= 16 else "int8:32")
    assert product.nodes == ("product",)
    x = RNG.standard_normal((3, k)).astype(np.float32)
    wanted = session(proto, plain=True).run(None, {"x": x})[0]
    np.testing.assert_allclose(executable.run(x), wanted, atol=6e-5 * np.abs(wanted).max())


@newer_judge
def test_weights_that_something_else_reads_too_become_floats():
    constants = {
        "w": RNG.integers(-8, 8, (64, 32)).astype(helper.tensor_dtype_to_np_dtype(TensorProto.INT4)),
        "s": np.full((2, 32), 0.1, np.float32),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=0, block_size=32),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
        helper.make_node("ReduceSum", ["d"], ["sum"], keepdims=0),
    ]
    kind = TensorProto.FLOAT
    proto = model(nodes, [("x", kind, [3, 64])], [("y", kind, [3, 32]), ("sum", kind, [])], constants)
    x = RNG.standard_normal((3, 64)).astype(np.float32)
    for found, wanted in zip(tt.compile(proto, cache=False).run(x), session(proto).run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
