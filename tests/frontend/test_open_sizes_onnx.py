"""ONNX models with dynamic shapes: symbolic shapes, guards, and onnxruntime's results at several sizes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper, numpy_helper
from onnx_judge import session_of
from open_judge import check, guards

from tvm_tiling.errors import ModelFormatError, TilingError, WorkloadError
from tvm_tiling.frontend import load_model
from tvm_tiling.sizes import Named, Operation

KINDS = {"f": onnx.TensorProto.FLOAT, "i": onnx.TensorProto.INT64}


def floats(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


def model(nodes, inputs, outputs, constants=None, opset=17):
    """Nodes are (operator, inputs, outputs, attributes); inputs are shapes by name, integers if it starts with i."""
    graph = helper.make_graph(
        [helper.make_node(op, ins.split(",") if ins else [], outs.split(","), **more) for op, ins, outs, more in nodes],
        "graph",
        [
            helper.make_tensor_value_info(name, KINDS["i" if name[0] == "i" else "f"], shape)
            for name, shape in inputs.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs.split(",")],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def loaded(made, **given):
    return load_model(made.SerializeToString(), leave_open=True, **given)


def judged(made, *at, below=2):
    imported = loaded(made)
    session = session_of(made)
    names = imported.input_names
    check(imported, at, lambda arrays: session.run(None, dict(zip(names, arrays, strict=True))), below)
    return imported


ADD = [("Add", "x,y", "z", {})]
ONE, ZERO = np.array([1]), np.array([0])
ENDS = {"first": ZERO, "one": ONE, "i1": np.int64(1), "i0": np.int64(0)}
# The length of the second axis of x.
LENGTH = [("Shape", "x", "shape", {}), ("Gather", "shape,i1", "n", {}), ("Unsqueeze", "n,first", "n1", {})]


# ---- names and sizes ------------------------------------------------------------------------------------------------


def test_every_name_is_one_variable_of_the_parameters():
    imported = loaded(model(ADD, {"x": ["b", "s", 3], "y": ["b", 1, 3]}, "z"))
    assert imported.input_shapes == ((Named("b"), Named("s"), 3), (Named("b"), 1, 3))
    assert imported.open_sizes.names == ("b", "s")
    assert not imported.open_sizes.guards
    x, y = imported.module["main"].params
    assert x.ty.shape[0].same_as(y.ty.shape[0])
    assert sorted(imported.symbols.values()) == ["b", "s"]


def test_sizes_that_are_given_are_numbers_and_without_leave_open_all_have_to_be():
    made = model(ADD, {"x": ["b", "s", 3], "y": ["b", 1, 3]}, "z")
    assert loaded(made, dims={"s": 4}).input_shapes == ((Named("b"), 4, 3), (Named("b"), 1, 3))
    assert loaded(made, batch=2).open_sizes.names == ("s",)
    fixed = loaded(made, batch=2, dims={"s": 4})
    assert not fixed.open_sizes
    assert fixed.input_shapes == ((2, 4, 3), (2, 1, 3))
    with pytest.raises(ModelFormatError, match="is dynamic; expected"):
        load_model(made.SerializeToString())
    with pytest.raises(ModelFormatError, match="dims names 'q'; expected 'b', 's'"):
        loaded(made, dims={"q": 4})


def test_dimensions_without_a_name_are_called_by_their_place():
    made = model(ADD, {"x": [None, 3], "y": [None, 3]}, "z")
    imported = loaded(made)
    assert imported.open_sizes.names == ("x[0]", "y[0]")
    assert guards(imported) == ["x[0] == y[0]"]
    assert loaded(made, dims={"x[0]": 4}).open_sizes.names == ("y[0]",)


def test_arithmetic_in_names_is_computed_where_its_names_stand_alone():
    shapes = {"x": ["s", 1], "y": [1, "past + s"], "a": ["past"], "c": ["2*(s - 1) + min(s, past)"]}
    imported = loaded(model([*ADD, ("Add", "a,c", "w", {})], shapes, "z,w"))
    s, past = Named("s"), Named("past")
    assert imported.open_sizes.names == ("s", "past")
    assert imported.input_shapes[1] == (1, Operation("+", past, s))
    assert "min(s, past)" in str(imported.input_shapes[3][0])


@pytest.mark.parametrize(
    "text",
    [
        "a + missing",
        "s//0",
        "s % (1 - 1)",
        "s / 2",
        "s +",
        "(" * 200 + "s" + ")" * 200,
        "s" + " + s" * 200,
        "länge",
        "x[0]",
        "two words",
        "__import__('os')",
        "s; s",
        "1e9*s",
        "-",
        "-3",
        "99999999999999999999*s",
    ],
)
def test_any_other_text_is_a_size_of_its_own(text):
    imported = loaded(model([("Relu", "x", "z", {})], {"x": ["s", text]}, "z"))
    assert imported.open_sizes.names == ("s", text)


def test_a_computed_size_has_to_be_one():
    imported = loaded(model([*ADD], {"x": ["s", 1], "y": [1, "s - 4"]}, "z"))
    assert guards(imported) == ["1 <= s - 4"]
    with pytest.raises(WorkloadError, match="1 <= s - 4"):
        imported.open_sizes.require({"s": 3})


# ---- what has to agree ----------------------------------------------------------------------------------------------


def test_open_sizes_are_broadcast_beside_1_alone():
    imported = judged(model(ADD, {"x": ["b", "s", 3], "y": ["t", 3]}, "z"), {"b": 2, "s": 5, "t": 5})
    (guard,) = imported.open_sizes.guards
    assert (guard.left, guard.relation, guard.right) == (Named("s"), "==", Named("t"))
    assert "'-> z' (Add)" in guard.why
    assert guards(loaded(model(ADD, {"x": ["b", "s"], "y": [4]}, "z"))) == ["s == 4"]
    with pytest.raises(TilingError, match="Incompatible dimensions; its inputs have shapes"):
        loaded(model(ADD, {"x": ["b", 3], "y": [4]}, "z"))


def test_the_positions_of_an_embedding_limit_the_length():
    nodes = [*LENGTH, ("Slice", "p,first,n1,one", "q", {}), ("Add", "x,q", "z", {})]
    made = model(nodes, {"x": ["b", "s", 4]}, "z", {**ENDS, "p": floats(1, 8, 4)})
    assert guards(judged(made, {"b": 2, "s": 3}, {"b": 1, "s": 8})) == ["s <= 8"]


def attention(total):
    nodes = [
        ("Concat", "past,new", "k", {"axis": 2}),
        ("Transpose", "k", "kt", {"perm": [0, 1, 3, 2]}),
        ("MatMul", "q,kt", "m", {}),
        ("Add", "m,mask", "masked", {}),
        ("Softmax", "masked", "p", {}),
        ("MatMul", "p,k", "z", {}),
    ]
    state = {"q": ["b", 2, "s", 4], "past": ["b", 2, "before", 4], "new": ["b", 2, "s", 4]}
    return model(nodes, {**state, "mask": ["b", 1, 1, total]}, "z,k")


def test_a_cache_grows_by_the_new_steps():
    at = {"b": 2, "s": 3, "before": 4}
    assert not judged(attention("before + s"), at, {"b": 1, "s": 1, "before": 9}).open_sizes.guards
    imported = judged(attention("total"), {**at, "total": 7})
    assert guards(imported) == ["before + s == total"]
    with pytest.raises(WorkloadError, match=r"the model requires before \+ s == total"):
        imported.open_sizes.require({**at, "total": 8})


def test_heads_are_split_and_joined_without_guards():
    nodes = [
        ("Shape", "x", "shape", {}),
        ("Gather", "shape,i0", "b", {}),
        ("Gather", "shape,i1", "n", {}),
        ("Unsqueeze", "b,first", "b1", {}),
        ("Unsqueeze", "n,first", "n1", {}),
        ("Concat", "b1,n1,two,four", "t", {"axis": 0}),
        ("Reshape", "x,t", "r", {}),
        ("Transpose", "r", "heads", {"perm": [0, 2, 1, 3]}),
        ("Transpose", "heads", "back", {"perm": [0, 2, 1, 3]}),
        ("Mul", "two,four", "width", {}),
        ("Concat", "b1,n1,width", "t2", {"axis": 0}),
        ("Reshape", "back,t2", "z", {}),
        ("Reshape", "heads,flat", "w", {}),
    ]
    constants = {**ENDS, "two": np.array([2]), "four": np.array([4]), "flat": np.array([0, 2, -1])}
    made = model(nodes, {"x": ["b", "s", 8]}, "z,w", constants)
    assert not judged(made, {"b": 2, "s": 3}, {"b": 1, "s": 1}).open_sizes.guards


def test_elements_that_have_to_be_a_multiple():
    made = model([("Reshape", "x,t", "z", {})], {"x": ["b", "s", 6]}, "z", {"t": np.array([-1, 4])})
    assert guards(judged(made, {"b": 2, "s": 3}, {"b": 1, "s": 4})) == ["(s * b) % 2 == 0"]
    made = model([("Split", "x", "z,w", {"axis": 1})], {"x": ["b", "s"]}, "z,w", opset=13)
    assert guards(judged(made, {"b": 2, "s": 4})) == ["s % 2 == 0"]


# ---- values of sizes ------------------------------------------------------------------------------------------------

PLACES = {"from_3": np.array([-3]), "end": np.array([2**63 - 1]), "back": np.array([-1]), "far": np.array([-(2**63)])}
SERVED = {
    "slices beyond the ends": (
        [
            ("Slice", "x,one,end,one", "a", {}),
            ("Slice", "x,from_3,back,one,two", "c", {}),
            ("Slice", "x,back,far,one,back", "d", {}),
        ],
        "a,c,d",
        {**PLACES, "one": ONE, "two": np.array([2])},
    ),
    "ranges": (
        [
            *LENGTH,
            ("Range", "i0,n,i1", "r", {}),
            ("Gather", "w,r", "a", {}),
            ("Unsqueeze", "r,one", "column", {}),
            ("Less", "column,r", "later", {}),
            ("Cast", "later", "c", {"to": 1}),
        ],
        "a,c",
        {**ENDS, "w": floats(16, 2)},
    ),
    "the first and the last step": (
        [("Gather", "x,i0", "a", {"axis": 1}), ("Gather", "x,last", "c", {"axis": 1})],
        "a,c",
        {"i0": np.int64(0), "last": np.int64(-1)},
    ),
    "halves by floats": (
        [
            *LENGTH,
            ("Cast", "n", "real", {"to": 1}),
            ("Mul", "real,half", "halved", {}),
            ("Floor", "halved", "down", {}),
            ("Cast", "down", "k", {"to": 7}),
            ("Unsqueeze", "k,first", "k1", {}),
            ("Slice", "x,first,k1,one", "a", {}),
            ("Sqrt", "real", "root", {}),
            ("Div", "x,root", "c", {}),
        ],
        "a,c",
        {**ENDS, "half": np.float32(0.5)},
    ),
    "shapes where a -1 stays as it is": (
        [
            ("Shape", "x", "shape", {}),
            ("ConstantOfShape", "three", "ones", {"value": helper.make_tensor("v", 7, [1], [1])}),
            ("Mul", "ones,less", "none", {}),
            ("Equal", "shape,none", "same", {}),
            ("Where", "same,ones,shape", "t", {}),
            ("Expand", "w,t", "a", {}),
            ("ConstantOfShape", "shape", "c", {}),
        ],
        "a,c",
        {"three": np.array([3]), "less": np.int64(-1), "w": floats(1, 3)},
    ),
    "padding, repeats and sums": (
        [
            ("Pad", "x,pads", "a", {}),
            ("Pad", "x,pads", "c", {"mode": "edge"}),
            ("Tile", "x,times", "d", {}),
            ("CumSum", "x,i1", "e", {}),
            ("ReduceMean", "x", "f", {"axes": [1]}),
            ("ReduceMax", "x", "g", {"axes": [0, 1]}),
        ],
        "a,c,d,e,f,g",
        {"pads": np.array([0, 2, 0, 0, 1, 1]), "times": np.array([1, 2, 3]), "i1": np.int64(1)},
    ),
}


@pytest.mark.parametrize("name", SERVED)
def test_shape_arithmetic_is_done_before_the_run(name):
    nodes, outputs, constants = SERVED[name]
    made = model(nodes, {"x": ["b", "s", 3]}, outputs, constants)
    imported = judged(made, {"b": 2, "s": 5}, {"b": 1, "s": 2}, {"b": 3, "s": 11})
    text = imported.module.script()
    assert "tensor_to_shape" not in text
    assert "dynamic_strided_slice" not in text


def test_a_branch_by_a_size_that_is_decided():
    branches = {
        name: helper.make_graph(
            [helper.make_node(operator, ["x"], [name], **more)], name, [], [onnx.ValueInfoProto(name=name)]
        )
        for name, operator, more in (("no", "Relu", {}), ("yes", "Unsqueeze", {"axes": [0]}))
    }
    nodes = [*LENGTH[:2], ("Less", "n,i1", "none", {})]
    made = model([*nodes, ("Relu", "x", "z", {})], {"x": ["b", "s", 3]}, "z", ENDS, opset=12)
    made.graph.node.pop()
    chosen = helper.make_node("If", ["none"], ["z"], then_branch=branches["yes"], else_branch=branches["no"])
    made.graph.node.append(chosen)
    assert not judged(made, {"b": 2, "s": 3}).open_sizes.guards


def test_sizes_as_data_are_tensors():
    nodes = [("Shape", "x", "shape", {}), ("ReduceProd", "shape", "p", {"keepdims": 0}), ("Size", "x", "n", {})]
    made = model([*nodes, ("Sub", "p,n", "d", {})], {"x": ["b", "s", 3]}, "shape,p,n,d")
    judged(made, {"b": 2, "s": 5})


# ---- images, layers -------------------------------------------------------------------------------------------------


def test_images_of_any_size():
    nodes = [
        ("Conv", "x,w,bias", "c", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}),
        ("Conv", "c,u", "s", {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        ("Relu", "s", "r", {}),
        ("MaxPool", "c", "m", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ("AveragePool", "m", "v", {"kernel_shape": [2, 2]}),
        ("GlobalAveragePool", "r", "g", {}),
        ("Flatten", "g", "z", {}),
        ("Resize", "r,,scales", "y", {"mode": "nearest", "coordinate_transformation_mode": "asymmetric",
                                      "nearest_mode": "floor"}),
        ("Resize", "r,,scales", "l", {"mode": "linear"}),
    ]  # fmt: skip
    constants = {"w": floats(4, 3, 3, 3), "bias": floats(4), "u": floats(4, 4, 3, 3)}
    constants["scales"] = np.array([1, 1, 2, 4], "float32")
    made = model(nodes, {"x": ["b", 3, "h", "w_"]}, "z,v,y,l", constants)
    imported = judged(made, {"b": 2, "h": 9, "w_": 12}, {"b": 1, "h": 32, "w_": 7})
    assert [guard.split(" <=")[0] for guard in guards(imported)] == ["2", "2"]


@pytest.mark.parametrize("cell", ["LSTM", pytest.param("GRU", marks=pytest.mark.slow), "RNN"])
def test_sequences_of_any_length(cell):
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[cell]
    constants = {"w": floats(2, gates * 5, 3), "r": floats(2, gates * 5, 5), "b": floats(2, gates * 10)}
    nodes = [(cell, "x,w,r,b,,h", "y,z", {"hidden_size": 5, "direction": "bidirectional"})]
    made = model(nodes, {"x": ["s", "b", 3], "h": [2, "b2", 5]}, "y,z", constants)
    imported = judged(made, {"s": 7, "b": 2, "b2": 2}, {"s": 1, "b": 3, "b2": 3})
    assert guards(imported) == ["b == b2"]


def test_operands_that_agree_otherwise_than_by_broadcasting():
    nodes = [
        ("Einsum", "x,y", "e", {"equation": "bsd,btd->bst"}),
        ("GatherElements", "x,iplaces", "g", {"axis": 2}),
        ("ScatterND", "x,rows,u", "s", {}),
    ]
    shapes = {"x": ["b", "s", 4], "y": ["b2", "t", 4], "iplaces": ["p", "s", "k"], "u": [1, "s2", 4]}
    made = model(nodes, shapes, "e,g,s", {"rows": np.array([[0]])})
    at = {"b": 2, "s": 3, "b2": 2, "t": 5, "p": 2, "k": 7, "s2": 3}
    imported = judged(made, at, {**at, "b": 3, "b2": 3, "p": 3, "t": 1})
    assert guards(imported) == ["b == b2", "b == p", "s == s2"]


def test_elements_whose_number_the_data_decides():
    nodes = [
        ("Relu", "x", "r", {}),
        ("NonZero", "r", "places", {}),
        ("Transpose", "places", "rows", {"perm": [1, 0]}),
        ("GatherND", "x,rows", "z", {}),
    ]
    judged(model(nodes, {"x": ["b", "s"]}, "places,z"), {"b": 2, "s": 5}, {"b": 4, "s": 1})


def test_quantised_gemms():
    nodes = [
        ("QuantizeLinear", "x,scale,zero", "q", {}),
        ("DequantizeLinear", "q,scale,zero", "d", {}),
        ("MatMul", "d,w", "z", {}),
        ("DynamicQuantizeLinear", "x", "u,s,p", {}),
        ("MatMulInteger", "u,v,p", "y", {}),
    ]
    integers = np.random.default_rng(0).integers(-50, 50, (8, 4)).astype("int8")
    constants = {"scale": np.float32(0.05), "zero": np.int8(0), "w": floats(8, 4), "v": integers}
    judged(model(nodes, {"x": ["b", "s", 8]}, "z,y", constants), {"b": 2, "s": 5}, {"b": 1, "s": 1})


def test_a_batch_of_images_of_fixed_size():
    nodes = [
        ("Conv", "x,w", "c", {"kernel_shape": [3, 3]}),
        ("PRelu", "c,slopes", "a", {}),
        ("InstanceNormalization", "a,scale,scale", "n", {}),
        ("MaxPool", "n", "m,places", {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
        ("AveragePool", "c", "v", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "auto_pad": "NOTSET"}),
        ("Resize", "c,,scales", "r", {"mode": "cubic"}),
    ]
    constants = {
        "w": floats(4, 3, 3, 3),
        "scale": floats(4),
        "slopes": floats(4, 1, 1),
        "scales": np.array([1, 1, 1.5, 0.5], "float32"),
    }
    made = model(nodes, {"x": ["b", 3, 7, 9]}, "m,places,v,r", constants)
    assert not judged(made, {"b": 1}, {"b": 4}).open_sizes.guards


def test_declared_shapes_that_are_fixed_become_guards():
    """A file with dynamic inputs but fixed declarations of its tensors."""
    made = model([("Relu", "x", "r", {}), ("Shape", "r", "n", {}), ("Reshape", "r,n", "z", {})], {"x": ["b", 3]}, "z")
    made.graph.value_info.append(helper.make_tensor_value_info("r", KINDS["f"], [4, 3]))
    assert guards(loaded(made)) == ["b == 4"]


# ---- refusals -------------------------------------------------------------------------------------------------------

REFUSED = {
    "a shape that the run computes": ([("Cast", "x", "n", {"to": 7}), ("Reshape", "x,n", "z", {})], {"x": ["s"]}),
    "a size that never fits": (
        [("Slice", "x,first,one,first", "q", {}), ("Reshape", "q,t", "z", {})],
        {"x": ["s", 3]},
    ),
    "no operator for open sizes": ([("Det", "x", "z", {})], {"x": ["s", "s"]}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_supported_is_one_sentence(name):
    nodes, inputs = REFUSED[name]
    with pytest.raises(TilingError) as refused:
        loaded(model(nodes, inputs, "z", {"first": ZERO, "one": ONE, "t": np.array([4])}))
    said = str(refused.value)
    assert "\n" not in said
    assert "node '->" in said


def test_kernels_of_open_sizes_take_no_number_twice():
    """A size as a tensor, added to a range of another size: TVM's fusion ends in an internal error."""
    nodes = [
        ("Shape", "ipast", "past", {}),
        *LENGTH,
        ("Range", "i0,n,i1", "r", {}),
        ("Add", "r,past", "places", {}),
        ("Cast", "places", "real", {"to": 1}),
        ("Unsqueeze", "real,one", "column", {}),
        ("Mul", "x,column", "z", {}),
    ]
    made = model(nodes, {"x": ["b", "s", 3], "ipast": ["p"]}, "z", ENDS)
    judged(made, {"b": 2, "s": 4, "p": 3})


def test_variables_of_the_module_are_those_of_the_inputs():
    imported = loaded(attention("before + s"))
    found = {
        variable
        for tensor in tvm.relax.analysis.all_vars(imported.module["main"])
        if isinstance(tensor.ty, tvm.relax.TensorType)
        for extent in tensor.ty.shape.values
        for variable in ([extent] if isinstance(extent, tvm.tirx.Var) else [])
    }
    assert found <= set(imported.symbols)
