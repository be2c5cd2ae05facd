"""Winograd's transforms, exactly; admissible tile sizes; the configuration and its cost."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from tvm_tiling.decide.conv.cook_toom import cook_toom
from tvm_tiling.decide.conv.winograd import (
    WinogradModel,
    admissible,
    decide_winograd,
    image_tiles,
    predicted_error,
    refusal,
    summed_blocks,
)
from tvm_tiling.errors import WorkloadError
from tvm_tiling.hardware.description import Cache, Cpu
from tvm_tiling.workload import ConvWorkload

SERVED = [(3, 2), (5, 2), (7, 2), (2, 3), (4, 3), (6, 3), (3, 4), (5, 4), (2, 5), (4, 5), (3, 6), (2, 7)]


def cpu(cores: int = 1, bits: int = 512) -> Cpu:
    return Cpu(
        arch="x86_64",
        features=("avx512f",) if bits == 512 else (),
        vector_bits=bits,
        vector_registers=32 if bits == 512 else 16,
        fma_units=1 if bits == 512 else 2,
        fma_latency=4,
        cores=cores,
        threads=cores,
        caches=(
            Cache(level=1, size=32768, ways=8, line=64),
            Cache(level=2, size=1 << 20, ways=8, line=64),
            Cache(level=3, size=32 << 20, ways=16, line=64, cores=cores),
        ),
        l2_bytes_per_cycle=28.0,
        l3_bytes_per_cycle=22.0,
        memory_bytes_per_cycle=7.0,
    )


def conv(h: int = 56, ci: int = 64, co: int = 64, k: int = 3, **more) -> ConvWorkload:
    p = k // 2
    fields = dict(n=1, h=h, w=h, ci=ci, co=co, kh=k, kw=k, padding=(p, p, p, p))
    return ConvWorkload(**{**fields, **more})


# ---- transforms -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "r"), SERVED)
def test_transforms_filter_exactly(m, r):
    t, rng = cook_toom(m, r), random.Random(m * 10 + r)
    for _ in range(5):
        d = [Fraction(rng.randint(-99, 99)) for _ in range(t.a)]
        g = [Fraction(rng.randint(-99, 99)) for _ in range(r)]
        products = [u * v for u, v in zip(t.weights.run(g), t.input.run(d), strict=True)]
        assert t.output.run(products) == [sum(d[i + k] * g[k] for k in range(r)) for i in range(m)]


@pytest.mark.parametrize(("m", "r"), SERVED)
def test_matrices_are_those_of_cook_and_toom(m, r):
    t = cook_toom(m, r)
    finite = [Fraction(0), *(s * p for p in t.points for s in (1, -1))]
    assert len(set(finite)) == t.a - 1
    rows = list(zip(*t.output.matrix(), strict=True))
    assert rows == [*(tuple(p**i for i in range(m)) for p in finite), tuple(Fraction(i == m - 1) for i in range(m))]
    for p, row in zip(finite, t.input.matrix(), strict=False):
        # The row is a polynomial that vanishes at every other point.
        assert [sum(c * q**i for i, c in enumerate(row)) == 0 for q in finite] == [q != p for q in finite]
    assert t.weights.matrix()[-1] == (*[Fraction(0)] * (r - 1), Fraction(1))


@pytest.mark.parametrize(("m", "operations"), [(2, (4, 6, 4)), (4, (12, 11, 12)), (6, (24, 16, 20))])
def test_operations_are_those_of_the_shared_halves(m, operations):
    t = cook_toom(m, 3)
    assert (t.input.operations, t.weights.operations, t.output.operations) == operations
    dense = sum(sum(c != 0 for c in row) - 1 for row in t.input.matrix())
    assert t.input.operations <= dense


def test_points_of_f4_lose_a_quarter_of_what_1_and_2_lose():
    t = cook_toom(4, 3)
    usual = replace(t, points=(Fraction(1), Fraction(2)))
    assert t.amplification == pytest.approx(26.3, abs=0.1)
    assert usual.amplification == pytest.approx(94.3, abs=0.1)


@pytest.mark.parametrize(("m", "r"), [(3, 3), (1, 5), (8, 3), (4, 1), (4, 6)])
def test_other_sizes_are_refused(m, r):
    with pytest.raises(WorkloadError, match=rf"F\({m}, {r}\) is not supported; expected m and r of at least 2"):
        cook_toom(m, r)


# ---- which sizes ----------------------------------------------------------------------------------------------------


def test_tolerance_decides_on_sizes():
    w = conv(ci=64)
    assert admissible(w) == (2, 4)
    assert admissible(w, 1e-4) == (2, 4, 6)
    assert admissible(w, 1e-6) == (2,)
    assert admissible(w, 0.0) == ()


def test_blocks_of_channels_keep_errors_down():
    few, many = conv(ci=64), conv(ci=1024)
    assert (summed_blocks(few, 4), summed_blocks(many, 4), summed_blocks(many, 2)) == (1, 16, 2)
    assert predicted_error(many, 4) == pytest.approx(predicted_error(few, 4) * (79 / 64) ** 0.5)
    assert predicted_error(conv(ci=256), 2) == pytest.approx(2 * predicted_error(few, 2))


@pytest.mark.parametrize("ci", [1, 64, 512, 1024])
def test_no_tile_of_8_points_is_taken_by_default(ci):
    """Nor F(5 x 5, 2 x 2): a direct sum over so few kernel positions is more accurate."""
    assert {k: admissible(conv(ci=ci, k=k)) for k in range(2, 8)} == {
        2: (3,),
        3: (2, 4),
        4: (3,),
        5: (2,),
        6: (),
        7: (),
    }


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"dtype": "int8"}, "float32, not int8 accumulated in int32"),
        ({"acc_dtype": "float64"}, "float32, not float32 accumulated in float64"),
        ({"d": 3}, "plain two-dimensional"),
        ({"transposed": True, "stride": (2, 2)}, "plain two-dimensional"),
        ({"kw": 1, "padding": (1, 0, 1, 0)}, "kernels of 2x2 to 7x7, not 3x1"),
        ({"kh": 8, "kw": 8}, "not 8x8"),
        ({"kh": 1, "kw": 1}, "not 1x1"),
        ({"stride": (2, 1)}, "not stride 2 x 1 and 1 group"),
        ({"stride": (2, 2), "dilation": (2, 2)}, "not stride 2 x 2 and 1 group"),
        ({"groups": 64}, "64 groups"),
    ],
)
def test_what_is_refused(changed, why):
    w = conv(**changed)
    assert admissible(w) == ()
    with pytest.raises(WorkloadError, match=f"Winograd convolution supports .*{why}"):
        decide_winograd(w, cpu())


def test_refusals_of_the_decision():
    assert refusal(conv()) == ""
    with pytest.raises(WorkloadError, match=r"predicted error of Winograd convolution, 5\.2e-07, exceeds 1\.0e-08"):
        decide_winograd(conv(), cpu(), tolerance=1e-8)
    with pytest.raises(WorkloadError, match=r"m = 3 is not a Winograd tile size for 3x3; expected \(2, 4, 6\)"):
        decide_winograd(conv(), cpu(), m=3)
    assert decide_winograd(conv(), cpu(), m=6, tolerance=1e-8).m == 6


# ---- the configuration -----------------------------------------------------------------------------------------------

SHAPES = [
    *(conv(h=h, ci=c, co=c) for h, c in ((224, 64), (56, 64), (28, 128), (14, 256), (7, 512))),
    conv(h=5, ci=1, co=1),
    conv(h=9, ci=7, co=33, k=5),
    conv(h=31, ci=3, co=100, k=2, n=3),
]


@pytest.mark.parametrize("w", SHAPES)
@pytest.mark.parametrize("cores", [1, 2, 6])
@pytest.mark.parametrize("bits", [256, 512])
def test_configs_fit_the_machine(w, cores, bits):
    machine = cpu(cores, bits)
    for m in admissible(w, 1e-4):
        configs = list(WinogradModel(w, machine, m, prepacked=True).configs())
        assert configs
        tiles = w.n * -(-w.ho // m) * -(-w.wo // m)
        for config in configs:
            nr = config.vectors * config.lanes
            assert (config.rows + 1) * config.vectors + 1 <= machine.vector_registers
            assert config.threads_tiles * config.threads_channels in (1, cores)
            assert config.threads_tiles <= -(-tiles // config.rows)
            assert config.threads_channels <= -(-w.co // nr)
            assert config.block_tiles % config.rows == 0 < config.block_tiles
            assert config.block_channels % nr == 0 < config.block_channels
            points, l2 = config.points**2, 1 << 20
            inputs, sums = 4 * points * w.ci * config.block_tiles, 4 * points * nr * config.block_tiles
            whole = inputs + sums + 2 * 4 * w.ci * nr <= 3 * l2 // 4 and config.block_channels == nr
            assert config.block_tiles == config.rows or inputs <= l2 // 2 or whole
            assert (
                config.predicted_cycles
                > config.points**2 * tiles * w.ci * w.co / (config.lanes * machine.fma_units) / cores
            )


# Thousands of cycles measured with pretransformed weights, on one core with 512-bit vectors that executes one FMA per
# cycle, 1 MiB of L2 and 32 MiB of L3; the measured register tiles may differ from the chosen ones.
MEASURED = {
    (56, 64): {2: 3640, 4: 2142, 6: 2054},
    (28, 128): {4: 1994, 6: 1881},
    (14, 256): {2: 3456, 4: 2517, 6: 3577},
    (7, 512): {2: 4703, 4: 5471},
    (112, 128): {4: 38500, 6: 33500},
}


@pytest.mark.parametrize("shape", MEASURED)
def test_prediction_is_near_what_was_measured(shape):
    h, c = shape
    measured = MEASURED[shape]
    predicted = {
        m: decide_winograd(conv(h=h, ci=c, co=c), cpu(), m=m, prepacked=True).predicted_cycles for m in measured
    }
    for m, thousands in measured.items():
        assert predicted[m] == pytest.approx(1000 * thousands, rel=0.28)
    # The chosen size costs little more than the best one.
    chosen = min(predicted, key=lambda m: predicted[m])
    assert measured[chosen] <= 1.05 * min(measured.values())


def test_small_images_share_channels_and_large_ones_tiles():
    small = decide_winograd(conv(h=7, ci=512, co=512), cpu(2), prepacked=True)
    large = decide_winograd(conv(h=224), cpu(2), prepacked=True)
    assert (small.threads_tiles, small.threads_channels) == (1, 2)
    assert (large.threads_tiles, large.threads_channels) == (2, 1)


def test_transforming_weights_and_scattered_channels_cost_something():
    w, machine = conv(h=14, ci=256, co=256), cpu()
    prepacked = decide_winograd(w, machine, prepacked=True).predicted_cycles
    assert decide_winograd(w, machine).predicted_cycles > prepacked
    assert decide_winograd(w, machine, prepacked=True, adjacent_inputs=False).predicted_cycles > prepacked
    assert decide_winograd(w, machine, prepacked=True, adjacent_outputs=False).predicted_cycles > prepacked


def test_weights_transformed_in_the_run_cost_no_transfer_between_cores():
    """Cores that share the image tiles read all weights, whose lines are then transferred back before they are written
    again: on a Zen 4 server 213 us, compared with 50 for shares of the channels."""
    machine = cpu(2)
    for w in (conv(h=7, ci=24, co=344), conv(h=7, ci=96, co=112)):
        config = decide_winograd(w, machine)
        assert (config.threads_tiles, config.threads_channels) == (1, 2)
    free = replace(machine, handed_over_bytes_per_cycle=1e9)
    model, without = (WinogradModel(w, of, 2, prepacked=False) for of in (machine, free))
    for config in model.configs():
        line_transfer = config.threads_tiles > 1
        assert model.cycles(config) == pytest.approx(
            without.cycles(config) + line_transfer * model.weight_bytes / 2 / 2.5
        )


def test_tiles_at_the_border_are_counted():
    inside, border = conv(padding=(0, 0, 0, 0), h=58), conv()
    assert (inside.ho, border.ho) == (56, 56)
    assert WinogradModel(inside, cpu(), 4, True).input_square < WinogradModel(border, cpu(), 4, True).input_square
    # There are only the first and the last of two rows and columns of tiles, all of which cross the border.
    all_border = WinogradModel(conv(h=8), cpu(), 4, True).input_square
    assert all_border > WinogradModel(border, cpu(), 4, True).input_square


def test_outputs_as_far_apart_as_the_taps_share_an_image_tile():
    assert image_tiles(conv(h=28), 4) == (7, 7)
    assert image_tiles(conv(h=28, w=27, padding=(2, 3, 2, 3), dilation=(2, 3)), 4) == (8, 9)  # 14 in 4s, 9 in 4s
    # As many as of a plain convolution where the outputs divide evenly: as fast.
    plain, dilated = conv(h=32), conv(h=32, padding=(2, 2, 2, 2), dilation=(2, 2))
    assert dilated.ho == 32 and decide_winograd(dilated, cpu()).m == decide_winograd(plain, cpu()).m
    assert decide_winograd(dilated, cpu()).predicted_cycles < 1.1 * decide_winograd(plain, cpu()).predicted_cycles


def test_weights_that_other_layers_displace_are_priced_at_the_speed_of_memory():
    """9 MB of weights fit the last-level cache of 32 MB, but not beside those of a model's other layers. Smaller tiles
    have fewer weights; with a batch, only the first block of image tiles reads them from memory."""
    plain = replace(cpu(2), fma_units=2, l2_bytes_per_cycle=52.0, l3_bytes_per_cycle=24.0, memory_bytes_per_cycle=8.0)
    in_model = replace(plain, costs=replace(plain.kernel_costs, last_level_weights=0.1))

    def sizes(machine: Cpu) -> list[int]:
        layers = [conv(h=7, ci=256, co=256, n=n) for n in (1, 16)]
        return [decide_winograd(layer, machine, prepacked=True).m for layer in layers]

    assert (sizes(plain), sizes(in_model)) == ([4, 4], [2, 4])
    small = conv(h=28, ci=128, co=128)
    assert decide_winograd(small, plain, prepacked=True) == decide_winograd(small, in_model, prepacked=True)


def test_image_tiles_that_fit_beside_the_sums_of_a_panel_are_one_block():
    """256 channels on 14 x 14 pixels: 16 image tiles of F(4 x 4) take 590 KB, more than half of L2, but beside the sums
    of 32 channels and two panels of weights they take less than three quarters. Otherwise 9 MB are read twice."""
    layer = conv(h=14, ci=256, co=256)
    chosen = decide_winograd(layer, replace(cpu(2), fma_units=2), prepacked=True)
    assert (chosen.m, chosen.block_tiles, chosen.block_channels) == (4, 16, chosen.vectors * chosen.lanes)
    model = WinogradModel(layer, cpu(2), 4, prepacked=True)
    assert model.fits_whole(16, 32) and not model.fits_whole(16, 128) and not model.fits_whole(32, 16)
    # Two blocks of images cannot be one.
    assert decide_winograd(replace(layer, n=4), cpu(2), prepacked=True).block_tiles < 64
