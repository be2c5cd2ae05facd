"""Cycles of small programs calculated by hand, exactly.

Sizes are chosen so that every transfer and every multiplication takes whole cycles. A step multiplies 8 x 24 of A by 24
x 16 of B: its load, multiplication and store take LOAD_A, LOAD_B, BLOCKS and STORE cycles, in addition to the fill and
drain of the matrix engine, the latency of external memory and of a token.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tvm_tiling.accel.checks.hazards import check
from tvm_tiling.accel.functional.run import run
from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.accel.program.builder import At, ProgramBuilder
from tvm_tiling.accel.timing.simulate import simulate
from tvm_tiling.hardware import Hardware
from tvm_tiling.hardware.memory import Memory
from tvm_tiling.hardware.queues import Queues
from tvm_tiling.hardware.vector import Vector
from tvm_tiling.hardware.vector_functions import Function

M, N, K, STEPS = 8, 16, 24, 8
LOAD_A, LOAD_B, BLOCKS, STORE = M * K // 16, K * N // 16, M * N * K // 256, M * N * 4 // 32
FILL, DRAIN, LATENCY, TOKEN, VECTOR = 3, 5, 20, 2, 4
PRODUCT = FILL + BLOCKS
QUEUES = ("load_a", "load_b", "matrix", "vector", "store")

PLAIN = Hardware.neartile(buf_a=8192, buf_b=8192, acc_max=8192, bw_a=16, bw_b=16, macs_per_cycle=256)
MACHINE = replace(
    PLAIN,
    near_tile=replace(PLAIN.near_tile, fill=FILL, drain=DRAIN, bw_out=32.0),
    vector=Vector(lanes=16, latency=VECTOR, functions=("copy", "add")),
    memories={"external": Memory(latency=LATENCY)},
    queues=Queues(token_cycles=TOKEN),
)


def tile(**fields):
    return replace(MACHINE, near_tile=replace(MACHINE.near_tile, **fields))


class Steps:
    """Builds programs of steps: pieces of A and B loaded into a ring of buffers, multiplications, sums and stores."""

    def __init__(self, hardware=MACHINE, steps=STEPS):
        self.build = ProgramBuilder(hardware, queues=QUEUES)
        self.a = self.build.tensor("a", "int8", (steps, M, K), role="input", operand="a")
        self.b = self.build.tensor("b", "int8", (steps, K, N), role="input", operand="b")
        self.c = self.build.tensor("c", "int32", (steps, M, N), role="output", operand="out")

    def load_a(self, step, place):
        source = At("external", self.a.address + step * M * K, (1,), "int8")
        self.build.append(Opcode.LOAD, "load_a", (M * K,), a=source, c=At("a", place * M * K, (1,), "int8"))

    def load_b(self, step, place):
        source = At("external", self.b.address + step * K * N, (1,), "int8")
        self.build.append(Opcode.LOAD, "load_b", (K * N,), a=source, c=At("b", place * K * N, (1,), "int8"))

    def multiply(self, place_a, place_b, sums, accumulate=False):
        self.build.append(
            Opcode.GEMM,
            "matrix",
            (M, 1, N, 1, 1, K),
            a=At("a", place_a * M * K, (K, 0, 0, 0, 0, 1), "int8"),
            b=At("b", place_b * K * N, (0, 0, 1, 0, 0, N), "int8"),
            c=At("acc", sums * M * N * 4, (N, 0, 1), "int32"),
            accumulate=accumulate,
        )

    def add(self, partial, total):
        """Add a partial sum to the total, or copy the first one."""
        near, sums = (At("acc", place * M * N * 4, (1,), "int32") for place in (partial, total))
        if partial == total:
            return
        self.build.append(Opcode.ALU, "vector", (M * N,), a=sums, b=near, c=sums, function=Function.ADD)

    def store(self, sums, step):
        far = At("external", self.c.address + step * M * N * 4, (1,), "int32")
        self.build.append(Opcode.STORE, "store", (M * N,), a=At("acc", sums * M * N * 4, (1,), "int32"), c=far)

    def report(self):
        """Return the report of the program, which is legal; its cycles lie between the bounds."""
        program = self.build.build()
        check(program)
        report = simulate(program)
        assert report.lower_bound <= report.cycles <= report.upper_bound
        return report


def pipeline(hardware, places, both=False):
    """STEPS multiplications, with A (and B, if `both`) loaded for each into a ring of `places` buffers; otherwise B
    stays."""
    steps = Steps(hardware)
    if not both:
        steps.load_b(0, 0)
    for step in range(STEPS):
        steps.load_a(step, step % places)
        if both:
            steps.load_b(step, step % places)
        steps.multiply(step % places, step % places if both else 0, step)
    return steps


def test_one_gemm_takes_fill_blocks_and_drain():
    steps = Steps()
    steps.multiply(0, 0, 0)
    assert simulate(steps.build.build()).cycles == FILL + BLOCKS + DRAIN == 3 + 12 + 5


def test_a_chain_of_load_gemm_and_store_is_their_sum_with_a_token_between_each():
    steps = Steps()
    steps.load_a(0, 0)
    steps.load_b(0, 0)
    steps.multiply(0, 0, 0)
    steps.store(0, 0)
    report = steps.report()
    assert report.timing.start.tolist() == [0, 0, 46, 68]
    assert report.cycles == (LATENCY + LOAD_B) + TOKEN + (PRODUCT + DRAIN) + TOKEN + (STORE + LATENCY) == 104
    assert report.stalls["matrix"] == {
        "data": LATENCY + LOAD_B,
        "space": 0,
        "token": TOKEN,
        "latency": 0,
        "port": 0,
        "dispatch": 0,
    }


@pytest.mark.parametrize("cost", [0, 1, 7])
def test_every_token_on_the_way_costs_what_the_description_says(cost):
    steps = Steps(replace(MACHINE, queues=Queues(token_cycles=cost)))
    steps.load_b(0, 0)
    steps.load_a(0, 0)
    steps.multiply(0, 0, 0)
    steps.build.append(
        Opcode.ALU, "vector", (M * N,), a=At("acc", 0, (1,), "int32"), c=At("acc", 0, (1,), "int32"),
    )  # fmt: skip
    steps.store(0, 0)
    without = LATENCY + LOAD_B + PRODUCT + DRAIN + M * N // 16 + VECTOR + STORE + LATENCY
    assert steps.report().cycles == without + 3 * cost


def test_a_double_buffered_pipeline_of_8_whose_loads_are_slower_takes_its_loads_and_one_gemm():
    hardware = tile(bw_a=4.0)
    load = M * K // 4
    assert load + LATENCY + TOKEN + PRODUCT + DRAIN + TOKEN <= 2 * load  # a buffer is free before its turn
    report = pipeline(hardware, places=2).report()
    assert report.cycles == STEPS * load + LATENCY + TOKEN + PRODUCT + DRAIN == 426
    assert report.stalls["load_a"] == dict.fromkeys(report.stalls["load_a"], 0)


def test_a_double_buffered_pipeline_of_8_whose_gemms_are_slower_takes_one_load_and_its_gemms():
    hardware = tile(macs_per_cycle=32)
    product = FILL + M * N * K // 32
    report = pipeline(hardware, places=2).report()
    assert report.cycles == LATENCY + LOAD_B + TOKEN + STEPS * product + DRAIN == 843
    assert report.stalls["matrix"]["data"] == LATENCY + LOAD_B  # the first, and no other


def test_a_double_buffered_pipeline_of_8_bound_by_its_round_trips():
    """A buffer is loaded, used and released: with two buffers there are two multiplications per round trip."""
    steps = Steps()
    steps.load_b(0, 0)
    report = pipeline(MACHINE, places=2, both=True).report()
    trip = LOAD_B + LATENCY + TOKEN + PRODUCT + DRAIN + TOKEN
    second = LOAD_B + LATENCY + TOKEN + LOAD_B  # the second multiplication, whose B arrives after the first one's
    assert trip > 2 * max(LOAD_B, PRODUCT)
    assert report.cycles == second + (STEPS // 2 - 1) * trip + PRODUCT + DRAIN


def test_one_place_takes_a_round_trip_for_each_of_8_steps():
    report = pipeline(MACHINE, places=1, both=True).report()
    trip = LOAD_B + LATENCY + TOKEN + PRODUCT + DRAIN + TOKEN
    assert report.cycles == STEPS * trip - TOKEN


def test_two_queues_that_share_one_port_take_the_sum_of_their_transfers():
    hardware = replace(MACHINE, memories={"external": Memory(latency=LATENCY, ports=1)})
    shared = pipeline(hardware, places=STEPS, both=True).report()
    assert shared.cycles == STEPS * (LOAD_A + LOAD_B) + LATENCY + TOKEN + PRODUCT + DRAIN
    assert shared.bound == "port external"
    assert shared.stalls["load_a"]["port"] == (STEPS - 1) * LOAD_B
    assert shared.stalls["load_b"]["port"] == STEPS * LOAD_A
    apart = pipeline(MACHINE, places=STEPS, both=True).report()
    assert apart.cycles == STEPS * LOAD_B + LATENCY + TOKEN + PRODUCT + DRAIN


@pytest.mark.parametrize("lanes", [16, 4])
def test_partial_sums_of_split_k_on_the_vector_engine_cost_its_cycles(lanes):
    """Multiplications of 4 pieces of k with two buffers for partial sums; the vector engine adds the other three to the
    first."""
    hardware = replace(MACHINE, vector=Vector(lanes=lanes, latency=VECTOR, functions=("add",)))
    pieces = 4
    steps = Steps(hardware, pieces)
    for piece in range(pieces):
        steps.load_a(piece, piece)
        steps.load_b(piece, piece)
        steps.multiply(piece, piece, 0 if piece == 0 else 1 + piece % 2)
        steps.add(0 if piece == 0 else 1 + piece % 2, 0)
    steps.store(0, 0)
    each = M * N // lanes
    report = steps.report()
    first = LATENCY + LOAD_B + TOKEN
    if lanes == 16:  # loads of B are slowest, the last sum waits for the last multiplication
        last = first + (pieces - 1) * LOAD_B + PRODUCT + DRAIN + TOKEN + each
    else:  # the sums are the bottleneck: from the second multiplication on, each reads the previous one
        last = first + LOAD_B + PRODUCT + DRAIN + TOKEN + (pieces - 1) * each + (pieces - 2) * VECTOR
    assert report.engines["vector"].busy == (pieces - 1) * each
    assert report.cycles == last + VECTOR + TOKEN + STORE + LATENCY


def test_partial_sums_of_split_k_in_the_accumulation_buffer_cost_nothing_beside_their_products():
    pieces = 4
    steps = Steps(tile(macs_per_cycle=32), pieces)
    for piece in range(pieces):
        steps.load_a(piece, piece)
        steps.load_b(piece, piece)
        steps.multiply(piece, piece, 0, accumulate=piece > 0)
    steps.store(0, 0)
    product = FILL + M * N * K // 32
    expected = LATENCY + LOAD_B + TOKEN + pieces * product + DRAIN + TOKEN + STORE + LATENCY
    assert steps.report().cycles == expected


def test_partial_sums_give_one_result_wherever_they_are_added():
    pieces, results = 4, []
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, shape, dtype=np.int8) for shape in ((pieces, M, K), (pieces, K, N)))
    for vector in (False, True):
        steps = Steps(MACHINE, pieces)
        for piece in range(pieces):
            steps.load_a(piece, 0)
            steps.load_b(piece, 0)
            place = 1 if vector and piece else 0
            steps.multiply(0, 0, place, accumulate=piece > 0 and not vector)
            steps.add(place, 0)
        for step in range(pieces):
            steps.store(0, step)
        results.append(run(steps.build.build(), {"a": a, "b": b})["c"][0])
    expected = (a.astype(np.int32) @ b.astype(np.int32)).sum(axis=0)
    assert np.array_equal(results[0], expected) and np.array_equal(results[1], expected)
