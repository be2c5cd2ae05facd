"""Matrix multiplication: utilisation against K, blocks to scale, cache sets, register tiles."""

from __future__ import annotations

from svg import WIDTH, Drawing, plot

import tvm_tiling as tt
from tvm_tiling.decide.gemm.cache_conflict import rows_sharing_a_set
from tvm_tiling.decide.gemm.traffic import product_on

NEARTILE = tt.Hardware.load("neartile")
CPU = tt.Hardware.load("zen4-server-8c")


def unsplit_utilisation(workload: tt.GemmWorkload) -> float:
    """The best utilisation of a configuration that keeps K whole; 0 where none fits."""
    p = product_on(workload, NEARTILE)
    rows, columns = p.largest_rows(p.k), p.largest_columns(p.k)
    if not rows or not columns:
        return 0.0
    return max(p.utilisation(*p.load_counts(rows, columns, p.k, order)) for order in ("mn", "nm"))


def splitting_k() -> Drawing:
    """Utilisation of the best tiling with K whole, and of the decision."""
    picture = plot("Utilisation against K, with and without split-K", (256, 65536), (0, 1.05), log="x")
    picture.ticks(
        [(2**power, f"{2**power}") for power in range(8, 17)], [(share / 4, f"{25 * share}%") for share in range(5)]
    )
    picture.names("K of a 2048 x K x 2048 GEMM, float16, on neartile", "utilisation")
    depths = [2 ** (power / 2) for power in range(16, 33)]
    whole, decided = [], []
    for depth in depths:
        workload = tt.GemmWorkload(m=2048, k=round(depth), n=2048, dtype="float16")
        whole.append((depth, unsplit_utilisation(workload)))
        decided.append((depth, tt.decide(workload, NEARTILE)))
    picture.line(whole, "l1")
    picture.line([(depth, decision.utilisation) for depth, decision in decided], "l0")
    picture.dots([(depth, d.utilisation) for depth, d in decided if d.split_k], "f0")
    picture.dots([(depth, d.utilisation) for depth, d in decided if not d.split_k], "f2")
    picture.drawing.legend(
        90, 200, [("f2", "decision: K whole"), ("f0", "decision: split-K"), ("f1", "best tiling with K whole")]
    )
    return picture.drawing


def blocks() -> Drawing:
    """A decision to scale: the blocks that the buffers hold, inside their matrices."""
    workload = tt.GemmWorkload(m=2048, k=4096, n=1024, dtype="float16")
    config = tt.decide(workload, NEARTILE)
    scale = 0.07
    m, k, n = workload.m * scale, workload.k * scale, workload.n * scale
    left, top = 90, 110
    drawing = Drawing("The matrices of a GEMM with one block of each", int(top + m + 60))
    between = left + k + 40
    places = {"A": (left, top, k, m), "B": (between + 20, top - 70, n, 0), "C": (between + 20 + n + 60, top, n, m)}
    drawing.text(
        left, 30, f"{workload.m} x {workload.k} x {workload.n} (m x k x n), float16, on neartile", kind="title"
    )
    x, y, width, height = places["A"]
    drawing.rect(x, y, width, height, "none")
    block = (config.partition_k * scale, config.partition_m * scale)
    drawing.rect(x, y, *block, "f0")
    drawing.text(x, y - 8, f"A: {config.partition_m} x {config.partition_k}, read {config.load_a} times")
    x = between + 20
    tall = workload.k * scale
    drawing.height = int(max(top + m, 60 + tall) + 50)
    drawing.rect(x, 60, n, tall, "none")
    drawing.rect(x, 60, config.partition_n * scale, config.partition_k * scale, "f1")
    drawing.text(x, 52, f"B: {config.partition_k} x {config.partition_n}, read {config.load_b} times")
    x = x + n + 110
    drawing.rect(x, top, n, m, "none")
    drawing.rect(x, top, config.partition_n * scale, config.partition_m * scale, "f2")
    drawing.text(x, top - 8, f"C: {config.acc_bytes // 1024} KiB")
    order = "m outside n" if config.outer_order == "mn" else "n outside m"
    split = f"{-(-workload.k // config.partition_k)} steps along K" if config.split_k else "K whole"
    words = f"Loop order: {order}, {split}; tiles of {config.tile_m} x {config.tile_n} inside a block."
    drawing.text(left, drawing.height - 14, words)
    return drawing


def cache_sets() -> Drawing:
    """Rows of a column that share a set of L1, against the leading dimension."""
    assert CPU.cpu is not None
    cache = CPU.cpu.caches[0]
    rows, first, last = 14, 960, 1104
    picture = plot("Rows that share a cache set, by leading dimension", (first, last), (0, 15))
    picture.ticks(
        [(ld, str(ld)) for ld in range(first, last + 1, 16)], [(count, str(count)) for count in range(0, 15, 2)]
    )
    picture.names(
        f"leading dimension in 4-byte elements; {rows} rows, {cache.size // 1024} KiB, {cache.ways} ways", "rows"
    )
    step = picture.x.at(1) - picture.x.at(0)
    for ld in range(first, last + 1):
        count = rows_sharing_a_set(ld, 4, cache, rows)
        bad = tt.is_bad_leading_dimension(ld, 4, cache, rows)
        top = picture.y.at(count)
        picture.drawing.rect(
            picture.x.at(ld) - step * 0.4, top, step * 0.8, picture.y.start - top, "f1" if bad else "f0"
        )
    picture.line([(first, cache.ways), (last, cache.ways)], "l4 dashed")
    picture.drawing.text(picture.x.start + 8, picture.y.at(cache.ways) - 6, "associativity", kind="small")
    picture.drawing.legend(
        440, 60, [("f0", "within the associativity"), ("f1", "more rows than ways: conflict misses")]
    )
    return picture.drawing


def register_tiles() -> Drawing:
    """All register tiles that fit 32 registers, by multiply-adds per load, and the accepted ones."""
    limits = {"registers": 32, "lanes": 16, "fma_latency": 8, "ways": 8}
    held = tt.microkernel(**limits, bad_leading_dimension=False)
    rejected = {(kernel.m, kernel.z) for kernel in held if not kernel.acceptable}
    first = next(kernel for kernel in held if kernel.acceptable)
    side, left, top = 21, 80, 64
    tall = max(kernel.m for kernel in held)
    wide = 8
    drawing = Drawing("Register tiles by their ratio of multiply-adds to loads", top + 8 * 30 + 64)
    drawing.text(left, 28, "Register tiles (m, z) that fit 32 vector registers: m*z / (m + z)", kind="title")
    drawing.text(
        left, 46, "outlined: ranked first; grey: too few independent FMAs, or too few FMAs per load", kind="small"
    )
    for kernel in held:
        if kernel.z > wide:
            continue
        x, y = left + side * (kernel.m - 1), top + 30 * (kernel.z - 1)
        drawing.rect(x, y, side - 2, 28, "none")
        if (kernel.m, kernel.z) not in rejected:
            drawing.rect(x, y, side - 2, 28, "f0", opacity=kernel.ratio / 4)
        drawing.text(x + side / 2 - 1, y + 18, f"{kernel.ratio:.1f}", "middle", "small")
    x, y = left + side * (first.m - 1), top + 30 * (first.z - 1)
    drawing.path([(x, y), (x + side - 2, y), (x + side - 2, y + 28), (x, y + 28), (x, y)], "edge")
    for z in range(1, wide + 1):
        drawing.text(left - 8, top + 30 * (z - 1) + 18, str(z), "end", "small")
    for m in range(1, tall + 1, 3):
        drawing.text(left + side * (m - 1) + side / 2, top + 8 * 30 + 14, str(m), "middle", "small")
    drawing.text(left + side * tall / 2, top + 8 * 30 + 36, "m, rows", "middle")
    drawing.text(left - 40, top + 120, "z, vectors", "middle", turned=True)
    assert left + side * tall < WIDTH
    return drawing


PICTURES = {
    "splitting-k": splitting_k,
    "blocks": blocks,
    "cache-sets": cache_sets,
    "register-tiles": register_tiles,
}
