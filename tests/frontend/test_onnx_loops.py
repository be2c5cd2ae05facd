"""ONNX Loop and Scan with a known number of iterations, compared with onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper
from onnx_judge import by_onnxruntime, check, model_of

from tvm_tiling.errors import LimitError, ModelFormatError, UnsupportedOperator
from tvm_tiling.frontend import load_model
from tvm_tiling.model.compile import compile_model

FLOATS = np.random.default_rng(0).standard_normal((3, 4)).astype("float32")


def info(name, kind=TensorProto.FLOAT, shape=None):
    return helper.make_tensor_value_info(name, kind, shape)


def node(operator, inputs, outputs, **attributes):
    return helper.make_node(operator, inputs.split(","), outputs.split(","), **attributes)


def counted(*nodes, constants=()):
    """Return a body that multiplies its state by 1.5, adds the number of the iteration, and scans the previous
    state."""
    own = [
        node("Identity", "go_in", "go_out"),
        node("Cast", "number", "float_number", to=TensorProto.FLOAT),
        node("Mul", "state_in,factor", "scaled"),
        node("Add", "scaled,float_number", "state_out"),
        node("Add", "state_in,x", "row"),
    ]
    inputs = [info("number", TensorProto.INT64, []), info("go_in", TensorProto.BOOL, []), info("state_in")]
    outputs = [info("go_out", TensorProto.BOOL), info("state_out"), info("row")]
    held = [numpy_helper.from_array(np.float32(1.5), "factor"), *constants]
    return helper.make_graph([*own, *nodes], "body", inputs, outputs, held)


@pytest.mark.values
@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize("condition", ["", "go"])
def test_a_loop_of_four_iterations(condition, opset):
    """The body reads an outer tensor; two loops may have bodies with equal names."""
    loop = node("Loop", f"n,{condition},s", "y,rows", body=counted())
    second = node("Loop", f"n,{condition},y", "z,unused", body=counted())
    given = {"x": FLOATS, "s": FLOATS * 2}
    constants = {"n": np.int64(4), **({"go": np.array(True)} if condition else {})}
    check(model_of([loop, second], given, {"rows": "float32", "z": "float32"}, constants, opset=opset), given)


@pytest.mark.parametrize(("most", "go"), [(0, True), (3, False)])
def test_a_loop_that_never_runs(most, go):
    body = counted()
    del body.output[2]
    given = {"x": FLOATS, "s": FLOATS * 2}
    constants = {"n": np.int64(most), "go": np.array(go)}
    check(model_of([node("Loop", "n,go,s", "y", body=body)], given, {"y": "float32"}, constants), given)


def test_a_loop_whose_number_is_given_before_the_run():
    given = {"x": FLOATS, "s": FLOATS * 2}
    loop = node("Loop", "n,,s", "y,rows", body=counted())
    model = model_of([loop], {**given, "n": np.array(3)}, {"y": "float32", "rows": "float32"})
    with pytest.raises(UnsupportedOperator, match=r"Loop .* not known at compile time, unless params={'n': value}"):
        load_model(model)
    executable = compile_model(model, params={"n": np.array(3)}, cache=False)
    expected = by_onnxruntime(model, {**given, "n": np.array(3)})
    for result, value in zip(executable.run(FLOATS, FLOATS * 2), expected, strict=True):
        np.testing.assert_allclose(result, value, rtol=1e-5)


def test_a_loop_whose_number_is_computed_before_the_run():
    """As in the standard's definition of Range."""
    given = {"x": FLOATS, "s": FLOATS * 2}
    nodes = [node("Relu", "most", "positive"), node("Cast", "positive", "n", to=TensorProto.INT64)]
    nodes.append(node("Loop", "n,,s", "y,rows", body=counted()))
    check(model_of(nodes, given, {"y": "float32", "rows": "float32"}, {"most": np.float32(3)}), given)


def test_a_loop_of_no_iteration_scans_nothing():
    given = {"x": FLOATS, "s": FLOATS * 2}
    body = counted()
    for value in (*body.input[2:], *body.output[1:]):
        value.CopyFrom(info(value.name, shape=FLOATS.shape))
    model = model_of([node("Loop", "n,,s", "y,rows", body=body)], given, {"rows": "float32"}, {"n": np.int64(0)})
    check(model, given)


def while_loop(bound, *, step=1.0):
    """A loop without a number of iterations, whose condition reads a counter that is a state."""
    nodes = [
        node("Add", "count_in,step", "count_out"),
        node("Less", "count_out,bound", "go_out"),
        node("Mul", "state_in,factor", "state_out"),
        node("Identity", "state_in", "row"),
    ]
    inputs = [info("number", TensorProto.INT64, []), info("go_in", TensorProto.BOOL, []), info("count_in", shape=[])]
    outputs = [info("go_out", TensorProto.BOOL), info("count_out"), info("state_out"), info("row")]
    held = [numpy_helper.from_array(np.float32(value), name) for name, value in (("factor", 1.5), ("step", step))]
    held += [numpy_helper.from_array(np.float32(bound), "bound")] if bound is not None else []
    return helper.make_graph(nodes, "body", [*inputs, info("state_in")], outputs, held)


@pytest.mark.values
@pytest.mark.parametrize("opset", [11, 18])
@pytest.mark.parametrize(("most", "bound"), [("", 4.0), ("n", 4.0), ("n", 100.0)])
def test_a_loop_whose_condition_follows_from_a_counter(most, bound, opset):
    loop = node("Loop", f"{most},,zero,x", "count,y,rows", body=while_loop(bound))
    constants = {"zero": np.float32(0), **({"n": np.int64(6)} if most else {})}
    given = {"x": FLOATS}
    check(model_of([loop], given, {"count": "float32", "y": "float32", "rows": "float32"}, constants, opset), given)


def test_a_loop_that_never_ends_is_refused():
    loop = node("Loop", ",,zero,x", "count,y,rows", body=while_loop(1.0, step=0.0))
    with pytest.raises(LimitError, match="iterations"):
        load_model(model_of([loop], {"x": FLOATS}, {"y": "float32"}, {"zero": np.float32(0)}))


def test_a_loop_whose_counter_starts_at_an_input_is_refused():
    given = {"x": FLOATS, "first": np.float32(0)}
    loop = node("Loop", ",,first,x", "count,y,rows", body=while_loop(4.0))
    with pytest.raises(UnsupportedOperator, match="Loop of a number of iterations that is not known at compile time"):
        load_model(model_of([loop], given, {"y": "float32"}))


def test_a_loop_whose_end_the_run_decides_is_refused():
    body = counted(node("ReduceSum", "state_in", "total", keepdims=0), node("Less", "total,factor", "less"))
    body.output[0].name = "less"
    given = {"x": FLOATS, "s": FLOATS}
    with pytest.raises(UnsupportedOperator, match="Loop of a number of iterations that is not known at compile time"):
        load_model(model_of([node("Loop", "n,,s", "y,rows", body=body)], given, {"y": "float32"}, {"n": np.int64(3)}))


@pytest.mark.values
@pytest.mark.parametrize("back", [0, 1])
@pytest.mark.parametrize("lengths", [None, [3, 3]])
def test_a_scan_of_version_8_has_a_batch(lengths, back):
    """Two sequences of three rows each; state and scanned tensors belong to each sequence."""
    nodes = [node("Add", "s_in,row", "s_out"), node("Mul", "s_out,other", "product")]
    inputs = [info(name, shape=[4]) for name in ("s_in", "row", "other")]
    body = helper.make_graph(nodes, "body", inputs, [info("s_out", shape=[4]), info("product", shape=[4])])
    given = {"s": FLOATS[:2], "x": np.stack([FLOATS, FLOATS * 2]), "z": np.stack([FLOATS + 1, FLOATS - 2])}
    scan = node(
        "Scan", f"{'n' if lengths else ''},s,x,z", "y,products", body=body, num_scan_inputs=2, directions=[back, 0]
    )
    constants = {"n": np.array(lengths)} if lengths else {}
    check(model_of([scan], given, {"y": "float32", "products": "float32"}, constants, opset=8), given)


@pytest.mark.parametrize("known", [False, True])
def test_a_scan_of_version_8_of_sequences_that_end_before(known):
    body = helper.make_graph([node("Add", "s_in,row", "s_out")], "body", [info("s_in"), info("row")], [info("s_out")])
    given = {"s": FLOATS[:2], "x": np.stack([FLOATS, FLOATS * 2])}
    scan = node("Scan", "n,s,x", "y", body=body, num_scan_inputs=1)
    lengths = {"n": np.array([3, 2])}
    model = model_of([scan], given if known else {**given, **lengths}, {"y": "float32"}, lengths if known else {}, 8)
    with pytest.raises(UnsupportedOperator, match="Scan whose sequence_lens are not known at compile time to be"):
        load_model(model)


def test_an_output_that_is_a_sequence_is_refused():
    model = model_of([node("SequenceConstruct", "x,x", "y")], {"x": FLOATS}, {"y": "float32"})
    model.graph.output[0].type.CopyFrom(helper.make_sequence_type_proto(model.graph.output[0].type))
    with pytest.raises(ModelFormatError, match="output 'y' has kind sequence; expected tensors"):
        load_model(model)


def test_a_scan_of_a_constant():
    """In a run-time branch."""
    body = helper.make_graph(
        [node("Add", "before,slice", "after")], "body", [info("before"), info("slice")], [info("after")]
    )
    scan = node("Scan", "s,rows", "total", body=body, num_scan_inputs=1)
    sides = [
        helper.make_graph(nodes, "side", [], [info(nodes[0].output[0])], held)
        for nodes, held in (([scan], [numpy_helper.from_array(FLOATS, "rows")]), ([node("Mish", "s", "m")], []))
    ]
    branch = node("If", "go", "y", then_branch=sides[0], else_branch=sides[1])
    for go in (True, False):
        given = {"s": np.ones(4, "float32"), "go": np.array(go)}
        check(model_of([branch], given, {"y": "float32"}), given)


def test_a_sequence_map():
    body = helper.make_graph([node("Exp", "each", "e")], "body", [info("each")], [info("e")])
    nodes = [
        node("SequenceConstruct", "x,y,x", "parts"),
        node("SequenceMap", "parts", "mapped", body=body),
        node("Identity", "mapped", "same"),
        node("ConcatFromSequence", "same", "z", axis=0),
    ]
    given = {"x": FLOATS, "y": FLOATS * 2}
    check(model_of(nodes, given, {"z": "float32"}), given)


def test_a_loop_of_too_many_iterations_is_refused_before_it_is_written_out():
    given = {"x": FLOATS, "s": FLOATS}
    model = model_of([node("Loop", "n,,s", "y,rows", body=counted())], given, {"y": "float32"}, {"n": np.int64(10**12)})
    with pytest.raises(LimitError, match="iterations"):
        load_model(model)


@pytest.mark.values
@pytest.mark.parametrize("backwards", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_scan_along_an_axis(axis, backwards):
    """A running sum of slices, and the slices' products, in both directions."""
    into, out = backwards
    nodes = [node("Add", "before,slice", "after"), node("Mul", "after,other", "product")]
    body = helper.make_graph(
        nodes, "body", [info("before"), info("slice"), info("other")], [info("after"), info("product")]
    )
    scan = node(
        "Scan",
        "s,x,z",
        "y,products",
        body=body,
        num_scan_inputs=2,
        scan_input_axes=[axis, 0],
        scan_input_directions=[into, 0],
        scan_output_axes=[1],
        scan_output_directions=[out],
    )
    length = FLOATS.shape[axis]
    size = FLOATS.shape[1 if axis == 0 else 0]
    given = {
        "s": np.ones(size, "float32"),
        "x": FLOATS,
        "z": np.arange(length * size, dtype="float32").reshape(length, size),
    }
    check(model_of([scan], given, {"y": "float32", "products": "float32"}), given)
