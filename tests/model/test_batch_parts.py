"""Batches that are computed in parts: which models can be divided, and results equal to those of one part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_tiling as tt
from tvm_tiling.decide.batch_parts import BatchWork, decide_parts
from tvm_tiling.model import build, pipeline
from tvm_tiling.model.explain import explain_model

IMAGES = 12


def weights(name, *shape, seed=0):
    return numpy_helper.from_array(np.random.default_rng(seed).standard_normal(shape).astype("float32"), name)


def model_of(nodes, inputs, constants=(), outputs=("y",), opset=17):
    """A model of `nodes`, given as (operator, inputs, output, attributes)."""
    graph = helper.make_graph(
        [
            helper.make_node(op, list(read), [made] if isinstance(made, str) else list(made), **attributes)
            for op, read, made, attributes in nodes
        ],
        "batch",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        list(constants),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


IMAGE = {"x": (IMAGES, 8, 9, 7)}
KERNELS, SCALE = weights("w", 6, 8, 3, 3), weights("s", 6, 1, 1)
CONV = ("Conv", ("x", "w"), "c", {"pads": [1, 1, 1, 1]})


def ints(name, *values):
    return numpy_helper.from_array(np.array(values, "int64"), name)


DIVISIBLE = {
    "element-wise": ([CONV, ("Mul", ("c", "s"), "m", {}), ("Relu", ("m",), "y", {})], IMAGE, [KERNELS, SCALE]),
    "residual": ([CONV, ("Conv", ("x", "w"), "d", {"pads": [1] * 4}), ("Add", ("c", "d"), "y", {})], IMAGE, [KERNELS]),
    "pools": (
        [
            CONV,
            ("MaxPool", ("c",), "p", {"kernel_shape": [3, 3], "strides": [2, 2]}),
            ("GlobalAveragePool", ("p",), "g", {}),
            ("Flatten", ("g",), "f", {}),
            ("MatMul", ("f", "v"), "z", {}),
            ("Softmax", ("z",), "y", {"axis": -1}),
        ],
        IMAGE,
        [KERNELS, weights("v", 6, 11)],
    ),
    "patches with a token": (
        [
            ("Conv", ("x", "w"), "c", {"kernel_shape": [3, 3], "strides": [3, 3]}),
            ("Reshape", ("c", "shape"), "r", {}),
            ("Transpose", ("r",), "t", {"perm": [0, 2, 1]}),
            ("Concat", ("token", "t"), "j", {"axis": 1}),
            ("LayerNormalization", ("j", "g"), "n", {"axis": -1}),
            ("Transpose", ("n",), "k", {"perm": [0, 2, 1]}),
            ("MatMul", ("n", "k"), "a", {}),
            ("Softmax", ("a",), "q", {"axis": -1}),
            ("MatMul", ("q", "n"), "o", {}),
            ("Gather", ("o", "first"), "y", {"axis": 1}),
        ],
        IMAGE,
        [
            KERNELS,
            ints("shape", IMAGES, 6, 6),
            numpy_helper.from_array(np.repeat(np.full((1, 1, 6), 0.3, "float32"), IMAGES, 0), "token"),
            weights("g", 6),
            numpy_helper.from_array(np.array(0, "int64"), "first"),
        ],
    ),
    "rows of all images together": (
        [("Reshape", ("x", "rows"), "r", {}), ("MatMul", ("r", "v"), "z", {}), ("Reshape", ("z", "back"), "y", {})],
        {"x": (IMAGES, 5, 8)},
        [ints("rows", IMAGES * 5, 8), weights("v", 8, 4), ints("back", IMAGES, 20)],
    ),
    "two inputs, parts of channels": (
        [
            ("Split", ("x",), ("a", "b"), {"axis": 1}),
            ("Mul", ("a", "b"), "m", {}),
            ("Concat", ("m", "z"), "j", {"axis": 1}),
            ("ReduceMean", ("j",), "r", {"axes": [2, 3], "keepdims": 0}),
            ("MatMul", ("r", "v"), "y", {}),
        ],
        {**IMAGE, "z": (IMAGES, 2, 9, 7)},
        [weights("v", 6, 5)],
    ),
}
SHARED = {
    "softmax over images": ([CONV, ("Softmax", ("c",), "y", {"axis": 0})], IMAGE, [KERNELS]),
    "mean over images": ([CONV, ("ReduceMean", ("c",), "y", {"axes": [0], "keepdims": 1})], IMAGE, [KERNELS]),
    "mean over all": (
        [CONV, ("ReduceMean", ("c",), "m", {"keepdims": 1}), ("Sub", ("c", "m"), "y", {})],
        IMAGE,
        [KERNELS],
    ),
    "images in another order": (
        [CONV, ("Gather", ("c", "order"), "y", {"axis": 0})],
        IMAGE,
        [KERNELS, ints("order", *range(11, -1, -1))],
    ),
    "every second image": (
        [CONV, ("Slice", ("c", "from", "to", "axes", "steps"), "y", {})],
        IMAGE,
        [KERNELS, ints("from", 0), ints("to", IMAGES), ints("axes", 0), ints("steps", 2)],
    ),
    "a constant for each image": (
        [CONV, ("Mul", ("c", "each"), "y", {})],
        IMAGE,
        [KERNELS, weights("each", IMAGES, 1, 1, 1)],
    ),
    "images times images": (
        [("Transpose", ("x",), "t", {"perm": [1, 0]}), ("MatMul", ("x", "t"), "y", {})],
        {"x": (IMAGES, 8)},
        [],
    ),
    "an output of constants": (
        [CONV, ("Relu", ("c",), "y", {}), ("Identity", ("w",), "k", {})],
        IMAGE,
        [KERNELS],
        ("y", "k"),
    ),
    "images joined": ([CONV, ("Concat", ("c", "c"), "y", {"axis": 0})], IMAGE, [KERNELS]),
    "images and channels exchanged": ([CONV, ("Transpose", ("c",), "y", {"perm": [1, 0, 2, 3]})], IMAGE, [KERNELS]),
    "inputs of several batches": (
        [CONV, ("Relu", ("z",), "k", {}), ("Relu", ("c",), "y", {})],
        {**IMAGE, "z": (3, 4)},
        [KERNELS],
        ("y", "k"),
    ),
    "one input without images": ([CONV, ("Mul", ("c", "z"), "y", {})], {**IMAGE, "z": (6, 1, 1)}, [KERNELS]),
}


@pytest.fixture
def divided(monkeypatch):
    """Set the number of parts of models that can be divided."""

    def into(parts):
        monkeypatch.setattr(pipeline, "decide_parts", lambda work, cpu: parts)

    return into


def values(model):
    rng = np.random.default_rng(3)
    shapes = [[d.dim_value for d in given.type.tensor_type.shape.dim] for given in model.graph.input]
    return [rng.standard_normal(shape).astype("float32") for shape in shapes]


def run(exe, given):
    found = exe.run(*given)
    return list(found) if isinstance(found, tuple) else [found]


@pytest.mark.parametrize("name", DIVISIBLE)
def test_parts_have_the_results_of_the_whole(name, divided):
    model = model_of(*DIVISIBLE[name])
    given = values(model)
    divided(1)
    whole = tt.compile(model, cache=False)
    for parts in (3, IMAGES):
        divided(parts)
        exe = tt.compile(model, cache=False)
        assert exe.report().parts == parts and f"in {parts} parts" in str(exe.report())
        for found, wanted in zip(run(exe, given), run(whole, given), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", SHARED)
def test_models_whose_images_are_not_apart_are_not_divided(name, divided):
    divided(3)
    model = model_of(*SHARED[name])
    exe = tt.compile(model, cache=False)
    assert exe.report().parts == 1
    given = values(model)
    wanted = onnx.reference.ReferenceEvaluator(model).run(None, dict(zip("xz", given, strict=False)))
    for found, each in zip(run(exe, given), wanted, strict=True):
        np.testing.assert_allclose(found, each, rtol=1e-4, atol=1e-4)


def test_a_run_in_parts_is_measured_profiled_saved_and_explained(divided, tmp_path):
    divided(4)
    model = model_of(*DIVISIBLE["pools"])
    (x,) = values(model)
    exe = tt.compile(model, cache=False)
    wanted = exe.run(x)
    conv = next(row for row in exe.report().operators if row.kind == "convolution")
    assert conv.calls == 4 and conv.flops == 4 * 2 * 3 * 9 * 7 * 6 * 8 * 9
    measured = exe.benchmark(x, seconds=0.05)
    assert measured.operators[conv.name] > 0
    profile = exe.profile(x)
    assert len([step for step in profile.steps if step.operator == conv.name]) == 4
    assert sorted(step.start for step in profile.steps) == [step.start for step in profile.steps]
    exe.save(tmp_path / "net.tar")
    again = tt.load(tmp_path / "net.tar")
    assert again.report().parts == 4
    np.testing.assert_array_equal(again.run(x), wanted)
    np.testing.assert_array_equal(tt.run_many([(again, [x]), (again, [x])])[1], wanted)
    # Inputs and outputs that start at any element, and outputs of the caller.
    held = np.zeros(x.size + 1, "float32")
    held[1:] = x.ravel()
    np.testing.assert_array_equal(exe.run(held[1:].reshape(x.shape)), wanted)
    out = np.full(wanted.size + 3, np.nan, "float32")
    exe.run(x, out=out[3:].reshape(wanted.shape))
    np.testing.assert_array_equal(out[3:].reshape(wanted.shape), wanted)


def test_explain_tells_the_parts(divided, tmp_path):
    divided(6)
    onnx.save(model_of(*DIVISIBLE["pools"]), tmp_path / "net.onnx")
    (found,) = explain_model(tmp_path / "net.onnx")
    assert found.parts == 6 and found.to_dict()["parts"] == 6
    assert {row.calls for row in found.operators if row.kind == "convolution"} == {6}


def test_without_a_compiler_for_plans_the_batch_is_computed_at_once(divided, monkeypatch):
    divided(6)
    monkeypatch.setattr(pipeline, "compiler_for", lambda _: None)
    model = model_of(*DIVISIBLE["pools"])
    exe = tt.compile(model, cache=False)
    assert exe.report().parts == 1 and exe.run(*values(model)).shape == (IMAGES, 11)
    monkeypatch.undo()
    divided(6)
    monkeypatch.setattr(build, "link_plan", lambda *_: None)
    with pytest.raises(tt.TilingError, match="the batch cannot be computed in 6 parts: there is no C compiler"):
        tt.compile(model, cache=False)


def test_only_large_parts_of_large_batches_pay():
    cpu = tt.Hardware.load("zen4-server-8c").with_cores(2).cpu
    squeezenet = BatchWork(
        images=16, multiplications=26, flops=11e9, weight_bytes=5 << 20, widest_bytes=100 << 20, loops=60
    )
    parts = decide_parts(squeezenet, cpu)
    assert parts > 1 and 16 % parts == 0
    for changed in (
        {"images": 1},
        {"multiplications": 1},  # nothing between two of them
        {"widest_bytes": 10 << 20},  # all images fit the last-level cache
        {"weight_bytes": 4 << 30},
        {"loops": 10**6},
        {"images": 17, "flops": 17e6},
    ):
        assert decide_parts(replace(squeezenet, **changed), cpu) == 1
    more = decide_parts(replace(squeezenet, images=64, flops=44e9, widest_bytes=400 << 20), cpu)
    assert more == 4 * parts  # as many images in each
    assert decide_parts(replace(squeezenet, weight_bytes=50 << 20), cpu) < parts
    rows = replace(squeezenet, images=1 << 16, widest_bytes=64 << 20, flops=1e12)
    assert decide_parts(rows, cpu) == 32  # each fills L2
