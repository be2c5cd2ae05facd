"""deterministic=True: no decision that the order of sums depends on differs by rows, images or cores."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tvm_tiling as tt
from tvm_tiling.decide.configs.record import Config
from tvm_tiling.decide.conv.cpu_conv import IN_SEQUENCE
from tvm_tiling.decide.conv.open_winograd import decide_open_winograd
from tvm_tiling.decide.gemm.blocked import decide_blocked
from tvm_tiling.decide.gemm.one_order import BLOCK, FEW_BLOCKS, LONGEST
from tvm_tiling.decide.gemm.open_rows import decide_open_rows
from tvm_tiling.decide.options import OneConfig, Options
from tvm_tiling.decide.rnn.recurrence import Recurrence, decide_recurrence
from tvm_tiling.decide.surroundings import Surroundings
from tvm_tiling.errors import HardwareError, UnsupportedOperator
from tvm_tiling.operand_types import Encoding

MACHINES = [tt.Hardware.load(name) for name in ("zen4-server-8c", "neoverse-v1-16c", "skylake-desktop-8c")]
CORES = (1, 2, 3, 4)


def blocks_of(k: int, depth: int) -> int:
    return -(-k // depth)


@settings(max_examples=20)
@given(
    machine=st.sampled_from(MACHINES),
    m=st.sampled_from((1, 2, 3, 5, 8, 64, 300)),
    k=st.integers(1, 3 * LONGEST),
    n=st.integers(1, 3000),
    dtype=st.sampled_from(("float32", "float16", "bfloat16")),
    weights=st.sampled_from(("plain", "packed")),
)
def test_a_sum_over_k_has_one_order(machine, m, k, n, dtype, weights):
    """No sharing of K, no few-row form; up to LONGEST so few blocks that each goes on with the sum before it, beyond
    blocks of one depth."""
    depths = set()
    for cores in CORES:
        workload = tt.GemmWorkload(m=m, k=k, n=n, dtype=dtype, out_dtype="float32")
        tiling = tt.decide(workload, machine.with_cores(cores), weights=weights, deterministic=True)
        assert tiling.threads_k == 1 and tiling.form != "stream"
        if k <= LONGEST:
            assert blocks_of(k, tiling.partition_k) <= FEW_BLOCKS
        depths.add(tiling.partition_k)
    if k > LONGEST:
        assert len(depths) == 1 and max(depths) <= BLOCK


@pytest.mark.parametrize("k", [70, LONGEST, LONGEST + 1, 10000])
def test_open_rows_sum_as_fixed_ones(k):
    """Kernels of open rows sum every block on its own: they have one block, or the blocks of fixed rows."""
    machine, workload = MACHINES[0], tt.GemmWorkload(m=64, k=k, n=256)
    around, options = Surroundings(prepacked=True), Options(prepacked=True, deterministic=True)
    found = decide_open_rows(workload, machine, options, around)
    fixed = tt.decide(workload, machine, weights="packed", deterministic=True)
    assert found.partition_k == (k if k <= LONGEST else fixed.partition_k)


def order_of(tiling) -> tuple:
    """What the order of a convolution's sums depends on."""
    if tiling.form in IN_SEQUENCE:
        product = tiling.product
        assert product is None or (product.threads_k == 1 and product.form != "stream")
        return ("in sequence",)
    return tiling.form, tiling.ws, tiling.winograd and tiling.winograd.m


@settings(max_examples=20)
@given(
    machine=st.sampled_from(MACHINES),
    h=st.integers(1, 60),
    ci=st.sampled_from((1, 3, 8, 24, 64, 256)),
    co=st.sampled_from((1, 8, 16, 64, 130)),
    k=st.sampled_from((1, 2, 3, 5, 7)),
    stride=st.sampled_from((1, 2)),
    layout=st.sampled_from(("NCHW", "NHWC")),
)
def test_a_convolution_sums_as_for_one_image_on_one_core(machine, h, ci, co, k, stride, layout):
    orders = set()
    for n, cores in itertools.product((1, 8), (1, 2, 4)):
        size = max(h, k)
        workload = tt.ConvWorkload(
            n=n, h=size, w=size, ci=ci, co=co, kh=k, kw=k, stride=(stride, stride), padding=(k // 2,) * 4, layout=layout
        )
        orders.add(order_of(tt.decide(workload, machine.with_cores(cores), weights="packed", deterministic=True)))
    assert len(orders) == 1, orders


@pytest.mark.parametrize(("layout", "size"), [("NHWC", 1), ("NCHW", 1), ("NCHW", 14)])
def test_many_channels_are_summed_as_for_one_image_on_one_core(layout, size):
    """Matrix multiplications sum blocks of K separately, the direct algorithm does not."""
    machine, found = tt.Hardware.load("zen4-server-8c"), set()
    for n, cores in itertools.product((1, 8), (1, 8)):
        workload = tt.ConvWorkload(n=n, h=size, w=size, ci=2 * LONGEST, co=64, kh=1, kw=1, layout=layout)
        found.add(tt.decide(workload, machine.with_cores(cores), weights="packed", deterministic=True).form == "gemm")
    assert len(found) == 1


def test_the_algorithm_of_convolutions_depends_on_the_batch_otherwise():
    """Else the test above shows nothing: tile sizes of Winograd's form differ by the images."""
    machine = MACHINES[0]
    found = set()
    for n, h, ci in itertools.product((1, 8), (7, 14, 28), (64, 128, 512)):
        workload = tt.ConvWorkload(n=n, h=h, w=h, ci=ci, co=ci, kh=3, kw=3, padding=(1, 1, 1, 1), layout="NHWC")
        plain, kept = (tt.decide(workload, machine, weights="packed", deterministic=d) for d in (False, True))
        found.add(order_of(plain) == order_of(kept) if n > 1 else None)
    assert False in found


@pytest.mark.parametrize(("cell", "order"), [("lstm", "ifgo"), ("gru", "rzn"), ("rnn", "h")])
def test_recurrent_layers_add_columns_one_after_the_other(cell, order):
    machine = MACHINES[0]
    for hidden in (32, 96, 384, 1024):
        turning = set()
        for batch, cores in itertools.product((1, 3, 8), CORES):
            recurrence = Recurrence(cell=cell, steps=5, batch=batch, hidden=hidden, order=order)
            cpu = machine.with_cores(cores).cpu
            found = decide_recurrence(recurrence, cpu, any_batch=batch == 3, deterministic=True)
            assert {found.ep, *(found.lower or ())} == {1}
            assert (found.rows + 1) * found.blocks * len(order) + 1 <= cpu.vector_registers
            turning.add(found.turning)
        assert len(turning) == 1


@pytest.mark.parametrize(("ci", "co"), [(64, 64), (3, 48), (4, 128)])
def test_images_of_any_size_have_one_tile_size_of_winograd(ci, co):
    found = set()
    for cores, n in itertools.product(CORES, (1, 16)):
        sizes = [tt.ConvWorkload(n=n, h=s, w=s, ci=ci, co=co, kh=3, kw=3, padding=(1, 1, 1, 1)) for s in (64, 128)]
        try:
            tiling = decide_open_winograd(sizes, MACHINES[0].with_cores(cores), packing="ahead", deterministic=True)
            found.add(tiling.winograd.m)
        except UnsupportedOperator:
            found.add(None)
    assert len(found) == 1


def test_weights_in_blocks_are_decoded_alike_for_every_number_of_rows():
    workload = tt.GemmWorkload(
        m=64, k=512, n=256, trans_b=True, encoding=Encoding(format="int4", block=32, scales="float16")
    )
    cpu = MACHINES[1].cpu
    assert decide_blocked(workload, cpu).unpacked_rows is not None
    assert decide_blocked(workload, cpu, deterministic=True).unpacked_rows is None


def test_what_cannot_be_kept_is_refused():
    workload = tt.GemmWorkload(m=1, k=512, n=512)
    with pytest.raises(HardwareError, match="depends on the rows, which deterministic=True excludes"):
        tt.decide(workload, MACHINES[0], algorithm="stream", deterministic=True)
    with pytest.raises(HardwareError, match="not supported on vta"):
        tt.decide(tt.GemmWorkload(m=1, k=512, n=512, dtype="int8"), "vta", deterministic=True)
    config = Config(op="gemm", form="normal", choices=())
    for further in ({"config": config}, {"configs": OneConfig(config)}):
        with pytest.raises(HardwareError, match="expected deterministic = True alone"):
            Options(deterministic=True, **further)
