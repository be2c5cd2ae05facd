"""The inner tile and the text of a decision."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tvm_tiling.decide.gemm.inner_tile import inner_tile
from tvm_tiling.decide.gemm.partition import decide_partition
from tvm_tiling.decide.tiling import Reason
from tvm_tiling.hardware.description import Hardware
from tvm_tiling.workload import GemmWorkload


@pytest.mark.parametrize(
    ("partition", "blocks", "sync", "d_s", "tile"),
    [
        ((256, 256), (64, 64), 4, 1, (128, 64)),  # 2 blocks: both down one column
        ((256, 256), (64, 64), 16, 1, (256, 128)),  # 8 blocks: the column's 4, then 2 columns
        ((256, 256), (64, 64), 16, 2, (256, 64)),  # 4 blocks
        ((256, 128), (64, 64), 64, 1, (256, 128)),  # 32 blocks: no more than the partition has
        ((256, 256), (64, 64), 1, 4, (64, 64)),  # less than one block: one block
        ((100, 70), (64, 16), 12, 1, (128, 48)),  # ragged: 2 and 5 blocks; 6 // 2 = 3 columns
        ((8, 512), (8, 1), 20, 2, (8, 5)),
    ],
)
def test_inner_tile_covers_one_synchronisation(partition, blocks, sync, d_s, tile):
    got = inner_tile(*partition, block_m=blocks[0], block_n=blocks[1], sync_granularity=sync, d_s=d_s)
    assert (got.tile_m, got.tile_n) == tile


MACHINE = Hardware.neartile(buf_a=1 << 14, buf_b=1 << 14, acc_max=1 << 16, bw_a=32, bw_b=64, macs_per_cycle=1024)


OUTPUTS = {
    *("partition_m", "partition_n", "partition_k", "tile_m", "tile_n", "outer_order", "inner_order"),
    *("split_k", "need_acc_buffer", "acc_bytes", "load_a", "load_b", "utilisation"),
}


@pytest.mark.parametrize("mode", ["best", "seed"])
@pytest.mark.parametrize("size", [(64, 64, 32), (512, 512, 256), (512, 512, 4096)])  # fits, no split, split
def test_every_output_has_a_reason_that_explain_shows(mode, size):
    t = decide_partition(GemmWorkload(m=size[0], n=size[1], k=size[2]), MACHINE, mode=mode)
    assert {r.field for r in t.reasons} - {"feasible"} == OUTPUTS
    text = t.explain()
    for name, value, why in t.reasons:
        assert why and why in text
        if name != "feasible":
            assert getattr(t, name) == value


def test_explain_reads_as_this():
    machine = Hardware.neartile(
        buf_a=1 << 14,
        buf_b=1 << 14,
        acc_max=1 << 16,
        bw_a=32,
        bw_b=64,
        macs_per_cycle=1024,
        block_m=16,
        block_n=16,
        sync_granularity=64,
    )
    text = decide_partition(GemmWorkload(m=512, n=512, k=4096, dtype="int8"), machine).explain()
    assert text == GOLDEN.strip("\n")


GOLDEN = """
gemm tiling
  tiling
    m per block              16           reads B 32 times; smallest accumulation buffer among the fastest
    n per block              32           reads A 16 times; smallest accumulation buffer among the fastest
    K per block              512          the most of K that fits both input buffers
    m per tile               16           a multiple of 16, up to 1 in the block and 32 per synchronisation
    n per tile               32           a multiple of 16, up to 2 in the block and 32 per synchronisation
    loops over blocks        m outside n  as requested, or m outside n; with split-K, both orders cost the same
    loops within a block     n outside m  column by column, in the order of the sums
  split-K
    K is split               yes          no block fits a buffer with all of K = 4096
    buffer for partial sums  yes          holds the partial sums of split-K
    bytes of partial sums    2048         16 * 32 sums of 4 bytes; the machine has 65536 bytes
  predicted
    loads of A               16 times     once for each of 16 blocks of n; 32.0 MiB read
    loads of B               32 times     once for each of 32 blocks of m; 64.0 MiB read
    utilisation              100.0%       cycles: multiplications 1048576 at peak, loads of A 1048576, of B 1048576
"""


def test_explain_shows_the_fields_of_a_cpu_where_there_are_any():
    plain = decide_partition(GemmWorkload(m=512, n=512, k=256), MACHINE)
    assert "CPU" not in plain.explain()
    cpu = replace(
        plain,
        form="pack",
        mr=6,
        nr=16,
        threads_m=2,
        threads_n=1,
        threads_k=1,
        pack_a="none",
        pack_b="pack",
        predicted_seconds=0.00125,
        reasons=(*plain.reasons, Reason("mr", 6, "rows of the register tile"), Reason("kc", 256, "half of L1")),
    )
    shown = {row.title: (row.value, row.why) for row in cpu.explained()}
    assert shown["rows of register tile"] == ("6", "rows of the register tile")
    assert shown["columns of register tile"] == ("16", "") and shown["kernel variant"] == ("pack", "")
    assert shown["B packed"] == ("at run time", "") and shown["cores along m"] == ("2", "")
    assert shown["predicted time"] == ("1.25 ms", "")
    assert shown["kc"] == ("256", "half of L1")  # a reason for something that is not a field
