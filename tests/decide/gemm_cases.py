"""Random GEMMs, convolutions and machines, and the comparison of a decision with the exhaustive search."""

from __future__ import annotations

import math
import random
from collections import Counter

from exhaustive import Facts, Found, search

from tvm_tiling.decide.gemm.partition import decide_partition
from tvm_tiling.decide.tiling import GemmTiling
from tvm_tiling.errors import HardwareError
from tvm_tiling.hardware.description import Hardware
from tvm_tiling.workload import ConvWorkload, GemmWorkload

DTYPES = ("int8", "float16", "float32")  # 1, 2 and 4 bytes per element
BRANCHES = (
    "one fits, A kept",
    "one fits, B kept",
    "none fits, m outside n",
    "none fits, n outside m",
    "split chosen",
    "split forced",
    "nothing fits",
)


def log_uniform(rng: random.Random, low: float, high: float) -> int:
    return int(math.exp(rng.uniform(math.log(low), math.log(high + 1))))


def matched_machine(rng: random.Random, w: GemmWorkload) -> Hardware:
    """Return a machine on which neither operand fits its buffer but some rows and columns do, and loads take about as
    long as the multipliers: where the choice between the orders and split-K is close."""
    block_m, block_n = rng.choice((1, 1, 4, 16)), rng.choice((1, 1, 4, 16, 24))
    row = w.k * w.a_bytes
    bw_a, bw_b = log_uniform(rng, 1, 256), rng.choice((log_uniform(rng, 1, 256), rng.uniform(1.0, 256.0)))
    return Hardware.neartile(
        buf_a=max(1, log_uniform(rng, row, w.m * row) - 1),
        buf_b=max(1, log_uniform(rng, row, w.n * row) - 1),
        acc_max=log_uniform(rng, max(1, w.m * w.n * w.acc_bytes // 256), w.m * w.n * w.acc_bytes),
        bw_a=bw_a,
        bw_b=bw_b,
        macs_per_cycle=max(1.0, min(w.m * bw_b, w.n * bw_a) / w.a_bytes * rng.uniform(0.05, 2.0)),
        block_m=block_m,
        block_n=block_n,
        sync_granularity=rng.choice((1, 8, 64, 512)),
        acc_bytes_per_element=rng.choice((None, 1, 4)),
    )


def random_machine(rng: random.Random) -> Hardware:
    return Hardware.neartile(
        buf_a=log_uniform(rng, 64, 1 << 21),
        buf_b=log_uniform(rng, 64, 1 << 21),
        acc_max=rng.choice((0, *[log_uniform(rng, 16, 1 << 20) for _ in range(7)])),
        bw_a=rng.choice((log_uniform(rng, 1, 512), rng.uniform(0.5, 256.0))),
        bw_b=rng.choice((log_uniform(rng, 1, 512), rng.uniform(0.5, 256.0))),
        macs_per_cycle=log_uniform(rng, 1, 16384),
        block_m=rng.choice((1, 1, 4, 16, 24)),
        block_n=rng.choice((1, 1, 4, 16, 64)),
        sync_granularity=rng.choice((1, 8, 64, 512)),
        acc_bytes_per_element=rng.choice((None, None, 1, 4)),
    )


def random_gemm(rng: random.Random, most: int = 8192) -> GemmWorkload:
    m, n, k = (log_uniform(rng, 1, most) for _ in range(3))
    return GemmWorkload(m=m, n=n, k=k, dtype=rng.choice(DTYPES))


def random_conv(rng: random.Random, most: int = 64) -> ConvWorkload:
    groups = rng.choice((1, 1, 1, 2))
    kernel, dilation = rng.choice(((1, 1), (3, 3), (5, 2), (1, 7))), rng.choice((1, 1, 2))
    pad = rng.randrange(3)
    reach = dilation * (max(kernel) - 1) + 1
    return ConvWorkload(
        n=rng.choice((1, 1, 2, 5)),
        h=reach + rng.randrange(most),
        w=reach + rng.randrange(most),
        ci=groups * log_uniform(rng, 1, most * 2),
        co=groups * log_uniform(rng, 1, most * 2),
        kh=kernel[0],
        kw=kernel[1],
        stride=(rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 2))),
        padding=(pad, pad, pad, pad),
        dilation=(dilation, dilation),
        groups=groups,
        dtype=rng.choice(DTYPES),
    )


def decide_or_none(w: GemmWorkload | ConvWorkload, hardware: Hardware, prefer: str) -> GemmTiling | None:
    try:
        return decide_partition(w, hardware, prefer=prefer)  # type: ignore[arg-type]
    except HardwareError:
        return None


def branch(f: Facts, tiling: GemmTiling | None) -> str:
    """Return the branch of a decision, from the sizes and the decision alone."""
    if tiling is None:
        return "nothing fits"
    if not tiling.split_k:
        if f.fits_a or f.fits_b:
            assert tiling.partition_m == f.m if tiling.outer_order == "mn" else tiling.partition_n == f.n
            return "one fits, A kept" if tiling.outer_order == "mn" else "one fits, B kept"
        return "none fits, m outside n" if tiling.outer_order == "mn" else "none fits, n outside m"
    least_m, least_n = min(f.m, f.block_m), min(f.n, f.block_n)
    whole_k_fits = least_m * f.k * f.d_s <= f.buf_a and f.bytes_of_b(least_n, f.k) <= f.buf_b
    return "split chosen" if whole_k_fits else "split forced"


def check_against_search(w: GemmWorkload | ConvWorkload, hardware: Hardware, prefer: str = "utilisation") -> str:
    """Assert that the decision fits, is as fast as any configuration and first in the order of ties; return its
    branch."""
    f = Facts(w, hardware)
    best, tiling = search(w, hardware, prefer), decide_or_none(w, hardware, prefer)
    case = f"{w}\n{hardware}\n{best}\n{tiling!r}"
    assert (best is None) == (tiling is None), case
    if tiling is not None and best is not None:
        check_fits(f, tiling)
        assert math.isclose(tiling.utilisation, best.utilisation, rel_tol=1e-9), case
        read = tiling.load_a * f.bytes_a + tiling.load_b * f.bytes_b
        found = Found(best.utilisation, tiling.split_k, tiling.acc_bytes, read, tiling.outer_order)
        assert found == best, case
    return branch(f, tiling)


def check_fits(f: Facts, t: GemmTiling) -> None:
    """Assert every invariant of a decision of mode "best" except its speed."""
    assert t.feasible
    assert t.partition_m == f.m or (t.partition_m % f.block_m == 0 and 0 < t.partition_m < f.m)
    assert t.partition_n == f.n or (t.partition_n % f.block_n == 0 and 0 < t.partition_n < f.n)
    assert t.partition_m * t.partition_k * f.d_s <= f.buf_a
    assert f.bytes_of_b(t.partition_n, t.partition_k) <= f.buf_b
    assert t.split_k == t.need_acc_buffer == (t.partition_k < f.k)
    assert 1 <= t.partition_k <= f.k
    assert t.acc_bytes == (t.partition_m * t.partition_n * f.d_acc if t.split_k else 0)
    assert t.acc_bytes <= f.acc_max
    parts_m, parts_n = -(-f.m // t.partition_m), -(-f.n // t.partition_n)
    assert t.load_a == (1 if f.fits_a or (not t.split_k and t.outer_order == "mn") else parts_n)
    assert t.load_b == (1 if f.fits_b or (not t.split_k and t.outer_order == "nm") else parts_m)
    assert math.isclose(t.utilisation, f.gemm / max(f.gemm, t.load_a * f.load_a, t.load_b * f.load_b))


def check_random_gemms(cases: int, seed: int) -> Counter[str]:
    """Check this many random GEMMs of 1 to 8192, alternating both preferences; return the number of each branch."""
    rng = random.Random(seed)
    taken: Counter[str] = Counter()
    for i in range(cases):
        w = random_gemm(rng)
        machine = random_machine(rng) if rng.random() < 0.4 else matched_machine(rng, w)
        taken[check_against_search(w, machine, ("utilisation", "traffic")[i % 2])] += 1
    return taken
