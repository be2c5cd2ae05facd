"""Traffic of a configuration: worked examples, a replay of the five loops, and the halo of a convolution."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from exhaustive import Facts
from gemm_cases import decide_or_none, matched_machine, random_conv, random_gemm, random_machine

from tvm_tiling.decide.gemm.partition import decide_partition
from tvm_tiling.decide.gemm.traffic import ActivationWindow, product_on
from tvm_tiling.decide.tiling import GemmTiling
from tvm_tiling.hardware.description import Hardware
from tvm_tiling.workload import ConvWorkload, GemmWorkload


def tiling_of(**fields) -> GemmTiling:
    given = {"outer_order": "mn", "inner_order": "nm", "split_k": True, "need_acc_buffer": True, "acc_bytes": 0}
    return GemmTiling(**{**given, "load_a": 1, "load_b": 1, "utilisation": 1.0, **fields})


# --- worked examples ---


@pytest.mark.parametrize("partition_k", [1, 7, 32, 95])
def test_half_of_n_with_k_in_any_parts_reads_a_twice_and_fills_the_accumulation_buffer(partition_k):
    w, exact = GemmWorkload(m=64, n=128, k=96), 64 * 64 * 4
    unit = {"buf_a": 96 * 64 * 4 - 1, "buf_b": 96 * 64 * 4 - 1, "bw_a": 8, "bw_b": 8, "macs_per_cycle": 64}
    p = product_on(w, Hardware.neartile(acc_max=exact, **unit))
    assert p.load_counts(64, 64, partition_k, "mn") == (2, 1)
    assert p.feasible(64, 64, partition_k)
    assert not product_on(w, Hardware.neartile(acc_max=exact - 1, **unit)).feasible(64, 64, partition_k)
    config = tiling_of(partition_m=64, partition_n=64, partition_k=partition_k, tile_m=64, tile_n=64)
    assert replayed_loads(64, 128, 96, config, fits_a=False, fits_b=False) == (2, 1)


def test_the_decision_finds_the_half_of_n_example():
    # Reading A twice takes as long as reading B once; more of either would be slower, and the multipliers are faster.
    machine = Hardware.neartile(buf_a=4096, buf_b=4096, acc_max=64 * 64 * 4, bw_a=8, bw_b=8, macs_per_cycle=1024)
    t = decide_partition(GemmWorkload(m=64, n=128, k=1024), machine)
    assert (t.partition_m, t.partition_n, t.load_a, t.load_b, t.acc_bytes) == (64, 64, 2, 1, 64 * 64 * 4)
    assert t.partition_k == 4096 // (64 * 4)


# --- a replay of the five loops, one block held in each buffer ---


def replayed_loads(m: int, n: int, k: int, t: GemmTiling, fits_a: bool, fits_b: bool) -> tuple[float, float]:
    """Execute the five loops, load what is missing, and count loads per element.

    A buffer holds one block, or the whole operand if that fits.
    """
    held_a: set[tuple[int, int]] = set()
    held_b: set[tuple[int, int]] = set()
    loaded_a = loaded_b = 0
    done: Counter[tuple[int, int]] = Counter()
    outer = [(i, j) for i in range(0, m, t.partition_m) for j in range(0, n, t.partition_n)]
    if t.outer_order == "nm":
        outer.sort(key=lambda block: (block[1], block[0]))
    for out_m, out_n in outer:
        for kk in range(0, k, t.partition_k):
            depth = min(t.partition_k, k - kk)
            if (out_m, kk) not in held_a:
                held_a = held_a | {(out_m, kk)} if fits_a else {(out_m, kk)}
                loaded_a += min(t.partition_m, m - out_m) * depth
            if (kk, out_n) not in held_b:
                held_b = held_b | {(kk, out_n)} if fits_b else {(kk, out_n)}
                loaded_b += min(t.partition_n, n - out_n) * depth
            for in_m in range(out_m, min(m, out_m + t.partition_m), t.tile_m):
                for in_n in range(out_n, min(n, out_n + t.partition_n), t.tile_n):
                    rows = min(t.tile_m, m - in_m, out_m + t.partition_m - in_m)
                    columns = min(t.tile_n, n - in_n, out_n + t.partition_n - in_n)
                    done["multiply-accumulates", 0] += rows * columns * depth
    assert done["multiply-accumulates", 0] == m * n * k
    return loaded_a / (m * k), loaded_b / (k * n)


@pytest.mark.parametrize("prefer", ["utilisation", "traffic"])
def test_a_replay_of_decided_configs_loads_what_they_predict(prefer):
    rng = random.Random(2)
    kinds: Counter[tuple[bool, str]] = Counter()
    while sum(kinds.values()) < 400:
        w = random_gemm(rng, most=60)
        machine = random_machine(rng) if rng.random() < 0.5 else matched_machine(rng, w)
        t, f = decide_or_none(w, machine, prefer), Facts(w, machine)
        if t is not None:
            assert replayed_loads(w.m, w.n, w.k, t, f.fits_a, f.fits_b) == (t.load_a, t.load_b)
            kinds[t.split_k, t.outer_order] += 1
    assert min(kinds[False, "mn"], kinds[False, "nm"], kinds[True, "mn"]) >= 20


def test_a_replay_of_any_config_loads_what_load_counts_says():
    rng = random.Random(3)
    replayed: Counter[tuple[bool, str]] = Counter()
    for _ in range(3000):
        w = random_gemm(rng, most=24)
        machine = matched_machine(rng, w)
        p, f = product_on(w, machine), Facts(w, machine)
        config = tiling_of(
            partition_m=rng.randint(1, w.m),
            partition_n=rng.randint(1, w.n),
            partition_k=rng.choice((w.k, rng.randint(1, w.k))),
            tile_m=rng.randint(1, 24),
            tile_n=rng.randint(1, 24),
            outer_order=rng.choice(("mn", "nm")),
        )
        if p.feasible(config.partition_m, config.partition_n, config.partition_k):
            predicted = p.load_counts(config.partition_m, config.partition_n, config.partition_k, config.outer_order)
            assert replayed_loads(w.m, w.n, w.k, config, f.fits_a, f.fits_b) == predicted
            replayed[config.partition_k < w.k, config.outer_order] += 1
    assert len(replayed) == 4 and min(replayed.values()) >= 50


def test_partition_k_of_a_split_is_the_largest_that_fits_below_k():
    rng = random.Random(6)
    for _ in range(200):
        p = product_on(w := random_gemm(rng, most=40), matched_machine(rng, w))
        rows, columns = rng.randint(1, p.m), rng.randint(1, p.n)
        fits = [
            depth for depth in range(1, p.k) if rows * depth * p.d_a <= p.buf_a and columns * depth * p.d_b <= p.buf_b
        ]
        if fits:
            assert p.largest_depth(rows, columns) == max(fits)


# --- the convolution mapping ---


def test_a_convolution_is_a_gemm_with_activations_reused_across_the_kernel():
    conv = ConvWorkload(
        n=2, h=20, w=30, ci=12, co=40, kh=3, kw=5, stride=(2, 1), padding=(1, 2, 1, 2), groups=2, dtype="float16"
    )
    unit = {"buf_a": 1 << 20, "buf_b": 1 << 20, "acc_max": 0, "bw_a": 4, "bw_b": 8, "macs_per_cycle": 32}
    p = product_on(conv, Hardware.neartile(**unit))
    assert (p.m, p.n, p.k) == (20, 2 * 10 * 30, 6 * 3 * 5)
    assert p.gemm_cycles == 20 * 600 * 90 / 32
    assert p.load_a_cycles == 6 * 20 * 3 * 5 * 2 / 4
    assert p.load_b_cycles == 2 * 20 * 30 * 6 * 2 / 8
    assert p.block_bytes_b(p.n, p.k) == p.bytes_b == 2 * 20 * 30 * 6 * 2


def test_activations_fit_by_their_own_bytes_though_their_matrix_view_does_not():
    conv = ConvWorkload(n=1, h=32, w=32, ci=16, co=4096, kh=3, kw=3, padding=(1, 1, 1, 1), dtype="int8")
    unit = {"buf_a": 9 * 16 * 16, "acc_max": 0, "bw_a": 64, "bw_b": 64, "macs_per_cycle": 4096}
    held = Hardware.neartile(buf_b=32 * 32 * 16, **unit)
    best, seed = decide_partition(conv, held), decide_partition(conv, held, mode="seed")
    assert (best.partition_n, best.load_a, best.load_b) == (1024, 1, 1)  # 16 KiB of activations, 144 KiB as a matrix
    assert seed.load_b > 1 or seed.load_a > 1
    one_byte_less = decide_partition(conv, Hardware.neartile(buf_b=32 * 32 * 16 - 1, **unit))
    assert max(one_byte_less.load_a, one_byte_less.load_b) > 1


def pixels_touched(conv: ConvWorkload, start: int, positions: int) -> int:
    """Count the input pixels that a run of output positions reads, by visiting every kernel position of every
    output."""
    (stride_h, stride_w), (dilation_h, dilation_w) = conv.stride, conv.dilation
    touched = set()
    for position in range(start, start + positions):
        image, rest = divmod(position, conv.ho * conv.wo)
        row, column = divmod(rest, conv.wo)
        for i in range(conv.kh):
            for j in range(conv.kw):
                y = row * stride_h + i * dilation_h - conv.padding[0]
                x = column * stride_w + j * dilation_w - conv.padding[1]
                if 0 <= y < conv.h and 0 <= x < conv.w:
                    touched.add((image, y, x))
    return len(touched)


def test_a_block_of_activations_counts_its_halo():
    rng = random.Random(4)
    for _ in range(60):
        conv = random_conv(rng, most=7)
        window, total = ActivationWindow.of(conv), conv.n * conv.ho * conv.wo
        counted = [window.pixels(positions) for positions in range(1, total + 1)]
        assert counted == sorted(counted)  # so that the largest block that fits is found by bisection
        assert counted[-1] == conv.n * conv.h * conv.w
        for positions in {1, 2, rng.randint(1, total), rng.randint(1, total), total}:
            start = rng.randint(0, total - positions)
            assert pixels_touched(conv, start, positions) <= counted[positions - 1]


def test_the_halo_of_whole_rows_is_close_to_what_they_touch():
    conv = ConvWorkload(n=1, h=56, w=56, ci=1, co=1, kh=3, kw=3, padding=(1, 1, 1, 1))
    assert pixels_touched(conv, 10 * 56, 8 * 56) == 10 * 56
    assert ActivationWindow.of(conv).pixels(8 * 56) == 11 * 56  # wherever it starts: one output row more


def test_channels_of_a_block_of_the_reduction():
    window = ActivationWindow.of(ConvWorkload(n=1, h=9, w=9, ci=5, co=1, kh=3, kw=3))
    for depth in range(1, 46):
        touched = max(len({kk // 9 for kk in range(start, min(45, start + depth))}) for start in range(0, 45, depth))
        assert touched <= window.channels_of(depth) <= touched + 1
        if depth % 9 == 0 or 9 % depth == 0:
            assert window.channels_of(depth) == touched
