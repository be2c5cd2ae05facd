"""GEMMs, configurations and machines for the tests of the database."""

from __future__ import annotations

from tvm_tiling.decide.configs.config import Config
from tvm_tiling.hardware import Hardware
from tvm_tiling.workload import ConvWorkload, GemmWorkload

VTA = Hardware.load("vta")
PLAIN = Hardware.neartile(buf_a=4096, buf_b=4096, acc_max=4096, bw_a=16, bw_b=16, macs_per_cycle=256, name="plain")
CPU = Hardware.load("icelake-server-2c")


def gemm(m: int, n: int, k: int, **more) -> GemmWorkload:
    return GemmWorkload(m=m, n=n, k=k, **{"dtype": "int8", **more})


def conv(h: int, ci: int, co: int, **more) -> ConvWorkload:
    """A 3x3 convolution with a border, unless `more` says otherwise."""
    given = {"n": 1, "h": h, "w": h, "ci": ci, "co": co, "kh": 3, "kw": 3, "padding": (1, 1, 1, 1), "dtype": "int8"}
    return ConvWorkload(**{**given, **more})


def config(tile: int = 16, op: str = "gemm") -> Config:
    """A configuration that varies with `tile`."""
    return Config.of(op, "matrix", {"tile_m": tile})
