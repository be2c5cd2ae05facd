"""WCONV on the W-fold engine: results from the contents of its buffers, and the time that the buffers determine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from accel_programs import MACHINE
from convolutions import convolution
from hypothesis import example, given, settings
from hypothesis import strategies as st
from one_instruction import execute, random_values
from operators import simulated

import tvm_tiling as tt
from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.accel.program.builder import At, ProgramBuilder
from tvm_tiling.accel.timing.simulate import simulate
from tvm_tiling.errors import HardwareError, SimulationError
from tvm_tiling.hardware import Hardware
from tvm_tiling.hardware.memory import Memory
from tvm_tiling.hardware.queues import Queues
from tvm_tiling.match import match

WFOLD = Hardware.wfold()

# ---- results ---------------------------------------------------------------------------------------------------------


def by_numpy(weights, image, stride, points):
    """Return y[ho, wo, co] in float64 for image[h, w, ci] and weights[co, kh, kw, ci], stride 1 along W."""
    _, kh, kw, _ = weights.shape
    y = np.zeros((*points, len(weights)))
    for row in range(points[0]):
        for column in range(points[1]):
            window = image[row * stride : row * stride + kh, column : column + kw].astype(np.float64)
            y[row, column] = np.tensordot(window, weights.astype(np.float64), axes=([0, 1, 2], [1, 2, 3]))
    return y


def run(weights, image, stride, c_dtype, hardware=WFOLD, **options):
    co, kh, kw, ci = weights.shape
    h, w, _ = image.shape
    ho, wo = (h - kh) // stride + 1, w - kw + 1
    strides = {
        "a": (kh * kw * ci, 0, 0, kw * ci, ci, 1),
        "b": (0, stride * w * ci, ci, w * ci, ci, 1),
        "c": (1, wo * co, co, 0, 0, 0),
    }
    given_c = options.pop("c", None)
    return execute(
        Opcode.WCONV, (co, ho, wo, kh, kw, ci), weights, (ho, wo, co), c_dtype, b=image, c=given_c, strides=strides,
        hardware=hardware, **options,
    )  # fmt: skip


@st.composite
def convolutions(draw):
    """Return an engine, a convolution that it supports, and its configuration."""
    row, units = draw(st.sampled_from((16, 32, 64))), draw(st.integers(1, 4))
    hardware = Hardware.wfold(
        row_bytes=row,
        units=units,
        sub_units=draw(st.integers(1, 16)),
        first_buffer_rows=units + draw(st.integers(0, 5)),
        second_buffer_rows=draw(st.integers(1, 9)),
    )
    kh, kw = draw(st.integers(1, 3)), draw(st.integers(1, 9))
    return (
        hardware,
        (draw(st.integers(1, 20)), kh, kw, draw(st.integers(1, 40))),
        (kh + draw(st.integers(0, 6)), kw + draw(st.integers(0, 40))),
        draw(st.integers(1, 3)),
        draw(st.sampled_from((0, *(g for g in hardware.w_fold.granularities if g % 4 == 0)))),
        draw(st.integers(0, 4)),
    )


@settings(max_examples=120, deadline=None)
@given(convolutions(), st.sampled_from(("int8", "int16", "float32", "bfloat16", "float16")), st.booleans())
@example((WFOLD, (7, 2, 1, 5), (4, 1), 1, 0, 0), "int8", True)
def test_results_are_those_of_the_convolution(case, dtype, adds):
    hardware, (co, kh, kw, ci), (h, w), stride, pci, block = case
    rng = np.random.default_rng(h * 100 + w)
    weights, image = random_values(rng, dtype, (co, kh, kw, ci)), random_values(rng, dtype, (h, w, ci))
    whole = dtype.startswith("int")
    points = ((h - kh) // stride + 1, w - kw + 1)
    before = random_values(rng, "int32" if whole else "float32", (*points, co)) if adds else None
    got = run(
        weights, image, stride, "int32" if whole else "float32", hardware, a_dtype=dtype, immediate=(pci, 0),
        block=block, c=before, accumulate=adds,
    )  # fmt: skip
    expected = by_numpy(weights, image, stride, points) + (0 if before is None else before.astype(np.float64))
    if whole:
        np.testing.assert_array_equal(got, expected.astype(np.int64).astype(np.int32))
    else:
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-3 * ci**0.5 * kw)


def test_kernels_in_pieces_are_rounded_once():
    """If the first buffer has only as many rows as units, a kernel is split into its positions; half precision
    accumulates in float32."""
    rng = np.random.default_rng(1)
    weights, image = random_values(rng, "float16", (3, 1, 9, 8)), random_values(rng, "float16", (1, 30, 8))
    one, nine = (
        run(weights, image, 1, "float16", Hardware.wfold(first_buffer_rows=rows), immediate=(16, 0)) for rows in (64, 4)
    )
    exact = by_numpy(weights, image, 1, (1, 22))
    np.testing.assert_array_equal(one, exact.astype(np.float32).astype(np.float16))
    np.testing.assert_array_equal(nine, one)


def test_points_that_are_apart_otherwise_than_taps_are_refused():
    """The engine slides by one column: a stride along W is folded into channels first."""
    image, weights = np.ones((1, 9, 8), np.int8), np.ones((2, 1, 3, 8), np.int8)
    strides = {"a": (24, 0, 0, 24, 8, 1), "b": (0, 0, 16, 0, 8, 1), "c": (1, 0, 2, 0, 0, 0)}
    with pytest.raises(SimulationError, match="points are 16 bytes apart but taps 8; expected equal distances"):
        execute(Opcode.WCONV, (2, 1, 4, 1, 3, 8), weights, (1, 4, 2), "int32", b=image, strides=strides, hardware=WFOLD)
    program = layer_program(WFOLD, stride=2)
    with pytest.raises(HardwareError, match=r"instruction 0 \(WCONV.* has points 32 elements apart but taps 16"):
        simulate(program, check=False)


def test_a_machine_without_the_engine_is_refused():
    image, weights = np.ones((1, 9, 8), np.int8), np.ones((2, 1, 3, 8), np.int8)
    with pytest.raises(SimulationError, match="machine has no W-fold engine; expected a machine with w_fold"):
        run(weights, image, 1, "int32", MACHINE)


# ---- time ------------------------------------------------------------------------------------------------------------


def layer_program(hardware, parts=1, stride=1, pco=0, rows=56, accumulate=False):
    """Return a 3 x 3 layer of 56 x 56 points, 16 input and 64 output channels, in `parts` instructions of equal
    rows."""
    build = ProgramBuilder(hardware, queues=("load_a", "load_b", "wfold", "store"))
    high = rows // parts
    for part in range(parts):
        build.append(
            Opcode.WCONV,
            "wfold",
            (64, high, 56, 3, 3, 16),
            a=At("a", 0, (144, 0, 0, 48, 16, 1), "int8"),
            b=At("b", part * high * 58 * 16, (0, 58 * 16, 16 * stride, 58 * 16, 16, 1), "int8"),
            c=At("acc", part * high * 56 * 64 * 4, (1, 56 * 64, 64, 0, 0, 0), "int32"),
            immediate=(16, pco),
            block=4,
            accumulate=accumulate,
        )
    return build.build()


@pytest.mark.parametrize(
    ("rows", "cycles"), [(4, 16128), (5, 10752), (6, 10081), (7, 9410), (8, 8739), (9, 8068), (16, 8068), (64, 8068)]
)
@pytest.mark.parametrize("parts", [1, 8])
def test_a_layer_takes_what_stepping_through_its_buffers_takes(rows, cycles, parts):
    """With one instruction or eight: rows of the next one are formed while the current one multiplies."""
    hardware = Hardware.wfold(first_buffer_rows=rows)
    assert simulate(layer_program(hardware, parts), check=False).cycles == cycles
    report = simulate(layer_program(hardware, parts, pco=64), check=False)
    assert report.cycles == cycles + 8  # the last 8 points leave
    wait = report.stalls["wfold"]
    assert wait["data"] == {4: 0, 5: 0, 6: 1, 7: 2, 8: 3}.get(rows, 4) and sum(wait.values()) == wait["data"]
    assert report.lower_bound <= report.cycles <= report.upper_bound


def test_rows_are_formed_when_their_image_is_there():
    """A load of 100 cycles, then four rows formed, then steps; and a token of 7 more cycles."""
    for token, begin in ((0, 100), (7, 107)):
        hardware = replace(
            Hardware.wfold(first_buffer_rows=9),
            memories={"external": Memory(bytes_per_cycle=58 * 58 * 16 / 100)},
            queues=Queues(token_cycles=token),
        )
        build = ProgramBuilder(hardware, queues=("load_b", "wfold"))
        far, near = (At(name, 0, (1,), "int8") for name in ("external", "b"))
        build.append(Opcode.LOAD, "load_b", (58 * 58 * 16,), a=far, c=near)
        build.append(
            Opcode.WCONV,
            "wfold",
            (64, 56, 56, 3, 3, 16),
            a=At("a", 0, (144, 0, 0, 48, 16, 1), "int8"),
            b=At("b", 0, (0, 58 * 16, 16, 58 * 16, 16, 1), "int8"),
            c=At("acc", 0, (1, 56 * 64, 64, 0, 0, 0), "int32"),
            immediate=(16, 0),
            block=4,
        )
        report = simulate(build.build(), check=False)
        assert report.cycles == begin + 4 + 8064
        stalls = {cause: cycles for cause, cycles in report.stalls["wfold"].items() if cycles}
        assert stalls == {"data": 104, **({"token": 7} if token else {})}


@pytest.mark.values
@pytest.mark.parametrize("rows", [5, 8, 16])
@pytest.mark.parametrize(
    "case",
    [
        {"h": 56, "w": 56, "ci": 16, "co": 64, "padding": (1, 1, 1, 1)},
        {"h": 30, "w": 33, "ci": 48, "co": 200, "padding": (1, 1, 1, 1)},
        {"h": 20, "w": 40, "ci": 3, "co": 24, "kw": 7, "kh": 7, "stride": (2, 2), "padding": (3, 3, 3, 3)},
        {"n": 1, "h": 9, "w": 25, "ci": 24, "co": 40, "groups": 2, "padding": (1, 1, 1, 1)},
    ],
)
def test_a_decision_prices_what_is_executed(case, rows):
    """On a machine with free memories the program takes the cycles that the decision states."""
    hardware = Hardware.wfold(first_buffer_rows=rows, second_buffer_rows=5, result_buffer_rows=12)
    func, _, program, _, _ = simulated(convolution(**case), hardware)
    decision = tt.decide(match(func, "main", keep_taps=True).workload, hardware)
    assert simulate(program).cycles == decision.cycles >= decision.steady_cycles
