"""Schedules by TVM's primitives alone: exact compared with NumPy, with traces that replay; and their
transformations."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import tvm
from tvm import s_tir, te, topi
from tvm.s_tir import meta_schedule as ms

import tvm_tiling as tt
from tvm_tiling.match import prim_func_of as func_of

pytestmark = pytest.mark.blocks


def machine(cores=2):
    known = tt.Hardware.detect()
    return replace(known, cpu=replace(known.cpu, cores=cores, threads=cores))


def product(m, k, n, *, trans_b=False, batch=0, relu=False, dtype="float32"):
    lead = (batch,) if batch else ()
    a = te.placeholder((*lead, m, k), dtype, "A")
    b = te.placeholder((*lead, *((n, k) if trans_b else (k, n))), dtype, "B")
    r = te.reduce_axis((0, k), name="r")

    def element(*at):
        *of, i, j = at
        return te.sum(a(*of, i, r) * (b(*of, j, r) if trans_b else b(*of, r, j)), axis=r)

    c = te.compute((*lead, m, n), element, "C")
    bias = te.placeholder((n,), dtype, "bias")
    return topi.nn.relu(te.compute(c.shape, lambda *at: c(*at) + bias[at[-1]])) if relu else c


def convolution(size, ci, co, kernel, stride, *, relu=False):
    x, w = te.placeholder((1, size, size, ci), name="X"), te.placeholder((kernel, kernel, ci, co), name="W")
    c = topi.nn.conv2d_nhwc(x, w, stride, kernel // 2, 1)
    return topi.nn.relu(c) if relu else c


def run(func, inputs):
    shape = tuple(int(e) for e in func.params[-1].shape)
    out = tvm.runtime.empty(shape, str(func.params[-1].dtype))
    kernel = tvm.compile(tvm.IRModule({"main": func}), target=tt.llvm_target())["main"]
    kernel(*map(tvm.runtime.tensor, inputs), out)
    return out.numpy()


def random_inputs(func):
    rng = np.random.default_rng(1)
    shapes = [(tuple(int(e) for e in p.shape), str(p.dtype)) for p in func.params[:-1]]
    return [(rng.random(shape) - 0.5).astype(dtype) for shape, dtype in shapes]


def replays(op, sch):
    again = s_tir.Schedule(func_of(op))
    sch.trace.apply_to_schedule(again, remove_postproc=False)
    tvm.ir.assert_structural_equal(again.mod, sch.mod)


PRODUCTS = {
    "tiles that divide": product(64, 96, 128),
    "edges": product(37, 29, 51),
    "edges and an epilogue": product(37, 29, 51, relu=True),
    "an epilogue": product(64, 96, 128, relu=True),
    "split K": product(16, 16384, 32),
    "split K and an epilogue": product(16, 16384, 32, relu=True),
    "a dense layer": product(33, 64, 80, trans_b=True),
    "a batch": product(24, 32, 48, batch=3),
    "one row": product(1, 256, 512),
    "one row, a dense layer": product(1, 100, 60, trans_b=True),
    "one column": product(50, 60, 1),
    "one of each": product(1, 1, 1),
    "float64": product(20, 30, 40, dtype="float64"),
}


@pytest.mark.values
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("case", PRODUCTS)
def test_gemms_are_exact_and_replay(case, cores):
    op = PRODUCTS[case]
    func = func_of(op)
    sch = tt.tiling_schedule(func, machine(cores), primitives=True)
    inputs = random_inputs(func)
    wide = [x.astype("float64") for x in inputs]
    right = wide[1].swapaxes(-1, -2) if "dense" in case else wide[1]
    expected = wide[0] @ right
    if "epilogue" in case:
        expected = np.maximum(expected + wide[2], 0)
    np.testing.assert_allclose(run(sch.mod["main"], inputs), expected, rtol=1e-3, atol=1e-4)
    replays(op, sch)


CONVOLUTIONS = {
    "3x3": convolution(14, 16, 32, 3, 1),
    "3x3 with an epilogue": convolution(14, 16, 32, 3, 1, relu=True),
    "stride 2, sizes that nothing divides": convolution(15, 5, 7, 3, 2),
    "1x1": convolution(14, 24, 40, 1, 1),
}


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions_equal_the_emitted_kernels_and_replay(case):
    op = CONVOLUTIONS[case]
    func = func_of(op)
    sch = tt.tiling_schedule(func, machine(), primitives=True)
    inputs = random_inputs(func)
    emitted = tt.tiling_schedule(func, machine(), algorithm="direct").mod["main"]
    np.testing.assert_allclose(run(sch.mod["main"], inputs), run(emitted, inputs), rtol=1e-3, atol=1e-4)
    replays(op, sch)


def test_the_trace_is_of_tvms_instructions_and_the_decision_is_the_same():
    op = product(512, 512, 512, relu=True)
    sch = tt.tiling_schedule(func_of(op), tt.Hardware.load("icelake-server-2c"), primitives=True)
    used = {str(instruction.kind.name) for instruction in sch.trace.insts}
    assert {"Split", "Reorder", "Fuse", "Parallel", "Vectorize", "Unroll", "DecomposeReduction"} <= used
    assert "ReverseComputeAt" in used and len(sch.trace.insts) > 30
    noted = json.loads(str(sch.get(sch.get_sblock("root")).annotations["tvm_tiling.decision"]))
    workload = tt.GemmWorkload(m=512, n=512, k=512)
    decided = tt.decide(workload, tt.Hardware.load("icelake-server-2c"))
    assert noted == json.loads(decided.to_json())
    assert not tt.tiling_schedule(func_of(op)).trace.insts


@pytest.mark.parametrize("op", [product(37, 29, 51), product(16, 16384, 32), convolution(14, 16, 32, 3, 1)])
def test_the_noted_decision_written_again_gives_the_same_module(op):
    sch = tt.tiling_schedule(func_of(op), machine(), primitives=True)
    noted = str(sch.get(sch.get_sblock("root")).annotations["tvm_tiling.decision"])
    again = tt.tiling_schedule(func_of(op), machine(), primitives=True, decision=noted)
    tvm.ir.assert_structural_equal(again.mod, sch.mod)


def test_a_schedule_by_primitives_goes_on_with_primitives():
    """More transformations may follow, on the existing blocks and loops."""
    m, k, n = 37, 29, 51
    c = product(m, k, n)
    sch = tt.tiling_schedule(func_of(te.compute((m, n), lambda i, j: te.exp(c[i, j]), name="D")), primitives=True)
    sch.annotate(sch.get_loops(sch.get_sblock("C_update"))[0], "note", 1)
    assert '"note": 1' in sch.mod.script()


def test_functions_of_a_module_have_one_trace():
    module = tvm.IRModule({"one": func_of(product(16, 8, 32)), "two": func_of(product(4, 64, 64))})
    sch = tt.tiling_schedule(module, machine(), primitives=True)
    again = s_tir.Schedule(module)
    sch.trace.apply_to_schedule(again, remove_postproc=False)
    tvm.ir.assert_structural_equal(again.mod, sch.mod)


def test_what_primitives_do_not_serve_is_refused_in_one_sentence():
    def refused(op, error, reason, hardware="llvm", **options):
        with pytest.raises(error, match=reason):
            tt.tiling_schedule(op, hardware, primitives=True, **options)

    plain = product(16, 16, 16)
    refused(plain, tt.HardwareError, "has no CPU; expected False", "vsim/neartile")
    refused(plain, tt.HardwareError, "expected weights = 'plain'", weights="packed")
    refused(convolution(14, 16, 32, 3, 1), tt.HardwareError, "expected 'direct' for convolutions", form="winograd")
    x, w = te.placeholder((1, 8, 9, 9), name="X"), te.placeholder((8, 8, 3, 3), name="W")
    refused(topi.nn.conv2d_nchw(x, w, 1, 1, 1), tt.UnsupportedOperator, "NHWC images in one group")


def test_the_trace_of_a_schedule_for_an_accelerator_is_empty():
    a, b = te.placeholder((32, 32), "int8", "A"), te.placeholder((32, 32), "int8", "B")
    r = te.reduce_axis((0, 32), name="r")
    c = te.compute((32, 32), lambda i, j: te.sum(a[i, r].astype("int32") * b[r, j].astype("int32"), axis=r), name="C")
    sch = tt.tiling_schedule(c, "vsim/neartile")
    assert not sch.trace.insts and sch.get_loops(sch.get_sblock("C"))


# ---- moves by themselves ---------------------------------------------------------------------------------------------


def plain_schedule(op):
    sch = s_tir.Schedule(func_of(op))
    return sch, sch.get_sblock("C")


def test_split_k_is_an_rfactor_that_replays():
    op = product(8, 96, 16)
    sch, block = plain_schedule(op)
    partial = tt.split_k(sch, block, 4)
    assert [int(v.dom.extent) for v in sch.get(partial).iter_vars] == [4, 8, 16, 24]
    assert "RFactor" in {str(i.kind.name) for i in sch.trace.insts}
    inputs = random_inputs(func_of(op))
    np.testing.assert_allclose(run(sch.mod["main"], inputs), inputs[0] @ inputs[1], rtol=1e-3, atol=1e-4)
    replays(op, sch)
    sch, block = plain_schedule(op)
    with pytest.raises(tt.UnsupportedOperator, match="parts = 5; expected a divisor of its reduction axis, 96"):
        tt.split_k(sch, block, 5)


@pytest.mark.parametrize("order", ["mn", "nm"])
def test_partitions_are_splits_and_a_reorder(order):
    op = product(20, 36, 50, batch=2)
    sch, block = plain_schedule(op)
    loops = tt.partition(sch, block, 8, 25, 12, order)
    assert [int(sch.get(loop).extent) for loop in loops] == [2, *([3, 2] if order == "mn" else [2, 3]), 3, 8, 25, 12]
    inputs = random_inputs(func_of(op))
    np.testing.assert_allclose(run(sch.mod["main"], inputs), inputs[0] @ inputs[1], rtol=1e-3, atol=1e-4)
    replays(op, sch)


def test_moves_refuse_what_is_not_a_gemm():
    x = te.placeholder((4, 5), name="X")
    r = te.reduce_axis((0, 5), name="r")
    sch, block = plain_schedule(te.compute((4,), lambda i: te.sum(x[i, r], axis=r), name="C"))
    with pytest.raises(tt.UnsupportedOperator, match="expected a matrix multiplication"):
        tt.partition(sch, block, 2, 2)
    sch, block = plain_schedule(product(4, 5, 6))
    with pytest.raises(tt.UnsupportedOperator, match="sizes of at least 1"):
        tt.partition(sch, block, 2, 2, order="mk")


def test_folds_are_reached_from_the_package():
    op = convolution(9, 3, 4, 3, 2)
    sch = s_tir.Schedule(func_of(op))
    (block,) = [b for b in sch.get_child_blocks(sch.get_sblock("root")) if sch.get(b).init is not None]
    tt.fold_strides(sch, block)
    tt.fold_width(sch, block, pci=8, ws=2)
    inputs = random_inputs(func_of(op))
    emitted = tt.tiling_schedule(func_of(op), machine(), algorithm="direct").mod["main"]
    np.testing.assert_allclose(run(sch.mod["main"], inputs), run(emitted, inputs), rtol=1e-3, atol=1e-4)
    replays(op, sch)


@pytest.mark.parametrize("op", [product(16, 16384, 32), product(64, 96, 128), convolution(9, 3, 4, 3, 2)])
def test_rules_span_a_space_of_metaschedule_whose_traces_replay(op):
    func = func_of(op)
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    generator = ms.space_generator.PostOrderApply(
        sch_rules=tt.primitive_rules(machine()), postprocs=[], mutator_probs={}
    )
    context = ms.TuneContext(mod=module, target=tt.llvm_target(), space_generator=generator, task_name="op")
    found = context.generate_design_space()
    assert 2 <= len(found) <= 4  # more if another register tile, or a fold, is worth trying on this CPU
    inputs = random_inputs(func)
    expected = run(tt.tiling_schedule(func, machine()).mod["main"], inputs)
    for sch in found:
        again = s_tir.Schedule(module)
        sch.trace.apply_to_schedule(again, remove_postproc=True)
        tvm.ir.assert_structural_equal(again.mod, sch.mod)
        np.testing.assert_allclose(run(sch.mod["main"], inputs), expected, rtol=1e-3, atol=1e-3)


def test_rules_are_for_cpus():
    with pytest.raises(tt.HardwareError, match="expected CPU targets"):
        tt.primitive_rules("vsim/neartile")
