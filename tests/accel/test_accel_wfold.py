"""Convolutions on the W-fold engine: exact results, and counts that equal the formulas of W-fold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tvm
from convolutions import by_numpy, convolution
from operators import by_llvm, product, random_inputs, simulated
from tvm import te, tirx

import tvm_tiling as tt
from tvm_tiling.accel.checks.hazards import check_hazards
from tvm_tiling.accel.functional.run import run
from tvm_tiling.accel.instructions.fold import WCONV, fold_nests
from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.accel.program.work import work
from tvm_tiling.accel.record.function import record
from tvm_tiling.accel.timing.simulate import simulate
from tvm_tiling.hardware.machine import Machine
from tvm_tiling.match import match, prim_func_of

WFOLD16 = tt.Hardware.wfold(name="wfold16")  # with free transfers
COUNTS = ("steps", "reads", "weight_rows", "write_rows")


def counted(program, hardware=WFOLD16):
    """Total work of all W-fold instructions of a program."""
    (batch,) = (batch for batch in work(program).batches if batch.row is WCONV)
    accesses, which = fold_nests(batch, Machine(hardware))
    return {name: sum(getattr(accesses[place][0], name) for place in which) for name in COUNTS}


def folding(place):
    return replace(WFOLD16, w_fold=replace(WFOLD16.w_fold, fold_place=place))


def workload_of(func):
    return match(func, "main", keep_taps=True).workload


# ---- page 05's formulas ----------------------------------------------------------------------------------------------


CHANNELS, STRIDES = (3, 14, 28, 47, 48, 49, 96), (1, 2, 3)


def page_05(decision, h, w, ci, co, stride, **_):
    """The counts of a 3 x 3 convolution with a border of 1 in the formulas' notation: M 64, Ns 16, Ncu 4, L1 8."""
    sw = stride[1]
    kw = -(-(3 + (-1 % sw if w % sw == 0 else 0)) // sw)  # zeros in front of the kernel where no row moves
    ho, wo = (h - 1) // stride[0] + 1, (w - 1) // sw + 1
    ws, wso, bci = 64 // decision.pci, 64 // decision.pco, -(-sw * ci // decision.pci)
    assert kw <= 8 * ws - 4 * ws + 1  # Kmax: no kernel is split
    points, aco = 4 * ws, -(-co // 16) * 16
    blocks = ho * -(-wo // points)
    steps = blocks * (aco // 16) * kw * 3 * bci
    reads = blocks * -(-co // decision.co_block) * bci * 3 * -(-(points + kw - 1) // ws)
    leaving = ho * (wo // points * -(-points // wso) + -(-(wo % points) // wso)) * -(-co // decision.pco)
    return {"steps": steps, "reads": reads, "weight_rows": steps, "write_rows": leaving}


@pytest.mark.values
@pytest.mark.parametrize("ci", CHANNELS)
@pytest.mark.parametrize("stride", STRIDES)
def test_steps_rows_and_cycles_equal_the_formulas(ci, stride):
    case = {"h": 11, "w": 34, "ci": ci, "co": 64, "stride": (stride, stride), "padding": (1, 1, 1, 1)}
    func, _, program, inputs, result = simulated(convolution(**case), WFOLD16)
    assert np.array_equal(result, by_numpy(inputs, **case))
    decision = tt.decide(workload_of(func), WFOLD16)
    assert counted(program) == page_05(decision, **case) == {name: getattr(decision, name) for name in COUNTS}
    assert decision.steady_cycles == max(page_05(decision, **case).values())
    assert simulate(program).cycles == decision.cycles  # nothing else takes time on this machine
    assert decision.stride_fold == stride


def granularity_of(channels, width):
    """The padding rule: the largest granularity whose padding exceeds the minimum by less than 16 bytes, with at most
    Ws columns."""
    pads = {pci: -channels % pci for pci in (64, 32, 16, 8) if 64 // pci <= width}
    return max(pci for pci, pad in pads.items() if pad < min(pads.values()) + 16)


@pytest.mark.values
@pytest.mark.parametrize("ci", CHANNELS)
@pytest.mark.parametrize("stride", STRIDES)
def test_mode_seed_counts_equal_the_formulas_at_the_granularity_of_the_padding_rule(ci, stride):
    case = {"h": 5, "w": 34, "ci": ci, "co": 64, "stride": (stride, stride), "padding": (1, 1, 1, 1)}
    func = prim_func_of(convolution(**case))
    program = record(tt.tiling_schedule(func, target=WFOLD16, mode="seed").mod, WFOLD16)
    literal = tt.decide(workload_of(func), WFOLD16, mode="seed")
    assert literal.pci == granularity_of(stride * ci, -(-36 // stride))
    assert counted(program) == page_05(literal, **case)
    if stride == 1:
        assert literal.pci == {3: 16, 14: 16, 28: 32, 47: 16, 48: 16, 49: 64, 96: 32}[ci]


@pytest.mark.parametrize("ci", [3, 28, 49])
@pytest.mark.parametrize("stride", [1, 2])
def test_mode_seed_takes_the_formulas_as_printed(ci, stride):
    func = prim_func_of(convolution(h=9, w=34, ci=ci, co=96, stride=(stride, stride), padding=(1, 1, 1, 1)))
    program = record(tt.tiling_schedule(func, target=WFOLD16, mode="seed").mod, WFOLD16)
    literal = tt.decide(workload_of(func), WFOLD16, mode="seed")
    assert counted(program) == {name: getattr(literal, name) for name in COUNTS}
    folds = program.instructions[program.instructions["op"] == Opcode.WCONV]
    assert (folds["immediate"] == (literal.pci, literal.pco)).all()


CASES = {
    "batch and groups": {"n": 2, "h": 7, "w": 20, "ci": 24, "co": 40, "groups": 2, "padding": (1, 1, 1, 1)},
    "depthwise": {"h": 9, "w": 18, "ci": 6, "co": 6, "groups": 6, "padding": (1, 1, 1, 1)},
    "several blocks of channels": {"h": 5, "w": 17, "ci": 20, "co": 200, "padding": (0, 1, 0, 1)},
    "dilation": {"h": 13, "w": 25, "ci": 10, "co": 20, "dilation": (2, 3), "padding": (2, 3, 2, 3)},
    "dilation and stride": {"h": 13, "w": 25, "ci": 10, "co": 20, "dilation": (1, 2), "stride": (1, 2), "kh": 2},
    "wide kernel": {"h": 3, "w": 60, "ci": 16, "co": 16, "kh": 1, "kw": 19, "padding": (0, 9, 0, 9)},
    "asymmetric": {"h": 8, "w": 21, "ci": 5, "co": 17, "stride": (2, 2), "padding": (0, 2, 1, 1), "layout": "NCHW"},
    "1x1": {"h": 8, "w": 16, "ci": 48, "co": 32, "kh": 1, "kw": 1},
    "stride beyond the kernel": {"h": 9, "w": 33, "ci": 8, "co": 9, "kh": 2, "kw": 1, "stride": (1, 3)},
}


@pytest.mark.parametrize("case", CASES)
def test_all_kinds_of_convolutions_are_exact_and_counted(case):
    func, schedule, program, inputs, result = simulated(convolution(**CASES[case]), WFOLD16)
    assert np.array_equal(result, by_numpy(inputs, **CASES[case]))
    assert np.array_equal(by_llvm(schedule.mod["main"], inputs, result.shape, "int32"), result)
    decision = tt.decide(workload_of(func), WFOLD16)
    images = CASES[case].get("n", 1)
    assert counted(program) == {name: images * getattr(decision, name) for name in COUNTS}


def test_bytes_are_those_of_the_operands():
    case = {"h": 11, "w": 32, "ci": 14, "co": 64, "stride": (2, 2), "padding": (1, 1, 1, 1)}
    _, _, program, _, result = simulated(convolution(**case), WFOLD16)
    report = simulate(program)
    assert report.bytes == {"a": 9 * 14 * 64, "b": 11 * 32 * 14, "out": result.nbytes}


# ---- where rows are folded -------------------------------------------------------------------------------------------


@pytest.mark.values
@pytest.mark.parametrize("place", ["load", "local", "in place"])
@pytest.mark.parametrize("case", [
    {"n": 2, "h": 9, "w": 35, "ci": 14, "co": 20, "stride": (2, 2), "padding": (1, 1, 1, 1)},
    {"h": 6, "w": 37, "ci": 3, "co": 16, "stride": (1, 3), "kw": 5, "padding": (2, 2, 1, 0)},
    {"h": 6, "w": 37, "ci": 6, "co": 16, "stride": (1, 2), "kh": 1, "kw": 2},
    {"h": 8, "w": 36, "ci": 6, "co": 16, "stride": (2, 2), "padding": (1, 1, 1, 1)},  # nothing moves
])  # fmt: skip
def test_rows_are_folded_where_the_machine_says_with_equal_results(place, case):
    hardware = folding(place)
    _, schedule, program, inputs, result = simulated(convolution(**case), hardware)
    assert np.array_equal(result, by_numpy(inputs, **case))
    assert np.array_equal(by_llvm(schedule.mod["main"], inputs, result.shape, "int32"), result)
    moves = case["w"] % case["stride"][1] != 0
    copies = program.instructions["op"] == Opcode.ALU
    assert copies.any() == (moves and place != "load")


def test_in_place_needs_no_second_buffer():
    op = convolution(h=9, w=35, ci=14, co=20, stride=(2, 2), padding=(1, 1, 1, 1))
    sizes = {}
    for place in ("local", "in place"):
        program = simulated(op, folding(place))[2]
        sizes[place] = next(memory.bytes for memory in program.memories if memory.name == "b")
    assert sizes["in place"] < sizes["local"]


# ---- products --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [None, 3])
@pytest.mark.parametrize(("m", "n", "k"), [(33, 70, 90), (1, 20, 64), (64, 64, 64)])
def test_gemms_run_as_convolutions_of_one_tap(m, n, k, batch):
    func, _, program, inputs, result = simulated(product(m, n, k, "int8", trans_b=True, batch=batch), WFOLD16)
    assert np.array_equal(result, by_llvm(func, inputs, result.shape, "int32"))
    decision = tt.decide(tt.GemmWorkload(m=m, n=n, k=k, batch=batch or 1, trans_b=True, dtype="int8"), WFOLD16)
    assert (decision.form, simulate(program).cycles) == ("wfold", decision.cycles)


# ---- what is fused behind --------------------------------------------------------------------------------------------


def test_requantisation_after_the_sums():
    conv = convolution(h=9, w=20, ci=14, co=40, padding=(1, 1, 1, 1))
    bias = te.placeholder((40,), name="bias", dtype="int32")

    def element(*at):
        scaled = te.round((conv[at] + bias[at[3]]).astype("float32") * tirx.const(0.0041, "float32"))
        bounds = tirx.const(-128.0, "float32"), tirx.const(127.0, "float32")
        return tirx.max(tirx.min(scaled, bounds[1]), bounds[0]).astype("int8")

    func, _, _, inputs, result = simulated(te.compute(conv.shape, element, name="z"), WFOLD16)
    assert np.array_equal(result, by_llvm(func, inputs, result.shape, "int8"))
    assert len(np.unique(result)) > 20


# ---- the program comes from the schedule -----------------------------------------------------------------------------


def test_annotations_and_loops_of_the_schedule_are_the_programs():
    op = convolution(h=16, w=32, ci=48, co=64, padding=(1, 1, 1, 1))
    schedule = tt.tiling_schedule(op, target=WFOLD16)
    program = record(schedule.mod, WFOLD16)
    text = schedule.mod.script()
    other = record(tvm.script.from_source(text.replace('"vsim.pci": 16', '"vsim.pci": 64')), WFOLD16)
    assert simulate(other).cycles > simulate(program).cycles
    sums = schedule.get_sblock("sums")
    *_, channels, _, _, _, _, _ = schedule.get_loops(sums)
    schedule.split(channels, [None, 32])
    more = record(schedule.mod, WFOLD16)
    assert len(more) > len(program)
    check_hazards(more)
    inputs = random_inputs(program)
    (first,), (second,) = (run(p, inputs).values() for p in (program, more))
    assert np.array_equal(first, second)


def test_fewer_loops_than_six_are_refused():
    schedule = tt.tiling_schedule(convolution(h=8, w=16, ci=16, co=16), target=WFOLD16)
    sums = schedule.get_sblock("sums")
    schedule.unannotate(sums, "vsim.loops")
    schedule.annotate(sums, "vsim.loops", 3)
    with pytest.raises(tt.UnsupportedOperator, match="gives an instruction of the W-fold engine 3 loops; expected"):
        record(schedule.mod, WFOLD16)


def test_an_invalid_algorithm_is_refused():
    with pytest.raises(tt.HardwareError, match=r"algorithm = 'gemm' on wfold16; expected None, 'wfold'"):
        tt.tiling_schedule(convolution(), target=WFOLD16, algorithm="gemm")
    assert tt.tiling_schedule(convolution(w=16), target=WFOLD16, algorithm="wfold") is not None
