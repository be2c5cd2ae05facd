"""Configurations of entries for their multiples: blocks stay, loops grow."""

from __future__ import annotations

from shapes import PLAIN, VTA, conv, gemm
from simulated_shapes import cycles

from tvm_tiling.decide.configs.config import Config, config_of, tiling_of
from tvm_tiling.hardware import Hardware
from tvm_tiling.tuning.shapes.candidates import candidates
from tvm_tiling.tuning.shapes.database import ShapeDatabase
from tvm_tiling.tuning.shapes.entries import Entry
from tvm_tiling.tuning.shapes.kept_config import kept_config

ROOMY = Hardware.neartile(
    buf_a=16384, buf_b=16384, acc_max=65536, bw_a=256, bw_b=256, macs_per_cycle=256, name="sums stay"
)


def decided(workload, hardware):
    return Entry(workload=workload, config=candidates(workload, hardware, limit=1).configs[0], cost=1)


def test_a_config_that_fits_is_kept_as_it_is():
    entry = decided(gemm(64, 64, 64), VTA)
    for shape in (gemm(64, 64, 64), gemm(512, 64, 64), gemm(64, 64, 128)):
        assert kept_config(entry, shape, VTA) == entry.config


def test_a_deeper_gemm_has_blocks_as_deep_as_the_entrys():
    entry = decided(gemm(64, 256, 64), ROOMY)
    assert entry.config.choice("partition_k") == 0
    deeper = gemm(64, 256, 64 * 64)
    config = kept_config(entry, deeper, ROOMY)
    assert config.choice("partition_k") == 64 and config == config_of(tiling_of(config, deeper, ROOMY), deeper, ROOMY)
    for name in ("partition_m", "partition_n", "outer_order"):
        assert config.choice(name) == entry.config.choice(name)
    assert cycles(deeper, config, ROOMY) is not None


def test_depth_is_kept_where_it_fits_only():
    """Without space for sums k cannot be split."""
    small = Hardware.neartile(buf_a=4096, buf_b=4096, acc_max=0, bw_a=16, bw_b=16, macs_per_cycle=256, name="no sums")
    entry = decided(gemm(16, 16, 64), small)
    assert kept_config(entry, gemm(16, 16, 65536), small) is None


def test_what_has_no_such_choice_or_another_operator_has_no_config():
    entry = Entry(workload=gemm(64, 64, 64), config=Config.of("gemm", "matrix", {"tile": 1}), cost=1)
    assert kept_config(entry, gemm(64, 64, 128), PLAIN) is None
    assert kept_config(decided(gemm(64, 64, 64), VTA), conv(28, 32, 64), VTA) is None


def test_the_database_answers_with_it():
    shape, deeper = gemm(64, 256, 64), gemm(64, 256, 64 * 64)
    with ShapeDatabase("sqlite://") as db:
        db.add(shape, decided(shape, ROOMY).config, 1000, target=ROOMY)
        assert db.match(deeper, target=ROOMY).entry.workload == shape
        assert db.config_for(deeper, ROOMY).choice("partition_k") == 64
