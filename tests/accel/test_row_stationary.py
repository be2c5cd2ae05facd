"""Convolutions on a row-stationary array: results, time, traffic, and refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tvm_tiling.accel.checks.hazards import check
from tvm_tiling.accel.functional.run import run
from tvm_tiling.accel.row_stationary import RowMapping, configured, row_stationary_convolution
from tvm_tiling.accel.timing.simulate import Simulation
from tvm_tiling.errors import HardwareError, WorkloadError
from tvm_tiling.hardware.description import Hardware
from tvm_tiling.hardware.memory import Memory
from tvm_tiling.hardware.near_tile import NearTile
from tvm_tiling.workload import ConvWorkload


def machine(elements=168, **buffers):
    sizes = {"buf_a": 1 << 16, "buf_b": 1 << 12, "acc_max": 1 << 12} | buffers
    tile = NearTile(
        **sizes,
        macs_per_cycle=elements,
        dtypes=("int16",),
        partial_blocks="padded",
        double_buffer=False,
        acc_bytes_per_element=2,
        bandwidth={"external": 1e6, "internal": 1e6},
    )
    memories = {
        "external": Memory(bytes_per_cycle=1e6),
        "internal": Memory(bytes=1 << 20, bytes_per_cycle=1e6),
        "a": Memory(bytes_per_cycle=8),
        "b": Memory(bytes_per_cycle=2),
        "acc": Memory(bytes_per_cycle=8),
    }
    return Hardware(name="rows", near_tile=tile, memories=memories)


def layer(h, w, ci, co, kernel, stride=1, padding=0, groups=1, n=1):
    return ConvWorkload(
        n=n,
        h=h,
        w=w,
        ci=ci,
        co=co,
        kh=kernel,
        kw=kernel,
        stride=(stride, stride),
        padding=(padding,) * 4,
        groups=groups,
        dtype="int16",
        layout="NCHW",
    )


def reference(c, x, w):
    top, left, bottom, right = c.padding
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (c.kh, c.kw), axis=(2, 3))
    windows = windows[:, :, :: c.stride[0], :: c.stride[1]]
    inner, outer = c.ci // c.groups, c.co // c.groups
    parts = [
        np.einsum("nchwrs,ocrs->nohw", windows[:, g * inner :][:, :inner], w[g * outer :][:outer])
        for g in range(c.groups)
    ]
    return np.concatenate(parts, axis=1)


CASES = {
    "one pass": (layer(6, 7, 2, 4, 3), RowMapping(n=1, m=4, e=4, p=4, q=2, r=1, t=1)),
    "border, groups, sets that add": (
        layer(7, 5, 8, 8, 3, padding=1, groups=2, n=2),
        RowMapping(n=2, m=4, e=7, p=2, q=2, r=2, t=1),
    ),
    "strides, a shorter last strip": (layer(23, 27, 3, 8, 7, stride=4), RowMapping(n=1, m=8, e=2, p=2, q=1, r=1, t=2)),
    "three images one after the other": (
        layer(5, 9, 4, 6, 3, padding=1, n=3),
        RowMapping(n=3, m=3, e=3, p=1, q=4, r=1, t=3),
    ),
    "a kernel narrower than its stride": (
        layer(13, 13, 2, 2, 2, stride=3),
        RowMapping(n=1, m=2, e=3, p=1, q=1, r=2, t=2),
    ),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_results(name):
    conv, mapping = CASES[name]
    program = row_stationary_convolution(conv, mapping, machine())
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 10, (conv.n, conv.ci, conv.h, conv.w), dtype=np.int16)
    w = rng.integers(-9, 10, (conv.co, conv.ci // conv.groups, conv.kh, conv.kw), dtype=np.int16)
    check(program)
    for order in (None, 3):
        np.testing.assert_array_equal(run(program, {"x": x, "w": w}, order=order)["y"], reference(conv, x, w))


def passes(conv, mapping):
    strips = -(-conv.ho // mapping.e)
    kernels = conv.co // (mapping.p * mapping.t)
    return conv.n // mapping.n * strips * kernels * (conv.ci // conv.groups // (mapping.q * mapping.r))


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_array_works_as_long_as_one_element(name):
    conv, mapping = CASES[name]
    report = Simulation(row_stationary_convolution(conv, mapping, machine())).on()
    pass_cycles = mapping.n * conv.wo * mapping.p * mapping.q * conv.kw
    assert report.engines["matrix"].busy == passes(conv, mapping) * pass_cycles
    assert report.utilisation <= 1


def test_a_pass_begins_with_its_kernels_and_its_first_window():
    conv, mapping = CASES["one pass"]
    report = Simulation(row_stationary_convolution(conv, mapping, machine())).on()
    # From DRAM 1 cycle each for image and kernels; into the elements 72 weights at 4 per cycle, concurrently 3 columns
    # of 6 rows of 2 channels at 1 per cycle; 5 columns of results of 4 x 2 x 3 cycles; 16 sums at 4 per cycle; to DRAM.
    assert report.cycles == 1 + 3 * 6 * 2 + 5 * 4 * 2 * 3 + 4 + 1


def test_images_come_once_for_all_output_channels_that_have_room_and_kernels_once_a_pass():
    conv = layer(9, 9, 4, 8, 3, padding=1, n=2)
    mapping = RowMapping(n=1, m=4, e=3, p=2, q=2, r=1, t=1)
    report = Simulation(row_stationary_convolution(conv, mapping, machine())).on()
    external = report.memories["external"]
    rows = 4 + 5 + 4  # of a strip with a border above, without one, and with one below
    assert external.read == 2 * (2 * 2 * 4 * rows * 9 + passes(conv, mapping) * 2 * 2 * 9)
    assert external.written == 2 * 2 * 8 * 81


def test_sums_bound_a_pass_that_has_more_of_them_than_the_network_carries():
    conv, mapping = layer(12, 40, 8, 8, 3, padding=1), RowMapping(n=1, m=8, e=12, p=8, q=1, r=1, t=1)
    report = Simulation(row_stationary_convolution(conv, mapping, machine())).on()
    assert report.engines["sums_out"].busy == 8 * 40 * (8 * 12 // 4)
    assert report.engines["matrix"].busy == 8 * 40 * 8 * 3
    slow = machine()
    slow = replace(slow, memories={**slow.memories, "acc": Memory(bytes_per_cycle=4)})
    assert Simulation(row_stationary_convolution(conv, mapping, slow)).on().cycles > 1.7 * report.cycles


def test_what_does_not_fit_is_refused():
    conv, mapping = CASES["one pass"]
    with pytest.raises(HardwareError, match="needs 12 elements; expected at most near_tile"):
        configured(conv, mapping, machine(elements=11))
    for memory, small in {"a": "buf_a", "b": "buf_b", "acc": "acc_max"}.items():
        with pytest.raises(HardwareError, match=f"needs .* bytes of memory '{memory}'"):
            row_stationary_convolution(conv, mapping, machine(**{small: 16}))
    with pytest.raises(WorkloadError, match="does not divide 1 images, 2 and 4 channels of a group"):
        row_stationary_convolution(conv, replace(mapping, q=4), machine())
    with pytest.raises(WorkloadError, match="expected int16 in NCHW"):
        row_stationary_convolution(replace(conv, dtype="int8", acc_dtype=None), mapping, machine())
    with pytest.raises(WorkloadError, match="a border narrower than the kernel"):
        row_stationary_convolution(replace(conv, padding=(3, 3, 3, 3)), mapping, machine())
