"""Machines with two, three and four storage levels, as TOML descriptions."""

from __future__ import annotations

from tvm_tiling.hardware import Hardware
from tvm_tiling.hardware.file import from_toml

ENGINE = """
clock_mhz = 1000.0
[near_tile]
buf_a = 2048
buf_b = 2048
acc_max = 2048
macs_per_cycle = 128
block_m = 8
block_n = 8
block_k = 2
partial_blocks = "padded"
[near_tile.bandwidth]
external = 32
[vector]
lanes = 64
[memories.external]
bytes_per_cycle = 32
latency = 40
"""
ARRAY = """
[[levels]]
name = "array"
bytes_a = 4096
bytes_b = 4096
bytes_out = 2048
bytes_per_cycle = 32
unit_m = 8
unit_n = 8
unit_k = 2
instances = 2
"""
TWO = """
[[levels]]
name = "chip"
bytes = 65536
bytes_per_cycle = 32
latency = 10
"""
FOUR = """
[[levels]]
name = "chip"
bytes = 131072
bytes_per_cycle = 32
latency = 20
[[levels]]
name = "cluster"
bytes_a = 16384
bytes_b = 16384
bytes_out = 16384
instances = 2
bytes_per_cycle = 32
latency = 4
[[levels]]
name = "unit"
bytes = 16384
instances = 3
bytes_per_cycle = 16
"""


def levels(count: int) -> Hardware:
    """Return a machine with that many levels; three levels are the preset dla3."""
    if count == 3:
        return Hardware.load("dla3")
    return from_toml(Hardware, ENGINE + {2: TWO, 4: FOUR}[count] + ARRAY, f"{count} levels")
