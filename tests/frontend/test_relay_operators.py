"""Supported Relay operators, each with a test case, and refusals of the others."""

from __future__ import annotations

import re

import pytest
from relay_families import operators

from tvm_tiling.errors import UnsupportedOperator
from tvm_tiling.frontend import load_model
from tvm_tiling.frontend.relay.operators import OPERATORS

# Tested separately, because their results are constants, or approximate real numbers.
TESTED_ELSEWHERE = {
    "nn.deformable_conv2d",
    "vision.multibox_prior",
    *(
        f"qnn.{name}"
        for name in ["abs", "erf", "exp", "hardswish", "log", "rsqrt", "sigmoid", "softmax", "sqrt", "tanh"]
    ),
}
# Of release 0.19, and unsupported: sizes that depend on values, random numbers, layouts of one machine, and rare ones.
REFUSED = [
    "argwhere",
    "unique",
    "dyn.nn.pad",
    "dyn.nn.upsampling",
    "dyn.nn.upsampling3d",
    "dyn.sparse_to_dense",
    "sparse_fill_empty_rows",
    "sparse_reshape",
    "nn.sparse_dense",
    "nn.sparse_transpose",
    "nn.sparse_add",
    "nn.sparse_conv2d",
    "random.threefry_generate",
    "random.threefry_split",
    "random.uniform",
    "random.normal",
    "random.multinomial",
    "nn.contrib_conv2d_NCHWc",
    "nn.contrib_depthwise_conv2d_NCHWc",
    "nn.contrib_dense_pack",
    "nn.contrib_conv2d_winograd_without_weight_transform",
    "nn.bitserial_conv2d",
    "nn.bitserial_dense",
    "nn.correlation",
    "nn.cross_entropy_grad",
    "vision.multibox_transform_loc",
    "vision.proposal",
    "vision.yolo_reorg",
    "vision.all_class_non_max_suppression",
    "memory.alloc_tensor",
    "vm.shape_of",
    "call_lowered",
    "image.resize2d_gradient",
    "debug",
    "dft",
    "stft",
]


def test_at_least_120_operators_are_supported_and_each_has_a_case():
    assert len(OPERATORS) >= 120
    assert operators() | TESTED_ELSEWHERE == set(OPERATORS)


def test_the_others_are_refused_by_name_all_at_once_with_their_lines():
    assert not set(REFUSED) & set(OPERATORS)
    lines = [f"  %{number} = {name}(%x, axis=1);" for number, name in enumerate(REFUSED)]
    results = ", ".join(f"%{number}" for number in range(len(REFUSED)))
    text = "\n".join(["def @main(%x: Tensor[(2, 3), float32]) {", *lines, f"  ({results})", "}"])
    with pytest.raises(UnsupportedOperator) as raised:
        load_model(text.encode())
    found = re.findall(r"([\w.]+) \(line (\d+)\)", str(raised.value))
    assert found == [(name, str(number + 2)) for number, name in enumerate(REFUSED)]


def test_sizes_that_are_not_known_before_the_run_are_refused_all_at_once_with_their_lines():
    text = """def @main(%x: Tensor[(2, 3), float32], %n: Tensor[(2), int64], %k: int32) {
  %0 = dyn.reshape(%x, %n, newshape=None);
  %1 = dyn.broadcast_to(%x, %n, shape=None);
  %2 = dyn.zeros(%n, shape=None, dtype="float32");
  %3 = dyn.tile(%x, %n, reps=None);
  %4 = dyn.topk(%x, %k);
  %5 = dyn.strided_slice(%x, %n, %n, %n);
  %6 = dyn.full(1f, %n, shape=None);
  %7 = dyn.one_hot(%n, 1i64, 0i64, %k, axis=-1, dtype="int64");
  %8 = arange(0, %k, 1, dtype="int32");
  (%0, %1, %2, %3, %4, %5, %6, %7, %8)
}"""
    with pytest.raises(UnsupportedOperator) as raised:
        load_model(text.encode())
    said = str(raised.value)
    for line, name in enumerate(
        ["reshape", "broadcast_to", "zeros", "tile", "topk", "strided_slice", "full", "one_hot"], start=2
    ):
        assert re.search(rf"dyn\.{name}: [^;]* is not known at compile time; expected a constant \(line {line}\)", said)
    assert re.search(r"arange: [^;]* is not known at compile time; expected a constant \(line 10\)", said)
    assert len(said) < 4000
