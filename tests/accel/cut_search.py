"""Decisions for the simulated accelerator beside a search: every cut of a small space scheduled, recorded and timed."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
from convolutions import convolution
from operators import product
from tvm_tiling.schedules.accel_conv import ConvSchedule
from tvm_tiling.schedules.accel_gemm import apply
from tvm_tiling.schedules.accel_product import sum_types

import tvm_tiling as tt
from tvm_tiling.accel.record import record
from tvm_tiling.accel.simulate import simulate
from tvm_tiling.decide.conv_block_time import BlockTimes, Columns, ConvFacts
from tvm_tiling.decide.conv_blocks import blocks_at
from tvm_tiling.decide.traffic import product_on
from tvm_tiling.lowering.accel_image import plain_form
from tvm_tiling.match import GemmProgram, match, prim_func_of

MACHINES = (
    tt.Hardware.load("vta"),
    tt.Hardware.neartile(buf_a=2048, buf_b=2048, acc_max=8192, bw_a=8, bw_b=8, macs_per_cycle=64),
    tt.Hardware.neartile(
        buf_a=8192, buf_b=1024, acc_max=4096, bw_a=4, bw_b=16, macs_per_cycle=256, block_m=4, block_n=4
    ),
)


def random_layers(seed):
    """(function, machine) without end: products and convolutions of a few thousand to a million multiply-adds."""
    rng = random.Random(seed)
    while True:
        machine = rng.choice(MACHINES)
        if rng.random() < 0.4:
            m, n, k = (rng.choice((16, 24, 40, 64, 96, 150)) for _ in range(3))
            yield prim_func_of(product(m, n, k, "int8", trans_b=True)), machine
            continue
        taps, stride = rng.choice((2, 3, 3, 5)), rng.choice((1, 1, 2))
        depthwise = rng.random() < 0.15
        ci = rng.choice((8, 16)) if depthwise else rng.choice((3, 8, 16, 32))
        options = {
            "h": rng.choice((7, 10, 14, 20)),
            "w": rng.choice((7, 10, 14, 20)),
            "ci": ci,
            "co": ci if depthwise else rng.choice((8, 16, 24, 48)),
            "kh": taps,
            "kw": taps,
            "stride": (stride, stride),
            "padding": (taps // 2,) * 4,
            "groups": ci if depthwise else 1,
        }
        yield prim_func_of(convolution(**options)), machine


def decided(func, hardware):
    """Cycles of the decision."""
    return simulate(record(tt.tiling_schedule(func, target=hardware).mod, hardware)).cycles


def searched(func, hardware, counts):
    """Cycles of every cut of the space: each dimension in so many pieces as one of `counts` says."""
    program = match(func, "main", may_swap=False)
    own = _product_cuts if isinstance(program, GemmProgram) else _convolution_cuts
    return [simulate(record(module, hardware)).cycles for module in own(program, hardware, counts)]


def ratios(number, seed, counts):
    """(decision over the best cut, cycles of the decision) of random layers of which any cut of the space fits."""
    found = []
    for func, hardware in random_layers(seed):
        others = searched(func, hardware, counts)
        if others:
            own = decided(func, hardware)
            found.append((own / min(others), own))
        if len(found) == number:
            return found


def _pieces(size, counts):
    return sorted({-(-size // count) for count in counts}, reverse=True)


def _product_cuts(program, hardware, counts):
    """Partitions of m, n and k, in both orders, where they fit."""
    size, found = program.workload, product_on(program.workload, hardware)
    usual = tt.decide(size, hardware)
    cuts = itertools.product(*(_pieces(extent, counts) for extent in (size.m, size.n, size.k)), ("mn", "nm"))
    for m, n, k, order in cuts:
        m, n = (min(full, -(-part // block) * block) for part, full, block in (
            (m, size.m, found.block_m), (n, size.n, found.block_n)
        ))  # fmt: skip
        if not found.feasible(m, n, k):
            continue
        load_a, load_b = found.load_counts(m, n, k, order)
        cut = replace(
            usual, partition_m=m, partition_n=n, partition_k=k, outer_order=order, split_k=k < size.k,
            need_acc_buffer=k < size.k, load_a=load_a, load_b=load_b, tile_m=m, tile_n=n,
        )  # fmt: skip
        yield apply(program, hardware, cut).main


def _convolution_cuts(program, hardware, counts):
    """Output channels, rows, columns and channels, in both orders, where they fit."""
    facts = ConvFacts(program.workload, hardware)
    conv, grouped = facts.conv, facts.conv.groups > 1
    cuts = itertools.product(
        (1,) if grouped else (1, 0),
        [g for g in _pieces(conv.groups, counts) if conv.groups % g == 0],
        [facts.co] if grouped else _pieces(facts.co, counts),
        _pieces(conv.ho, counts),
        _pieces(conv.wo, (1, 2)),
        [facts.ci] if grouped else _pieces(facts.ci, (1, 2)),
    )
    made = [(order, g, m, m, rows, rows, columns, c) for order, g, m, rows, columns, c in cuts]
    times = BlockTimes(facts, Columns(*np.array(made).T))
    for place in np.flatnonzero(times.fits).tolist():
        blocks = blocks_at(times, place)
        yield ConvSchedule(program, plain_form(conv), blocks, sum_types(hardware)).write().mod["main"]
