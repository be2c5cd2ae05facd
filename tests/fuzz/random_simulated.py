"""Random GEMMs and convolutions on random accelerators: the simulator's integers equal LLVM's, bit for bit."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from case import Case
from convolutions import convolution
from operators import by_llvm, product, simulated

import tvm_tiling as tt
from tvm_tiling.errors import TilingError

PRESETS = ("vta", "wfold16", "neartile", "dla3")


def random_machine(rng: random.Random) -> tt.Hardware:
    """A preset, a near-tile machine whose buffers are too small for operands, or a W-fold machine with buffers of any
    size."""
    if rng.random() < 0.5:
        return tt.Hardware.load(rng.choice(PRESETS))
    if rng.random() < 0.3:
        row, units = 1 << rng.randint(3, 6), rng.randint(1, 4)
        engine = tt.WFold(
            row_bytes=row,
            least_granularity=rng.choice((row // 4, row)),
            sub_units=rng.randint(1, 16),
            units=units,
            first_buffer_rows=units + rng.randint(0, 5),
            second_buffer_rows=rng.randint(1, 9),
            staging_bytes=rng.choice((0, 64, 512)),
            input_reads_per_cycle=rng.choice((None, 1.0)),
            result_buffer_rows=rng.choice((None, 64)),
            fold_place=rng.choice(("load", "local", "in place")),
        )
        return tt.Hardware(name="rows", w_fold=engine)
    return tt.Hardware.neartile(
        buf_a=1 << rng.randint(7, 14),
        buf_b=1 << rng.randint(7, 14),
        acc_max=rng.choice((0, 1, 1)) << rng.randint(8, 14),
        bw_a=2.0 ** rng.randint(1, 5),
        bw_b=2.0 ** rng.randint(1, 5),
        macs_per_cycle=2 ** rng.randint(2, 8),
        block_m=rng.choice((1, 1, 4)),
        block_n=rng.choice((1, 1, 4, 16)),
    )


def random_simulated(rng: random.Random) -> Case:
    """One of them and a machine."""
    hardware = random_machine(rng)
    if rng.random() < 0.5:
        m, n, k = (rng.randint(1, 70) for _ in range(3))
        options = {"trans_a": rng.random() < 0.3, "trans_b": rng.random() < 0.5}
        batch = rng.choice((None, None, None, 2))
        what, op = f"product {m} {n} {k} {options} {batch}", product(m, n, k, "int8", batch=batch, **options)
    else:
        kernel, groups = rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 1, 2))
        shape = {
            "n": rng.randint(1, 2),
            "h": rng.randint(kernel, 12),
            "w": rng.randint(kernel, 20),
            "ci": groups * rng.randint(1, 12),
            "co": groups * rng.randint(1, 24),
            "kh": kernel,
            "kw": kernel,
            "stride": (rng.randint(1, 2), rng.randint(1, 2)),
            "padding": tuple(rng.randint(0, 1) for _ in range(4)),
            "groups": groups,
            "layout": rng.choice(("NHWC", "NCHW")),
        }
        what, op = f"convolution {shape}", convolution(**shape)
    return Case(f"{what} on {hardware}", lambda: check(op, hardware))


def check(op: Any, hardware: tt.Hardware) -> None:
    """Compare the operator on the machine with LLVM; a machine whose buffers fit no configuration says so."""
    try:
        func, _, _, inputs, result = simulated(op, hardware)
    except TilingError:
        return
    np.testing.assert_array_equal(result, by_llvm(func, inputs, result.shape, result.dtype.name))
