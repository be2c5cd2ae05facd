"""The decision of tt.decide is what the schedule applies, and applying it again gives the same schedule."""

from __future__ import annotations

import functools
import json
import math
import re

import pytest
import tvm_ffi
from convolutions import convolution
from operators import product
from tvm import te, tirx

import tvm_tiling as tt
from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.accel.record.function import record
from tvm_tiling.decide.as_scheduled import as_scheduled
from tvm_tiling.decide.recorded import read_decision
from tvm_tiling.lowering.prim_func import DECISION
from tvm_tiling.match import match, prim_func_of

CPUS = ("icelake-server-2c", "skylake-desktop-8c")
PRODUCTS = ((64, 96, 128), (1, 300, 200), (300, 1, 200), (5, 7, 3), (130, 520, 1025))
CONVOLUTIONS = {
    "3x3": {"h": 14, "w": 14, "ci": 32, "co": 48, "padding": (1, 1, 1, 1)},
    "1x1": {"h": 9, "w": 11, "ci": 16, "co": 40, "kh": 1, "kw": 1},
    "first layer": {"h": 33, "w": 33, "ci": 3, "co": 16, "kh": 7, "kw": 7, "stride": (2, 2), "padding": (3, 3, 3, 3)},
    "small image": {"h": 7, "w": 7, "ci": 256, "co": 256, "padding": (1, 1, 1, 1)},
    "depthwise": {"h": 14, "w": 14, "ci": 32, "co": 32, "padding": (1, 1, 1, 1), "groups": 32},
}
ACCELERATORS = ("vta", "neartile", "dla3", "wfold16")


def cases():
    for machine in (*CPUS, *ACCELERATORS):
        dtype = "float32" if machine in CPUS else "int8"
        for m, n, k in PRODUCTS:
            yield pytest.param(product(m, n, k, dtype), machine, id=f"{machine} {m} {n} {k}")
        for name, sizes in CONVOLUTIONS.items():
            if machine == "wfold16" and name == "depthwise":
                continue
            yield pytest.param(convolution(dtype=dtype, **sizes), machine, id=f"{machine} {name}")
    for rows, columns in ((1, 300), (300, 1)):
        yield pytest.param(product(rows, columns, 200, "int8"), "rnn16k", id=f"rnn16k {rows} {columns}")


CASES = tuple(cases())
# Matrix-vector multiplications on a column engine have no configuration; a given configuration keeps the operand order
# of a single column.
WITHOUT_A_CONFIG = {"rnn16k 1 300", "rnn16k 300 1", *(f"{machine} 300 1 200" for machine in CPUS)}


def workload_of(op: te.Tensor):
    """As a user would state it: operands in their order."""
    return match(prim_func_of(op), "main", may_swap=False, keep_taps=True, wraps=False).workload


@functools.cache
def written(op: te.Tensor, machine: str) -> tirx.PrimFunc:
    """Return the function of a case, which several tests look at."""
    return tt.tiling_schedule(op, target=tt.Hardware.load(machine)).mod["main"]


def decision_in(func: tirx.PrimFunc) -> dict:
    return json.loads(func.attrs[DECISION])


@pytest.mark.parametrize(("op", "machine"), CASES)
def test_what_is_decided_is_what_is_written(op, machine):
    hardware = tt.Hardware.load(machine)
    decided = json.loads(tt.decide(workload_of(op), hardware).to_json())
    assert decided == decision_in(written(op, machine))


@pytest.mark.parametrize("sizes", PRODUCTS)
@pytest.mark.parametrize("machine", CPUS)
def test_packed_weights_are_decided_as_they_are_written(machine, sizes):
    op, hardware = product(*sizes, "float32"), tt.Hardware.load(machine)
    decided = json.loads(tt.decide(workload_of(op), hardware, weights="packed").to_json())
    assert decided == decision_in(tt.tiling_schedule(op, target=hardware, weights="packed").mod["main"])


@pytest.mark.parametrize(("op", "machine"), [c for c in CASES if c.id not in WITHOUT_A_CONFIG])
def test_a_decision_that_is_written_again_gives_the_same_function(op, machine):
    hardware = tt.Hardware.load(machine)
    first = written(op, machine)
    workload = workload_of(op)
    config = tt.config_of(tt.decide(workload, hardware), as_scheduled(workload, hardware), hardware)
    again = tt.tiling_schedule(op, target=hardware, config=config).mod["main"]
    assert tvm_ffi.structural_equal(first.without_attr(DECISION), again.without_attr(DECISION))


@pytest.mark.parametrize(("op", "machine"), CASES)
def test_a_recorded_decision_that_is_read_back_gives_the_same_function(op, machine):
    hardware = tt.Hardware.load(machine)
    first = written(op, machine)
    again = tt.tiling_schedule(op, target=hardware, decision=str(first.attrs[DECISION])).mod["main"]
    assert tvm_ffi.structural_equal(first, again)


def numbers_in(func: tirx.PrimFunc) -> set[int]:
    """Return all integers in a function, and products of two: a share of rows is a number of tiles times their
    height."""
    own = {int(digits) for digits in re.findall(r"\d+", func.without_attr(DECISION).script())}
    return own | {a * b for a in own for b in own if a * b < 1 << 20}


def told_numbers(decision) -> dict[str, int]:
    """Return the integers in a decision's text, without predictions and reasons."""
    rows = (row for row in decision.explained() if not re.search("predicted|also|compared", row.section))
    return {f"{row.section}: {row.name}": int(row.value) for row in rows if row.value.isdigit()}


@pytest.mark.parametrize(("op", "machine"), CASES)
def test_every_number_that_is_reported_is_in_the_function(op, machine):
    main = written(op, machine)
    known = numbers_in(main)
    told = told_numbers(read_decision(str(main.attrs[DECISION])))
    assert told and {name: value for name, value in told.items() if value not in known} == {}


@pytest.mark.parametrize("sizes", [(512, 512, 512), (96, 160, 200), (33, 65, 1025)])
@pytest.mark.parametrize("machine", ["vta", "neartile"])
def test_the_steps_that_are_reported_are_those_of_the_program(machine, sizes):
    m, n, k = sizes
    hardware = tt.Hardware.load(machine)
    op = product(m, n, k, "int8")
    chunks = tt.decide(workload_of(op), hardware).chunks
    program = record(tt.tiling_schedule(op, target=hardware).mod, hardware)
    extents = {
        tuple(sorted(int(extent) for extent in row["extent"] if extent > 1))
        for row in program.instructions
        if row["op"] == Opcode.GEMM
    }
    told = tuple(sorted((min(chunks.tile_m, m), min(chunks.tile_n, n), min(chunks.depth, k))))
    assert told in extents and max(map(math.prod, extents)) == math.prod(told)


def test_a_machine_may_be_named_or_left_out():
    workload = tt.GemmWorkload(m=64, n=64, k=64, dtype="int8")
    assert tt.decide(workload, "vta") == tt.decide(workload, tt.Hardware.load("vta"))
    assert tt.decide(workload) == tt.decide(workload, tt.Hardware.detect())
    with pytest.raises(tt.HardwareError, match="no-such-machine"):
        tt.decide(workload, "no-such-machine")


def test_weights_are_plain_or_packed_where_there_is_a_cpu():
    workload = tt.ConvWorkload(n=1, h=14, w=14, ci=256, co=256, kh=3, kw=3, padding=(1, 1, 1, 1))
    plain, packed = (tt.decide(workload, CPUS[0], weights=weights) for weights in ("plain", "packed"))
    assert (plain.pack_w, packed.pack_w) == ("run", "ahead")
    with pytest.raises(tt.UnsupportedOperator, match="weights = 'ahead'; expected 'plain', 'packed'"):
        tt.decide(workload, CPUS[0], weights="ahead")
    with pytest.raises(tt.HardwareError, match="weights = 'packed' applies to CPUs; vta has no CPU"):
        tt.decide(workload, "vta", weights="packed")
